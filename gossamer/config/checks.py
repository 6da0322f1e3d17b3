"""Checks of a complete configuration: options without any effect, and conditions on several options together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.config.config import Config
from gossamer.config.names import NETWORKS
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom, Gym
from gossamer.presets.rules import batch_envs
from gossamer.system.errors import UserError, near
from gossamer.system.options import declared, flag


def check_effects(
    given: Mapping[str, Any], values: Mapping[str, Any], standard: Mapping[str, Any], env: str, *, continuous: bool
) -> None:
    """Raise `UserError` if an option has no effect because of another one, or of the environment.

    `given`: the options that the user gave; `values`: those of the configuration; `standard`: the defaults of the
    parts. A part that was copied has all of its options given: those with their default value are accepted."""
    if "c_bar" in given and values["c_bar"] > values["rho_bar"]:
        raise UserError(f"--c-bar {values['c_bar']:g}: must be at most --rho-bar {values['rho_bar']:g}")
    if "action_bounds" in given and not continuous:
        raise UserError(f"--action-bounds {given['action_bounds']}: the actions of {env} are not continuous")
    if given.get("surrogate") == "impact" and not values.get("target_period", 1):
        raise UserError("--surrogate impact: needs a target network; add --target-period BATCHES")
    for name in ("eval_episodes", "eval_protocol", "eval_exact"):
        if given.get(name) and not values["eval_every"]:
            typed = flag(name) if given[name] is True else f"{flag(name)} {given[name]}"
            raise UserError(f"{typed}: no evaluations without --eval-every STEPS")
    changed = {name for name, value in given.items() if value != standard.get(name)}
    if "replay_size" in changed and not values.get("replay_share", 1):
        raise UserError(f"--replay-size {given['replay_size']}: has no effect without --replay-share")
    if "parallel_loading" in changed and not (values.get("replay_share", 1) or values.get("hosts", 1)):
        raise UserError(
            "--parallel-loading: has no effect without --replay-share or --hosts (--no-parallel-loading leaves it out)"
        )
    if "parallel_loading" in changed and values.get("depth") == 1:
        raise UserError("--parallel-loading: has no effect with --depth 1 (--no-parallel-loading leaves it out)")
    for name in sorted(changed & {"predictors", "min_batch", "max_batch", "batch_timeout"}):
        if values.get("policy") == "replica":
            raise UserError(f"{flag(name)} {given[name]}: has no effect without --policy served")
    if "batch_timeout" in changed and values.get("min_batch") == 1:
        raise UserError(f"--batch-timeout {given['batch_timeout']:g}: has no effect with --min-batch 1")
    if "select" in changed and values["share"] == 1:
        raise UserError(f"--select {given['select']}: has no effect with --share 1, which sends all parameters")
    rounded = values.get("message_format", "fp32") != "fp32" and not values["error_feedback"]
    if values.get("select") == "changed" and rounded and values["share"] < 1:
        raise UserError(
            f"--message-format {values['message_format']}: its rounding errors would add up with --select changed; add "
            "--error-feedback"
        )
    if "importance_exponent" in changed and not values["priority_exponent"]:
        raise UserError(
            f"--importance-exponent {given['importance_exponent']}: has no effect without --priority-exponent"
        )
    if "epsilon_steps" in given and values.get("epsilon_updates"):
        raise UserError(f"--epsilon-steps {given['epsilon_steps']}: has no effect with --epsilon-updates; give one")
    if "bundles" in values and not values["actors"]:
        for name in sorted(changed & {"learners", "replay_shards", "max_ahead"}):
            raise UserError(
                f"{flag(name)} {given[name]}: has no effect without --actors; a bundle has a memory of its own"
            )
    for name in sorted(changed & {"anneal_from", "entropy_final_fraction"}):
        if not values["anneal_steps"]:
            raise UserError(f"{flag(name)} {given[name]}: has no effect with --anneal-steps 0")
    if "anneal_from" in changed and values["final_fraction"] == values.get("entropy_final_fraction", 1) == 1:
        raise UserError(f"--anneal-from {given['anneal_from']}: has no effect with --final-fraction 1")
    if "entropy_final_fraction" in changed and not values.get("entropy_coef", 1):
        fraction = given["entropy_final_fraction"]
        raise UserError(f"--entropy-final-fraction {fraction}: has no effect with --entropy-coef 0")


def check_together(config: Config, env: EnvFactory) -> None:
    """Raise `UserError` if options contradict each other."""
    values = {name: getattr(part, each.name) for part in config.parts for name, each in declared(type(part)).items()}
    envs, length, torso = values.get("num_envs", 0), values["rollout_length"], values["network"]
    batch = batch_envs(values) if envs else 0
    minibatches, workers = values.get("num_minibatches", 1), values.get("env_workers", 0)
    if "num_envs" in values and batch * length < minibatches:
        raise UserError(
            f"--num-minibatches {minibatches}: a batch has only {batch * length} steps "
            f"(of {batch} environments, --rollout-length {length})"
        )
    starts = values.get("learning_starts", 0)
    if starts >= values["steps"]:
        raise UserError(f"--learning-starts {starts}: must be less than --steps {values['steps']}, the whole run")
    if values.get("sequence_length", length) < length:
        raise UserError(
            f"--rollout-length {length}: must be at most --sequence-length {values['sequence_length']}; sequences "
            "start where rollouts do, and steps between them would never be trained"
        )
    if values.get("message_format") == "int8" and (values["normalize_observations"] or values["normalize_returns"]):
        raise UserError("--message-format int8: too coarse for the statistics of --normalize-...; use bf16 or fp32")
    if values["memory"] != "none" and values["separate_critic"]:
        raise UserError("--separate-critic: not available with --memory, which both heads share")
    if values["memory"] != "none" and "num_envs" in values and batch < minibatches:
        raise UserError(
            f"--num-minibatches {minibatches}: with --memory, a minibatch consists of whole rollouts of environments: "
            f"at most {batch}"
        )
    if isinstance(env, Gym | Custom) and envs % max(1, workers):
        raise UserError(f"--env-workers {workers}: must divide --num-envs {envs}: all workers step equally many")
    if torso not in NETWORKS and ":" not in torso:
        raise UserError(
            f"--network {torso}: no such network{near(torso, NETWORKS)}; "
            f"available: {', '.join(NETWORKS)}, or module:factory"
        )
