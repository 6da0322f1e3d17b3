"""The service between actors and predictors. It computes nothing: it keeps references to what others have computed.

A request is answered once. Its key is the same each time that its actor sends it, and an answer counts only if it comes
from the predictor that has the request now. A predictor that fails, or whose host restarts, gives back what it had
taken. The recurrent state of an actor's environments changes with the answer, so that a request that is evaluated again
begins with the same state."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gossamer.data import Tree
from gossamer.policy.served.messages import (
    Answered,
    Few,
    Key,
    PackedAnswer,
    PackedRequest,
    PolicyAnswer,
    Request,
    Taken,
    Welcome,
    Who,
)
from gossamer.runtime import Wait, waits


class Requests:
    """Service: what actors ask of predictors, and their answers."""

    def __init__(self, actors: Mapping[str, int], predictors: int | None = None, *, groups: int = 1) -> None:
        """`actors`: their names and ranks; `predictors`: how many evaluate, see `run`; None: all. `groups`: of each
        actor's environments, which ask as actors of their own, with the numbers `Task.group_number`."""
        self._running = predictors
        self._numbers = {name: {rank * groups + group for group in range(groups)} for name, rank in actors.items()}
        self._expected = set[int]().union(*self._numbers.values())  # actors that have not ended
        self._welcome: Welcome | None = None
        self._waiting: dict[Key, Request | PackedRequest] = {}  # oldest first
        self._taken: dict[Key, tuple[Who, Request | PackedRequest]] = {}  # and by which predictor
        self._newest: dict[int, Key] = {}  # actor -> its last request
        self._replies: dict[int, tuple[Key, PolicyAnswer | PackedAnswer]] = {}  # actor -> the last answer
        self._states: dict[int, Tree] = {}  # actor -> recurrent state of its environments
        self._lives: dict[int, int] = {}  # actor -> restarts of its newest life
        self._calls: dict[int, int] = {}  # predictor -> calls of `take`
        self._closed = False  # whether the learner has ended

    # Called by actors

    @waits
    def join(self, actor: Who) -> Wait[Welcome | None]:
        """A life of an actor begins, and abandons what earlier ones have asked. Waits until a predictor has parameters;
        None if the learner ends before."""
        self._begin(actor)
        while self._welcome is None and not self._closed:
            yield
        return self._welcome

    @waits
    def ask(self, key: Key, request: Request | PackedRequest) -> Wait[PolicyAnswer | PackedAnswer | None]:
        """Return the answer to a request, as `Request.reply` gives it; the same one if the request is sent again before
        the actor's next one. None if the learner has ended, or if the actor has begun a later life."""
        if key.actor.restarts > self._lives.get(key.actor.rank, -1):
            self._begin(key.actor)  # this host has restarted
        if self._alive(key.actor) and key.number > self._number(key.actor):
            self._forget(key.actor.rank)
            self._newest[key.actor.rank], self._waiting[key] = key, request
        while self._newest.get(key.actor.rank) == key and not self._closed:
            answered, reply = self._replies.get(key.actor.rank, (None, None))
            if answered == key:
                return reply
            yield
        return None

    def leave(self, actor: Who) -> None:
        """The actor ends."""
        if self._alive(actor):
            self._forget(actor.rank)
            self._states.pop(actor.rank, None)
            self._expected.discard(actor.rank)

    # Called by predictors

    def enter(self, predictor: Who, welcome: Welcome, ended: Collection[str] = ()) -> None:
        """A life of a predictor begins, which has parameters. Requests that an earlier one had taken wait again.
        `ended`: workers that had ended before its host restarted, and do not tell this service."""
        self._welcome = self._welcome or welcome
        self._expected -= set[int]().union(*(self._numbers[name] for name in self._numbers.keys() & set(ended)))
        for restarts in range(predictor.restarts):
            self.give_back(Who(predictor.rank, restarts))

    @waits
    def take(self, predictor: Who, least: int, most: int) -> Wait[Taken | Few | None]:
        """Return requests with `least` to `most` environments, at least one request; or `Few`, if some wait and not
        enough. Waits until there are some, and while the predictor does not run. None after all actors or the learner
        have ended.

        A predictor that takes again has lost what it took before, which waits again: the answer to its last call did
        not arrive, or that call still waits and ends now."""
        self.give_back(predictor)
        call = self._calls[predictor.rank] = self._calls.get(predictor.rank, 0) + 1
        while self._calls[predictor.rank] == call:
            if self._closed or not (self._expected or self._waiting):
                return None
            if self._waiting and self._runs(predictor):
                if self.waiting() < least:
                    return Few(next(iter(self._waiting)))
                return self._take(predictor, most)
            yield
        return None

    def answer(self, predictor: Who, answers: Mapping[Key, Answered]) -> int:
        """Receive answers. Returns how many of them count: not those to requests that the predictor no longer has."""
        counted = 0
        for key, answered in answers.items():
            holder, _ = self._taken.get(key, (None, None))
            if holder == predictor:
                del self._taken[key]
                self._replies[key.actor.rank] = key, answered.reply
                if answered.after is not None:
                    self._states[key.actor.rank] = answered.after
                counted += 1
        return counted

    def give_back(self, predictor: Who) -> int:
        """The requests that the predictor has taken and not answered wait again, before all others: so many."""
        back = {key: request for key, (holder, request) in self._taken.items() if holder == predictor}
        if back:
            self._waiting = {**back, **self._waiting}
        for key in back:
            del self._taken[key]
        return len(back)

    # Called by others

    def run(self, predictors: int) -> None:
        """From now on so many predictors evaluate, those of the lowest ranks. The others pause after what they have
        taken. Raises `ValueError` if it is below 1."""
        if predictors < 1:
            raise ValueError(f"predictors={predictors}: must be at least 1")
        self._running = predictors

    def waiting(self) -> int:
        """Environments whose requests no predictor has taken."""
        return sum(request.envs for request in self._waiting.values())

    def close(self) -> None:
        """The learner has ended: nothing is answered any more."""
        self._closed = True

    def _runs(self, predictor: Who) -> bool:
        return self._running is None or sum(rank < predictor.rank for rank in self._calls) < self._running

    def _take(self, predictor: Who, most: int) -> Taken:
        requests: dict[Key, Request | PackedRequest] = {}
        envs = 0
        for key, request in self._waiting.items():
            envs += request.envs
            if requests and envs > most:
                break
            requests[key] = request
        for key, request in requests.items():
            del self._waiting[key]
            self._taken[key] = predictor, request
        states = {key: self._states[key.actor.rank] for key in requests if key.actor.rank in self._states}
        return Taken(requests, states)

    def _begin(self, actor: Who) -> None:
        """A life of an actor begins, unless it has begun already."""
        if actor.restarts > self._lives.get(actor.rank, -1):
            self._forget(actor.rank)
            self._states.pop(actor.rank, None)
            self._lives[actor.rank] = actor.restarts
            self._expected.add(actor.rank)

    def _forget(self, rank: int) -> None:
        """Drop an actor's last request, and its answer."""
        if (key := self._newest.pop(rank, None)) is not None:
            self._waiting.pop(key, None)
            self._taken.pop(key, None)
        self._replies.pop(rank, None)

    def _alive(self, actor: Who) -> bool:
        return self._lives.get(actor.rank) == actor.restarts

    def _number(self, actor: Who) -> int:
        """Of the actor's last request; 0: there is none."""
        newest = self._newest.get(actor.rank)
        return 0 if newest is None or newest.actor != actor else newest.number
