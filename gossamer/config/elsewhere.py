"""The names that other libraries have for our options: what docs/options.md shows, and what a slip is answered with."""

from __future__ import annotations

# option -> names in Stable-Baselines3, CleanRL and RLlib; those of one library are separated by |
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "steps": ("total_timesteps", "total-timesteps", "num_env_steps_sampled_lifetime"),
    "seed": ("seed", "seed", "seed"),
    "device": ("device", "cuda", "num_gpus_per_learner"),
    "threads": ("", "", "torch_num_threads"),
    "rollout_length": ("n_steps", "num-steps", "rollout_fragment_length"),
    "num_envs": ("n_envs", "num-envs", "num_envs_per_env_runner"),
    "learners": ("", "", "num_learners"),
    "gamma": ("gamma", "gamma", "gamma"),
    "gae_lambda": ("gae_lambda", "gae-lambda", "lambda_"),
    "value_coef": ("vf_coef", "vf-coef", "vf_loss_coeff"),
    "entropy_coef": ("ent_coef", "ent-coef", "entropy_coeff"),
    "clip_range": ("clip_range", "clip-coef", "clip_param"),
    "epochs": ("n_epochs", "update-epochs", "num_epochs"),
    "num_minibatches": ("batch_size", "num-minibatches", "minibatch_size"),
    "normalize_advantage": ("normalize_advantage", "norm-adv", ""),
    "max_grad_norm": ("max_grad_norm", "max-grad-norm", "grad_clip"),
    "learning_rate": ("learning_rate", "learning-rate", "lr"),
    "anneal_steps": ("learning_rate (a schedule)", "anneal-lr", "lr (a schedule)"),
    "epsilon": ("rms_prop_eps", "", "adam_epsilon"),
    "screen_size": ("screen_size", "", "dim"),
    "initialization": ("ortho_init", "", ""),
    "init_from": ("", "", "restore"),
    "checkpoint_every": ("save_freq", "", "checkpoint_frequency"),
    "keep": ("", "", "num_to_keep"),
    "max_seconds": ("", "", "time_total_s"),
    "run_dir": ("tensorboard_log", "", "storage_path"),
    "env": ("env", "env-id", "environment"),
}


def suggestion(name: str) -> str | None:
    """Our option for a name of another library; None where it is not known."""
    wanted = _plain(name)
    for ours, names in ELSEWHERE.items():
        if wanted in {_plain(each.split(" ")[0]) for each in names if each} - {_plain(ours)}:
            return ours
    return None


def _plain(name: str) -> str:
    return name.strip("-_").replace("-", "_").lower()
