"""Sparse messages: which parameters they have, what their average leaves alone, and that it conserves the mean."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from some_messages import Learns, Local, Place, Vector
from some_programs import Watcher
from torch import Tensor, nn
from torch.optim import SGD
from torch.testing import assert_close

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip.graphs import Complete, Exponential, Graph, OnePeer, RandomPairs, Ring
from gossamer.exchange.gossip.messages import Message
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.records import Traffic
from gossamer.exchange.gossip.sparse import Select, Sparse
from gossamer.launch.simulation import Simulation
from gossamer.nn.normalization import ValueHead
from gossamer.program import Program
from gossamer.runtime import Context

SIZE = 16  # P, without padding


def march(ctx: Context, gossip: Gossip, starts: Tensor, moves: Tensor) -> None:
    """A member with parameters `starts[rank]`, whose k-th step adds `moves[k, rank]`; reports them after each step."""
    model = Vector(starts[ctx.rank])
    link, opt = gossip.join(ctx, Learns(model)), SGD(model.parameters(), 1.0)  # type: ignore[arg-type]
    for k in range(len(moves)):
        model.value.grad = -moves[k, ctx.rank]
        link.step(Local(opt))  # type: ignore[arg-type]
        ctx.report((k, ctx.rank, model.value.detach().clone()))
    (traffic,) = link.take()
    ctx.report(traffic)  # it does not leave: the graph would close over it while others still exchange


def marched(
    starts: Tensor, moves: Tensor, sparse: Sparse | None, graph: Graph | None = None, **more: Any
) -> tuple[Tensor, int]:
    """Parameters [steps, members, P] after each step of members in lock-step, and the bytes that they have sent."""
    members, program, watcher = len(starts), Program("march"), Watcher()
    post = program.service(Mailboxes)(members, newest=False)
    gossip = Gossip(post, graph or Complete(), lock_step=True, sparse=sparse, period=0, **more)
    program.worker(march, copies=members)(gossip, starts, moves)
    Simulation(1)(program, watcher)
    found = torch.zeros_like(moves)
    for k, rank, value in (record for _, record in watcher.records if not isinstance(record, Traffic)):
        found[k, rank] = value
    return found, sum(record.sent_bytes for _, record in watcher.records if isinstance(record, Traffic))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_those_that_changed_most_are_exchanged_and_small_changes_are_kept_until_they_are_large() -> None:
    # Two members send one of 16 parameters. All begin at 10. The first has changed parameter 0 most, by 4, the second
    # parameter 1, by -8: each counts half. Their smaller changes, 1 and 2 of parameter 2, are not sent and stay.
    starts, moves = torch.full((2, SIZE), 10.0), torch.zeros(2, 2, SIZE)
    moves[0, 0, :3] = torch.tensor([4.0, 0.0, 1.0])
    moves[0, 1, :3] = torch.tensor([0.0, -8.0, 2.0])
    # In the second step neither changes parameters 0 and 1, of which all have heard. Parameter 2 has changed by 1 + 2
    # and by 2 since it was last exchanged, so now both send it: the mean of 13 and 12.
    moves[1, 0, 2] = 2.0
    found, sent = marched(starts, moves, Sparse(1 / SIZE, "changed"))
    assert found[0, 0, :4].tolist() == [12.0, 6.0, 11.0, 10.0]
    assert found[0, 1, :4].tolist() == [12.0, 6.0, 12.0, 10.0]
    assert found[1, :, :4].tolist() == [[12.0, 6.0, 12.5, 10.0]] * 2
    assert sent == 2 * 2 * 8  # two messages of each, with a number and its index


def test_a_parameter_that_one_has_sent_counts_as_unchanged_at_those_that_have_not() -> None:
    # Three members at 3. The first sends a change of 6; the others, with larger changes elsewhere, add a third of it to
    # their own, unsent changes of 1 and 2 of the same parameter.
    starts, moves = torch.full((3, SIZE), 3.0), torch.zeros(1, 3, SIZE)
    moves[0, :, 0] = torch.tensor([6.0, 1.0, 2.0])
    moves[0, 1, 1], moves[0, 2, 2] = 9.0, 9.0
    found, _ = marched(starts, moves, Sparse(1 / SIZE, "changed"))
    assert_close(found[0, :, 0], torch.tensor([5.0, 6.0, 7.0]))  # 3 + 6 / 3, and what was not sent
    assert_close(found[0, :, 1:3], torch.full((3, 2), 6.0))  # 3 + 9 / 3


def test_drawn_parameters_are_averaged_and_all_others_left_alone() -> None:
    starts, moves = normal(2, SIZE), torch.zeros(8, 2, SIZE)
    found, sent = marched(starts, moves, Sparse(0.25, "random", seed=3))
    before, drawn = starts, set[int]()
    for k in range(8):
        changed = (found[k] != before).any(0)
        assert changed.sum() <= 4
        assert torch.equal(found[k][:, ~changed], before[:, ~changed])
        assert_close(found[k][:, changed], before.mean(0)[changed].expand(2, -1))
        drawn |= set(changed.nonzero().flatten().tolist())
        before = found[k]
    assert len(drawn) > 8  # another draw at each exchange
    assert sent == 2 * 8 * 4 * 4  # without indices, which all know


def test_in_rotation_each_parameter_is_exchanged_once_in_each_round() -> None:
    # Parts of 5, 5, 5 and 1 of 16 parameters, in another order each round
    starts, moves = normal(2, SIZE), normal(12, 2, SIZE, seed=1)
    found, sent = marched(starts, moves, Sparse(0.3, "rotation", seed=3))
    before, parts = starts, list[list[int]]()
    for k in range(12):
        equal = (found[k][0] - found[k][1]).abs() < 1e-6
        assert_close(found[k], torch.where(equal, (before + moves[k]).mean(0), before + moves[k]))
        parts.append(equal.nonzero().flatten().tolist())
        before = found[k]
    for turn in range(0, 12, 4):
        assert sorted(place for part in parts[turn : turn + 4] for place in part) == list(range(SIZE))
    assert parts[:4] != parts[4:8]
    assert sent == 2 * 3 * SIZE * 4  # three rounds of all parameters, without indices


@pytest.mark.parametrize(
    ("select", "graph"),
    [("changed", Complete()), *product(("random", "rotation"), (Complete(), Ring(), Exponential()))],
    ids=str,
)
@pytest.mark.parametrize("members", [2, 3, 5])
def test_with_share_1_it_is_the_average_to_the_bit(members: int, select: Select, graph: Graph) -> None:
    starts, moves = normal(1, SIZE).repeat(members, 1), normal(12, members, SIZE, seed=1)
    sparse, sent = marched(starts, moves, Sparse(1.0, select), graph, interval=2)
    whole, sent_whole = marched(starts, moves, None, graph, interval=2)
    assert torch.equal(sparse, whole)
    neighbours = len(graph.out(0, tuple(range(members)), 1))
    assert sent == sent_whole == 6 * members * neighbours * SIZE * 4


@pytest.mark.parametrize("sparse", [None, Sparse(0.25, "rotation")])
def test_outer_momentum_of_0_at_rate_1_changes_nothing_to_the_bit(sparse: Sparse | None) -> None:
    starts, moves = normal(1, SIZE).repeat(4, 1), normal(12, 4, SIZE, seed=1)
    plain, _ = marched(starts, moves, sparse, Ring(), interval=2)
    outer, _ = marched(starts, moves, sparse, Ring(), interval=2, outer=Outer(0.0, 1.0))
    assert torch.equal(outer, plain)


@settings(deadline=None, max_examples=25)
@given(
    members=st.integers(2, 6), share=st.floats(0.01, 1.0), seed=st.integers(0, 99), interval=st.integers(1, 3),
    kind=st.sampled_from(
        [("changed", Complete()), *product(("random", "rotation"), (Ring(), OnePeer(), RandomPairs()))]
    ),
)  # fmt: skip
def test_the_mean_is_conserved(
    members: int, share: float, seed: int, interval: int, kind: tuple[Select, Graph]
) -> None:
    select, graph = kind
    starts, moves = normal(1, SIZE, seed=seed).repeat(members, 1), normal(9, members, SIZE, seed=seed + 1)
    found, _ = marched(starts, moves, Sparse(share, select, seed), graph, interval=interval)
    assert_close(found.mean(1), starts.mean(0) + moves.mean(1).cumsum(0), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("select", "graph"), [("changed", Complete()), ("random", Complete()), ("random", Ring()), ("rotation", OnePeer())]
)
def test_members_that_rest_reach_consensus(select: Select, graph: Graph) -> None:
    starts, moves = normal(1, SIZE).repeat(4, 1), torch.zeros(100, 4, SIZE)
    moves[0] = normal(4, SIZE, seed=2)
    found, _ = marched(starts, moves, Sparse(0.25, select), graph)
    assert found[0].var(0).sum() > 1.0
    # On a ring of four, an exchange of a parameter makes differences smaller by cos(pi / 4), 15 of them by 0.006
    assert_close(found[-1], found[-1].mean(0).expand(4, -1), atol=0.02, rtol=0)


class Counted(Vector):
    """A vector, and a running statistic without gradients."""

    def __init__(self, value: Tensor) -> None:
        super().__init__(value)
        self.statistic = nn.Parameter(torch.zeros(2), requires_grad=False)


@pytest.mark.parametrize("select", ["random", "rotation", "changed"])
def test_each_message_has_the_running_statistics(select: Select) -> None:
    post = Mailboxes(1)
    model, place = Counted(torch.zeros(SIZE)), Place(0)
    lock = {"lock_step": True} if select == "changed" else {}
    gossip = Gossip(post, Complete(), sparse=Sparse(0.25, select), period=0, **lock)  # type: ignore[arg-type]
    link: Any = gossip.join(place, Learns(model))  # type: ignore[arg-type]
    places = link._contents._selection._places(link._flat.vector, 1)
    assert len(places) == 4 + 16  # of the 16 trained ones, and the statistics with their padding
    assert places[-16:].tolist() == list(range(16, 32))


def test_each_message_has_the_value_layer_in_units_of_running_statistics() -> None:
    model = nn.ModuleDict({"value": ValueHead(16), "torso": nn.Linear(15, 16)})
    gossip: Any = Gossip(Mailboxes(1), Complete(), sparse=Sparse(0.25, "rotation"), period=0)
    link: Any = gossip.join(Place(0), Learns(model))
    flat, selection = link._flat, link._contents._selection
    assert flat.separable == 15 * 16 + 16
    for k in range(1, 5):
        places = selection._places(flat.vector, k).tolist()
        assert places[64:] == list(range(flat.separable, len(flat.vector)))


def test_after_a_change_of_the_membership_a_message_has_all_parameters() -> None:
    """Member 0 comes back with old parameters: what the others send has all, and it starts from their mean."""
    post, sparse = Mailboxes(3, newest=False), Sparse(0.25, "changed")
    gossip: Any = Gossip(post, Complete(), lock_step=True, sparse=sparse, period=0)
    model = Vector(torch.zeros(SIZE))
    other: Any = gossip.join(Place(1), Learns(Vector(torch.full((SIZE,), 4.0))))
    assert len(other._contents._selection.chosen(other._flat.vector, 1, post.view)[0]) == 4
    post.dismiss([0])
    vector, places = other._contents._selection.chosen(other._flat.vector, 2, post.view)
    assert (len(vector), places) == (SIZE, None)
    assert len(other._contents._selection.chosen(other._flat.vector, 3, post.view)[0]) == 4
    post.send(Message(2, 7, 0, 1.0, 0.0, torch.ones(4), places=torch.arange(4)), [0])
    post.send(Message(1, 8, 0, 1.0, 0.0, torch.full((SIZE,), 4.0)), [0])
    link: Any = gossip.join(Place(0, restarts=1), Learns(model), {"iteration": 3, "known": torch.zeros(SIZE)})
    assert link.iteration == 8
    assert model.value.unique().tolist() == [4.0]
    assert link.state_dict()["known"].unique().tolist() == [4.0]
    # A neighbour may have been restarted with it
    assert len(link._contents._selection.chosen(link._flat.vector, 9, link._found.view)[0]) == SIZE


def test_what_the_others_know_is_part_of_the_state() -> None:
    gossip: Any = Gossip(Mailboxes(1), Complete(), lock_step=True, sparse=Sparse(0.5, "changed"), period=0)
    link = gossip.join(Place(0), Learns(Vector(torch.ones(SIZE))))
    again = gossip.join(Place(0), Learns(Vector(torch.zeros(SIZE))), link.state_dict())
    assert again.state_dict()["known"].unique().tolist() == [1.0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"mixing": PushSum(), "sparse": Sparse(0.5)}, "uniform mixing"),
        ({"mixing": PushSum(), "decay": 1.0}, "uniform mixing"),
        ({"decay": 1.0, "lock_step": True}, "decay 1.0: .* 0 with lock_step"),
        ({"sparse": Sparse(0.5, "changed"), "graph": Complete()}, "lock_step"),
        ({"sparse": Sparse(0.5, "changed"), "graph": Exponential(), "lock_step": True}, "complete graph"),
    ],
)
def test_what_does_not_work_together(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Gossip(Mailboxes(2), **{"period": 0, **given})


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        Sparse(share)


def test_what_a_checkpoint_knows_is_copied_to_the_device_of_the_parameters() -> None:
    known = torch.ones(SIZE)
    changed = Sparse(0.5, "changed")
    there = changed.of(torch.zeros(SIZE, device="meta"), SIZE, known, 0).known  # stands for a GPU
    here = changed.of(torch.zeros(SIZE), SIZE, known, 0).known
    assert there is not None
    assert here is not None
    assert there.device.type == "meta"
    here.zero_()
    assert known.tolist() == [1.0] * SIZE
