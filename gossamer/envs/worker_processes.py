"""Worker processes of `Workers`, and the memory that they share with their parent."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np

from gossamer.data import Array
from gossamer.envs.local import Local
from gossamer.envs.single import Source
from gossamer.spaces import Spec
from gossamer.system.errors import EnvironmentFailed

AFTER_PARENT = 2.0  # seconds that a process has to close its environments after the parent's end

Request: TypeAlias = tuple[str, Any]  # ("reset", "step", "frames" or "close"; seeds for "reset")
Answer: TypeAlias = tuple[Any, tuple[EnvironmentFailed, ...]]  # (result or error, failures followed by a restart)


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
            "terminated": (each, np.bool_),
            "truncated": (each, np.bool_),
            "asking": ((self.workers, 2), np.int64),  # see `Local`
        }

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """Views of the shared memory in this process, by name."""
        layout = self.layout.items()
        return {name: np.frombuffer(self.raw[name], dtype).reshape(shape) for name, (shape, dtype) in layout}

    def mine(self, worker: int) -> slice:
        """Return the indices of a worker's environments."""
        size = self.num_envs // self.workers
        return slice(worker * size, (worker + 1) * size)


def serve(
    pipe: Connection, source: bytes, worker: int, raw: dict[str, Any], spec: Spec, num_envs: int, workers: int
) -> None:
    """Main loop of a worker process: answer requests until "close", or until the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, to save first
    threading.Thread(target=_end_with_parent, daemon=True).start()
    block = Block(pickle.loads(source), worker, Shared(raw, spec, num_envs, workers))
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
    """The K environments of one worker process."""

    def __init__(self, source: Source, worker: int, shared: Shared) -> None:
        self._source, self._shared, self._mine = source, shared, shared.mine(worker)
        self._asking = shared.arrays["asking"][worker]
        self._local: Local | None = None

    def answer(self, request: Request) -> Answer:
        what, seeds = request
        try:
            if self._local is None:  # created here so that the factory's errors are sent to the parent
                size = self._mine.stop - self._mine.start
                self._local = Local(self._source, size, first=self._mine.start, asking=self._asking)
                if self._local.spec != self._shared.spec:
                    what = "has other spaces than the one that was made first: all of a factory must have the same"
                    raise EnvironmentFailed(self._source.name, self._mine.start, what)
            result: Any = None
            if what == "reset":
                self._write(obs=self._local.reset_each(seeds))
            elif what == "step":
                result = self._step(self._local)
            elif what == "frames":
                result = self._local.frames()
            return result, self._local.failures()
        except Exception as error:
            return _sendable(error, self._source.name), ()

    def close(self) -> None:
        if self._local is not None:
            self._local.close()

    def _step(self, local: Local) -> dict[int, Mapping[str, float]]:
        """Step. Return the metrics of ended episodes, by the index of their environment."""
        step = local.step(self._shared.arrays["action"][self._mine])
        self._write(obs=step.obs, reward=step.reward, terminated=step.terminated, truncated=step.truncated)
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
