"""What recordings of several threads have to do with each other. What they compute: see `workers/test_recorded.py`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from gossamer.system.graphs import WARM, Recorder, Repeated, _stream, recording

GPU = torch.device("cuda:1")


class Nothing:
    """Stands in for a graph and for a stream."""

    def __init__(self, *given: Any, priority: int = 0) -> None:
        self.given, self.priority, self.replays = given, priority, 0

    def register_generator_state(self, rng: torch.Generator) -> None: ...
    def capture_begin(self, pool: object, capture_error_mode: str) -> None: ...
    def capture_end(self) -> None: ...
    def wait_stream(self, stream: object) -> None: ...

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Nothing]]:
    """The graphs that have been made, of a GPU that does nothing."""
    made = list[Nothing]()
    _stream.cache_clear()

    def graph() -> Nothing:
        made.append(Nothing())
        return made[-1]

    for name, stand_in in {
        "CUDAGraph": graph,
        "Stream": Nothing,
        "current_stream": Nothing,
        "stream": lambda stream: nullcontext(),
        "graph_pool_handle": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    yield made
    _stream.cache_clear()


def test_nothing_is_repeated_while_another_thread_records(graphs: list[Nothing]) -> None:
    first = Recorder(GPU)(lambda: None)
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait(10)

    recorder, repeater = threading.Thread(target=lambda: Recorder(GPU)(work)), threading.Thread(target=first.replay)
    recorder.start()
    assert begun.wait(10)
    repeater.start()
    repeater.join(0.1)
    assert repeater.is_alive()
    assert graphs[0].replays == 0
    end.set()
    recorder.join()
    repeater.join()
    assert graphs[0].replays == 1


def test_only_the_thread_that_records_knows_of_it() -> None:
    seen = list[bool]()

    def work() -> None:
        seen.append(recording())
        other = threading.Thread(target=lambda: seen.append(recording()))
        other.start()
        other.join()

    Recorder(GPU)(work)
    assert [*seen, recording()] == [True, False, False]


def test_work_is_recorded_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the thread's current one: nothing would be in the recording."""
    entered, waited = list[Nothing](), list[torch.device]()

    def stream(which: Nothing) -> nullcontext[None]:
        entered.append(which)
        return nullcontext()

    def current(device: torch.device) -> Nothing:
        waited.append(device)
        return Nothing()

    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", current)
    Recorder(GPU)(lambda: None)
    there = torch.device("meta")
    doubled = Repeated(lambda x, others: 2 * x, torch.nn.Linear(1, 1), records=True)
    for _ in range(WARM + 1):
        doubled(torch.zeros(3, device=there), {})
    Recorder(GPU)(lambda: None)
    assert [each.given[0] for each in entered] == [GPU, there, GPU]
    assert waited == [GPU, GPU, there, there, GPU, GPU]
    assert entered[0] is entered[2]  # torch has 32 streams of each priority; one more would be another worker's
    assert {each.priority for each in entered} == {-1}  # and workers have those of priority 0


def test_a_failure_ends_the_recording() -> None:
    def fail() -> None:
        raise RuntimeError("not permitted")

    with pytest.raises(RuntimeError, match="not permitted"):
        Recorder(GPU)(fail)
    assert not recording()
    Recorder(GPU)(lambda: None)  # the lock is free again
