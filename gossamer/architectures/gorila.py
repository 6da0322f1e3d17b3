"""Gorila: general reinforcement learning architecture (Nair et al. 2015, fig. 2, alg. 1).

Components of the paper and their implementation:

bundle                   `act_and_learn` on a host of its own: an actor, a local replay memory and a learner, which act
                         with and learn the same network
parameter server         `ParameterShard`, each on a host of its own: parameters and optimizer; `max_delay` drops
                         gradients that are too old
outlier losses           `loss_deviations`: a learner drops gradients of losses far above its running mean
target network           copied from parameters that were pulled from the server, every `target_period` of its updates
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from gossamer.algorithms.base import FromReplay
from gossamer.architectures.dqn import NATURE
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import ParameterShard, Server, tend
from gossamer.exchange.server import options as shared
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import OnRestart, Program
from gossamer.system.errors import UserError
from gossamer.system.options import option, options
from gossamer.task import Task


def share_of_a_bundle(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The memories of all bundles together are as large as the one of dqn, and have as many environments."""
    shared_out = ("num_envs", "buffer_size", "learning_starts")
    return {name: max(1, values[name] // max(1, values["bundles"])) for name in shared_out if name in values}


@options
class Gorila:
    """`bundles` of an actor, a replay memory and a learner, and a parameter server of `shards`.

    Before each rollout and before each update, a bundle pulls the server's parameters. After it, the gradient goes to
    the shards, each of which makes it an update of its part. Bundles do not wait for each other."""

    bundles: int = option("Actors with a replay memory and a learner, each a host.", 4, least=1, most=65_536)
    shards: int = shared.SHARDS(1)
    num_envs: int = NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(1)
    max_delay: int = shared.MAX_DELAY(100)
    loss_deviations: float = shared.LOSS_DEVIATIONS(5.0)
    snapshot_seconds: float = shared.SNAPSHOT_SECONDS(10.0)

    def program(self, task: Task) -> Program:
        if not isinstance(task.algorithm, FromReplay):
            name = type(task.algorithm).__name__.lower()
            raise UserError(f"--algorithm {name}: has no replay memory; use --algorithm dqn, or another architecture")
        p = Program("gorila")
        shards = []
        for s in range(self.shards):
            with p.host(f"shard{s}"):
                service = p.service(
                    ParameterShard, saved=True, on_restart=OnRestart.SNAPSHOT, snapshot_seconds=self.snapshot_seconds
                )
                shard = service(task.optimization, learners=self.bundles, max_delay=self.max_delay)
                p.worker(tend)(shard)
                shards.append(shard)
        for b in range(self.bundles):
            with p.host(f"bundle{b}", cpus=max(1, self.env_workers), gpus=task.gpus):
                p.worker(act_and_learn, saved=True)(
                    task,
                    Replica(),
                    own_experience(task.algorithm),
                    Server(tuple(shards), self.loss_deviations or float("inf")),
                    envs=Envs(self.num_envs, self.env_workers),
                )
        return p

    algorithms: ClassVar[tuple[str, ...]] = ("dqn",)
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments are stepped in the bundle's process", {"env_workers": 0}, kind="not atari"),
        Layer("as dqn, whose environments and memory the bundles share", rules=(share_of_a_bundle,)),
        Layer(
            "Gorila as published: DQN's settings with AdaGrad, 1M steps in the memory of each bundle; targets and "
            "epsilon follow the server's updates. Not published: learning rate, --max-delay, --loss-deviations",
            {
                **NATURE,
                "optimizer": "adagrad",
                "epsilon": 1e-5,
                "learning_rate": 1e-3,
                "target_period": 60_000,
                "epsilon_updates": 1_000_000,
            },
            preset="paper",
            beside=("dqn",),
        ),
    )
