"""Workers of one GPU have streams of their own: what one hands over to another is finished before. Without a GPU, the
streams are stand-ins that note when they are waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
import torch
from some_messages import Local
from torch import Tensor, nn
from torch.optim import SGD

from gossamer.exchange import AllReduce, Gradients
from gossamer.exchange.all_reduce import link as link_module
from gossamer.exchange.all_reduce.given import Mean, RoundOutcome
from gossamer.exchange.flat import Flat
from gossamer.exchange.shared import memory as memory_module
from gossamer.exchange.shared.memory import Contents, SharedMemory
from gossamer.system.machine import settle
from gossamer.workers.member import Player


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices whose streams were waited for."""
    found = list[str]()

    def stream(device: Any) -> SimpleNamespace:
        return SimpleNamespace(synchronize=lambda: found.append(str(device)))

    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    return found


def test_only_the_work_of_a_gpu_is_waited_for(waits: list[str]) -> None:
    settle("cpu")
    settle(torch.device("cpu"))
    assert not waits
    settle("cuda:1")
    settle(torch.device("cuda"))
    assert waits == ["cuda:1", "cuda"]


def test_a_rollout_is_finished_before_it_is_handed_over(waits: list[str]) -> None:
    acted = "4 steps from 12"

    def unroll(slot: Any, position: int) -> None:
        waits.append(f"{slot.steps} steps from {position}")

    for apart, expected in ((True, [acted, "cuda:0"]), (False, [acted])):  # apart from the learner's thread
        waits.clear()
        player: Any = object.__new__(Player)
        player.task, player._acted, player._apart = SimpleNamespace(device="cuda:0"), 0, apart
        player.actors = [SimpleNamespace(unroll=unroll)]
        player.unroll(SimpleNamespace(steps=4), 12)
        assert waits == expected


def test_what_learners_give_and_what_comes_of_it_is_finished_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model, order, vectors = nn.Linear(2, 1), list[str](), list[ref[torch.Tensor]]()
    learner: Any = SimpleNamespace(model=model, flat=Flat(model), rate=0.1, optimizer_state=dict)
    monkeypatch.setattr(link_module, "settle", lambda device: order.append(f"settled {device}"))

    class Noted(Gradients):
        def exchange(self, rank: int, number: int, given: Any) -> Any:
            order.append("start" if number == 0 else "none" if given is None else "gradient")
            return super().exchange(rank, number, given)

        def publish(self, rank: int, number: int, outcome: RoundOutcome) -> bool:
            order.append(f"published {type(outcome.result).__name__}")
            if isinstance(outcome.result, Mean):
                vectors.append(ref(outcome.result.vector))
            return super().publish(rank, number, outcome)

    local = Local(SGD(model.parameters(), 0.0))
    ctx = SimpleNamespace(name="learn", rank=0, copies=1, ended_before=frozenset(), report=print)
    link = AllReduce(Noted(1)).join(ctx, learner)  # type: ignore[arg-type]
    link.step(local)
    (vector,) = vectors
    assert vector() is not None  # a GPU may not have read it yet
    link.finish(local)
    assert vector() is None
    before = "settled cpu"
    assert order == [
        *(before, "start", before, "published Start"),
        *(before, "gradient", before, "published Mean"),
        *(before, "none", before, "published Finished"),
    ]


def test_shared_parameters_are_there_before_others_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    memory, copy = SharedMemory(2), Tensor.copy_

    def noted(into: Tensor, source: Tensor) -> Tensor:
        order.append("copied")
        return copy(into, source)

    monkeypatch.setattr(Tensor, "copy_", noted)
    monkeypatch.setattr(memory_module, "settle", lambda device: order.append(f"settled {device}"))
    memory.create(Contents(torch.ones(3), torch.ones(2), torch.ones(1)))
    assert order == ["copied"] * 3 + ["settled cpu"]
    again = SharedMemory(2)
    again.load_state_dict(memory.state_dict())
    order.clear()
    assert again.open("cpu") is not None
    assert order[-2:] == ["copied", "settled cpu"]  # the number of updates comes last
    order.clear()
    assert again.open("cpu") is not None
    assert order == []  # it has been there
