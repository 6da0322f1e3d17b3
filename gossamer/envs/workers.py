"""Environments in n_w worker processes with n_e / n_w environments each, as in PAAC (Clemente et al. 2017, section 4).
Their trajectories equal those of the same environments in one process."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker
from typing import Any

import cloudpickle
import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import env_seeds
from gossamer.envs.local import AT_MOST
from gossamer.envs.worker_processes import Recipe, Request, Shared, WorkerAnswer, serve
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.scripts import GUARD

CLOSE_SECONDS = 5.0  # time for worker processes to end on request
STEP: Request = ("step", None)
DEATH_SECONDS = 1.0  # time for a process to end after its pipe was closed


class Workers:
    """B environments in `workers` processes, about B / workers in each, that write to shared memory.

    The processes are started by a fork server, since a fork of a multi-threaded process can copy locks that are held.
    Scripts therefore need an `if __name__ == "__main__":` guard. They make their environments from the start on, at the
    same time; `reset` waits for them, and raises what their making raised.
    """

    def __init__(self, recipe: Recipe, num_envs: int, workers: int) -> None:
        self.spec, self.num_envs = recipe.spec(), num_envs
        self._recipe, self._context = recipe, multiprocessing.get_context(_start_method(recipe.modules))
        self._shared = Shared.allocate(self._context, self.spec, num_envs, workers)
        self._processes = [self._start(worker) for worker in range(workers)]
        self._failures: list[EnvironmentFailed] = []
        self._deaths = [0] * workers  # consecutive crashes of each process without a successful step
        self._obs: Array | None = None  # [B, *O] last observations
        self._seeds = np.random.default_rng(0)  # for resets after a crash

    def reset(self, seed: int) -> Array:
        self._seeds = later_seeds(seed)
        seeds = env_seeds(seed, self.num_envs)
        self._ask([("reset", seeds[self._shared.mine(worker)]) for worker in range(len(self._processes))])
        return self._seen()

    def step(self, action: Array) -> Step:
        self.send(action)
        return self.receive()

    def send(self, action: Array) -> None:
        """See `Parted`."""
        self._shared.arrays["action"][:] = action
        self._request([STEP] * len(self._processes))

    def receive(self) -> Step:
        """See `Parted`."""
        shared, answers = self._shared.arrays, self._answers([STEP] * len(self._processes))
        metrics = {i: each for answer in answers if answer for i, each in answer.items()}
        done = {name: shared[name].copy() for name in ("reward", "score", "terminated", "truncated", "over")}
        final_obs: Array | None = None
        if (truncated := done["truncated"]).any():
            final_obs = np.zeros_like(shared["final_obs"])
            final_obs[truncated] = shared["final_obs"][truncated]
        return Step(self._seen(), **done, final_obs=final_obs, metrics=metrics)

    def frames(self) -> Array:
        return np.concatenate(self._ask([("frames", None)] * len(self._processes)))

    def close(self) -> None:
        for process in self._processes:
            process.ask(("close", None))
        until = time.monotonic() + CLOSE_SECONDS
        for process in self._processes:
            process.end(until - time.monotonic())

    def calls(self) -> Sequence[tuple[int, int]]:
        """See `Watchable`."""
        return [(int(index), int(count)) for index, count in self._shared.arrays["asking"]]

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        """See `Restarting`."""
        failures, self._failures = tuple(self._failures), []
        return failures

    def made(self) -> int:
        """See `InTheMaking`. The environments of a process that has crashed count."""
        return sum(
            self._shared.size(worker)
            for worker, process in enumerate(self._processes)
            if self._shared.arrays["made"][worker] or not process.alive
        )

    def _seen(self) -> Array:
        self._obs = self._shared.arrays["obs"].copy()
        return self._obs

    def _start(self, worker: int) -> Process:
        first = self._shared.mine(worker).start  # counts as the one being called while the process makes all of them
        self._shared.arrays["asking"][worker], self._shared.arrays["made"][worker] = (first, 0), False
        return Process(self._context, self._recipe, worker, self._shared)

    def _ask(self, requests: Sequence[Request]) -> list[Any]:
        """Send a request to each process and return the results."""
        self._request(requests)
        return self._answers(requests)

    def _request(self, requests: Sequence[Request]) -> None:
        for process, request in zip(self._processes, requests, strict=True):
            process.ask(request)

    def _answers(self, requests: Sequence[Request]) -> list[Any]:
        """The results of requests that have been sent. Reads all answers before raising an error, so that no answer
        remains in a pipe."""
        answers = [self._answer(worker, request) for worker, request in enumerate(requests)]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _answer(self, worker: int, request: Request) -> Any:
        """Return the result of one process, or an error."""
        answer = self._processes[worker].answer()
        if answer is None:
            return self._after_death(worker, request)
        self._deaths[worker] = 0
        self._failures += answer[1]
        return answer[0]

    def _after_death(self, worker: int, request: Request) -> Any:
        """Restart a crashed process and truncate its environments' episodes. Return the result of the request; or the
        error, if the process must not be restarted or has crashed too often."""
        error = self._death(worker, request[0])
        self._deaths[worker] += 1
        if not self._recipe.restarts or request[0] == "frames":
            return error
        if self._deaths[worker] > AT_MOST:
            error.advice = f"it was restarted {AT_MOST} times and failed each time"
            return error
        self._failures.append(error)
        mine, deaths = self._shared.mine(worker), self._deaths[worker]
        self._processes[worker] = self._start(worker)
        again = ("reset", self._seeds.integers(2**31, size=self._shared.size(worker)).tolist())
        self._processes[worker].ask(again)
        answer = self._answer(worker, again)
        self._deaths[worker] = max(deaths, self._deaths[worker])  # a successful reset does not clear the count
        if request[0] == "step" and self._obs is not None:
            shared = self._shared.arrays
            shared["reward"][mine] = shared["score"][mine] = 0
            shared["terminated"][mine], shared["truncated"][mine], shared["over"][mine] = False, True, True
            shared["final_obs"][mine] = self._obs[mine]
        return answer

    def _death(self, worker: int, during: str) -> EnvironmentFailed:
        index, code = int(self._shared.arrays["asking"][worker, 0]), self._processes[worker].end(DEATH_SECONDS)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        which = self._shared.mine(worker).start if index < 0 else index
        hint = f" (if a script started it, {GUARD})" if (code, during) == (1, "reset") else ""  # its import failed
        return EnvironmentFailed(self._recipe.name, which, f"its worker process {how} during {during}(){hint}")


def later_seeds(seed: int) -> np.random.Generator:
    """Seeds of environments that are made again, others than `env_seeds` of this seed."""
    return np.random.default_rng([seed, 1])


class Process:
    """The parent's end of one worker process."""

    def __init__(self, context: Any, recipe: Recipe, worker: int, shared: Shared) -> None:
        self._pipe, its = context.Pipe()
        self._closing = threading.Lock()  # `end` may run twice at once: for a step that fails, and to close
        what = cloudpickle.dumps(recipe)  # factories may be closures
        arguments = (its, what, worker, shared.raw, shared.spec, shared.num_envs, shared.workers)
        self._process = context.Process(target=serve, args=arguments, daemon=True, name=f"environments {worker}")
        _start_fork_server()
        self._process.start()
        its.close()  # so that reading fails once the process has ended

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.is_alive())

    def ask(self, request: Request) -> None:
        with suppress(OSError):  # `answer` detects a crash
            self._pipe.send(request)

    def answer(self) -> WorkerAnswer | None:
        """Wait for the answer; None if the process has ended."""
        try:
            answer: WorkerAnswer = self._pipe.recv()
            return answer
        except (EOFError, OSError):
            return None

    def end(self, seconds: float) -> int:
        """Wait up to `seconds` for the process to end, then kill it. Return its exit code."""
        self._process.join(timeout=max(0.0, seconds))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        with self._closing:
            self._pipe.close()
        return int(self._process.exitcode or 0)


def _start_method(modules: Sequence[str]) -> str:
    """Return the start method of worker processes. The fork server imports this module and `modules` once for all of
    them."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__, *modules])
    return "forkserver"


def _start_fork_server() -> None:
    """Start the fork server, unless it runs, with SIGINT blocked. Ctrl-C in a terminal is sent to it and to the worker
    processes, too; they inherit the mask, and would otherwise end before they can ignore the signal."""
    if sys.platform == "win32":
        return
    resource_tracker.ensure_running()  # here, because its start unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
