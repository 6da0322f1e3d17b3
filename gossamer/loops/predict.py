"""The loop of predictors, which evaluate a network for actors that have none."""

from __future__ import annotations

from contextlib import closing

from gossamer.exchange import Follower, Parameters
from gossamer.loops.watched import spec_of
from gossamer.policy import build
from gossamer.policy.served import BatchRule, Few, Predictor, Requests, Taken, Who
from gossamer.runtime import Context, Stopped
from gossamer.system.machine import settle
from gossamer.task import Note, Task
from gossamer.workers.member import prepared

FAILURES = 3  # in succession, after which a predictor's error ends the run
LOOKS = 8  # at the requests, within `BatchRule.timeout`


def predict(ctx: Context, task: Task, requests: Requests, parameters: Parameters, *, rule: BatchRule) -> None:
    """Answer the requests of actors with the learner's newest parameters, until all actors or the learner have ended.

    A predictor that fails is replaced by a new one, and others answer its requests."""
    task = prepared(ctx, task)
    spec, who, failed = spec_of(ctx, task.env), Who(ctx.rank, ctx.restarts), 0
    while True:
        with closing(Predictor(Follower(parameters, build(task, spec)), task.device)) as predictor:
            settle(task.device)
            requests.enter(who, predictor.welcome(), ctx.ended_before)
            try:
                while (taken := next_batch(ctx, requests, who, rule)) is not None:
                    requests.answer(who, predictor.answers(taken))
                    failed = 0
                return
            except Stopped:
                raise
            except Exception as error:
                failed += 1
                if failed == FAILURES:
                    raise
                back = requests.give_back(who)
                ctx.report(Note(f"{ctx.name} was replaced after {error!r}; requests that wait again: {back}"))


def next_batch(ctx: Context, requests: Requests, who: Who, rule: BatchRule) -> Taken | None:
    """The next batch of requests as the rule says; None if there will be no more."""
    found = requests.take(who, rule.least, rule.most)
    oldest, end = None, 0.0  # of the requests, and when they are taken although they are few
    while isinstance(found, Few):
        if found.oldest != oldest:
            oldest, end = found.oldest, ctx.now() + rule.timeout
        else:
            ctx.sleep(rule.timeout / LOOKS)
        found = requests.take(who, 1 if ctx.now() >= end else rule.least, rule.most)
    return found


def end_requests(ctx: Context, requests: Requests, parameters: Parameters) -> None:
    """Release the actors and predictors of a learner that has ended."""
    parameters.ended()
    requests.close()
