"""What can be named where the command line is read: the list that a new architecture or algorithm is added to.

Each name stands for `module:Name`, as a part of the user's own does; it is loaded when it is chosen."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Literal, TypedDict

from gossamer.errors import UserError, near

ARCHITECTURES = {
    "paac": "gossamer.architectures.paac:PAAC",
    "gala": "gossamer.architectures.gala:GALA",
    "pala": "gossamer.architectures.pala:PALA",
}
ALGORITHMS = {
    "a2c": "gossamer.algorithms.a2c:A2C",
    "ppo": "gossamer.algorithms.ppo:PPO",
}
NETWORKS = {
    "nips": "gossamer.networks:nips",
    "nature": "gossamer.networks:nature",
    "small": "gossamer.networks:small",
    "mlp": "gossamer.networks:mlp",
}
OPTIMIZERS = {
    "adam": "gossamer.optim:Adam",
    "rmsprop-a3c": "gossamer.optim:RMSPropA3C",
    "rmsprop-tf": "gossamer.optim:RMSPropTF",
    "rmsprop-torch": "gossamer.optim:RMSPropTorch",
    "rmsprop-dqn": "gossamer.optim:RMSPropDQN",
}
PRESETS = ("tuned", "paper")


class Keywords(TypedDict, total=False):
    """The options as keywords of `train` and `bench`, so that mypy knows their types; which of them apply, the
    composition says."""

    # run
    steps: int
    rollout_length: int
    seed: int
    device: str
    threads: int
    keep: int
    checkpoint_every: float
    init_from: str
    # environment
    preprocessing: Literal["paac", "gala", "impala", "machado", "gymnasium"]
    screen_size: int
    on_env_error: Literal["fail", "restart"]
    # architectures
    num_envs: int
    env_workers: int
    hosts: int
    learners: int
    graph: str
    mixing: Literal["uniform", "push-sum"]
    sync: Literal["never", "bounded", "lock-step"]
    staleness: int
    interval: int
    diagnostics: bool
    message_format: Literal["fp32", "bf16", "int8"]
    # algorithms
    gamma: float
    gae_lambda: float
    value_coef: float
    entropy_coef: float
    loss_scale: float
    clip_range: float
    epochs: int
    num_minibatches: int
    normalize_advantage: bool
    # network
    network: str
    input: Literal["background", "unit", "raw"]
    initialization: Literal["orthogonal", "uniform"]
    precision: Literal["auto", "fp32", "bf16"]
    # optimizers
    learning_rate: float
    anneal_steps: int
    final_fraction: float
    max_grad_norm: float
    epsilon: float
    decay: float


def load(option: str, name: str, known: dict[str, str]) -> Any:
    """What a name stands for: one of `known`, or `module:Name` of the user's. `UserError` names the option."""
    if name not in known and ":" not in name:
        what = (
            f"unknown architecture {name!r}" if option == "architecture" else f"{option} {name}: no such {option[2:]}"
        )
        raise UserError(f"{what}{near(name, known)}; there is {', '.join(known)}, or module:Name of your own")
    module, _, attribute = known.get(name, name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{option} {name}: cannot be imported ({error}); give module:Name") from error


def name_of(kind: Any, known: dict[str, str]) -> str:
    """The name that `load` finds this under again."""
    module = kind.__module__
    if module == "__main__" and (script := getattr(sys.modules["__main__"], "__file__", None)):
        module = Path(script).stem  # another process finds it by the script's name
    path = f"{module}:{kind.__qualname__}"
    return next((name for name, target in known.items() if target == path), path)
