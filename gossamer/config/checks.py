"""Checks of a complete configuration: options without any effect, and conditions on several options together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.config.config import Config
from gossamer.config.names import NETWORKS
from gossamer.envs.base import EnvFactory
from gossamer.envs.gym import Custom, Gym
from gossamer.presets.rules import batch_envs
from gossamer.system.errors import UserError, near
from gossamer.system.options import declared, in_words


@dataclass(frozen=True)
class Idle:
    """Options that have no effect because of others."""

    options: tuple[str, ...]
    when: Callable[[Mapping[str, Any]], bool]  # of the values of a configuration, which may lack any of the options
    why: str

    def check(self, changed: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Raise `UserError` if one of them is among those that were `changed`."""
        for name in self.options:
            if name in changed and self.when(values):
                raise UserError(f"{' '.join(in_words(name, changed[name]))}: has no effect {self.why}")


IDLE = (
    Idle(("replay_size",), lambda v: not v.get("replay_share", 1), "without --replay-share"),
    Idle(
        ("parallel_loading",),
        lambda v: not (v.get("replay_share", 1) or v.get("hosts", 1)),
        "without --replay-share or --hosts (--no-parallel-loading leaves it out)",
    ),
    Idle(
        ("parallel_loading",),
        lambda v: v.get("depth") == 1,
        "with --depth 1 (--no-parallel-loading leaves it out)",
    ),
    Idle(
        ("batch_timeout", "max_batch", "min_batch", "predictors"),
        lambda v: v.get("policy") == "replica",
        "without --policy served",
    ),
    Idle(("batch_timeout",), lambda v: v.get("min_batch") == 1, "with --min-batch 1"),
    Idle(("most",), lambda v: not v.get("adjust_seconds", 1), "without --adjust-seconds"),
    Idle(("select",), lambda v: v.get("share") == 1, "with --share 1, which sends all parameters"),
    Idle(
        ("select", "share", "staleness_decay"),
        lambda v: "group_size" in v and v.get("hosts", 1) == 1 and v["group_size"] == v["learners"],
        "with one group of all learners, which sends to nobody",
    ),
    Idle(
        ("staleness_decay",),
        lambda v: v.get("sync") == "bounded" and v.get("staleness") == 0,
        "with --staleness 0, where no message is old",
    ),
    Idle(
        ("message_format",),
        lambda v: v.get("hosts") == 1 and not v.get("error_feedback"),
        "with --hosts 1, whose members share memory",
    ),
    Idle(
        ("importance_exponent", "priority_eta"),
        lambda v: not v.get("priority_exponent", 1),
        "without --priority-exponent",
    ),
    Idle(
        ("double",),
        lambda v: v.get("double", False) and not v.get("target_period", 1),
        "with --target-period 0, which leaves out the target network",
    ),
    Idle(
        ("epsilon_start", "epsilon_steps", "epsilon_updates"),
        lambda v: v.get("exploration") == "by-environment",
        "with --exploration by-environment, which gives each environment an epsilon that stays",
    ),
    Idle(("epsilon_steps",), lambda v: bool(v.get("epsilon_updates")), "with --epsilon-updates; give one"),
    Idle(("bundles",), lambda v: bool(v.get("actors")), "with --actors, which take the place of bundles"),
    Idle(
        ("learners", "max_ahead", "replay_shards"),
        lambda v: "bundles" in v and not v.get("actors"),
        "without --actors; a bundle has a memory of its own",
    ),
    Idle(
        ("separate_critic",),
        lambda v: v["network"] == "linear",
        "with --network linear, which has no parameters that policy and value would share",
    ),
    Idle(("anneal_from", "entropy_final_fraction"), lambda v: not v["anneal_steps"], "with --anneal-steps 0"),
    Idle(("final_fraction",), lambda v: not v["anneal_steps"] and v["final_fraction"] != 1, "with --anneal-steps 0"),
    Idle(
        ("anneal_from",),
        lambda v: v["final_fraction"] == v.get("entropy_final_fraction", 1) == 1,
        "with --final-fraction 1",
    ),
    Idle(("entropy_final_fraction",), lambda v: not v.get("entropy_coef", 1), "with --entropy-coef 0"),
)


def check_effects(
    given: Mapping[str, Any],
    values: Mapping[str, Any],
    standard: Mapping[str, Any],
    env: str,
    *,
    typed: Collection[str],
    continuous: bool,
) -> None:
    """Raise `UserError` if an option has no effect because of another one, or of the environment.

    `given`: the options that the user gave, `typed`: by name, and not within a part; `values`: those of the
    configuration; `standard`: the defaults of the parts. A part that was copied has all of its options given: those
    with their default value are accepted."""
    if "c_bar" in given and values["c_bar"] > values["rho_bar"]:
        raise UserError(f"--c-bar {values['c_bar']:g}: must be at most --rho-bar {values['rho_bar']:g}")
    if "action_bounds" in given and not continuous:
        raise UserError(f"--action-bounds {given['action_bounds']}: the actions of {env} are not continuous")
    if given.get("full_action_space") is False and values.get("preprocessing") == "machado":
        raise UserError(
            "--no-full-action-space: has no effect with --preprocessing machado, which has all 18 actions; leave it "
            "out, or use --preprocessing gymnasium"
        )
    if given.get("surrogate") == "impact" and not values.get("target_period", 1):
        raise UserError("--surrogate impact: needs a target network; add --target-period BATCHES")
    check_evaluations(given, values["eval_every"])
    changed = {name: value for name, value in given.items() if value != standard.get(name)}
    if "epsilon_steps" not in typed:  # a rule sets it, and a part that was copied has it
        changed.pop("epsilon_steps", None)
    for idle in IDLE:
        idle.check(changed, values)
    rounded = values.get("message_format", "fp32") != "fp32" and not values["error_feedback"]
    if values.get("select") == "changed" and rounded and values["share"] < 1:
        raise UserError(
            f"--message-format {values['message_format']}: its rounding errors would add up with --select changed; add "
            "--error-feedback"
        )
    apart = "statistics" in values and values.get("hosts", 1) > 1 and not values.get("shards", 1)
    if apart and str(given.get("device", "")).startswith("cuda"):
        raise UserError(
            f"--device {given['device']}: the hosts of a3c share host memory, and compute on the CPU; add --shards"
        )


def check_changes(changes: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise `UserError` if an option that a resumed run is given has no effect. `changes`: None where there is none;
    `values`: of the configuration with them."""
    given = {name: value for name, value in changes.items() if value is not None}
    check_evaluations(given, values["eval_every"])
    for idle in IDLE:
        idle.check(given, values)


def effective(found: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some options that have an effect in a configuration with these values."""
    idle = {name for each in IDLE if each.when(values) for name in each.options}
    return {name: value for name, value in found.items() if name not in idle}


def check_evaluations(given: Mapping[str, Any], eval_every: int) -> None:
    """Raise `UserError` if an option that the user gave is one of evaluations, and there are none."""
    for name in ("eval_episodes", "eval_protocol", "eval_exact"):
        if given.get(name) and not eval_every:
            typed = " ".join(in_words(name, given[name]))
            raise UserError(f"{typed}: no evaluations without --eval-every STEPS")


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
    if values.get("normalize_advantage") and "num_envs" in values and batch * length < 2 * minibatches:
        raise UserError(
            f"--num-minibatches {minibatches}: the normalised advantage of a minibatch of one step is 0, and a batch "
            f"has {batch * length} steps; use fewer, a longer --rollout-length, or --no-normalize-advantage"
        )
    starts = values.get("learning_starts", 0)
    if starts >= values["steps"]:
        raise UserError(f"--learning-starts {starts}: must be less than --steps {values['steps']}, the whole run")
    if values.get("sequence_length", length) < length:
        raise UserError(
            f"--rollout-length {length}: must be at most --sequence-length {values['sequence_length']}; sequences "
            "start where rollouts do, and steps between them would never be trained"
        )
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
