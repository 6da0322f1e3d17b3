"""Gossip, one member at a time: what is published, what is averaged, and what is left alone."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from some_messages import Learns, Local, Place, Vector, a_message
from some_parts import OPTIMIZERS, a_task, a_trajectory
from torch import Tensor, nn
from torch.optim import SGD

from gossamer.algorithms import A2C, PPO, Algorithm
from gossamer.exchange import AloneLink, Gossip, LocalStep, Mailboxes, Stepped
from gossamer.exchange.gossip.formats import Format, rounded
from gossamer.exchange.gossip.graphs import Complete, Hierarchical, OnePeer, Ring
from gossamer.exchange.gossip.messages import Message, Parcel
from gossamer.exchange.gossip.mixing import LEAST, UNIFORM, Mixing, PushSum
from gossamer.exchange.gossip.records import Cut, Traffic
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.exchange.proxy.wire import decode, encode
from gossamer.runtime import WouldBlock
from gossamer.workers.learner import Learner

SIZE = 304  # P: two blocks of int8, the second not full
TOKEN = b"0123456789abcdef"


@dataclass
class Counting:
    """An inner exchange that says what it is asked."""

    asked: list[str] = field(default_factory=list)

    def join(self, ctx: Any, learner: Any, state: Any = None, on_step: Any = None) -> Any:
        self.asked.append("join")
        return self

    def leave(self) -> None:
        self.asked.append("leave")

    def take(self) -> tuple[Any, ...]:
        return ("inner",)

    def refresh(self) -> int:
        return -1

    def step(self, local: Any) -> Stepped:
        self.asked.append("step")
        local.apply()
        return Stepped(local.gradient().norm, True)

    def state_dict(self) -> dict[str, Any]:
        return {"asked": len(self.asked)}


class Post(Mailboxes):
    """Mailboxes that keep what was sent, and have it arrive as `form` does."""

    def __init__(self, members: int, form: Format = "fp32", **more: Any) -> None:
        super().__init__(members, **more)
        self.form, self.sent = form, list[tuple[Message, tuple[int, ...]]]()
        self.hashes: list[str] = []

    def send(self, message: Message, to: Any) -> None:
        self.sent.append((message, tuple(to)))
        self.hashes.append(hash_of(message.parameters))
        layout = b"layout-1"
        arrived = decode(encode(Parcel(message, tuple(to)), TOKEN, layout, self.form), TOKEN, layout)
        assert isinstance(arrived, Parcel)
        super().send(arrived.message, to)


def hash_of(vector: Tensor) -> str:
    return hashlib.sha256(vector.numpy().tobytes()).hexdigest()


class Counts(Vector):
    """A vector, and a running statistic without gradients."""

    def __init__(self, start: Tensor) -> None:
        super().__init__(start)
        self.statistic = nn.Parameter(torch.zeros(2), requires_grad=False)


class Hand:
    """A member that is run by hand: every step adds `displacement` to its parameters."""

    def __init__(self, post: Mailboxes, rank: int, value: float | Tensor, **more: Any) -> None:
        start = value if isinstance(value, Tensor) else torch.full((SIZE,), float(value))
        self.model = more.pop("model", Vector)(start)
        self.learner, self.opt = Learns(self.model), SGD(self.model.parameters(), 1.0)
        self.place, self.told = Place(rank), list[tuple[int, Tensor]]()  # of `on_step`
        gossip: Any = Gossip(post, **{"period": 0, **more})
        self.gossip = gossip.join(self.place, self.learner, None, self.stepped)

    def step(self, displacement: float | Tensor = 0.0, *, finite: bool = True) -> Stepped:
        self.model.value.grad = -torch.as_tensor(displacement, dtype=torch.float32).expand(SIZE).clone()
        stepped: Stepped = self.gossip.step(Local(self.opt, finite))
        return stepped

    def stepped(self) -> None:
        self.told.append((self.gossip.refresh(), self.value))

    @property
    def value(self) -> Tensor:
        return self.model.value.detach().clone()

    def traffic(self) -> Traffic:
        (*_, traffic) = self.gossip.take()
        assert isinstance(traffic, Traffic)
        return traffic


def test_step_then_publish_then_mix() -> None:
    # x1 = 2, its neighbour's 10: after a step of 1 it publishes 3, not what it mixes this to, (3 + 11) / 2 = 7
    post = Post(2)
    one, other = Hand(post, 0, 2.0), Hand(post, 1, 10.0)
    other.step(1.0)
    assert torch.equal(other.value, torch.full((SIZE,), 11.0))  # nothing has come
    one.step(1.0)
    assert torch.equal(one.value, torch.full((SIZE,), 7.0))  # a ring's weights: 1/2
    published = [(m.sender, m.iteration, to, float(m.parameters.max())) for m, to in post.sent]
    assert published == [(1, 1, (0,), 11.0), (0, 1, (1,), 3.0)]
    other.step()
    assert torch.equal(other.value, torch.full((SIZE,), 7.0))  # (11 + 3) / 2
    assert float(post.sent[-1][0].parameters.max()) == 11.0
    assert post.sent[-1][0].iteration == 2


def test_each_step_is_told_of_once_after_its_average() -> None:
    post = Post(2)
    one, other = (Hand(post, rank, value, interval=2) for rank, value in enumerate((2.0, 10.0)))
    for member in (other, one):
        member.step(1.0)
        member.step(1.0)
    # The first step is without an exchange; with the second, `one` averages its 4 with the other's 12
    found = [[(version, value.unique().tolist()) for version, value in member.told] for member in (one, other)]
    assert found == [[(1, [3.0]), (2, [8.0])], [(1, [11.0]), (2, [12.0])]]


def test_a_step_that_is_not_finite_is_neither_taken_nor_told_of() -> None:
    post = Post(2)
    one = Hand(post, 0, 2.0)
    assert not one.step(1.0, finite=False).finite
    assert (one.value.unique().tolist(), one.told) == ([2.0], [])
    one.step(1.0)
    assert [version for version, _ in one.told] == [1]
    assert not one.step(3e38).finite  # the gradient is finite, but not the sum of the parameters after it
    assert (len(one.told), one.gossip.refresh(), len(post.sent)) == (1, 1, 1)


def test_between_exchanges_a_member_is_alone() -> None:
    post = Post(2)
    one, other = (Hand(post, rank, 0.0, interval=3, period=9, window=6) for rank in range(2))
    for k in range(1, 8):
        other.step(2.0)
        one.step(1.0)
        if k % 3:
            assert len(post.sent) == 2 * (k // 3)
    assert [(m.sender, m.iteration) for m, _ in post.sent] == [(1, 3), (0, 3), (1, 6), (0, 6)]
    # `other` finds nothing at its third step; `one` goes on from (3 + 6) / 2 = 4.5 by three, then from (7.5 + 12) / 2
    assert [float(m.parameters.max()) for m, _ in post.sent] == [6.0, 3.0, 12.0, 7.5]
    assert float(one.value.max()) == 9.75 + 1
    assert one.traffic().iterations == 7


def test_graphs_that_change_do_so_from_exchange_to_exchange() -> None:
    for interval in (1, 4):  # counted in steps, every fourth one of eight members would always tell the same neighbour
        post = Post(8)
        one = Hand(post, 0, 0.0, graph=OnePeer(), interval=interval)
        for _ in range(3 * interval):
            one.step()
        assert len({to for _, to in post.sent}) == 3


@pytest.mark.parametrize(("interval", "staleness"), [(0, 5), (7, 5), (2, 0)])
def test_an_interval_longer_than_the_bound_would_hold_up_everybody(interval: int, staleness: int) -> None:
    with pytest.raises(ValueError, match=f"interval {interval}: must be at "):
        Gossip(Mailboxes(2), staleness=staleness, interval=interval)
    Gossip(Mailboxes(2), staleness=5, interval=6)
    Gossip(Mailboxes(2), staleness=0, interval=6, lock_step=True)


@pytest.mark.parametrize(("interval", "tau", "steps"), [(4, 16, 15), (4, 3, 3), (2, 5, 5), (3, 7, 5)])
def test_one_waits_before_it_could_get_further_ahead_than_tau(interval: int, tau: int, steps: int) -> None:
    one = Hand(Mailboxes(2), 0, 0.0, staleness=tau, interval=interval)
    for _ in range(steps):
        one.step()
    with pytest.raises(WouldBlock):
        one.step()


def test_weights_are_one_over_one_and_the_degree() -> None:
    post = Mailboxes(4)
    members = [Hand(post, rank, 4.0 * rank, graph=Complete()) for rank in range(4)]
    for member in members[1:]:
        member.step()
    members[0].step()
    # The others had stepped before: 0 has all three messages
    torch.testing.assert_close(members[0].value, torch.full((SIZE,), 6.0))
    lonely = Mailboxes(4)
    one, other = Hand(lonely, 0, 0.0, graph=Complete()), Hand(lonely, 1, 8.0, graph=Complete())
    other.step()
    one.step()
    torch.testing.assert_close(one.value, torch.full((SIZE,), 2.0))  # what did not come stays with the member: 8 / 4


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("mixing", [UNIFORM, PushSum()])
def test_what_was_published_is_never_changed(mixing: Mixing, interval: int) -> None:
    post = Post(3)
    more = {"graph": Complete(), "mixing": mixing, "interval": interval}
    members = [Hand(post, rank, torch.randn(SIZE), **more) for rank in range(3)]
    for _ in range(5 * interval):
        for member in members:
            member.step(torch.randn(SIZE))
    assert len(post.sent) == 15
    assert [hash_of(m.parameters) for m, _ in post.sent] == post.hashes


def test_a_late_message_has_the_share_it_would_have_had_in_time() -> None:
    # Two hosts of three: at odd exchanges members average with those of their host, at even ones one of each host with
    # one of the other. What 3 sent at exchange 2 comes to 0 at exchange 3 only, with what 1 and 2 sent there.
    post = Mailboxes(6)
    one = Hand(post, 0, 0.0, graph=Hierarchical(3))
    one.gossip.iteration = 2
    for sender, k, value in ((3, 2, 8.0), (1, 3, 6.0), (2, 3, 3.0)):
        post.send(Message(sender, k, 0, 1.0, 0.0, torch.full((SIZE,), value)), [0])
    one.step()
    # First half of 3's, then a third of each of the three on this host
    torch.testing.assert_close(one.value, torch.full((SIZE,), (4.0 + 6.0 + 3.0) / 3))


@pytest.mark.parametrize("restarts", [0, 1])
def test_what_is_kept_of_a_cut_is_never_changed(restarts: int) -> None:
    post = Mailboxes(2)
    for k in (4, 5):
        post.send(a_message(1, k, epoch=2, value=0.5), [0])
    model = Vector(torch.zeros(32))
    gossip = Gossip(post, period=4, window=2).join(Place(0, restarts), Learns(model))  # type: ignore[arg-type]
    opt = SGD(model.parameters(), 1.0)

    def cuts() -> list[Cut]:
        return [r for r in gossip.take() if isinstance(r, Cut)]

    def step() -> None:
        model.value.grad = torch.ones(32)
        gossip.step(Local(opt))

    steps = 0
    while not (found := cuts()):
        steps += 1
        step()
    assert steps == 3 * restarts  # restarted at iteration 5, the next window opens at 8
    (cut,) = found
    kept = cut.parameters.clone()
    step()
    assert torch.equal(cut.parameters, kept)


def test_messages_carry_the_epoch_of_their_sender() -> None:
    post = Post(2)
    one = Hand(post, 0, 0.0, period=4, window=2)
    for _ in range(6):
        one.step()
    # A cut is taken when a message has been published: 0 at the start, 1 at iteration 2, 2 at 4, 3 at 6
    assert [m.epoch for m, _ in post.sent] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("algorithm", [A2C(), PPO(epochs=2, num_minibatches=2)], ids=["a2c", "ppo"])
def test_only_parameters_are_averaged(algorithm: Algorithm, optimizer: str) -> None:
    """A learner with a neighbour that never moves: parameters half way, all else as in a learner by itself."""
    task = a_task(algorithm=algorithm, optimizer=optimizer, max_grad_norm=0.5)
    spec = task.env.make(1).spec
    batch = a_trajectory(spec, task.rollout_length, 3)
    post = Mailboxes(2)
    alone, both = Learner(task, spec), Learner(task, spec)
    gossip: Any = Gossip(post, period=0).join(Place(0), both)  # type: ignore[arg-type]
    there = torch.zeros_like(both.flat.vector)

    class Half(AloneLink):
        def step(self, local: LocalStep) -> Stepped:
            stepped = super().step(local)
            with torch.no_grad():
                for parameter in alone.model.parameters():
                    parameter.mul_(0.5)
            return stepped

    updates = 0
    for _ in range(2):
        for _ in range(4 if isinstance(algorithm, PPO) else 1):
            updates += 1
        both.update(batch, _Fed(gossip, post, there), 0)  # type: ignore[arg-type]
        alone.update(batch, Half(), 0)
    assert gossip.iteration == both.updates == updates
    for (name, a), b in zip(alone.model.named_parameters(), both.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6), name
    for a, b in zip(alone.opt.state.values(), both.opt.state.values(), strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert torch.allclose(torch.as_tensor(a[key]), torch.as_tensor(b[key]), atol=1e-6), key


@dataclass
class _Fed:
    """Gossip whose neighbour has said something new before every step."""

    gossip: Any
    post: Mailboxes
    there: Tensor

    def step(self, local: LocalStep) -> Stepped:
        k = self.gossip.iteration + 1
        self.post.send(Message(1, k, 0, 1.0, 0.0, self.there), [0])
        stepped: Stepped = self.gossip.step(local)
        return stepped

    def refresh(self) -> int:
        version: int = self.gossip.refresh()
        return version


def test_the_inner_exchange_does_the_local_step() -> None:
    inner, post = Counting(), Post(2)
    one = Hand(post, 0, 0.0, inner=inner)
    one.step(1.0)
    one.step(1.0)
    assert inner.asked == ["join", "step", "step"]
    assert [float(m.parameters.max()) for m, _ in post.sent] == [1.0, 2.0]
    assert one.gossip.take()[0] == "inner"
    one.gossip.leave()
    assert inner.asked[-1] == "leave"
    assert post.members == (1,)
    assert one.gossip.refresh() == 2


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_equal_members_exchange_and_neither_changes(form: Format) -> None:
    start = torch.randn(SIZE, generator=torch.Generator().manual_seed(3)) * torch.logspace(-6, 3, SIZE)
    for members in (2, 3):
        post = Post(members, form, newest=False)
        hands = [Hand(post, rank, start, graph=Complete()) for rank in range(members)]
        for _ in range(4):
            for hand in hands:
                hand.step()
        for hand in hands:
            if members == 2 or form != "fp32":  # a float32 mean of three numbers need not be exact
                assert torch.equal(hand.value, start)
        assert hands[1].traffic().mixed > 0


def test_the_share_of_an_old_message_is_smaller_and_the_member_keeps_the_rest() -> None:
    # Every 2nd step. The other's message of iteration 2 is averaged at iteration 8, three exchanges later: of its 10,
    # 1/2 (1 + 3)^-1/2 = 1/4 counts, and 3/4 of one's own 2
    post = Post(2)
    one, other = (Hand(post, rank, value, interval=2, decay=0.5) for rank, value in enumerate((2.0, 10.0)))
    for _ in range(6):
        one.step()
    for _ in range(2):
        other.gossip.post.collect(1, {}, 0)  # as if nothing had come
        other.step()
    assert torch.equal(other.value, torch.full((SIZE,), 10.0))
    for _ in range(2):
        one.step()
    assert torch.equal(one.value, torch.full((SIZE,), 4.0))
    assert one.traffic().mixed == 1


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_the_mean_of_two_is_conserved_in_lock_step(form: Format) -> None:
    post = Post(2, form, newest=False)
    generator = torch.Generator().manual_seed(4)
    hands = [Hand(post, rank, torch.randn(SIZE, generator=generator)) for rank in range(2)]
    mean = (hands[0].value + hands[1].value) / 2
    for _ in range(20):
        # Both publish before either collects, as in lock-step
        mine = [hand.gossip._flat.vector for hand in hands]
        for hand in hands:
            hand.gossip.iteration += 1
        for hand, vector in zip(hands, mine, strict=True):
            message = Message(hand.gossip.rank, hand.gossip.iteration, 0, 1.0, 0.0, vector)
            post.send(message, [1 - hand.gossip.rank])
        for hand, vector in zip(hands, mine, strict=True):
            found = post.collect(hand.gossip.rank, {}, 0).messages
            hand.gossip._mix(vector, found, 1.0)
    torch.testing.assert_close((hands[0].value + hands[1].value) / 2, mean, atol=1e-6, rtol=0)
    assert (hands[0].value - hands[1].value).norm() < 0.05 * mean.norm()


def test_what_rounding_may_add_is_told() -> None:
    post = Post(2, "int8")
    one, other = (Hand(post, rank, torch.randn(SIZE), period=10, window=5) for rank in range(2))
    before = one.value
    other.step()
    one.step()
    theirs = post.sent[0][0].parameters
    noise = 0.5 * float((rounded(theirs, "int8") - theirs).norm() + (rounded(before, "int8") - before).norm())
    assert one.gossip._tracker._noise == pytest.approx(noise, rel=1e-4)
    exact = (before + theirs) / 2
    assert 0 < (one.value - exact).norm() <= noise


@pytest.mark.parametrize("staleness", [-1, -0.5, math.nan])
def test_staleness_below_0_means_nothing(staleness: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Gossip(Mailboxes(2), staleness=staleness)


@pytest.mark.parametrize(("tau", "steps"), [(0, 0), (1, 1), (3, 3)])
def test_one_waits_once_tau_iterations_ahead(tau: int, steps: int) -> None:
    post = Mailboxes(2)
    one = Hand(post, 0, 0.0, staleness=tau)
    for _ in range(steps):
        one.step()
    with pytest.raises(WouldBlock):
        one.step()
    fast, slow = (Hand(Mailboxes(2), 0, 0.0, **mode) for mode in ({}, {"lock_step": True}))
    for _ in range(20):
        fast.step()  # never
    with pytest.raises(WouldBlock):
        slow.step()


def test_counts_of_messages() -> None:
    post = Mailboxes(3)
    one, other = Hand(post, 0, 0.0, graph=Complete()), Hand(post, 1, 0.0, graph=Complete())
    for _ in range(3):
        other.step()
    post.refused = 5
    one.step()
    one.step()
    traffic = one.traffic()
    assert (traffic.iterations, traffic.sent, traffic.mixed, traffic.refused) == (2, 4, 1, 5)
    assert traffic.staleness == {-2: 1}
    assert one.traffic() == Traffic()


def test_push_sum_counts_every_step_in_the_weighted_mean() -> None:
    # Each sends half of its weight to the next; a step of a member of weight w moves w * x by the step.
    post = Mailboxes(2, newest=False)
    hands = [Hand(post, rank, 0.0, mixing=PushSum()) for rank in range(2)]
    done = 0.0
    for turn in (0, 0, 1, 0, 1, 1, 1, 0):
        hands[turn].step(1.0)
        done += 1.0
    flying = [m for boxes in post._unread.values() for box in boxes.values() for m in box]
    weights = sum(h.gossip.weight for h in hands) + sum(m.weight for m in flying)
    total = sum(h.gossip.weight * h.value for h in hands) + sum(m.weight * m.parameters for m in flying)
    assert weights == pytest.approx(2)
    torch.testing.assert_close(total, torch.full((SIZE,), done))
    assert hands[0].gossip.weight != 1.0
    assert hands[0].traffic().weight == hands[0].gossip.weight


def test_push_sum_scales_steps_and_leaves_running_statistics_alone() -> None:
    # Half of the weight is on its way to the other member, so a step of 1 moves the parameters by 2.
    hand = Hand(Post(2), 0, 0.0, mixing=PushSum(), model=Counts)
    hand.step()
    assert hand.gossip.weight == 0.5
    statistic = hand.model.statistic
    statistic.fill_(7.0)  # by the learner, between two steps
    hand.step(1.0)
    assert torch.equal(hand.value, torch.full((SIZE,), 2.0))
    assert statistic.tolist() == [7.0, 7.0]


@pytest.mark.parametrize("more", [{}, {"rounding": "int8"}, {"rounding": "int8", "sparse": Sparse(0.1, "rotation")}])
def test_running_statistics_are_not_rounded(more: dict[str, Any]) -> None:
    """They are tiny beside the parameters, with which they would share a scale of int8."""
    post = Post(2, "int8")
    members = [Hand(post, rank, 5.0, model=Counts, **more) for rank in (0, 1)]
    for hand, value in zip(members, (1e-7, 3e-7), strict=True):
        hand.model.statistic.fill_(value)
        hand.step()
    assert members[1].model.statistic.tolist() == pytest.approx([2e-7, 2e-7], rel=1e-6)
    assert post.sent[-1][0].exact == len(members[1].learner.flat.vector) - SIZE


def test_who_has_little_weight_left_keeps_it_and_holds_nobody_up() -> None:
    post = Mailboxes(2, newest=False)
    poor, other = (Hand(post, rank, 4.0 * rank, mixing=PushSum(), lock_step=True) for rank in range(2))
    poor.gossip.weight = LEAST / 2
    with pytest.raises(WouldBlock):
        poor.step()  # not for want of a message of its own: the other one has not sent any
    other.step()  # has heard how far its neighbour is, and got nothing
    assert torch.equal(other.value, torch.full((SIZE,), 4.0))
    assert (other.gossip.weight, poor.gossip.weight) == (0.5, LEAST / 2)


# A member whose host was started again


def again(post: Mailboxes, **more: Any) -> tuple[Any, Learns, Place]:
    place, learner = Place(0, restarts=1), Learns(Vector(torch.zeros(32)))
    state = {"iteration": 3}
    gossip = Gossip(post, period=0, **more).join(place, learner, state)  # type: ignore[arg-type]
    return gossip, learner, place


def test_a_restarted_member_goes_on_from_its_neighbours_average() -> None:
    post = Mailboxes(3)
    post.refused = 2
    post.send(a_message(1, 40, 1.0, epoch=4), [0])
    post.send(a_message(2, 30, 2.0, epoch=3), [0])
    gossip, learner, place = again(post)
    assert torch.equal(learner.model.value, torch.full((32,), 1.5))  # type: ignore[arg-type]
    assert (gossip.iteration, gossip._tracker.epoch) == (40, 4)
    assert place.slept == [0.1]
    opt = SGD(learner.model.parameters(), 1.0)
    learner.model.value.grad = torch.ones(32)  # type: ignore[assignment]
    gossip.step(Local(opt))
    assert torch.equal(learner.model.value, torch.full((32,), 0.5))  # type: ignore[arg-type]
    (*_, traffic) = gossip.take()
    assert isinstance(traffic, Traffic)
    assert traffic.refused == 2
    (message,) = post.collect(1, {}, 0).messages
    assert (message.iteration, float(message.parameters.max())) == (41, 0.5)


def test_it_goes_on_alone_after_a_while() -> None:
    from gossamer.exchange.gossip.gossip import RECOVERY

    gossip, learner, place = again(Mailboxes(3))
    assert gossip.iteration == 3  # of its own state
    assert RECOVERY <= sum(place.slept) < RECOVERY + 1
    assert not learner.model.value.any()  # type: ignore[operator]


def test_it_waits_for_nobody_where_nobody_else_takes_part() -> None:
    post = Mailboxes(3)
    post.dismiss([1, 2])
    assert sum(again(post)[2].slept) <= 0.1


def test_it_goes_on_where_others_are_although_it_hears_nobody() -> None:
    """Else neighbours with a bound on staleness would wait until it has made all their iterations."""
    post = Mailboxes(3)
    post.send(a_message(1, 70), [2])  # not for it
    gossip, learner, _ = again(post)
    assert gossip.iteration == 70
    assert not learner.model.value.any()  # type: ignore[operator]


def test_a_first_start_takes_over_nothing() -> None:
    post = Mailboxes(2)
    post.send(a_message(1, 40, 1.0), [0])
    model = Vector(torch.zeros(32))
    place = Place(0)
    gossip: Any = Gossip(post, Ring(), period=0).join(place, Learns(model))  # type: ignore[arg-type]
    assert (gossip.iteration, float(model.value.detach().max()), place.slept) == (0, 0.0, [])
