"""The loop of predictors, which evaluate a network for actors that have none."""

from __future__ import annotations

from contextlib import closing

from gossamer.envs.once import spec_of
from gossamer.exchange import Follower, Parameters
from gossamer.policy import build
from gossamer.policy.served import BatchRule, Few, Predictor, Requests, Taken, Who
from gossamer.runtime import Context, Stopped
from gossamer.system.machine import settle
from gossamer.task import PredictorReplaced, Spent, Task
from gossamer.workers.clock import Clock
from gossamer.workers.member import prepared

FAILURES = 3  # in succession, after which a predictor's error ends the run
LOOKS = 8  # at the requests, within `BatchRule.timeout`
REPORT = 1.0  # seconds between two reports of the time spent


def predict(ctx: Context, task: Task, requests: Requests, parameters: Parameters, *, rule: BatchRule) -> None:
    """Answer the requests of actors with the learner's newest parameters, until all actors or the learner have ended.

    A predictor that fails is replaced, and its requests wait again for any predictor. Raises its error if it is the
    third one in succession that answers nothing."""
    task = prepared(ctx, task)
    spec, who, failed = spec_of(task.env, ctx.report), Who(ctx.rank, ctx.restarts), 0
    while True:
        with closing(
            Predictor(Follower(parameters, build(task, spec)), task.device, records=task.records)
        ) as predictor:
            settle(task.device)
            requests.enter(who, predictor.welcome(), ctx.ended_before)
            try:
                return _serve(ctx, requests, who, rule, predictor)
            except Stopped:
                raise
            except Exception as error:
                failed = 0 if predictor.batches else failed + 1
                if failed == FAILURES:
                    raise
                back = requests.give_back(who)
                ctx.report(PredictorReplaced(f"{type(error).__name__}: {error}", back))


def _serve(ctx: Context, requests: Requests, who: Who, rule: BatchRule, predictor: Predictor) -> None:
    """Answer requests until there will be no more."""
    clock, told = Clock(), ctx.now()
    while True:
        with clock("predictors_wait"):
            taken = next_batch(ctx, requests, who, rule)
        if taken is not None:
            with clock("predict"):
                requests.answer(who, predictor.answers(taken))
        if taken is None or ctx.now() - told >= REPORT:
            ctx.report(Spent(clock.take()))
            told = ctx.now()
        if taken is None:
            return


def next_batch(ctx: Context, requests: Requests, who: Who, rule: BatchRule) -> Taken | None:
    """The next batch of requests as the rule says; None if there will be no more."""
    found = requests.take(who, rule.least, rule.most)
    oldest, end = None, 0.0  # of the requests that wait, and when they are taken although they are few
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
