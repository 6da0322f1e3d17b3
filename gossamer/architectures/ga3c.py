"""GA3C: A3C with one network, queues, predictors and trainers (Babaeizadeh et al. 2017, fig. 1, section 4).

Components of the paper and their implementation:

agent                     `act` with the policy `Served`: it has environments and no network
prediction queue          `Requests`
predictor                 `predict`: evaluates the network for what waits, in one batch
training queue            `RolloutPool`
trainer                   `learn` from batches of the pool; several change `SharedMemory` without a lock
dynamic adjustment        `adjust`: anneals the numbers of agents, predictors and trainers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from gossamer.algorithms import SarsaLambda
from gossamer.algorithms.base import FromReplay
from gossamer.architectures.options import ENV_WORKERS
from gossamer.exchange import Alone, Broadcast, Exchange, Parameters, Shared, SharedMemory
from gossamer.experience import AgentPool, RolloutPool, Sizes, TrainerPool
from gossamer.experience.queue import options as queued
from gossamer.loops import Envs, act, learn, predict
from gossamer.loops.adjust import Numbers, adjust
from gossamer.policy.served import Requests, Served
from gossamer.policy.served import options as serving
from gossamer.presets.layers import Layer
from gossamer.presets.rules import no_statistics_of_trainers
from gossamer.program import OnRestart, Program, copy_name
from gossamer.system.errors import UserError
from gossamer.system.options import option, options, word
from gossamer.task import Task


@options
class GA3C:
    """`agents` threads with an equal part of the `num_envs` environments and without a network, `predictors` that
    evaluate it for all of them, and `trainers` that learn from their rollouts.

    A predictor takes the observations that wait, `min_batch` to `max_batch` of them. A trainer takes the rollouts that
    wait, `min_rollouts` to `max_rollouts` of them. The policy that acts is a few updates older than the one that
    learns, and nothing corrects for that but `log_epsilon`. With `adjust_seconds`, the three numbers are changed while
    they run, up to `most` times those given."""

    agents: int = option("Agents, each a thread.", 4, least=1, most=4096)
    predictors: int = option("Predictors, each a thread.", 1, least=1, most=1024)
    trainers: int = option("Trainers, each a thread.", 1, least=1, most=1024)
    num_envs: int = queued.NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(1)
    min_batch: int = serving.MIN_BATCH(1)
    max_batch: int = serving.MAX_BATCH(0)
    batch_timeout: float = serving.BATCH_TIMEOUT(0.01)
    min_rollouts: int = option("Rollouts of a trainer's batch, at least.", 1, least=1, most=65_536)
    max_rollouts: int = option(
        "Rollouts of a trainer's batch, at most; 0: one for each agent.", 0, least=0, most=65_536
    )
    queue_size: int = option(
        "Rollouts that wait for trainers or are trained on, in addition to one for each agent.", 0, least=0, most=65_536
    )
    adjust_seconds: float = option(
        "Between two changes of the numbers of agents, predictors and trainers; 0: none.",
        0.0,
        least=0,
        measure="seconds",
    )
    most: int = option("Limit of these numbers, as a multiple of those given.", 2, least=1, most=1024)

    algorithms: ClassVar[tuple[str, ...]] = ("a2c",)

    def program(self, task: Task) -> Program:
        queued.check_envs(self.num_envs, 1, self.agents, "--agents")
        if isinstance(task.algorithm, FromReplay):
            kind = word(type(task.algorithm))
            raise UserError(f"--algorithm {kind}: learns from a replay memory, which ga3c has not; use a2c or vtrace")
        if isinstance(task.algorithm, SarsaLambda):
            kind = word(type(task.algorithm))
            raise UserError(
                f"--algorithm {kind}: keeps traces of each environment, and a batch of ga3c has any agents' rollouts; "
                "use paac, a2c, gala or sarsa"
            )
        exploration = getattr(task.algorithm, "exploration", "schedule")
        if self.adjust_seconds and exploration != "schedule":
            raise UserError(
                f"--exploration {exploration}: each environment has its own epsilon, and --adjust-seconds changes "
                "how many there are; use --exploration schedule"
            )
        numbers, most = Numbers(self.agents, self.predictors, self.trainers), self._limits()
        each, sizes = self.num_envs // self.agents, self._sizes(most.agents)
        envs = Envs(each, self.env_workers)
        rule = serving.batch_rule(
            self.min_batch,
            self.max_batch,
            self.batch_timeout,
            actors=self.agents,
            envs=envs.of_group(task.groups),
            groups=task.groups,
            option="--agents",
        )
        agents, trainers = _names(act, most.agents), _names(learn, most.trainers)
        p = Program("ga3c")
        cpus = self.agents * max(1, self.env_workers) + (0 if task.gpus else self.predictors + self.trainers)
        with p.host("machine", cpus=cpus, gpus=task.gpus):
            newest, requests = p.service(Parameters)(), p.service(Requests)(agents, self.predictors, groups=task.groups)
            pool = p.service(RolloutPool)(sizes, agents=agents, trainers=trainers)
            shared = self._shared(p, most.trainers)
            for rank in range(most.trainers):
                exchange = Broadcast(newest, shared, recovers=rank == 0, elsewhere=False)
                p.worker(learn, saved=True)(task, TrainerPool(pool, sizes, each, most.trainers), exchange)
            p.worker(predict, copies=most.predictors)(task, requests, newest, rule=rule)
            p.worker(act, copies=most.agents)(task, Served(requests), AgentPool(pool), envs=envs)
            if self.adjust_seconds:
                seed = task.stream("adjust")
                p.worker(adjust)(pool, requests, numbers=numbers, most=most, period=self.adjust_seconds, seed=seed)
        return p

    def _limits(self) -> Numbers:
        most = self.most if self.adjust_seconds else 1
        return Numbers(most * self.agents, most * self.predictors, most * self.trainers)

    def _sizes(self, agents: int) -> Sizes:
        """Of the pool. Raises `UserError` if no batch would ever be full."""
        slots, largest = agents + self.queue_size, self.max_rollouts or max(self.agents, self.min_rollouts)
        if self.min_rollouts > largest:
            raise UserError(f"--min-rollouts {self.min_rollouts}: must be at most --max-rollouts {largest}")
        if self.min_rollouts > slots:
            raise UserError(
                f"--min-rollouts {self.min_rollouts}: {agents} agents and --queue-size {self.queue_size} have {slots} "
                f"rollouts at a time; use --queue-size {self.min_rollouts - agents} or more"
            )
        return Sizes(slots, self.min_rollouts, largest)

    def _shared(self, p: Program, trainers: int) -> Exchange:
        """What trainers make of a gradient."""
        if trainers == 1:
            return Alone()
        memory = p.service(SharedMemory, saved=True, on_restart=OnRestart.CHECKPOINT)(trainers)
        return Shared(memory, fresh=True)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments are stepped in the agent's thread", {"env_workers": 0}, kind="not atari"),
        Layer("several trainers: no running statistics (not tuned)", rules=(no_statistics_of_trainers,)),
        Layer(
            "GA3C as published (its code): 32 agents of one environment, sums over a rollout as a mean times 5",
            {
                "steps": 80_000_000,
                "rollout_length": 5,
                "agents": 32,
                "num_envs": 32,
                "predictors": 2,
                "trainers": 2,
                "max_batch": 128,
                "batch_timeout": 0.0,
                "queue_size": 100,
                "max_rollouts": 1,
                "adjust_seconds": 20.0,
                "gamma": 0.99,
                "gae_lambda": 1.0,
                "value_coef": 0.5,
                "entropy_coef": 0.01,
                "log_epsilon": 1e-6,
                "loss_scale": 5.0,
                "network": "nips",
                "input": "unit",
                "initialization": "uniform",
                "optimizer": "rmsprop-tf",
                "decay": 0.99,
                "epsilon": 0.1,
                "learning_rate": 3e-4,
                "anneal_steps": 0,
                "final_fraction": 1.0,
                "max_grad_norm": 1e9,
            },
            preset="paper",
            beside=("a2c",),
        ),
    )


def _names(loop: Callable[..., Any], copies: int) -> dict[str, int]:
    """Names and ranks of a worker's copies."""
    return {copy_name(loop, rank, copies): rank for rank in range(copies)}
