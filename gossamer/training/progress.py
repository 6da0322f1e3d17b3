"""The progress of a run: counters, rates, means over recent episodes."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.reporting.human import human_normalised
from gossamer.task import WorkerReport
from gossamer.training.counters import Gradients, Replayed
from gossamer.training.hosts import Hosts
from gossamer.training.outcomes import Outcomes
from gossamer.training.policy_lag import Staleness
from gossamer.training.recent import Recent
from gossamer.workers.member import means

OF_EPISODES, OWN = "episode/", "own/"  # before the names of metrics from environments, and from callbacks


@dataclass
class Progress:
    """Counters and recent episodes, brought up to date by reports. Any thread may read while another one reports."""

    total: int  # environment steps to go to
    frames_per_step: int
    games: int = field(default=0, kw_only=True)  # how many there are, of several
    now: Callable[[], float] = time.monotonic
    steps: int = 0  # environment steps acted that count, of all workers
    uncounted: int = 0  # environment steps reported after others had acted in their place
    learned: int = 0  # environment steps learned from, each counted once
    reused: int = 0  # environment steps learned from once more
    updates: int = 0  # optimizer steps of all members
    episodes: int = 0
    members: dict[str, Recent] = field(default_factory=dict)  # worker -> its own last episodes
    groups: Mapping[str, int] = field(default_factory=dict)  # worker -> its group (`Exchange.group`), if it is in one
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # worker -> of its last update
    actors: set[str] = field(default_factory=set)  # workers that have only acted
    helpers: set[str] = field(default_factory=set)  # workers that neither act nor learn, and say what takes their time
    own: dict[str, float] = field(default_factory=dict)  # `own/NAME`, as callbacks have recorded them
    gossip: dict[str, float | None] = field(default_factory=dict)  # how far members are apart, as of the last row
    queue: dict[str, Any] = field(default_factory=dict)  # policy lag and waiting batches, as of the last row
    evaluation: dict[str, Any] | None = None  # the last one beside training, a line of evaluations.jsonl
    spent: dict[str, float] = field(default_factory=dict)  # seconds of all sessions, by part
    elapsed_before: float = 0.0  # seconds of the sessions before a resume
    usage: dict[str, float] = field(default_factory=dict)  # of this machine, as of the last row (`system.usage`)
    activity: str = ""  # what workers do before they train
    hosts: Hosts = field(default_factory=Hosts)
    restarts: int = 0  # of environments that failed
    staleness: Staleness = field(default_factory=Staleness)  # policy lag and waiting batches
    gradients: Gradients = field(default_factory=Gradients)  # of a parameter server
    replayed: Replayed = field(default_factory=Replayed)  # steps in replay memories
    outcomes: Outcomes = field(default_factory=Outcomes)  # of the steps acted in this session

    def __post_init__(self) -> None:
        self.recent = Recent(games=self.games)  # episodes of all members
        self.started = self._acting_since = self.now()
        self._spent_before = 0.0  # seconds of the earlier sessions that `spent` accounts for
        self._lock = threading.RLock()  # for what is iterated over: it must not change meanwhile
        self._marks: deque[tuple[float, int]] = deque()  # (second, steps), the last minute of them

    def enter(self, activity: str) -> None:
        """A worker begins something else than training; empty where it begins to train."""
        self.activity = activity
        if not self._marks:
            self._acting_since = self.now()

    @property
    def away(self) -> list[str]:
        """Members whose host is down."""
        return self.hosts.workers_away

    def update(self, worker: str, report: WorkerReport, counted: int) -> None:
        """Take a member's report in; `counted` of its steps count."""
        with self._lock:
            self._update(worker, report, counted)

    def _update(self, worker: str, report: WorkerReport, counted: int) -> None:
        self.activity = ""
        if not self._marks:
            self._marks.append((self._acting_since, self.steps))
        self.steps += counted
        self.uncounted += report.steps - counted
        again = self.outcomes.update(worker, report)
        self.learned += report.learned - again
        self.reused += report.reused + again
        self.staleness.update(report)
        self.gradients.update(report)
        self.replayed.update(worker, report)
        self.updates += report.updates
        self.episodes += len(report.episodes)
        self.restarts += len(report.failures)
        self.recent.extend(report.episodes)
        self.members.setdefault(worker, Recent(games=self.games)).extend(report.episodes)
        if report.learned or report.reused or report.updates:
            self.metrics[worker] = report.metrics or self.metrics.get(worker, {})  # empty: an update was cut short
            self.actors.discard(worker)
        elif worker not in self.metrics:
            self.actors.add(worker)
        self._spend(report.seconds)
        now = self.now()
        if now - self._marks[-1][0] >= 0.25:
            self._marks.append((now, self.steps))
            while len(self._marks) > 1 and now - self._marks[1][0] > 65:  # one older than any window stays
                self._marks.popleft()

    def spend(self, worker: str, seconds: Mapping[str, float]) -> None:
        """Count the time of a worker that neither acts nor learns."""
        with self._lock:
            self.helpers.add(worker)
            self._spend(seconds)

    def _spend(self, spent: Mapping[str, float]) -> None:
        for part, seconds in spent.items():
            self.spent[part] = self.spent.get(part, 0.0) + seconds

    def rate(self, window: float) -> float:
        """Steps a second over the last `window` seconds, or longer: since the last report before them."""
        now = self.now()
        with self._lock:
            marks = list(self._marks)
        before = [mark for mark in marks if now - mark[0] >= window][-1:]
        (when, steps), *_ = [*before, *marks[:1], (now, 0)]
        return (self.steps - steps) / (now - when) if now > when else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.elapsed_before + self.now() - self.started

    @property
    def speed(self) -> float:
        """Steps a second over the run."""
        return self.steps / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes (`Recent`); None before the first, of several games before the first of each."""
        with self._lock:
            return self.recent.mean_return

    @property
    def returns(self) -> dict[str, float]:
        """Of the last 100 episodes of each of several games; empty for one game."""
        with self._lock:
            return self.recent.returns

    def of_games(self) -> dict[str, float]:
        """The entries of a row for several games; none for one."""
        with self._lock:
            return of_games(self.recent.returns, every=self.recent.of_all)

    @property
    def member_returns(self) -> dict[str, float | None]:
        """Mean return of each member's own last 100 episodes, by worker (`Recent`)."""
        with self._lock:
            return {worker: episodes.mean_return for worker, episodes in self.members.items()}

    @property
    def acting(self) -> float:
        """Seconds since this session began to act; exact for the first minute, and then about one minute."""
        with self._lock:
            return self.now() - self._marks[0][0] if self._marks else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end at the rate of the last minute."""
        rate = self.rate(60)
        return max(0, self.total - self.steps) / rate if rate > 0 else None

    def shares(self) -> dict[str, float]:
        """Fractions of all workers' time, by part; `other` is what none of them accounts for."""
        with self._lock:
            spent = dict(self.spent)
            workers = max(1, len(self.members) + len(self.helpers))
        time_of_all = (self._spent_before + self.now() - self.started) * workers
        whole = max(time_of_all, sum(spent.values()), 1e-9)
        shares = {part: seconds / whole for part, seconds in sorted(spent.items())}
        return {**shares, "other": 1 - sum(shares.values())}

    def row(self) -> dict[str, Any]:
        """One line of `metrics.jsonl`. Policy lag and waiting batches are those since the last one."""
        self._close_interval()
        return self.current()

    def current(self) -> dict[str, Any]:
        """The entries of a row, as of now; policy lag, waiting batches and gossip as of the last row."""
        return {
            "steps": self.steps,
            "frames": self.steps * self.frames_per_step,
            "learned": self.learned,
            "reused": self.reused,
            "updates": self.updates,
            "seconds": round(self.elapsed, 3),
            "steps_per_second": round(self.rate(10), 1),
            "episodes": self.episodes,
            "mean_return": self.mean_return,
            **self.of_games(),
            **self._metrics(),
            **self.own_metrics(),
            **self.queue,
            **self.gossip,
            **self._gradients(),
            **self.replayed.row(),
            **{f"machine/{name}": value for name, value in self.usage.items()},
            **{f"time/{part}": round(share, 4) for part, share in self.shares().items()},
        }

    def _gradients(self) -> dict[str, Any]:
        with self._lock:
            return self.gradients.row()

    @property
    def gradients_told(self) -> str:
        """What the panel says of gradients."""
        with self._lock:
            return self.gradients.told()

    def _close_interval(self) -> None:
        """Set `queue` from the policy lag and the waiting batches since the last row, if there was an update."""
        with self._lock:
            interval = self.staleness.row()
        if interval is None:  # the figures stay, but each count is in one row only
            interval = {name: value for name, value in self.queue.items() if not isinstance(value, dict)}
        self.queue = interval

    def _metrics(self) -> dict[str, float]:
        """Return the mean of each metric over the members whose last update has it."""
        with self._lock:
            return means(list(self.metrics.values()))

    def own_metrics(self) -> dict[str, float]:
        """Metrics of the user's own. `episode/NAME`: the mean of what environments say of their episodes
        (`envs.metrics`), over those of the last 100 that have it; of several games the mean of theirs, and
        `episode/NAME/GAME` each. `own/NAME`: what callbacks have recorded."""
        with self._lock:
            told = {game: means([e.metrics for e in each if e.metrics]) for game, each in self.recent.by_game.items()}
            found = {f"{OF_EPISODES}{name}": mean for name, mean in means(list(told.values())).items()}
            several = {game: of for game, of in told.items() if game}
            found |= {f"{OF_EPISODES}{name}/{game}": mean for game, of in several.items() for name, mean in of.items()}
            return {**found, **self.own}

    def record(self, name: str, value: float) -> None:
        """Add a number to the rows from now on."""
        with self._lock:
            self.own[f"{OWN}{name}"] = float(value)

    def state_dict(self) -> dict[str, Any]:
        """The counters, from which a resumed run goes on."""
        with self._lock:
            return self._state()

    def _state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "uncounted": self.uncounted,
            "learned": self.learned,
            "reused": self.reused,
            **self.staleness.state_dict(),
            "gradients": self.gradients.state_dict(),
            "replayed": self.replayed.state_dict(),
            "updates": self.updates,
            "episodes": self.episodes,
            "recent": self.recent.to_list(),
            "members": {worker: episodes.to_list() for worker, episodes in self.members.items()},
            "elapsed": self.elapsed,
            "spent": dict(self.spent),
            "restarts": self.restarts,
        }

    def give_back(self, unlearned: int = 0) -> int:
        """Uncount the steps that have been acted and not learned from, because what held them is lost; how many.
        Steps that were learned from before their actor had reported them count as acted. `unlearned`: steps that are
        still there, in restored memories. Then all steps that have been acted, with the uncounted ones, have been
        learned from, or are there."""
        before, counted, known = self.steps, self.learned - self.uncounted, self.learned + unlearned
        self.steps = max(counted, min(before, known))
        self.uncounted = known - self.steps
        return max(0, before - self.steps)

    def recount(self, episodes: int, after: Sequence[str] = ()) -> None:
        """Uncount episodes that are not on record: so many are. The others ended within steps that were given back.
        `after`: the games of those that were on record after them."""
        self.recent.drop(self.episodes - episodes, after)
        self.episodes = episodes

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        if "counts" in state:  # a checkpoint from before there was one budget: worker -> (steps, updates), and repeated
            counts = [*state["counts"].values(), *state.get("again", {}).values()]
            state = {**state, "steps": sum(c[0] for c in counts), "updates": sum(c[1] for c in counts)}
        self.steps, self.updates = int(state["steps"]), int(state["updates"])
        self.learned, self.uncounted = int(state.get("learned", self.steps)), int(state.get("uncounted", 0))
        self.reused = int(state.get("reused", 0))
        self.staleness.load_state_dict(state)
        self.gradients.load_state_dict(state.get("gradients", {}))
        self.replayed.load_state_dict(state.get("replayed", {}))
        self.episodes, self.elapsed_before = int(state["episodes"]), float(state["elapsed"])
        self.restarts = int(state.get("restarts", 0))  # not in checkpoints of 0.2
        if "spent" in state:  # older checkpoints have none
            self.spent, self._spent_before = {**state["spent"]}, self.elapsed_before
        self.recent.load(state["recent"])
        for worker, rows in state.get("members", {}).items():  # checkpoints of 0.1 have no more than this
            self.members[worker] = Recent(games=self.games)
            self.members[worker].load(rows)


def of_games(returns: Mapping[str, float], *, every: bool = True) -> dict[str, float]:
    """The entries of a row for the mean returns of several games: of each, and their human-normalised mean and median
    if these are `every` game and all of them have such scores."""
    found = {f"return/{game}": value for game, value in returns.items()}
    human = [human_normalised(game, value) for game, value in returns.items()]
    known = [value for value in human if value is not None]
    if every and known and len(known) == len(human):
        found |= {"human_normalised_mean": statistics.mean(known), "human_normalised_median": statistics.median(known)}
    return found
