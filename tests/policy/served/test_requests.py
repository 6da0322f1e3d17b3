"""The service between actors and predictors: dynamic batches, keys, states, and predictors that pause or fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gossamer.launch.simulation import Simulation
from gossamer.loops.predict import LOOKS, next_batch
from gossamer.policy.served import Answered, BatchRule, Few, Key, PolicyAnswer, Request, Requests, Taken, Welcome, Who
from gossamer.program import Program
from gossamer.runtime import Context, WouldBlock

MOST = 100


def a_request(envs: int = 2, *, acts: bool = True) -> Request:
    return Request(torch.zeros(envs, 1), torch.arange(1, envs + 1), acts)


def a_reply(version: int) -> PolicyAnswer:
    return PolicyAnswer((torch.zeros(2),), False, version, {})


def some_requests(actors: int = 3, envs: int = 2) -> tuple[Requests, list[Key]]:
    """Each actor has asked once, in their order."""
    requests = Requests({f"act[{rank}]": rank for rank in range(actors)})
    requests.enter(Who(0, 0), Welcome({}, 0))
    keys = [Key(Who(rank, 0), 1) for rank in range(actors)]
    for key in keys:
        requests.join(key.actor)
        ask(requests, key, a_request(envs))
    return requests, keys


def ask(requests: Requests, key: Key, request: Request) -> None:
    """Ask without waiting for the answer."""
    with pytest.raises(WouldBlock):
        requests.ask(key, request)


def take(requests: Requests, predictor: Who, least: int = 1, most: int = MOST) -> list[Key]:
    taken = requests.take(predictor, least, most)
    assert isinstance(taken, Taken)
    return list(taken.requests)


def answer(requests: Requests, predictor: Who, keys: list[Key], version: int = 5, after: Any = None) -> int:
    return requests.answer(predictor, {key: Answered(a_reply(version), after) for key in keys})


def test_a_batch_has_whole_requests_oldest_first_up_to_the_maximum() -> None:
    requests, keys = some_requests()  # 3 requests of 2 environments
    assert requests.waiting() == 6
    assert take(requests, Who(0, 0), most=5) == keys[:2]  # 4 environments: a third request would make 6
    assert take(requests, Who(1, 0), most=1) == keys[2:]  # one request at least
    assert requests.waiting() == 0


def test_too_few_environments_are_not_taken() -> None:
    requests, keys = some_requests()
    assert requests.take(Who(0, 0), 7, MOST) == Few(keys[0])
    assert take(requests, Who(0, 0), least=6) == keys


def test_an_answer_counts_once_and_is_the_same_when_asked_again() -> None:
    requests, keys = some_requests()
    (key, *others), who = keys, Who(0, 0)
    assert take(requests, who) == keys
    assert answer(requests, who, [key], version=5) == 1
    assert answer(requests, who, [key], version=6) == 0
    for _ in range(2):  # the first reply may not have arrived
        reply = requests.ask(key, a_request())
        assert reply is not None
        assert reply.version == 5
    assert requests.waiting() == 0
    assert answer(requests, who, others) == 2


def test_what_a_predictor_gives_back_waits_before_all_others_and_its_answers_do_not_count() -> None:
    requests, keys = some_requests()
    assert take(requests, Who(0, 0), most=4) == keys[:2]
    assert requests.give_back(Who(0, 0)) == 2
    assert answer(requests, Who(0, 0), keys[:2]) == 0
    assert take(requests, Who(1, 0)) == keys
    assert answer(requests, Who(0, 0), keys) == 0  # another one has them
    assert answer(requests, Who(1, 0), keys) == 3


def test_a_restarted_predictor_and_one_that_takes_again_have_given_back() -> None:
    requests, keys = some_requests()
    assert take(requests, Who(0, 0)) == keys
    requests.enter(Who(0, 1), Welcome({}, 0))
    assert take(requests, Who(0, 1)) == keys
    assert take(requests, Who(0, 1)) == keys  # the first reply did not arrive
    assert answer(requests, Who(0, 0), keys) == 0
    assert answer(requests, Who(0, 1), keys) == 3


def test_a_restarted_actor_abandons_what_it_asked_and_its_states() -> None:
    requests, (key, *_) = some_requests(1)
    state = {"hidden": torch.ones(2, 1)}
    take(requests, Who(0, 0))
    assert answer(requests, Who(0, 0), [key], after=state) == 1
    later = Key(key.actor, 2)
    ask(requests, later, a_request())
    taken = requests.take(Who(0, 0), 1, MOST)
    assert isinstance(taken, Taken)
    assert taken.states == {later: state}
    again = Key(Who(0, 1), 1)
    requests.join(again.actor)
    assert answer(requests, Who(0, 0), [later]) == 0
    assert requests.ask(later, a_request()) is None  # by its earlier life
    ask(requests, again, a_request())
    taken = requests.take(Who(0, 0), 1, MOST)
    assert isinstance(taken, Taken)
    assert list(taken.requests) == [again]
    assert taken.states == {}


def test_requests_that_do_not_act_leave_the_state_as_it_is() -> None:
    requests, (key, *_) = some_requests(1)
    who, state = Who(0, 0), {"hidden": torch.ones(2, 1)}
    take(requests, who)
    answer(requests, who, [key], after=state)
    for number in (2, 3):
        ask(requests, Key(key.actor, number), a_request(acts=False))
        taken = requests.take(who, 1, MOST)
        assert isinstance(taken, Taken)
        assert list(taken.states.values()) == [state]
        answer(requests, who, list(taken.requests), after=None)


def test_predictors_pause_by_rank_and_run_again() -> None:
    requests, keys = some_requests()
    requests.enter(Who(1, 0), Welcome({}, 0))
    requests.run(1)
    assert requests.take(Who(0, 0), 9, MOST) == Few(keys[0])
    with pytest.raises(WouldBlock):
        requests.take(Who(1, 0), 1, MOST)
    requests.run(2)
    assert take(requests, Who(1, 0)) == keys
    with pytest.raises(ValueError, match="predictors=0: must be at least 1"):
        requests.run(0)


def test_predictors_end_after_all_actors_and_after_the_learner() -> None:
    requests, keys = some_requests()
    requests.leave(Who(0, 0))
    requests.leave(Who(1, 0))
    assert take(requests, Who(0, 0)) == keys[2:]
    requests.leave(Who(2, 0))
    assert requests.take(Who(0, 0), 1, MOST) is None
    requests, keys = some_requests()
    requests.close()
    assert requests.take(Who(0, 0), 1, MOST) is None
    assert requests.ask(keys[0], a_request()) is None


def test_actors_that_ended_before_the_host_restarted_are_not_waited_for() -> None:
    requests = Requests({"act[4]": 4, "act[5]": 5})
    requests.enter(Who(0, 1), Welcome({}, 0), ["act[4]"])
    ask(requests, Key(Who(5, 0), 57), a_request())  # it goes on where it was
    assert take(requests, Who(0, 1)) == [Key(Who(5, 0), 57)]
    requests.leave(Who(5, 0))
    assert requests.take(Who(0, 1), 1, MOST) is None


# The rule in virtual time: actors of 2 environments ask at given seconds

RULE = BatchRule(least=4, most=6, timeout=0.8)
LOOK = RULE.timeout / LOOKS


def act(ctx: Context, requests: Requests, seconds: list[float]) -> None:
    who = Who(ctx.rank, ctx.restarts)
    requests.join(who)
    ctx.sleep(seconds[ctx.rank])
    assert requests.ask(Key(who, 1), a_request()) is not None
    requests.leave(who)


class Seen:
    """Not a dataclass: containers of a program are copied for each worker."""

    def __init__(self) -> None:
        self.batches: list[tuple[float, int]] = []  # (when, environments)


def predict(ctx: Context, requests: Requests, seen: Seen, busy: float) -> None:
    who = Who(ctx.rank, ctx.restarts)
    requests.enter(who, Welcome({}, 0))
    while (taken := next_batch(ctx, requests, who, RULE)) is not None:
        seen.batches.append((ctx.now(), sum(request.envs for request in taken.requests.values())))
        ctx.sleep(busy)
        answer(requests, who, list(taken.requests))


@pytest.mark.parametrize(
    ("asks", "busy", "expected"),
    [
        ([1.0, 1.25], 0.0, [(1.25, 4)]),  # the second one makes them enough
        ([1.0], 0.0, [(1.8, 2)]),  # the timeout
        ([1.0, 1.7, 1.9], 0.0, [(1.7, 4), (2.7, 2)]),  # the timeout counts from the oldest that waits
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0.0, [(1.0, 6), (1.0, 4)]),  # no more than the maximum
        ([1.0, 1.0, 1.1, 1.2, 1.3], 1.0, [(1.0, 4), (2.0, 6)]),  # all that came while it computed
    ],
)
def test_batches_have_the_least_environments_or_wait_for_the_timeout(
    asks: list[float], busy: float, expected: list[tuple[float, int]]
) -> None:
    seen = Seen()
    program = Program("asking")
    requests = program.service(Requests)({f"act[{rank}]": rank for rank in range(len(asks))})
    program.worker(act, copies=len(asks))(requests, asks)
    program.worker(predict)(requests, seen, busy)
    Simulation(2)(program)
    assert [envs for _, envs in seen.batches] == [envs for _, envs in expected]
    for (when, _), (due, _) in zip(seen.batches, expected, strict=True):
        assert due <= when + 1e-9 <= due + LOOK + 1e-6
