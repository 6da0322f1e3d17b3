"""The names that the command line accepts. A new architecture or algorithm is added to these lists.

Each name stands for `module:Name`, the form of a user's own parts. A part is imported when it is chosen."""

from __future__ import annotations

from typing import Any

from gossamer.system.errors import UserError, near
from gossamer.system.scripts import is_absent, own_module, script

ARCHITECTURES = {
    "paac": "gossamer.architectures.paac:PAAC",
    "a2c": "gossamer.architectures.a2c:SynchronousA2C",
    "a3c": "gossamer.architectures.a3c:A3C",
    "ga3c": "gossamer.architectures.ga3c:GA3C",
    "gala": "gossamer.architectures.gala:GALA",
    "pala": "gossamer.architectures.pala:PALA",
    "impala": "gossamer.architectures.impala:IMPALA",
    "appo": "gossamer.architectures.appo:APPO",
    "dqn": "gossamer.architectures.dqn:DeepQNetwork",
    "gorila": "gossamer.architectures.gorila:Gorila",
    "apex": "gossamer.architectures.apex:ApeX",
    "r2d2": "gossamer.architectures.r2d2:RecurrentReplay",
    "sarsa": "gossamer.architectures.sarsa:ParallelSarsa",
}
ALGORITHMS = {
    "a2c": "gossamer.algorithms.a2c:A2C",
    "ppo": "gossamer.algorithms.ppo:PPO",
    "vtrace": "gossamer.algorithms.vtrace:VTrace",
    "appo": "gossamer.algorithms.appo:AsyncPPO",
    "dqn": "gossamer.algorithms.dqn:DQN",
    "r2d2": "gossamer.algorithms.r2d2:R2D2",
    "nstep-q": "gossamer.algorithms.nstep_q:NStepQ",
    "one-step-q": "gossamer.algorithms.one_step:OneStepQ",
    "sarsa": "gossamer.algorithms.one_step:Sarsa",
    "pqn": "gossamer.algorithms.pqn:PQN",
    "sarsa-lambda": "gossamer.algorithms.sarsa_lambda:SarsaLambda",
}
NETWORKS = {
    "auto": "gossamer.nn.torsos:auto",
    "nips": "gossamer.nn.torsos:nips",
    "nature": "gossamer.nn.torsos:nature",
    "small": "gossamer.nn.torsos:small",
    "tiny": "gossamer.nn.torsos:tiny",
    "resnet": "gossamer.nn.torsos:resnet",
    "autoencoder": "gossamer.nn.torsos:autoencoder",
    "mlp": "gossamer.nn.torsos:mlp",
    "linear": "gossamer.nn.torsos:linear",
    "tiles": "gossamer.nn.tiles:TileCoding",
}
OPTIMIZERS = {
    "adam": "gossamer.nn.optim:Adam",
    "adagrad": "gossamer.nn.optim:AdaGrad",
    "radam": "gossamer.nn.optim:RAdam",
    "muon": "gossamer.nn.optim:Muon",
    "sgd": "gossamer.nn.optim:SGD",
    "rmsprop-a3c": "gossamer.nn.optim:RMSPropA3C",
    "rmsprop-tf": "gossamer.nn.optim:RMSPropTF",
    "rmsprop-torch": "gossamer.nn.optim:RMSPropTorch",
    "rmsprop-dqn": "gossamer.nn.optim:RMSPropDQN",
}
NAMED = {"architecture": ARCHITECTURES, "algorithm": ALGORITHMS, "optimizer": OPTIMIZERS}
PRESETS = ("tuned", "paper", "accelerated")


def load(option: str, name: str, known: dict[str, str]) -> Any:
    """Import the part with this name: one of `known`, or the user's `module:Name`. A `UserError` names the option."""
    if name not in known and ":" not in name:
        raise UserError(_unknown(option, name, known))
    module, _, attribute = known.get(name, name).partition(":")
    try:
        found = own_module(module)
    except (Exception, SystemExit) as error:
        if module and not isinstance(error, UserError) and not is_absent(module, error):
            from gossamer.envs.gym import import_failed  # Gymnasium takes long to import

            raise import_failed(f"{option} {name}", module, error) from error
        raise _no_part(option, name, error) from error
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        raise _no_part(option, name, error) from error


def _no_part(option: str, name: str, error: BaseException) -> UserError:
    return UserError(f"{option} {name}: cannot be imported ({error}); give module:Name")


def _unknown(option: str, name: str, known: dict[str, str]) -> str:
    """The error for a name of none of these parts."""
    if option == "architecture" and name in ALGORITHMS:
        return f"{name} is an algorithm: gossamer train paac --algorithm {name} ..."
    if option == "--algorithm" and name in ARCHITECTURES:
        return f"--algorithm {name}: {name} is an architecture: gossamer train {name} ..."
    what = f"unknown architecture {name!r}" if option == "architecture" else f"{option} {name}: no such {option[2:]}"
    return f"{what}{near(name, known)}; available: {', '.join(known)}, or your own module:Name"


def name_of(kind: Any, known: dict[str, str]) -> str:
    """The name under which `load` finds this object."""
    module = kind.__module__
    if module == "__main__":
        module = script() or module  # other processes import it by the script's name
    path = f"{module}:{kind.__qualname__}"
    return next((name for name, target in known.items() if target == path), path)


def family(kind: type, known: dict[str, str]) -> type:
    """The part of `known` that this one is or derives from, whose presets it takes; another part itself."""
    return next((each for each in kind.__mro__ if name_of(each, known) in known), kind)
