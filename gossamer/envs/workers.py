"""Gymnasium environments side by side in n_w worker processes with n_e / n_w environments each, as in PAAC (Clemente et
al. 2017, section 4). They give the same trajectories as `Local`."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import cloudpickle
import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import env_seeds
from gossamer.envs.blocks import Answer, Request, Shared, serve
from gossamer.envs.local import AT_MOST, Source
from gossamer.envs.single import Single
from gossamer.errors import EnvironmentFailed

CLOSE_SECONDS = 5.0  # that worker processes have to end when they are asked to
DEATH_SECONDS = 1.0  # from the end of a process's pipe to its own


class Workers:
    """B environments in `workers` processes, B / workers in each, that write to shared memory.

    The processes come from a fork server: a fork of this one would take along whatever its other threads hold. As
    with any spawned process, a script that makes these needs its `if __name__ == "__main__":`.
    """

    def __init__(self, source: Source, num_envs: int, workers: int) -> None:
        if num_envs % workers:
            raise ValueError(
                f"num_envs ({num_envs}) must divide by workers ({workers}): each process steps as many environments; "
                f"{num_envs - num_envs % workers or workers} would do"
            )
        probe = Single(source.name, source.make, 0)
        self.spec, self.num_envs = probe.spec, num_envs
        probe.close()
        self._source, self._context = source, multiprocessing.get_context(_start_method())
        self._shared = Shared.allocate(self._context, self.spec, num_envs, workers)
        self._processes = [self._start(worker) for worker in range(workers)]
        self._failures: list[EnvironmentFailed] = []
        self._deaths = [0] * workers  # without a step between them
        self._obs: Array | None = None  # [B, *O] as given last
        self._seeds = np.random.default_rng(0)  # for environments of processes that have died

    def reset(self, seed: int) -> Array:
        self._seeds = np.random.default_rng(seed)
        seeds = env_seeds(seed, self.num_envs)
        self._ask([self._reset(worker, seeds[self._shared.mine(worker)]) for worker in range(len(self._processes))])
        return self._seen()

    def step(self, action: Array) -> Step:
        shared = self._shared.arrays
        shared["action"][:] = action
        self._ask([("step", None)] * len(self._processes))
        terminated, truncated, reward = (shared[name].copy() for name in ("terminated", "truncated", "reward"))
        final_obs: Array | None = None
        if truncated.any():
            final_obs = np.zeros_like(shared["final_obs"])
            final_obs[truncated] = shared["final_obs"][truncated]
        return Step(self._seen(), reward, reward.copy(), terminated, truncated, terminated | truncated, final_obs)

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

    def _seen(self) -> Array:
        self._obs = self._shared.arrays["obs"].copy()
        return self._obs

    def _start(self, worker: int) -> Process:
        self._shared.arrays["asking"][worker] = -1, 0
        return Process(self._context, self._source, worker, self._shared)

    def _reset(self, worker: int, seeds: list[int]) -> Request:
        """The request. Until the process says what it asks, which it cannot while it starts, that is the first one."""
        self._shared.arrays["asking"][worker, 0] = self._shared.mine(worker).start
        return "reset", seeds

    def _ask(self, requests: Sequence[Request]) -> list[Any]:
        """What the processes answer, all of them before any error is raised: so none is left with an answer unread."""
        for process, request in zip(self._processes, requests, strict=True):
            process.ask(request)
        answers = [self._answer(worker, request) for worker, request in enumerate(requests)]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _answer(self, worker: int, request: Request) -> Any:
        """Of one process: what was asked for, or an error."""
        answer = self._processes[worker].answer()
        if answer is None:
            return self._after_death(worker, request)
        self._deaths[worker] = 0
        self._failures += answer[1]
        return answer[0]

    def _after_death(self, worker: int, request: Request) -> Any:
        """Start a process that has died again, and cut the episodes of its environments short: the error unless that
        is wanted, or where it died each time."""
        error = self._death(worker, request[0])
        self._deaths[worker] += 1
        if self._source.on_error == "fail" or request[0] == "frames":
            return error
        if self._deaths[worker] > AT_MOST:
            error.advice = f"it was restarted {AT_MOST} times and has failed each time"
            return error
        self._failures.append(error)
        mine, deaths = self._shared.mine(worker), self._deaths[worker]
        self._processes[worker] = self._start(worker)
        again = self._reset(worker, self._seeds.integers(2**31, size=mine.stop - mine.start).tolist())
        self._processes[worker].ask(again)
        answer = self._answer(worker, again)
        self._deaths[worker] = max(deaths, self._deaths[worker])  # a reset is no step
        if request[0] == "step" and self._obs is not None:
            shared = self._shared.arrays
            shared["reward"][mine], shared["terminated"][mine], shared["truncated"][mine] = 0, False, True
            shared["final_obs"][mine] = self._obs[mine]
        return answer

    def _death(self, worker: int, during: str) -> EnvironmentFailed:
        index, code = int(self._shared.arrays["asking"][worker, 0]), self._processes[worker].end(DEATH_SECONDS)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        which = self._shared.mine(worker).start if index < 0 else index
        return EnvironmentFailed(self._source.name, which, f"its worker process {how} during {during}()")


class Process:
    """The parent's end of one worker process."""

    def __init__(self, context: Any, source: Source, worker: int, shared: Shared) -> None:
        self._pipe, its = context.Pipe()
        what = cloudpickle.dumps(source)  # factories may be closures
        arguments = (its, what, worker, shared.raw, shared.spec, shared.num_envs, shared.workers)
        self._process = context.Process(target=serve, args=arguments, daemon=True, name=f"environments {worker}")
        self._process.start()
        its.close()  # so that the pipe ends with the process

    def ask(self, request: Request) -> None:
        with suppress(OSError):  # that it has died is seen where the answer is waited for
            self._pipe.send(request)

    def answer(self) -> Answer | None:
        """Waited for; None if the process has died."""
        try:
            answer: Answer = self._pipe.recv()
            return answer
        except (EOFError, OSError):
            return None

    def end(self, seconds: float) -> int:
        """Its exit code: it has so long to end, then it is killed."""
        self._process.join(timeout=max(0.0, seconds))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()
        return int(self._process.exitcode or 0)


def _start_method() -> str:
    """How worker processes start. The fork server imports this module once for all of them."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
    return "forkserver"
