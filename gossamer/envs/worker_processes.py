"""Worker processes of `Workers`, and the memory that they share with their parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeAlias

import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import Restarting
from gossamer.spaces import Spec
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.machine import keep_freed_memory

AFTER_PARENT = 2.0  # seconds that a process has to close its environments after the parent's end

Request: TypeAlias = tuple[str, Any]  # ("reset", "step", "frames" or "close"; seeds for "reset")
WorkerAnswer: TypeAlias = tuple[Any, tuple[EnvironmentFailed, ...]]  # (result or error, failures followed by a restart)


class Hosted(Protocol):
    """The environments of one worker process. They may be `Restarting`."""

    spec: Spec

    def reset_each(self, seeds: Sequence[int]) -> Array:
        """Like `VectorEnv.reset`, with one seed per environment."""

    def step(self, action: Array) -> Step:
        """See `VectorEnv.step`."""

    def frames(self) -> Array:
        """See `VectorEnv.frames`."""

    def close(self) -> None:
        """See `VectorEnv.close`."""


class Recipe(Protocol):
    """Makes the environments of worker processes. It is sent to them."""

    @property
    def name(self) -> str:
        """Of the environment, for errors."""

    @property
    def restarts(self) -> bool:
        """Whether a process that has crashed is started again."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What the making imports: once, before the processes are forked."""

    def spec(self) -> Spec:
        """The spec of all environments; called in the parent, before processes start."""

    def make(self, num_envs: int, first: int, asking: MutableSequence[int]) -> Hosted:
        """Make environments `first`, `first` + 1, ...; see `Local` for `asking`."""


@dataclass(frozen=True)
class Shared:
    """Arrays shared by all processes: actions and results of a step. `raw`: the bytes in shared memory."""

    raw: dict[str, Any]
    spec: Spec
    num_envs: int
    workers: int

    @staticmethod
    def allocate(context: Any, spec: Spec, num_envs: int, workers: int) -> Shared:
        empty = Shared({}, spec, num_envs, workers)
        sizes = {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in empty.layout.items()}
        return Shared({name: context.RawArray("b", size) for name, size in sizes.items()}, spec, num_envs, workers)

    @property
    def layout(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype of each array, by name."""
        each, spec = (self.num_envs,), self.spec
        return {
            "action": ((*each, *spec.actions.shape), spec.actions.dtype),
            "obs": (each + spec.obs_shape, spec.obs_dtype),
            "final_obs": (each + spec.obs_shape, spec.obs_dtype),
            "reward": (each, np.float32),
            "score": (each, np.float32),
            "terminated": (each, np.bool_),
            "truncated": (each, np.bool_),
            "over": (each, np.bool_),
            "asking": ((self.workers, 2), np.int64),  # see `Local`
            "made": ((self.workers,), np.bool_),  # whether a worker's environments exist, or could not be made
        }

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Views of the shared memory in this process, by name."""
        layout = self.layout.items()
        return {name: np.frombuffer(self.raw[name], dtype).reshape(shape) for name, (shape, dtype) in layout}

    def mine(self, worker: int) -> slice:
        """Return the indices of a worker's environments."""
        first, end = (each * self.num_envs // self.workers for each in (worker, worker + 1))
        return slice(first, end)

    def size(self, worker: int) -> int:
        """Return the number of a worker's environments."""
        mine = self.mine(worker)
        return int(mine.stop - mine.start)


def serve(
    pipe: Connection, recipe: bytes, worker: int, raw: dict[str, Any], spec: Spec, num_envs: int, workers: int
) -> None:
    """Main loop of a worker process: make environments, then answer requests until "close", or until the parent has
    ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, to save first
    os.setpgid(0, 0)  # so that SIGTERM and SIGHUP to the parent's group do not end the environments before it has saved
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()
    block = Block(pickle.loads(recipe), worker, Shared(raw, spec, num_envs, workers))
    with suppress(EOFError, OSError):
        while (request := pipe.recv())[0] != "close":
            pipe.send(block.answer(request))
    block.close()


def _end_with_parent() -> None:
    """End this process after the parent, also while an environment hangs."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        time.sleep(AFTER_PARENT)
        os._exit(1)


class Block:
    """The K environments of one worker process, made at once. An error of their making is the answer to requests."""

    def __init__(self, recipe: Recipe, worker: int, shared: Shared) -> None:
        self._recipe, self._shared, self._worker, self._mine = recipe, shared, worker, shared.mine(worker)
        self._asking = shared.arrays["asking"][worker]
        self._failed: Exception | None = None
        self._envs: Hosted | None = None
        try:
            self._envs = self._make()
        except Exception as error:
            self._failed = _sendable(error, recipe.name)
        self._call(-1)
        self._restarting = self._envs if isinstance(self._envs, Restarting) else None
        shared.arrays["made"][worker] = True

    def _make(self) -> Hosted:
        envs = self._recipe.make(self._shared.size(self._worker), self._mine.start, self._asking)
        if envs.spec != self._shared.spec:
            envs.close()
            what = "has other spaces than the one that was made first: all of a factory must have the same"
            raise EnvironmentFailed(self._recipe.name, self._mine.start, what)
        return envs

    def answer(self, request: Request) -> WorkerAnswer:
        what, seeds = request
        if self._envs is None:
            assert self._failed is not None
            return self._failed, ()
        try:
            self._call(self._mine.start)
            result: Any = None
            if what == "reset":
                self._write(obs=self._envs.reset_each(seeds))
            elif what == "step":
                result = self._step(self._envs)
            elif what == "frames":
                result = self._envs.frames()
            self._call(-1)
            return result, self._restarting.failures() if self._restarting else ()
        except Exception as error:
            return _sendable(error, self._recipe.name), ()

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()

    def _call(self, index: int) -> None:
        """Record in `asking` that this environment is being called, which `Local` makes more precise; -1: none."""
        self._asking[0] = index
        self._asking[1] += 1

    def _step(self, envs: Hosted) -> dict[int, Mapping[str, float]]:
        """Step. Return the metrics of ended episodes, by the index of their environment."""
        step = envs.step(self._shared.arrays["action"][self._mine])
        self._write(obs=step.obs, reward=step.reward, score=step.score)
        self._write(terminated=step.terminated, truncated=step.truncated, over=step.over)
        if step.final_obs is not None:
            self._write(final_obs=step.final_obs)
        return {self._mine.start + i: metrics for i, metrics in step.metrics.items()}

    def _write(self, **arrays: Array) -> None:
        for name, array in arrays.items():
            self._shared.arrays[name][self._mine] = array


def _sendable(error: Exception, name: str) -> Exception:
    """Return the error, or an error with its text if it cannot be pickled."""
    try:
        return error if isinstance(pickle.loads(pickle.dumps(error)), Exception) else RuntimeError(str(error))
    except Exception:
        trace = "".join(traceback.format_exception(error))
        return EnvironmentFailed(name, None, f"{type(error).__name__}: {error} (in process {os.getpid()})", trace)
