"""Names of our options in other libraries, for docs/options.md and for suggestions in error messages."""

from __future__ import annotations

from gossamer.system.options import flag

# option -> names in Stable-Baselines3 (arguments), CleanRL (of its command lines) and RLlib (of its AlgorithmConfig)
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "env": ("env", "env-id", "env"),
    "env_kwargs": ("env_kwargs", "", "env_config"),
    "steps": ("total_timesteps", "total-timesteps", ""),
    "seed": ("seed", "seed", "seed"),
    "device": ("device", "cuda", "num_gpus_per_learner"),
    "rollout_length": ("n_steps", "num-steps", "rollout_fragment_length"),
    "num_envs": ("n_envs", "num-envs", "num_envs_per_env_runner"),
    "learners": ("", "", "num_learners"),
    "gamma": ("gamma", "gamma", "gamma"),
    "gae_lambda": ("gae_lambda", "gae-lambda", "lambda_"),
    "value_coef": ("vf_coef", "vf-coef", "vf_loss_coeff"),
    "entropy_coef": ("ent_coef", "ent-coef", "entropy_coeff"),
    "clip_range": ("clip_range", "clip-coef", "clip_param"),
    "epochs": ("n_epochs", "update-epochs", "num_epochs"),
    "num_minibatches": ("batch_size (a size)", "num-minibatches", "minibatch_size (a size)"),
    "normalize_advantage": ("normalize_advantage", "norm-adv", ""),
    "max_grad_norm": ("max_grad_norm", "max-grad-norm", "grad_clip"),
    "learning_rate": ("learning_rate", "learning-rate", "lr"),
    "anneal_steps": ("learning_rate (a function)", "anneal-lr", "lr (a schedule)"),
    "epsilon": ("rms_prop_eps", "", ""),
    "screen_size": ("screen_size", "", ""),
    "run_dir": ("", "exp-name", ""),
    "actors": ("", "", "num_env_runners"),
    "frame_stack": ("n_stack", "", ""),
    "hidden_sizes": ("net_arch", "", "fcnet_hiddens"),
    "activation": ("activation_fn", "", "fcnet_activation"),
    "initialization": ("ortho_init", "", ""),
    "checkpoint_every": ("save_freq", "", ""),
    "log": ("tensorboard_log", "track", ""),
    "eval_every": ("eval_freq", "", "evaluation_interval"),
    "eval_episodes": ("n_eval_episodes", "", "evaluation_duration"),
}
# Names in other libraries without an option of ours -> what there is instead
_LAYERS = "layers come with the network: --network NAME, --hidden-sizes, --activation, or your own (docs/networks.md)"
_OUTPUT = "progress goes to stderr, which 2>/dev/null hides; the last line goes to stdout"
_LOCAL = "--interval is the number of local steps between two averages of learners that gossip"
ABSENT: dict[str, str] = {
    "policy_kwargs": _LAYERS,
    "quiet": _OUTPUT,
    "verbose": _OUTPUT,
    "config": "gossamer train --config repeats a run, gossamer study takes a file (docs/studies.md)",
    "sync_every": _LOCAL,
    "local_steps": _LOCAL,
    "target_kl": "no update ends early; --epochs, --clip-range and --learning-rate limit its size",
    "clip_vloss": "the value loss is not clipped",
    "clip_range_vf": "the value loss is not clipped",
    "train_batch_size": "a batch has --num-envs times --rollout-length steps",
    "capture_video": "gossamer record RUN makes a video of a run",
    "save_model": "every run saves checkpoints",
}


def explained(name: str) -> str:
    """What there is in place of an option of another library; empty if the name is unknown."""
    return ABSENT.get(_plain(name), "")


def suggestion(name: str) -> str | None:
    """Our option for a name of another library, None if the name is unknown."""
    wanted = _plain(name)
    for ours, names in ELSEWHERE.items():
        if wanted in {_plain(each.split(" ")[0]) for each in names if each}:
            return None if wanted == ours else ours
    return None


def table() -> str:
    """The table of docs/options.md."""
    rows = [("Gossamer", "Stable-Baselines3", "CleanRL", "RLlib"), ("---",) * 4]
    for ours, (sb3, cleanrl, rllib) in ELSEWHERE.items():
        rows.append((f"`{flag(ours)}`", _code(sb3), _code(f"--{cleanrl}" if cleanrl else ""), _code(rllib)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def absent() -> str:
    """The table of docs/options.md with what has no option here."""
    rows = {"names": "here", "---": "---"}
    for text in dict.fromkeys(ABSENT.values()):
        rows[", ".join(f"`{name}`" for name, own in ABSENT.items() if own == text)] = text
    return "\n".join(f"| {names} | {text} |" for names, text in rows.items())


def _code(name: str) -> str:
    word, _, remark = name.partition(" ")
    return f"`{word}` {remark}".strip() if word else ""


def _plain(name: str) -> str:
    return name.strip("-_").replace("-", "_").lower()
