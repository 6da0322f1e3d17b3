"""DQN: a deep Q-network on one machine (Mnih et al. 2015), the yardstick of Gorila, Ape-X and R2D2."""

from __future__ import annotations

from typing import ClassVar

from gossamer.algorithms.base import FromReplay
from gossamer.architectures.apex import ApeX
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import Alone
from gossamer.experience import LocalReplay
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.options import option, options, word
from gossamer.task import Task

NATURE = {  # Mnih et al. 2015, extended data table 1; here the loss is a mean over the batch
    "steps": 50_000_000,
    "rollout_length": 4,
    "preprocessing": "impala",
    "num_envs": 1,
    "n_step": 1,
    "double": False,
    "dueling": False,
    "huber": True,
    "target_period": 10_000,
    "exploration": "schedule",
    "epsilon_start": 1.0,
    "epsilon_end": 0.1,
    "epsilon_steps": 250_000,
    "buffer_size": 1_000_000,
    "batch_size": 32,
    "samples_per_insert": 8.0,
    "learning_starts": 50_000,
    "network": "nature",
    "input": "unit",
    "optimizer": "rmsprop-dqn",
    "decay": 0.95,
    "epsilon": 0.01 / 32**2,
    "learning_rate": 2.5e-4,
    "anneal_steps": 0,
    "final_fraction": 1.0,
    "max_grad_norm": 1e9,
}


class _Apart(ApeX):
    title: ClassVar[str] = "dqn"


@options
class DeepQNetwork:
    """One worker acts and learns in turn: after each rollout of `num_envs` environments it stores the steps in its
    replay memory and trains on batches of it, so many samples for each step (`samples_per_insert`).

    With `apart`, threads that act share out the environments, another one learns, and both wait for each other where
    the samples for each step would become too many or too few: Ape-X's wiring on one machine."""

    num_envs: int = NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(0)
    apart: bool = option("Act and learn at the same time, in threads of their own; otherwise in turn.", False)

    def program(self, task: Task) -> Program:
        if not isinstance(task.algorithm, FromReplay):
            name = word(type(task.algorithm))
            raise UserError(f"--algorithm {name}: has no replay memory; use --algorithm dqn, or the architecture paac")
        if self.apart:
            return _Apart(num_envs=self.num_envs, env_workers=self.env_workers).program(task)
        p = Program("dqn")
        with p.host("machine", cpus=max(1, self.env_workers), gpus=task.gpus):
            p.worker(act_and_learn, saved=True)(
                task,
                Replica(),
                LocalReplay(task.algorithm.replay_plan()),
                Alone(),
                envs=Envs(self.num_envs, self.env_workers),
            )
        return p

    algorithms: ClassVar[tuple[str, ...]] = ("dqn", "r2d2")
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("short vectors: few environments, so that policies are renewed often", {"num_envs": 8}, kind="vector"),
        Layer(
            "DQN as published (Mnih et al. 2015, extended data table 1); its RMSProp is for sums over 32 samples",
            NATURE,
            preset="paper",
            beside=("dqn",),
        ),
    )
