"""A shared replay memory in seeded schedules, in which actors, learners and shards crash: no deadlock, and every step
that counts as acted is stored, or counted as lost."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from some_outcomes import Counting
from some_parts import a_task
from some_play import PLAIN, Play
from sweeps import sweep

from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.algorithms.dqn import n_step_errors
from gossamer.architectures.replaying import share_replay
from gossamer.data import Batch, NoBatch, Packed, Trajectory, Updated
from gossamer.experience import ActorReplay, LearnerReplay, ReplayShard
from gossamer.experience.base import untimed
from gossamer.experience.replay.limiter import Granted
from gossamer.experience.replay.reader import ReplayReader
from gossamer.experience.replay.shard import Learned
from gossamer.experience.replay.writer import ReplayWriter
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Context, Stopped, Unreachable
from gossamer.task import Task, WorkerReport

ACTORS, SHARDS, ENVS, ROLLOUT = 3, 2, 2, 4
EACH = ENVS * ROLLOUT  # steps of a rollout
STEPS = 60 * EACH
PLAN = ReplayPlan(
    capacity=10_000, batch_size=8, window=2, samples_per_insert=2.0, learning_starts=5 * EACH, priority=None
)


class Participant:
    """What an end needs of a worker."""

    def __init__(self, num_envs: int) -> None:
        self.task: Task = a_task()
        self.spec, self.num_envs, self.clock = PLAIN, num_envs, untimed

    def slot(self, num_envs: int) -> Trajectory:
        return next(Play(PLAIN, num_envs, ROLLOUT, seed=0).rollouts(1))

    def version(self) -> int:
        return 0


def act(ctx: Context, experience: ActorReplay) -> None:
    """Stands in for the loop: a rollout takes a random time."""
    rng = random.Random(f"act {ctx.rank} {ctx.restarts}")
    with closing(experience.join(ctx, Participant(ENVS))) as writer:
        while (position := ctx.claim(EACH)) is not None:
            with writer.slot(position):
                ctx.sleep(rng.random())
            kept = writer.kept()
            ctx.report(WorkerReport(EACH, stored=kept.stored, lost=kept.lost, handed_over=kept.handed_over))


def learn(ctx: Context, experience: LearnerReplay, seconds: float) -> None:
    """Stands in for the loop: an update takes a random time."""
    rng = random.Random(f"learn {ctx.rank} {ctx.restarts}")
    with closing(experience.join(ctx, Participant(0))) as reader:
        while ctx.claim(0) is not None:
            try:
                batch = reader.batch()
            except Stopped:
                return
            if batch is NoBatch.END:
                return
            assert isinstance(batch, Batch)
            ctx.sleep(seconds * rng.random())
            reader.trained(batch, Updated({}))
            learned = {"learned": batch.fresh, "learned_of": batch.rollouts}
            ctx.report(WorkerReport(0, drawn=batch.data.num_envs, updates=1, **learned))


class Seen(Counting):
    def sum(self, name: str) -> int:
        return sum(getattr(report, name) or 0 for report in self.records)


def program(learners: int, seconds: float, max_ahead: int) -> Program:
    p = Program("stand-in")
    memory = share_replay(
        p, a_task(), PLAN, shards=SHARDS, actors=ACTORS, envs=ENVS, learners=learners, max_ahead=max_ahead
    )
    for rank in range(learners):
        with p.host(f"learner{rank}"):
            p.worker(learn)(memory.learner(), seconds)
    for rank in range(ACTORS):
        with p.host(f"actor{rank}"):
            p.worker(act)(memory.actor(rank))
    return p


def run(seed: int, crashes: list[tuple[float, str, float]], *, learners: int = 1, max_ahead: int = 0) -> Seen:
    rng, seen = random.Random(f"speed {seed}"), Seen(steps=STEPS)
    network, seconds = Network(latency=0.1 * rng.random()), rng.choice([0.01, 0.2, 1.0])
    Simulation(seed, network, Faults(crashes=crashes), patience=2000.0)(program(learners, seconds, max_ahead), seen)
    return seen


HOSTS = {
    "actors": [f"actor{rank}" for rank in range(ACTORS)],
    "shards": ["replay0", "replay1"],
    "learners": ["learner0"],
}
KINDS = {
    "": [], "actors": HOSTS["actors"], "shards": HOSTS["shards"], "learners": HOSTS["learners"],
    "all": [host for hosts in HOSTS.values() for host in hosts],
}  # fmt: skip


@pytest.mark.parametrize("learners", [1, 2])
@pytest.mark.parametrize("max_ahead", [0, 8], ids=["", "in turn"])
@pytest.mark.parametrize("kind", KINDS)
@sweep(200, 1)
def test_every_schedule_ends_and_all_that_was_acted_is_stored(
    kind: str, max_ahead: int, learners: int, seeds: range
) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        faults = [(20 * rng.random(), rng.choice(KINDS[kind]), 3 * rng.random()) for _ in range(3 if kind else 0)]
        seen = run(seed, faults, learners=learners, max_ahead=max_ahead)
        assert seen.sum("steps") == STEPS, seed
        assert seen.sum("stored") == STEPS, seed
        assert seen.sum("lost") == 0 or kind in ("shards", "all"), seed
        seen.check()
        if not kind:  # what is owed at the end is less than a batch, of each step from the first batch on
            first = 5 * EACH
            assert 2 * (STEPS - first + EACH) - 8 < seen.sum("drawn") <= 2 * STEPS, seed
            assert seen.sum("learned") > STEPS - 3 * EACH, seed


def test_learners_are_told_again_that_the_actors_have_ended() -> None:
    """The limiter's host fails after all actors have ended, and before both learners have drawn what was owed."""
    seed = 15
    rng = random.Random(seed)
    crashes = [(20 * rng.random(), rng.choice(HOSTS["shards"]), 3 * rng.random()) for _ in range(3)]
    seen = run(seed, crashes, learners=2)
    assert seen.sum("steps") == seen.sum("stored") == STEPS


@pytest.mark.parametrize("seed", range(5))
def test_what_a_shard_loses_is_counted_exactly(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second shard has actor 1. It is lost with its host, and the actor says how much it had."""
    held: list[int] = []
    real = ReplayShard.insert

    def insert(self: ReplayShard, actor: int, *given: Any) -> int | None:
        answer = real(self, actor, *given)
        if actor == 1 and answer is not None:
            held.append(answer)
        return answer

    monkeypatch.setattr(ReplayShard, "insert", insert)
    seen = run(seed, [(10.0, "replay1", 1.0)])
    drops = [before for before, after in pairwise(held) if after < before]
    assert len(drops) == 1
    assert seen.sum("lost") == drops[0] > 0
    assert seen.sum("stored") == STEPS


def test_what_a_shard_loses_is_counted_once_though_it_fails_again() -> None:
    """The restarted shard stops answering after the call that it did not know the actor in."""
    shard = ReplayShard(PLAN, {0: ENVS}, 1000, seed=0)
    failures = list[Unreachable]()

    def register(*who: Any) -> int:
        if failures:
            raise failures.pop()
        return shard.register(*who)

    def insert(*given: Any) -> int | None:
        return shard.insert(*given)

    there = SimpleNamespace(register=register, insert=insert)
    ctx = SimpleNamespace(rank=0, restarts=0, now=lambda: 0.0, sleep=lambda seconds: None, stopped=False)
    limiter, slot = SimpleNamespace(insert=lambda *given: True), Participant(ENVS).slot(ENVS)
    writer = ReplayWriter(ctx, limiter, there, slot, spec=PLAIN, clock=untimed)  # type: ignore[arg-type]
    with writer.slot(0):
        pass
    shard = ReplayShard(PLAN, {0: ENVS}, 1000, seed=0)
    failures.append(Unreachable())
    with writer.slot(EACH):
        pass
    kept = writer.kept()
    assert (kept.stored, kept.lost) == (2 * EACH, EACH)


def test_a_rollout_that_is_sent_twice_is_stored_once() -> None:
    shard = ReplayShard(PLAN, {0: ENVS}, 1000, seed=0)
    rollout = next(Play(PLAIN, ENVS, ROLLOUT, seed=0).rollouts(1))
    assert shard.insert(0, 0, 1, Packed.of(rollout)) is None  # it has not said who it is
    assert shard.register(0, 0, PLAIN) == 0
    assert [shard.insert(0, 0, number, Packed.of(rollout)) for number in (1, 1, 2)] == [EACH, EACH, 2 * EACH]
    assert shard.register(0, 1, PLAIN) == 2 * EACH  # a new life
    assert shard.insert(0, 0, 3, Packed.of(rollout)) == 2 * EACH  # what the earlier one sent late is not stored
    assert shard.insert(0, 1, 1, Packed.of(rollout)) == 3 * EACH


class Always:
    """A limiter that lets a learner draw at any time."""

    def sample(self, learner: str, life: int, number: int) -> Granted:
        return Granted((), 0)


def test_samples_come_from_shards_in_proportion_to_their_mass() -> None:
    """Nine rollouts of 4 steps have 35 windows of 2 for each environment, three have 11. Of 4000 samples 35 / 46 come
    from the first shard, within 5 standard deviations; the second one's actions are all 3."""
    shards = [ReplayShard(PLAN, {0: ENVS}, 1000, seed=seed) for seed in range(2)]
    for shard, count in zip(shards, (9, 3), strict=True):
        shard.register(0, 0, PLAIN)
        for number, rollout in enumerate(Play(PLAIN, ENVS, ROLLOUT, seed=0).rollouts(count), start=1):
            rollout.action.fill_(0 if count == 9 else 3)
            shard.insert(0, 0, number, Packed.of(rollout))
    rng, ctx = torch.Generator().manual_seed(0), SimpleNamespace(now=lambda: 0.0, name="learn", restarts=0)
    reader = ReplayReader(ctx, Always(), shards, PLAN, rng, device="cpu", clock=untimed)  # type: ignore[arg-type]
    batches = [reader.batch() for _ in range(500)]
    actions = torch.cat([batch.data.action[0] for batch in batches if isinstance(batch, Batch)])
    share, expected = float((actions == 0).double().mean()), 35 / 46
    assert len(actions) == 4000
    assert abs(share - expected) < 5 * (expected * (1 - expected) / 4000) ** 0.5


ALPHA, BETA = 0.5, 0.8
BY_PRIORITY = replace(PLAN, priority=Prioritized(ALPHA, BETA, n_step_errors))


def prioritized(seed: int = 0) -> tuple[list[ReplayShard], ReplayReader]:
    """Two shards of 22 windows each, whose errors are all 1, and a learner's end."""
    shards = [ReplayShard(BY_PRIORITY, {0: ENVS}, 1000, seed=seed) for seed in range(2)]
    for shard in shards:
        shard.register(0, 0, PLAIN)
        for number, rollout in enumerate(Play(PLAIN, ENVS, ROLLOUT, seed=0).rollouts(3), start=1):
            rollout.reward.fill_(0.5)
            rollout.discount.fill_(1.0)
            rollout.value.fill_(0.0)
            rollout = replace(rollout, chosen=torch.zeros(ROLLOUT, ENVS))
            shard.insert(0, 0, number, Packed.of(rollout))
    rng, ctx = torch.Generator().manual_seed(seed), SimpleNamespace(now=lambda: 0.0, name="learn", restarts=0)
    reader = ReplayReader(ctx, Always(), shards, BY_PRIORITY, rng, device="cpu", clock=untimed)  # type: ignore[arg-type]
    return shards, reader


def drawn(reader: ReplayReader) -> Batch:
    batch = reader.batch()
    assert isinstance(batch, Batch)
    assert batch.windows is not None
    assert batch.data.weight is not None
    return batch


def test_priorities_from_a_learner_reach_their_windows_in_the_right_shard() -> None:
    """One window of the first batch has an error of 10,000 after it, the others 0.01: beside windows of 1 and less it
    fills most of the next batches."""
    shards, reader = prioritized()
    first = drawn(reader)
    assert first.data.weight.tolist() == [1.0] * 8  # type: ignore[union-attr]
    number, sample = reader._samples[-1]
    loved = int(sample.keys[0])
    place = sum(len(each.keys) for _, each in reader._samples[:-1])
    priority = torch.full((8,), 0.01)
    priority[place:][torch.from_numpy(sample.keys == loved)] = 10_000.0
    reader.trained(first, Updated({}, priority=priority))
    drawn(reader)  # it takes the priorities along
    masses = [shard.amount().mass for shard in shards]
    assert masses[number] > 100
    assert masses[1 - number] < 23
    found = [drawn(reader) for _ in range(20)]
    windows = torch.cat([batch.windows for batch in found])  # type: ignore[misc]
    assert float((windows == loved).double().mean()) > 0.6  # 100 of about 100 + 30 of mass


def test_importance_weights_are_those_of_the_mass_over_all_shards() -> None:
    """w = (m / m_min)^-beta, m = p^alpha, with the least mass of the batch."""
    _, reader = prioritized()
    for number in range(30):
        batch = drawn(reader)
        mass = torch.cat([torch.tensor(sample.mass) for _, sample in reader._samples])
        torch.testing.assert_close(batch.data.weight, ((mass / mass.min()) ** -BETA).float())
        reader.trained(batch, Updated({}, priority=torch.linspace(0.1, 5.0 + number, 8)))
    assert len(mass.unique()) > 3


def test_priorities_of_an_earlier_life_of_a_shard_change_nothing() -> None:
    shards, _ = prioritized()
    sample = shards[0].draw(4)
    assert sample is not None
    loud = Learned("another life", sample.keys, np.full(4, 1e6, np.float32))
    shards[0].draw(4, [loud])
    assert shards[0].amount().mass == pytest.approx(22.0, rel=1e-5)
    shards[0].draw(4, [replace(loud, life=sample.life)])
    assert shards[0].amount().mass > 1000
