"""Distances are those of the vectors; the bound holds whatever the members do, and is met where it can be."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from some_gossip import SIZE, Ring, cut, windows

from gossamer.diagnostics.bound import (
    MARGIN,
    ConsensusDistance,
    Cosines,
    Event,
    Incomplete,
    Window,
    consensus_distance,
    cosines,
    deviations,
    projection_error,
)
from gossamer.exchange.gossip.projection import standard_error
from gossamer.exchange.gossip.records import Cut, InTransit, Record, Tracked

programs = given(members=st.integers(1, 5), steps=st.integers(0, 120), seed=st.integers(0, 2**32 - 1))


def window_of(*records: Record) -> Window:
    window = Window(0)
    for record in records:
        assert isinstance(record, Cut | InTransit | Tracked)
        window.take(record)
    return window


def after(members: int, steps: int, seed: int) -> Ring:
    ring = Ring(members, seed)
    ring.run(steps)
    ring.settle()
    return ring


def test_the_simplest_bound_is_met() -> None:
    # Two members at 0 and 2: both 1 from their mean. Both mix to 1, the first then moves by 3, to 4: the mean is 2.5.
    # Of both starts both have the same share. Of the displacement the first has 1 and the second 0, 1/2 on average:
    # 1/2 * 3 = 1.5.
    window = window_of(
        cut(0, 0, 7, [0.0]),
        cut(0, 1, 9, [2.0]),
        Tracked(0, 0, 8, ((0, 7, 0.5), (1, 9, 0.5)), 3.0),
        Tracked(0, 1, 10, ((0, 7, 0.5), (1, 9, 0.5)), 0.0),
        cut(1, 0, 8, [4.0]),
        cut(1, 1, 10, [1.0]),
    )
    assert window.complete
    assert consensus_distance(window) == ConsensusDistance(1.0, 1.0, 1.5, 1.5, 1.5, 1.5)


def test_what_was_on_its_way_counts_too() -> None:
    # Two members at 0, and on its way to the first what the second was once, 4. The first mixes it in by a quarter and
    # moves to 1, the second does nothing: mean 1/2, distance 1/2. Of the 4 the first has 1/4, the second nothing:
    # (1/4 - 1/8) * 4 = 1/2.
    window = window_of(
        cut(0, 0, 1, [0.0]),
        InTransit(0, 1, 1, torch.tensor([4.0])),
        Tracked(0, 0, 2, ((0, 1, 0.75), (1, 1, 0.25)), 0.0),
        cut(0, 1, 3, [0.0]),
        cut(1, 0, 2, [1.0]),
        cut(1, 1, 3, [0.0]),
    )
    assert consensus_distance(window) == ConsensusDistance(0.0, 0.0, 0.5, 0.5, 0.5, 0.5)


def test_displacements_in_other_directions_leave_the_bound_above_the_distance() -> None:
    # Three members at 0 move by (3, 0), (0, 4) and nothing. Mean (1, 4/3); the second is (-1, 8/3) from it, its length
    # is sqrt(1 + 64/9) = sqrt(73) / 3. Its bound is 1/3 * 3 + 2/3 * 4 = 11/3; the first's 2/3 * 3 + 1/3 * 4 = 10/3 and
    # the third's 1/3 * 3 + 1/3 * 4 = 7/3.
    moves = ([3.0, 0.0], [0.0, 4.0], [0.0, 0.0])
    window = window_of(
        *(cut(0, i, 0, [0.0, 0.0], 3) for i in range(3)),
        *(Tracked(0, i, 1, ((i, 0, 1.0),), float(np.linalg.norm(move))) for i, move in enumerate(moves)),
        *(cut(1, i, 1, move, 3) for i, move in enumerate(moves)),
    )
    found = consensus_distance(window)
    assert found.distance == pytest.approx(73**0.5 / 3)
    assert found.bound == pytest.approx(11 / 3)
    assert found.bound_rms == pytest.approx(((121 + 100 + 49) / 9 / 3) ** 0.5)


@settings(deadline=None, max_examples=60)
@programs
def test_the_bound_holds_for_whatever_members_do(members: int, steps: int, seed: int) -> None:
    for window in windows(after(members, steps, seed)):
        found = consensus_distance(window)
        x = np.stack([window.closing[i].parameters.numpy() for i in range(members)])
        distances = np.linalg.norm(x - x.mean(0), axis=1)
        assert found.distance == pytest.approx(distances.max(), abs=1e-12)
        assert found.distance_rms == pytest.approx((distances**2).mean() ** 0.5, abs=1e-12)
        assert found.distance <= found.bound * (1 + 1e-9) + 1e-12
        assert found.distance_rms <= found.bound_rms * (1 + 1e-9) + 1e-12


@settings(deadline=None, max_examples=60)
@programs
def test_the_bound_is_the_formula_s(members: int, steps: int, seed: int) -> None:
    ring = after(members, steps, seed)
    for window in windows(ring):
        assert consensus_distance(window).bound == pytest.approx(slow_bound(ring, window), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_bound_holds_for_projected_vectors_too(seed: int) -> None:
    """Vectors of 12,000 elements as projections of 4,096: the estimate is near the true distance, both are bounded."""
    ring = Ring(4, seed, size=12_000)
    ring.run(80)
    ring.settle()
    found = windows(ring)
    assert found
    for window in found:
        assert all(len(cut.parameters) == 4096 for cut in window.closing.values())
        ends = np.stack([ring.vectors[m, window.closing[m].iteration] for m in range(4)])
        true = np.linalg.norm(ends - ends.mean(0), axis=1).max()
        apart = consensus_distance(window)
        assert apart.distance == pytest.approx(true, rel=MARGIN * standard_error(12_000))
        assert true <= apart.bound
        assert apart.distance <= apart.bound


def test_the_bound_is_raised_by_the_error_of_the_projection() -> None:
    # One member has moved by 3, the other not: 3/2 from their mean each, and a bound of 3/2 where vectors are exact.
    records = [
        cut(0, 0, 0, [0.0], size=4097),
        cut(0, 1, 0, [0.0], size=4097),
        Tracked(0, 0, 1, ((0, 0, 1.0),), 3.0),
        cut(1, 0, 1, [3.1], size=4097),
        cut(1, 1, 0, [0.0], size=4097),
    ]
    found = consensus_distance(window_of(*records))
    assert found.distance == pytest.approx(1.55)
    assert found.bound == pytest.approx(1.5 * (1 + 4 * standard_error(4097)))
    assert found.bound > 1.5 * 1.04


def test_the_error_of_the_projection_is_measured_on_the_members_own_changes() -> None:
    # Members of true changes 2 and 5 whose projections are 2.2 and 4.75 long: errors of 10 % and -5 %, in the
    # root mean square sqrt((0.01 + 0.0025) / 2). A member that has not moved says nothing.
    opening = [cut(0, i, 0, [1.0, 1.0], 3) for i in range(3)]
    ends = ([3.2, 1.0], [1.0, -3.75], [1.0, 1.0])
    closing = [cut(1, i, 1, end, 3, moved=moved) for i, (end, moved) in enumerate(zip(ends, (2, 5, 0), strict=True))]
    assert projection_error(window_of(*opening, *closing)) == pytest.approx(0.00625**0.5, rel=1e-6)
    still = [cut(1, i, 1, [1.0, 1.0], 3, moved=0.0) for i in range(3)]
    assert projection_error(window_of(*opening, *still)) is None


def slow_bound(ring: Ring, window: Window) -> float:
    """Shares of every vector by recursion from the definition; they must give the vectors themselves again."""
    starts = {(m, c.iteration): c.parameters.numpy() for m, c in window.opening.items()}
    centre = np.mean(list(starts.values()), axis=0)
    starts |= {event: vector.numpy() for event, vector in window.transit.items()}

    @cache
    def shares(event: Event) -> dict[tuple[str, Event], float]:
        if event in starts:
            return {("start", event): 1.0}
        found = {("moved", event): 1.0}
        for member, iteration, weight in window.steps[event].parents:
            for what, share in shares((member, iteration)).items():
                found[what] = found.get(what, 0.0) + weight * share
        return found

    ends = [shares((m, c.iteration)) for m, c in sorted(window.closing.items())]
    kinds = {what: starts if what[0] == "start" else ring.displacements for end in ends for what in end}
    for (_, closing), end in zip(sorted(window.closing.items()), ends, strict=True):
        again = sum((share * kinds[what][what[1]] for what, share in end.items()), np.zeros(SIZE))
        np.testing.assert_allclose(again, closing.parameters.numpy(), atol=1e-9)
    bounds = []
    for end in ends:
        bound = 0.0
        for what, vectors in kinds.items():
            mean = sum(other.get(what, 0.0) for other in ends) / len(ends)
            offset = centre if what[0] == "start" else 0.0
            bound += abs(end.get(what, 0.0) - mean) * float(np.linalg.norm(vectors[what[1]] - offset))
        bounds.append(bound)
    return max(bounds)


def test_random_programs_have_windows_with_steps_and_delays() -> None:
    found = [window for seed in range(5) for window in windows(after(4, 100, seed))]
    assert len(found) > 5
    assert sum(len(window.steps) for window in found) > 50
    assert any(window.transit for window in found)


def test_weights_that_do_not_sum_to_one_are_charged_for() -> None:
    # Two members at 10, both 0 from their mean; the first doubles itself: 20 and 10, 5 from their mean.
    window = window_of(
        cut(0, 0, 0, [10.0]),
        cut(0, 1, 0, [10.0]),
        Tracked(0, 0, 1, ((0, 0, 2.0),), 0.0),
        cut(1, 0, 1, [20.0]),
        cut(1, 1, 0, [10.0]),
    )
    assert consensus_distance(window) == ConsensusDistance(0.0, 0.0, 5.0, 5.0, 5.0, 5.0)


def test_a_step_of_unknown_origin_makes_a_window_incomplete() -> None:
    cuts = [cut(0, 0, 1, [0.0]), cut(0, 1, 1, [0.0]), cut(1, 0, 2, [1.0]), cut(1, 1, 1, [0.0])]
    with pytest.raises(Incomplete, match="member 0: no record of step 2"):
        consensus_distance(window_of(*cuts))
    with pytest.raises(Incomplete, match="member 1: no record of step 9"):
        consensus_distance(window_of(*cuts, Tracked(0, 0, 2, ((0, 1, 0.5), (1, 9, 0.5)), 1.0)))
    with pytest.raises(Incomplete, match="form a cycle"):
        consensus_distance(
            window_of(*cuts, Tracked(0, 0, 2, ((0, 3, 1.0),), 1.0), Tracked(0, 0, 3, ((0, 2, 1.0),), 1.0))
        )


def test_a_step_that_nobody_has_a_part_of_need_not_be_known() -> None:
    lost = Tracked(0, 1, 2, ((5, 5, 1.0),), 1.0)
    cuts = [cut(0, 0, 1, [0.0]), cut(0, 1, 1, [0.0]), cut(1, 0, 1, [0.0]), cut(1, 1, 1, [0.0])]
    assert consensus_distance(window_of(*cuts, lost)).bound == 0.0


def test_records_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(Incomplete, match="member 0: duplicate cut at epoch 1"):
        window_of(cut(1, 0, 1, [0.0]), cut(1, 0, 2, [0.0]))
    with pytest.raises(Incomplete, match="inconsistent membership"):
        window_of(cut(0, 0, 1, [0.0], 2), cut(0, 1, 1, [0.0], 3))
    with pytest.raises(Incomplete, match="inconsistent membership"):
        window_of(cut(0, 2, 1, [0.0], 2))
    with pytest.raises(Incomplete, match="member 0: duplicate step 2"):
        window_of(*[Tracked(0, 0, 2, ((0, 1, 1.0),), 1.0)] * 2)


def test_a_window_is_complete_when_all_have_opened_and_closed_it() -> None:
    records = [cut(epoch, member, 0, [0.0], 3) for member in range(3) for epoch in (0, 1)]
    assert [window_of(*records[:n]).complete for n in range(7)] == [False] * 6 + [True]


def test_cosines_are_means_over_pairs() -> None:
    # On a ring of four 0-1, 1-2, 2-3 and 3-0 are neighbours. Directions east, north, east, west, of any length:
    # 0-1 0, 1-2 0, 2-3 -1, 3-0 -1; the others 0-2 1, 1-3 0.
    gradients = ([2.0, 0.0], [0.0, 5.0], [0.1, 0.0], [-3.0, 0.0])
    closing = [cut(1, i, 0, [0.0, 0.0], 4, gradient=gradient) for i, gradient in enumerate(gradients)]
    found = cosines(window_of(*closing))
    assert found.neighbours == pytest.approx(-0.5)
    assert found.others == pytest.approx(0.5)
    assert found.all == pytest.approx(-1 / 6)


def test_two_members_are_neighbours_and_nothing_else() -> None:
    closing = [cut(1, i, 0, [0.0], gradient=[sign]) for i, sign in enumerate((1.0, -2.0))]
    assert cosines(window_of(*closing)) == Cosines(-1.0, -1.0, None)


def test_no_cosines_before_everybody_has_a_gradient() -> None:
    assert cosines(window_of(cut(1, 0, 0, [0.0], gradient=[1.0]), cut(1, 1, 0, [0.0]))) == Cosines()


def test_a_gradient_of_zero_has_no_direction() -> None:
    assert cosines(window_of(*(cut(1, i, 0, [0.0], gradient=[float(i)]) for i in range(2)))).all == 0.0


def test_deviations_are_from_the_mean_of_the_members_alone() -> None:
    # Members (0, 0, 3) and (0, 0, 5), mean (0, 0, 4); another vector (3, 0, 8) is (3, 0, 4) from it: 5.
    found, centre = deviations([torch.tensor(v) for v in ([0.0, 0.0, 3.0], [0.0, 0.0, 5.0], [3.0, 0.0, 8.0])], 2)
    assert found.tolist() == [1.0, 1.0, 5.0]
    assert centre == 4.0
