"""Broadcast: actors have the newest parameters, share them without a copy, and never one that learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from some_messages import Learns, Local, Vector
from some_parts import Watcher, a_network, a_task, a_trajectory, differences
from torch import nn
from torch.optim import SGD

from gossamer.data import Stamp
from gossamer.envs.toy import Catch
from gossamer.exchange import (
    AllReduce,
    AloneLink,
    Broadcast,
    Follower,
    Gossip,
    Gradients,
    LocalStep,
    Mailboxes,
    Parameters,
    Stepped,
    fetch,
    offer_copy,
)
from gossamer.exchange.all_reduce import Contribution, Start
from gossamer.exchange.base import OnStep
from gossamer.exchange.broadcast import Published
from gossamer.exchange.broadcast.broadcast import RECOVERY, Publisher
from gossamer.exchange.flat import buffers
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.nn.torsos import small
from gossamer.policy import build
from gossamer.program import Program
from gossamer.runtime import Context, WouldBlock
from gossamer.spaces import Discrete
from gossamer.task import Recovered
from gossamer.workers.learner import Learner

SPEC = Catch().make(1).spec


class Place:
    """As much of a `Context` as joining needs."""

    rank, copies, restarts = 0, 1, 0


class Again(Place):
    """The same after the host has been restarted. Time passes in its sleep."""

    restarts, stopped = 1, False

    def __init__(self) -> None:
        self.time, self.notes = 0.0, list[Recovered]()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def report(self, record: Recovered) -> None:
        self.notes.append(record)


def a_pair() -> tuple[Learner, Any, nn.Module, Any]:
    task = a_task(rate=0.1)
    learner, exchange = Learner(task, SPEC), Broadcast(Parameters())
    link = exchange.join(Place(), learner)  # type: ignore[arg-type]
    replica = build(a_task(seed=9), SPEC)  # other parameters at first
    return learner, link, replica, Follower(exchange.parameters, replica)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_replica_begins_with_the_learner_s_parameters_and_follows_them() -> None:
    learner, link, replica, follower = a_pair()
    assert same(learner.model, replica)
    assert follower.refresh() == 0
    for update in range(1, 4):
        learner.update(a_trajectory(SPEC, 4, 3, update), link, 0)
        assert not same(learner.model, replica)  # until it looks
        assert follower.refresh() == update
        assert same(learner.model, replica)


def test_parameters_that_were_taken_do_not_change_while_the_learner_goes_on() -> None:
    learner, link, replica, follower = a_pair()
    learner.update(a_trajectory(SPEC, 4, 3, 1), link, 0)
    follower.refresh()
    before = {name: value.clone() for name, value in replica.state_dict().items()}
    learner.update(a_trajectory(SPEC, 4, 3, 2), link, 0)
    assert all(torch.equal(value, before[name]) for name, value in replica.state_dict().items())


def test_two_actors_share_the_memory_of_what_they_took() -> None:
    learner, link, replica, follower = a_pair()
    other = build(a_task(), SPEC)
    beside = Follower(link.publisher._parameters, other)
    learner.update(a_trajectory(SPEC, 4, 3, 1), link, 0)
    assert follower.refresh() == beside.refresh() == 1
    assert next(replica.parameters()).data_ptr() == next(other.parameters()).data_ptr()
    assert next(replica.parameters()).data_ptr() != next(learner.model.parameters()).data_ptr()


def test_buffers_such_as_the_background_are_taken_once() -> None:
    picture, parameters = (1, 42, 42), Parameters()
    teacher = a_network(picture, Discrete(3), small, input_scale=1 / 64)
    for buffer in teacher.buffers():
        buffer.fill_(0.5)
    learner = Learner(a_task(), SPEC)
    learner.model = teacher
    Broadcast(parameters).join(Place(), learner)  # type: ignore[arg-type]
    replica = a_network(picture, Discrete(3), small)
    Follower(parameters, replica)
    assert same(teacher, replica)


def test_a_cached_cast_is_renewed() -> None:
    task = a_task(dtype=torch.bfloat16, rate=0.1)
    learner, exchange = Learner(task, SPEC), Broadcast(Parameters())
    link = exchange.join(Place(), learner)  # type: ignore[arg-type]
    replica = build(task, SPEC)
    follower = Follower(exchange.parameters, replica)
    obs = a_trajectory(SPEC, 1, 3, 0).obs[0]
    answers = []
    for update in range(3):
        follower.refresh()
        with torch.no_grad():
            answers.append(replica(obs)[1].clone())
            torch.testing.assert_close(answers[-1], learner.model(obs)[1])
        learner.update(a_trajectory(SPEC, 4, 3, update), link, 0)
    assert not torch.equal(answers[0], answers[1])


def test_nothing_older_replaces_what_is_there() -> None:
    parameters = Parameters()
    with pytest.raises(WouldBlock):
        parameters.first()
    for version in (3, 2):
        parameters.publish(Published(Stamp(0, version), torch.tensor([float(version)]), {}))
    assert parameters.first().stamp == (0, 3)
    assert parameters.newer(Stamp(0, 3)) is None
    newest = parameters.newer(Stamp(0, 2))
    assert newest is not None
    assert newest.parameters.tolist() == [3.0]


def test_a_resumed_learner_goes_on_counting() -> None:
    exchange, learner = Broadcast(Parameters()), Learner(a_task(), SPEC)
    link = exchange.join(Place(), learner, {"iteration": 7})  # type: ignore[arg-type]
    learner.update(a_trajectory(SPEC, 4, 3, 1), link, 0)
    assert link.state_dict()["iteration"] == link.refresh() == 8


def trained(updates: int) -> Learner:
    """A learner after so many updates: the parameters of each number of updates are its own."""
    learner = Learner(a_task(rate=0.1), SPEC)
    for seed in range(updates):
        learner.update(a_trajectory(SPEC, 4, 3, seed), AloneLink(), 0)
    return learner


@pytest.mark.parametrize(
    ("offered", "told"),
    [
        (5, Recovered(5, 2, copied=True)),
        (None, Recovered(2, 2, copied=False)),
        (2, Recovered(2, 2, copied=False)),
        (1, Recovered(2, 2, copied=False)),
    ],
    ids=["newer", "none", "equal", "older"],
)
def test_a_restarted_learner_has_the_newest_parameters_and_the_optimizer_of_its_checkpoint(
    offered: int | None, told: Recovered
) -> None:
    found = told.version
    saved, parameters, place = trained(2).state_dict(), Parameters(), Again()
    if offered is not None:
        copy = trained(offered)
        for buffer in copy.model.buffers():  # as those of batch normalisation would be
            buffer.fill_(0.5)
        parameters.offer(Published(Stamp(0, offered), copy.flat.vector.clone(), buffers(copy.model)).packed())
    learner = Learner(a_task(rate=0.1), SPEC)
    learner.load_state_dict(saved)
    link = Broadcast(parameters).join(place, learner, {"iteration": 2})  # type: ignore[arg-type]
    state = learner.state_dict()
    expected = trained(found).model.state_dict()
    if told.copied:
        expected |= {name: torch.full_like(buffer, 0.5) for name, buffer in buffers(learner.model).items()}
        assert len(expected) > len(list(learner.model.parameters()))  # there are some
    assert differences(state["model"], expected) == []
    assert differences({**state, "model": {}}, {**saved, "model": {}}) == []  # optimizer, random stream and counters
    assert (link.refresh(), learner.updates) == (found, 2)
    assert place.notes == [told]
    # What it publishes are these parameters, and an update of them changes neither the published nor the offered ones.
    published, given = parameters.first(), parameters.offered()
    assert (published.stamp, published.parameters.tolist()) == ((1, found), learner.flat.vector.tolist())
    learner.update(a_trajectory(SPEC, 4, 3, 9), link, 0)
    assert torch.equal(published.parameters, trained(found).flat.vector)
    assert given is None or torch.equal(given.parameters, trained(given.stamp.version).flat.vector)
    assert parameters.first().stamp == (1, found + 1)


def test_of_two_offers_the_one_of_the_later_life_is_newer() -> None:
    parameters, copy = Parameters(), trained(0)
    for stamp in (Stamp(0, 100), Stamp(1, 90), Stamp(0, 101)):  # the learner once continued from version 80
        parameters.offer(Published(stamp, copy.flat.vector.clone(), buffers(copy.model)).packed())
    offered = parameters.offered()
    assert offered is not None
    assert offered.stamp == (1, 90)


@pytest.mark.parametrize("recovers", [True, False])
def test_a_restarted_learner_waits_for_an_offer_only_if_it_recovers(recovers: bool) -> None:
    place, learner = Again(), trained(0)
    link = Broadcast(Parameters(), recovers=recovers).join(place, learner)  # type: ignore[arg-type]
    assert link.refresh() == 0
    assert len(place.notes) == recovers
    assert place.time == pytest.approx(RECOVERY * recovers, abs=0.15)  # it looks again every 0.1 s


def test_a_step_that_is_not_finite_is_not_published() -> None:
    learner, link, _, follower = a_pair()
    batch = a_trajectory(SPEC, 4, 3, 1)
    batch.reward[0, 0] = torch.nan
    with pytest.raises(ArithmeticError, match="the reward of environment 0"):
        learner.update(batch, link, 0)
    assert follower.refresh() == 0


class Publishing:
    """A member of two that gossip, and publish for their actors. Its parameters are one vector."""

    def __init__(self, post: Mailboxes, rank: int, value: float) -> None:
        place, self.model = Place(), Vector(torch.full((32,), value))
        place.rank = rank
        self.parameters, self.told = Parameters(), list[tuple[int, list[float]]]()
        exchange: Any = Broadcast(self.parameters, Gossip(post, period=0))
        self.link = exchange.join(place, Learns(self.model), {"iteration": 5}, lambda: self.told.append(self.published))

    def step(self) -> None:
        """Add 1 to the parameters, and exchange."""
        self.model.value.grad = torch.full((32,), -1.0)
        self.link.step(Local(SGD(self.model.parameters(), 1.0)))

    @property
    def published(self) -> tuple[int, list[float]]:
        """Version and different parameters."""
        newest = self.parameters.newer(Stamp(9, 0))
        assert newest is not None
        return newest.stamp.version, newest.parameters.unique().tolist()


def test_over_gossip_the_average_is_published_with_its_version() -> None:
    post = Mailboxes(2)
    one, other = Publishing(post, 0, 2.0), Publishing(post, 1, 10.0)
    assert (one.published, other.published) == ((5, [2.0]), (5, [10.0]))
    other.step()
    one.step()
    # 10 + 1 is alone; 2 + 1 is averaged with it: (3 + 11) / 2. What is told of has been published.
    assert other.told == [(6, [11.0])] == [other.published]
    assert one.told == [(6, [7.0])] == [one.published]
    assert one.link.refresh() == one.link.state_dict()["iteration"] == 6


class ByTens:
    """An inner exchange whose versions are ten apart."""

    version = 0

    def join(self, ctx: Any, learner: Any, state: Any, on_step: OnStep) -> Any:
        self.on_step = on_step
        return self

    def step(self, local: LocalStep) -> Stepped:
        local.apply()
        self.version += 10
        self.on_step()
        return Stepped(torch.zeros(()), True)

    def finish(self, local: LocalStep) -> None:
        self.step(local)

    def refresh(self) -> int:
        return self.version


def test_the_version_that_is_published_is_that_of_the_inner_exchange() -> None:
    parameters, model, told = Parameters(), Vector(torch.zeros(4)), list[int]()
    exchange: Any = Broadcast(parameters, ByTens())  # type: ignore[arg-type]

    def stepped() -> None:
        newest = parameters.newer(Stamp(0, told[-1] if told else 0))
        assert newest is not None
        told.append(newest.stamp.version)

    link, local = exchange.join(Place(), Learns(model), None, stepped), Local(SGD(model.parameters(), 1.0))
    link.step(local)
    link.step(local)
    link.finish(local)  # a step that is taken for others
    assert told == [10, 20, 30]


def leads(ctx: Context, gradients: Gradients) -> None:
    """A learner that takes two steps and ends."""
    vector = torch.ones_like(Learner(a_task(), SPEC).flat.vector)
    for number, given in enumerate([Start(vector, 0), Contribution(vector, 0.1), Contribution(vector, 0.1), None]):
        gradients.exchange(1, number, given)


def follows(ctx: Context, gradients: Gradients, parameters: Parameters) -> None:
    """A learner without batches, and an actor that follows it."""
    learner = Learner(a_task(rate=0.1), SPEC)
    link = Broadcast(parameters, AllReduce(gradients)).join(ctx, learner)
    learner.update(a_trajectory(SPEC, 4, 3, 1), AloneLink(), 0)  # its network has gradients
    replica = build(a_task(seed=9), SPEC)
    follower = Follower(parameters, replica)
    learner.finish(link)
    assert follower.refresh() == link.refresh() == 2
    assert same(learner.model, replica)
    ctx.save("done")


def test_a_learner_without_batches_publishes_the_steps_that_it_takes_with_others() -> None:
    program, watcher = Program("two learners"), Watcher()
    gradients = program.service(Gradients)(2)
    program.worker(follows)(gradients, program.service(Parameters)())
    program.worker(leads)(gradients)
    Simulation(0)(program, watcher)
    assert watcher.saved == {"follows": "done"}


def test_a_copy_is_offered_although_no_actor_has_taken_it() -> None:
    """Its host's actors may be in the middle of long rollouts when the learner's host restarts."""
    copy = Parameters(["act"])
    copy.replace(Published(Stamp(0, 3), torch.zeros(2), {}).packed())
    with pytest.raises(WouldBlock):
        copy.taken()
    copy.ask_again()
    assert copy.taken()


def test_no_heartbeats_are_sent_where_nothing_newer_will_come() -> None:
    copy = Parameters(["act"])
    assert copy.followed()
    copy.close()
    assert not copy.followed()


def test_parameters_are_published_with_the_version_that_they_have() -> None:
    """To ask for the version may renew the parameters, where other learners change them, too."""
    learner, parameters = Learner(a_task(rate=0.1), SPEC), Parameters()
    publisher = Publisher(parameters, learner, 0, lambda: None)

    class Renewing:
        version = 7

        def refresh(self) -> int:
            learner.flat.swap(torch.full_like(learner.flat.vector, 7.0))
            return 7

    publisher.begin(Renewing())  # type: ignore[arg-type]
    replica = build(a_task(), SPEC)
    assert Follower(parameters, replica).refresh() == 7
    assert {float(value) for each in replica.parameters() for value in each.unique()} == {7.0}


def follows_for(ctx: Context, copy: Parameters, seconds: float) -> None:
    """An actor that ends after so many seconds, or as many after a restart."""
    copy.first()
    ctx.sleep(seconds)
    copy.leave()


def publishes_once(ctx: Context, source: Parameters) -> None:
    source.publish(Published(Stamp(0, 1), torch.zeros(2), {}))
    ctx.sleep(40.0)
    source.close()


@pytest.mark.parametrize("later", [0.0, 20.0], ids=["all had ended", "one had ended"])
def test_a_copy_ends_although_actors_had_ended_before_their_host_was_restarted(later: float) -> None:
    """The new copy counts all actors of its host, and those that had ended are not started again."""
    program = Program("ends")
    with program.host("learner"):
        source = program.service(Parameters)()
        program.worker(publishes_once)(source)
    with program.host("actors"):
        copy = program.service(Parameters)(["follows_for[0]", "follows_for[1]"])
        program.worker(fetch)(source, copy)
        if later:
            program.worker(offer_copy)(source, copy)
        for seconds in (0.0, later):
            program.worker(follows_for)(copy, seconds)
    Simulation(0, Network(latency=0.01), Faults(crashes=[(5.0, "actors", 1.0)]))(program, Watcher())
