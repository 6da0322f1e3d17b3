"""Monitors the consensus distance of gossiping members and its bound during training.

Members report records (`gossamer.exchange.gossip.records`). Complete observation windows are evaluated in a separate
thread, so that learners do not wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from gossamer.diagnostics.bound import (
    MARGIN,
    Incomplete,
    Window,
    consensus_distance,
    cosines,
    projection_error,
)
from gossamer.diagnostics.divergence import policy_divergence
from gossamer.diagnostics.traffic import Totals, median_age, staleness
from gossamer.exchange.gossip.projection import DIMENSIONS
from gossamer.exchange.gossip.records import Cut, InTransit, Record, Tracked, Traffic
from gossamer.system.machine import use_threads

OPEN = 4  # incomplete windows that are kept; older ones are dropped
WAITING = 2  # complete windows that may be queued for evaluation; each holds projections of every member
KEPT = 2000  # measured windows that are kept; beyond it, every second one of the older half is dropped
SHOWN = ("distance", "bound", "projection_error", "kl", "kl_max", "gradient_cosine")  # figures in rows of metrics


class ConsensusMonitor:
    """Evaluates the members' records of their exchange. Thread-safe."""

    def __init__(self, *, when: Callable[[], tuple[int, float]] = lambda: (0, 0.0)) -> None:
        """`when`: returns the run's environment steps and seconds so far."""
        self._when = when
        self.windows: list[dict[str, Any]] = []  # in the format of `gossip.json`
        self.totals = Totals()
        self.incomplete = 0  # windows dropped because records were missing or inconsistent
        self.late = 0  # windows dropped because evaluation was too slow
        self.cpu = 0.0  # seconds of CPU time of the evaluating thread
        self._since, self._row_at = Totals(), when()[1]  # traffic since the last row, and its time in seconds
        self._members: set[str] = set()
        self._open: dict[int, Window] = {}
        self._over: set[int] = set()  # recent epochs whose windows are complete or dropped
        self._newest = 0
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Window, int, float]] = deque()
        self._ending = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="consensus", daemon=True)

    def take(self, worker: str, record: Record) -> None:
        """Add a record of a member. Raises the error of an earlier evaluation, if any."""
        with self._changed:
            self._check()
            self._members.add(worker)
            if isinstance(record, Traffic):
                self.totals.add(record)
                self._since.add(record)
            else:
                self._sort(record)

    def _sort(self, record: Cut | InTransit | Tracked) -> None:
        """Add a record to its window, and queue the window for evaluation once it is complete."""
        epoch = record.epoch - record.epoch % 2
        self._newest = max(self._newest, epoch)
        oldest = self._newest - 2 * (OPEN - 1)
        for old in [each for each in self._open if each < oldest]:
            self._drop(old)
        self._over = {each for each in self._over if each >= oldest}
        if epoch < oldest or epoch in self._over:
            return
        window = self._open.setdefault(epoch, Window(epoch))
        try:
            window.take(record)
        except Incomplete:
            self._drop(epoch)
            return
        if window.complete:
            self._over.add(epoch)
            self._waiting.append((self._open.pop(epoch), *self._when()))
            if len(self._waiting) > WAITING:
                self._waiting.popleft()
                self.late += 1
            if self._thread.ident is None:
                self._thread.start()
            self._changed.notify_all()

    def _drop(self, epoch: int) -> None:
        del self._open[epoch]
        self._over.add(epoch)
        self.incomplete += 1

    def _work(self) -> None:
        """Body of the evaluating thread."""
        use_threads(1)
        while True:
            with self._changed:
                while not self._waiting and not self._ending:
                    self._changed.wait()
                if not self._waiting:
                    return
                window, steps, seconds = self._waiting.popleft()
            try:
                figures = _figures(window)
            except Incomplete:
                with self._changed:
                    self.incomplete += 1
            except BaseException as error:  # raised again by the next `take` or by `close`
                self._failure = error
                return
            else:
                with self._changed:
                    self.windows.append({"steps": steps, "seconds": round(seconds, 3), **figures})
                    if len(self.windows) > KEPT:
                        self.windows = [*self.windows[: -KEPT // 2 : 2], *self.windows[-KEPT // 2 :]]
                    self.cpu = time.thread_time()

    def row(self) -> dict[str, float | None]:
        """Return a row of `metrics.jsonl`: the last window's figures and the traffic since the last row.

        Unknown values are None; the row is empty if no member has reported an exchange."""
        with self._changed:
            if not self._members:
                return {}
            since, self._since = self._since, Totals()
            before, self._row_at = self._row_at, self._when()[1]
            all_the_time = (self._row_at - before) * len(self._members)
            mean, most = staleness(since.staleness)
            figures = {f"gossip/{name}": self._last(name) for name in SHOWN}
            return {
                **figures,
                "gossip/staleness_mean": mean,
                "gossip/staleness_max": most,
                "gossip/age_ms_median": median_age(since.ages),
                "gossip/waited": since.waited / all_the_time if all_the_time > 0 else 0.0,
                "gossip/refused": since.refused,
                "gossip/mixed": since.mixed,
            }

    def _last(self, name: str) -> float | None:
        """Return the value from the last window that has it."""
        return next((window[name] for window in reversed(self.windows) if window.get(name) is not None), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `gossip.json`: windows and the run's traffic; empty if there was no gossip."""
        with self._changed:
            if not self._members and not self.windows:
                return {}
            return {
                "projection": self._projection(),
                "windows": list(self.windows),
                "dropped": {"incomplete": self.incomplete, "late": self.late},
                "traffic": self.totals.to_dict(),
                "cost": self._cost(),
            }

    def traffic(self) -> dict[str, Any]:
        """Return the run's traffic, as in `to_dict`; empty if there was no gossip."""
        with self._changed:
            return self.totals.to_dict() if self._members else {}

    def overall(self) -> dict[str, Any]:
        """Staleness of the run's messages in iterations, and the seconds that members waited for each other."""
        with self._changed:
            mean, most = staleness(self.totals.staleness)
            return {"staleness": {"mean": mean, "max": most}, "waited_seconds": round(self.totals.waited, 3)}

    def _projection(self) -> dict[str, Any]:
        """Expected and measured error of estimates from projections."""
        errors = [e for window in self.windows if (e := window.get("projection_error")) is not None]
        return {
            "dimensions": DIMENSIONS,
            "standard_error": max((window.get("standard_error", 0.0) for window in self.windows), default=None),
            "measured_error": (sum(e**2 for e in errors) / len(errors)) ** 0.5 if errors else None,
            "margin": MARGIN,
        }

    def _cost(self) -> dict[str, Any]:
        """CPU time in seconds since this process started to monitor the run: members' threads, the part spent on
        records, and evaluation. `share` is the fraction of the total spent on the latter two."""
        all_, members = self.totals.cpu, self.totals.cpu_diagnostics
        share = (members + self.cpu) / (all_ + self.cpu) if all_ > 0 else None
        return {"members": all_, "members_diagnostics": members, "driver_diagnostics": self.cpu, "share": share}

    def load(self, state: dict[str, Any], until: int) -> None:
        """Restore the result of `to_dict`, without windows after `until` environment steps."""
        self.windows = [window for window in state["windows"] if window["steps"] <= until]
        self.incomplete, self.late = int(state["dropped"]["incomplete"]), int(state["dropped"]["late"])
        self.totals = Totals.from_dict(state["traffic"])

    def close(self) -> None:
        """Evaluate queued windows, then stop. Raises the error of an evaluation, if any."""
        self._end()
        self._check()

    def abandon(self) -> None:
        """Stop without evaluating queued windows, for use after another error. Never raises."""
        with self._changed:
            self._waiting.clear()
        self._end()

    def _end(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _figures(window: Window) -> dict[str, Any]:
    """Compute all figures of a window."""
    consensus, cosine = consensus_distance(window), cosines(window)
    kl = policy_divergence([window.closing[member].policy for member in sorted(window.members)])
    return {
        "epoch": window.epoch,
        "members": len(window.members),
        "iteration": sum(cut.iteration for cut in window.closing.values()) / len(window.closing),
        **asdict(consensus),
        "tightness": consensus.distance / consensus.bound if consensus.bound else None,
        "standard_error": window.standard_error,
        "projection_error": projection_error(window),
        "kl": kl.mean,
        "kl_max": kl.greatest,
        "kl_observations": kl.observations,
        "gradient_cosine": cosine.all,
        "gradient_cosine_neighbours": cosine.neighbours,
        "gradient_cosine_others": cosine.others,
    }
