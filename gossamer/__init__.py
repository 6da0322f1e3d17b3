"""Parallel actor-learner architectures for deep reinforcement learning, as small compositions of the same parts.

import gossamer
run = gossamer.train("paac", env="pong", algorithm="ppo", steps=1_000_000)
run = gossamer.train(gossamer.GALA(learners=4), env="pong", algorithm=gossamer.PPO(epochs=3))
print(gossamer.evaluate(run.directory, episodes=30).mean_return)
"""

import os

# How long idle OpenMP threads spin before they sleep, read when torch is loaded. The default, about 16 ms, keeps cores
# from the environments that are stepped meanwhile, and all but stops training where other programs run beside it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gossamer.config.names import ALGORITHMS, ARCHITECTURES
from gossamer.system.version import __version__ as __version__

if TYPE_CHECKING:  # for type checkers, which do not run the rest
    from gossamer.algorithms.a2c import A2C as A2C
    from gossamer.algorithms.appo import AsyncPPO as AsyncPPO
    from gossamer.algorithms.dqn import DQN as DQN
    from gossamer.algorithms.nstep_q import NStepQ as NStepQ
    from gossamer.algorithms.one_step import OneStepQ as OneStepQ
    from gossamer.algorithms.one_step import Sarsa as Sarsa
    from gossamer.algorithms.ppo import PPO as PPO
    from gossamer.algorithms.pqn import PQN as PQN
    from gossamer.algorithms.r2d2 import R2D2 as R2D2
    from gossamer.algorithms.sarsa_lambda import SarsaLambda as SarsaLambda
    from gossamer.algorithms.vtrace import VTrace as VTrace
    from gossamer.architectures.a2c import SynchronousA2C as SynchronousA2C
    from gossamer.architectures.a3c import A3C as A3C
    from gossamer.architectures.apex import ApeX as ApeX
    from gossamer.architectures.appo import APPO as APPO
    from gossamer.architectures.dqn import DeepQNetwork as DeepQNetwork
    from gossamer.architectures.ga3c import GA3C as GA3C
    from gossamer.architectures.gala import GALA as GALA
    from gossamer.architectures.gorila import Gorila as Gorila
    from gossamer.architectures.impala import IMPALA as IMPALA
    from gossamer.architectures.paac import PAAC as PAAC
    from gossamer.architectures.pala import PALA as PALA
    from gossamer.architectures.r2d2 import RecurrentReplay as RecurrentReplay
    from gossamer.architectures.sarsa import ParallelSarsa as ParallelSarsa
    from gossamer.evaluation.evaluate import Evaluation as Evaluation
    from gossamer.evaluation.evaluate import evaluate as evaluate
    from gossamer.evaluation.video import Recording as Recording
    from gossamer.evaluation.video import record as record
    from gossamer.export.load import load as load
    from gossamer.export.policy import TrainedPolicy as TrainedPolicy
    from gossamer.reporting.report import Report as Report
    from gossamer.reporting.report import report as report
    from gossamer.searches.search import Search as Search
    from gossamer.searches.search import search as search
    from gossamer.studies.study import Study as Study
    from gossamer.studies.study import study as study
    from gossamer.system.errors import UserError as UserError
    from gossamer.task import Episode as Episode
    from gossamer.tools.bench import bench as bench
    from gossamer.tools.simulate.run import simulate as simulate
    from gossamer.training.callbacks import Callback as Callback
    from gossamer.training.callbacks import LiveRun as LiveRun
    from gossamer.training.experiment import resume as resume
    from gossamer.training.experiment import train as train
    from gossamer.training.session import Run as Run

# Loaded when asked for: a process that only launches others, or simulates, starts in a tenth of the time.
_HOMES = {
    "UserError": "gossamer.system.errors",
    "Evaluation": "gossamer.evaluation.evaluate",
    "evaluate": "gossamer.evaluation.evaluate",
    "Recording": "gossamer.evaluation.video",
    "record": "gossamer.evaluation.video",
    "load": "gossamer.export.load",
    "TrainedPolicy": "gossamer.export.policy",
    "Report": "gossamer.reporting.report",
    "report": "gossamer.reporting.report",
    "Search": "gossamer.searches.search",
    "search": "gossamer.searches.search",
    "Study": "gossamer.studies.study",
    "study": "gossamer.studies.study",
    "bench": "gossamer.tools.bench",
    "simulate": "gossamer.tools.simulate.run",
    "Episode": "gossamer.task",
    "Callback": "gossamer.training.callbacks",
    "LiveRun": "gossamer.training.callbacks",
    "Run": "gossamer.training.session",
    "resume": "gossamer.training.experiment",
    "train": "gossamer.training.experiment",
}
for _target in (*ARCHITECTURES.values(), *ALGORITHMS.values()):
    _module, _, _name = _target.partition(":")
    _HOMES[_name] = _module

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
