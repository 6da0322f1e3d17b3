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

from gossamer.version import __version__

if TYPE_CHECKING:
    from gossamer.algorithms.a2c import A2C
    from gossamer.algorithms.appo import AsyncPPO
    from gossamer.algorithms.ppo import PPO
    from gossamer.algorithms.vtrace import VTrace
    from gossamer.architectures.appo import APPO
    from gossamer.architectures.gala import GALA
    from gossamer.architectures.impala import IMPALA
    from gossamer.architectures.paac import PAAC
    from gossamer.architectures.pala import PALA
    from gossamer.errors import UserError
    from gossamer.evaluation.evaluate import Evaluation, evaluate
    from gossamer.evaluation.video import Recording, record
    from gossamer.export.load import load
    from gossamer.export.policy import TrainedPolicy
    from gossamer.reporting.report import Report, report
    from gossamer.studies.study import Study, study
    from gossamer.tools.bench import bench
    from gossamer.tools.simulate import simulate
    from gossamer.training.experiment import Run, resume, train

__all__ = [
    "A2C",
    "APPO",
    "GALA",
    "IMPALA",
    "PAAC",
    "PALA",
    "PPO",
    "AsyncPPO",
    "Evaluation",
    "Recording",
    "Report",
    "Run",
    "Study",
    "TrainedPolicy",
    "UserError",
    "VTrace",
    "__version__",
    "bench",
    "evaluate",
    "load",
    "record",
    "report",
    "resume",
    "simulate",
    "study",
    "train",
]

# Loaded when asked for: a process that only launches others, or simulates, starts in a tenth of the time.
_HOMES = {
    "A2C": "algorithms.a2c",
    "PPO": "algorithms.ppo",
    "AsyncPPO": "algorithms.appo",
    "VTrace": "algorithms.vtrace",
    "APPO": "architectures.appo",
    "IMPALA": "architectures.impala",
    "GALA": "architectures.gala",
    "PAAC": "architectures.paac",
    "PALA": "architectures.pala",
    "bench": "tools.bench",
    "simulate": "tools.simulate.run",
    "UserError": "errors",
    "Evaluation": "evaluation.evaluate",
    "evaluate": "evaluation.evaluate",
    "load": "export.load",
    "TrainedPolicy": "export.policy",
    "Run": "training.experiment",
    "resume": "training.experiment",
    "train": "training.experiment",
    "Recording": "evaluation.video",
    "Study": "studies.study",
    "study": "studies.study",
    "record": "evaluation.video",
    "Report": "reporting.report",
    "report": "reporting.report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gossamer.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
