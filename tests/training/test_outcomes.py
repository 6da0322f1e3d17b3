"""What becomes of steps: rollouts are matched in any order of reports, and each is in one place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gossamer.data import Rollout
from gossamer.task import WorkerReport
from gossamer.training.outcomes import Outcomes


def rollouts(actor: int, count: int, life: int = 0) -> list[Rollout]:
    """Of 10 steps the first, 11 the second, .."""
    return [Rollout(actor, life, 1 + i, position=0, steps=10 + i) for i in range(count)]


def acted(*rollouts: Rollout, refused: tuple[Rollout, ...] = ()) -> WorkerReport:
    return WorkerReport(sum(each.steps for each in rollouts), handed_over=rollouts, refused=refused)


def learned(*rollouts: Rollout) -> WorkerReport:
    return WorkerReport(0, sum(each.steps for each in rollouts), learned_of=rollouts)


def test_losses_of_both_kinds_do_not_cancel() -> None:
    # One actor has reported 10 + 11 steps, of which 10 are learned from. Another has died before it reported the 10
    # that are learned from, too: the difference of the totals is 1.
    outcomes, (one, two), (other,) = Outcomes(), rollouts(0, 2), rollouts(1, 1)
    outcomes.update("act[0]", acted(one, two))
    assert outcomes.update("learn", learned(one, other)) == 0
    assert outcomes.dropped() == {"refused": 0, "ended": 0, "failed": 11}
    assert outcomes.unreported == 10
    assert outcomes.told() == "11 steps were not learned from (failed); 10 were learned from and not reported"


def test_each_step_is_dropped_for_one_reason() -> None:
    outcomes, (one, two, three, four) = Outcomes(), rollouts(0, 4)  # 10, 11, 12 and 13 steps
    outcomes.left((one, two))  # the learner tells it before the actor reports the rollouts
    outcomes.update("act", acted(one, two, three, four, refused=(three,)))
    outcomes.update("learn", learned(two))  # its report is late
    outcomes.left((one, three))
    assert outcomes.dropped() == {"refused": 12, "ended": 10, "failed": 13}
    assert outcomes.told() == "35 steps were not learned from (12 refused, 10 ended, 13 failed)"


def test_a_worker_that_learns_from_its_own_steps() -> None:
    outcomes = Outcomes()
    outcomes.update("m[0]", WorkerReport(20, 15))
    outcomes.update("m[1]", WorkerReport(20, 0))
    outcomes.died("m[0]")
    outcomes.update("m[0]", WorkerReport(20, 20))
    outcomes.update("m[1]", WorkerReport(0, 18))
    assert outcomes.dropped() == {"refused": 0, "ended": 2, "failed": 5}
    assert (outcomes.unreported, Outcomes().told()) == (0, "")


def test_what_is_learned_from_again_is_no_new_step() -> None:
    outcomes, (one, two) = Outcomes(), rollouts(0, 2)
    assert outcomes.update("learn", learned(two)) == 0
    assert outcomes.update("learn", learned(two)) == 11
    outcomes.update("act", acted(one, two))
    assert outcomes.update("learn", learned(one, two)) == 11
    assert (sum(outcomes.dropped().values()), outcomes.unreported) == (0, 0)


@given(st.data())
def test_any_order_of_reports(data: st.DataObject) -> None:
    """Actors report in order, and may die before the last ones; learners report anything, in any order, and again."""
    made = [rollouts(actor, data.draw(st.integers(0, 5))) for actor in range(3)]
    told = [each[: data.draw(st.integers(0, len(each)))] for each in made]
    all_made = [each for of_actor in made for each in of_actor]
    seen = data.draw(st.lists(st.sampled_from(all_made), max_size=20)) if all_made else []
    turns = data.draw(st.permutations([actor for actor in range(3) for _ in told[actor]] + [3] * len(seen)))
    waiting, outcomes, again = [list(each) for each in (*told, seen)], Outcomes(), 0
    for who in turns:
        rollout = waiting[who].pop(0)
        if who == 3:
            again += outcomes.update("learn", learned(rollout))
        else:
            assert outcomes.update(f"act[{who}]", acted(rollout)) == 0
    reported = {each for of_actor in told for each in of_actor}
    assert sum(outcomes.dropped().values()) == sum(each.steps for each in reported - set(seen))
    assert outcomes.unreported == sum(each.steps for each in set(seen) - reported)
    assert again == sum(each.steps for each in seen) - sum(each.steps for each in set(seen))
