"""Gorila: general reinforcement learning architecture (Nair et al. 2015, fig. 2, alg. 1).

Components of the paper and their implementation:

bundle                   `act_and_learn` on a host of its own: an actor, a local replay memory and a learner, which act
                         with and learn the same network
actors, global replay,   `act`, `ReplayShard` and `learn`, each on a host of its own
learners
parameter server         `ParameterShard`, each on a host of its own: parameters and optimizer; `max_delay` drops
                         gradients that are too old
outlier losses           `loss_deviations`: a learner drops gradients of losses far above its running mean
target network           copied from parameters that were pulled from the server, every `target_period` of its updates
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from gossamer.architectures.dqn import NATURE
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.architectures.parameter_server import share_server
from gossamer.architectures.replaying import plan_of, share_replay
from gossamer.exchange import Server
from gossamer.exchange.server import options as shared
from gossamer.experience import LocalReplay
from gossamer.experience.replay import options as replaying
from gossamer.loops import Envs, act, act_and_learn, learn
from gossamer.policy import PulledReplica, Replica
from gossamer.presets.layers import Layer
from gossamer.program import Program, copy_name
from gossamer.system.options import option, options
from gossamer.task import Task


def share_of_a_bundle(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """All bundles together, or all actors, have as many environments as dqn, and a memory of the same size."""
    names = ("num_envs",) if values["actors"] else ("num_envs", "buffer_size", "learning_starts")
    count = max(1, values["actors"] or values["bundles"])
    return {name: max(1, values[name] // count) for name in names if name in values}


@options
class Gorila:
    """`bundles` of an actor, a replay memory and a learner, and a parameter server of `shards`; or with `actors` these
    and `learners` apart, and a replay memory of `replay_shards` between them.

    Before each rollout and each update, a worker pulls the parameters of the server. A gradient goes to all shards,
    each of which makes it an update of its part. Learners do not wait for each other."""

    bundles: int = option("Actors with a replay memory and a learner, each a host.", 4, least=1, most=65_536)
    shards: int = shared.SHARDS(1)
    num_envs: int = NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(1)
    actors: int = option(
        "Actors apart from learners, in place of bundles, each a host; 0: bundles.", 0, least=0, most=65_536
    )
    learners: int = option("Learners of --actors, each a host.", 1, least=1, most=65_536)
    replay_shards: int = replaying.REPLAY_SHARDS(1)
    max_ahead: int = replaying.MAX_AHEAD(0)
    max_delay: int = shared.MAX_DELAY(100)
    loss_deviations: float = shared.LOSS_DEVIATIONS(5.0)
    snapshot_seconds: float = shared.SNAPSHOT_SECONDS(10.0)

    def program(self, task: Task) -> Program:
        plan = plan_of(task, "gorila")
        p = Program("gorila")
        server = self._server(p, task)
        envs, cpus = Envs(self.num_envs, self.env_workers), max(1, self.env_workers)
        if not self.actors:
            for b in range(self.bundles):
                with p.host(f"bundle{b}", cpus=cpus, gpus=task.gpus):
                    p.worker(act_and_learn, saved=True)(task, Replica(), LocalReplay(plan), server, envs=envs)
            return p
        memory = share_replay(
            p,
            task,
            plan,
            shards=self.replay_shards,
            actors=self.actors,
            envs=self.num_envs,
            learners=self.learners,
            max_ahead=self.max_ahead,
        )
        for rank in range(self.learners):
            with p.host(f"learner{rank}", gpus=task.gpus):
                p.worker(learn, saved=True)(task, memory.learner(), server)
        for rank in range(self.actors):
            with p.host(f"actor{rank}", cpus=cpus):
                p.worker(act)(replace(task, device="cpu"), PulledReplica(server.shards), memory.actor(rank), envs=envs)
        return p

    def _server(self, p: Program, task: Task) -> Server:
        """Add the parameter server, each shard on a host of its own."""
        loop, learners = (learn, self.learners) if self.actors else (act_and_learn, self.bundles)
        names = [copy_name(loop, rank, learners) for rank in range(learners)]
        shards = share_server(
            p,
            task,
            names,
            shards=self.shards,
            max_delay=self.max_delay,
            snapshot_seconds=self.snapshot_seconds,
        )
        return Server(shards, self.loss_deviations or float("inf"))

    algorithms: ClassVar[tuple[str, ...]] = ("dqn",)
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments are stepped in the bundle's process", {"env_workers": 0}, kind="not atari"),
        Layer("as dqn, whose environments and memory the bundles share", rules=(share_of_a_bundle,)),
        Layer(
            "Gorila as published, but for its 100 bundles and 31 shards: DQN's settings with AdaGrad, 1M steps in the "
            "memory of each bundle; targets and epsilon follow the server's updates. Not published: learning rate, "
            "--max-delay, --loss-deviations",
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
