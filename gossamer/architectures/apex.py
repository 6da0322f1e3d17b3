"""Ape-X: distributed prioritised experience replay (Horgan et al. 2018, fig. 1, alg. 1 and 2)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gossamer.architectures.replaying import plan_of, share_replay
from gossamer.architectures.serving import policies_of
from gossamer.exchange import Broadcast, Parameters, offer_copy
from gossamer.experience.queue import options as shared
from gossamer.experience.replay import options as replaying
from gossamer.loops import Envs, act, learn
from gossamer.policy.served import options as serving
from gossamer.presets.layers import Layer
from gossamer.presets.rules import actors_for
from gossamer.program import Program, copy_name
from gossamer.system.options import options
from gossamer.system.processes import cores
from gossamer.task import Task


@options
class ApeX:
    """`actors` threads on each of `hosts` hosts (0: on the learner's), each with an equal part of the host's `num_envs`
    environments, a replay memory of `replay_shards`, and one learner.

    Before each rollout an actor takes the newest parameters. Its rollout goes to its shard, with priorities from the
    values that it acted by. The learner draws from all shards in proportion to their priorities, and changes these.
    Acting and learning wait for each other, so that `samples_per_insert` samples are drawn for each step.

    With `policy` served, actors have no network: `predictors` on the learner's host evaluate it for them."""

    hosts: int = shared.HOSTS(0)
    actors: int = shared.ACTORS(0)
    num_envs: int = shared.NUM_ENVS(32)
    env_workers: int = shared.ENV_WORKERS(0)
    replay_shards: int = replaying.REPLAY_SHARDS(1)
    max_ahead: int = replaying.MAX_AHEAD(0)
    policy: serving.PolicyKind = serving.POLICY("replica")
    predictors: int = serving.PREDICTORS(1)
    min_batch: int = serving.MIN_BATCH(1)
    max_batch: int = serving.MAX_BATCH(0)
    batch_timeout: float = serving.BATCH_TIMEOUT(0.01)

    title: ClassVar[str] = "apex"
    algorithms: ClassVar[tuple[str, ...]] = ("dqn",)

    def program(self, task: Task) -> Program:
        plan = plan_of(task, self.title)
        shared.check_envs(self.num_envs, 1, self.actors)
        actors = self.actors or actors_for(self.num_envs, 1, cores())
        crew, each = actors * max(1, self.hosts), self.num_envs // actors
        envs = Envs(each, self.env_workers or (0 if self.hosts else shared.threads_beside(task, 1, actors)))
        cpus = actors * max(1, envs.workers)
        policies = policies_of(self, task, actors=crew, envs=each)
        busy = 0 if task.gpus else 1 + policies.predictors
        home = {"cpus": max(1, busy + (0 if self.hosts else cpus)), "gpus": task.gpus}
        p = Program(self.title)
        with p.host("learner", **home):
            newest = p.service(Parameters)()
        memory = share_replay(
            p, task, plan, shards=self.replay_shards, actors=crew, envs=each, max_ahead=self.max_ahead
        )
        with p.host("learner", **home):
            requests = policies.add_predictors(
                p, task, newest, {copy_name(act, rank, crew): rank for rank in range(crew)}
            )
            copied = self.hosts > 0 and requests is None
            p.worker(learn, saved=True)(task, memory.learner(), Broadcast(newest, elsewhere=copied))
            for rank in range(0 if self.hosts else crew):
                p.worker(act)(task, policies.here(newest, requests), memory.actor(rank), envs=envs)
        for h in range(self.hosts):
            with p.host(f"actors{h}", cpus=cpus):
                ranks = range(h * actors, (h + 1) * actors)
                copy = policies.add_copy(p, newest, [copy_name(act, rank, crew) for rank in ranks])
                if copied:
                    p.worker(offer_copy)(newest, copy)
                for rank in ranks:
                    policy, on_cpu = policies.elsewhere(copy, requests), replace(task, device="cpu")
                    p.worker(act)(on_cpu, policy, memory.actor(rank), envs=envs)
        return p

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments: by the actor's own process", {"env_workers": 0}, kind="not atari"),
        Layer(
            "Ape-X's algorithm: prioritised, dueling, and a constant epsilon for each environment",
            {
                "priority_exponent": 0.6,
                "importance_exponent": 0.4,
                "n_step": 3,
                "dueling": True,
                "exploration": "by-environment",
            },
            beside=("dqn",),
        ),
        Layer(
            "Ape-X as published: 360 actors there; its learner makes 19 updates of 512 for 12,500 steps a second",
            {
                "steps": 50_000_000,
                "rollout_length": 50,
                "preprocessing": "impala",
                "n_step": 3,
                "double": True,
                "dueling": True,
                "huber": False,
                "target_period": 2500,
                "exploration": "by-environment",
                "priority_exponent": 0.6,
                "importance_exponent": 0.4,
                "buffer_size": 2_000_000,
                "batch_size": 512,
                "samples_per_insert": 0.8,
                "learning_starts": 50_000,
                "network": "nature",
                "input": "unit",
                "optimizer": "rmsprop-dqn",
                "decay": 0.95,
                "epsilon": 1.5e-7,
                "learning_rate": 6.25e-5,
                "anneal_steps": 0,
                "final_fraction": 1.0,
                "max_grad_norm": 40.0,
            },
            preset="paper",
            beside=("dqn",),
        ),
    )
