"""Schedules by hand, and seeds that do not meet."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from some_parts import a_task


@pytest.mark.parametrize(
    ("steps", "rate"), [(0, 0.4), (250, 0.325), (500, 0.25), (1000, 0.1), (1001, 0.1), (10**9, 0.1)]
)
def test_the_rate_falls_linearly_to_its_final_fraction(steps: int, rate: float) -> None:
    # 0.4 to a quarter of it, 0.1, over 1,000 steps: 0.3 in all, 0.075 in every 250
    plan = replace(a_task(rate=0.4, anneal_steps=1000).optimization, final_fraction=0.25)
    assert plan.rate(steps) == pytest.approx(rate)


def test_the_schedule_is_over_after_its_steps() -> None:
    plan = a_task(anneal_steps=1000).optimization
    assert [plan.progress(steps) for steps in (0, 250, 1000, 1001)] == [0.0, 0.25, 1.0, 1.0]
    assert a_task().optimization.progress(10**9) == 0.0  # no schedule


def test_the_rate_may_fall_later() -> None:
    # constant for the first 200 of 1,000 steps, then from 0.4 to 0 in 800: 0.1 in every 200
    plan = replace(a_task(rate=0.4, anneal_steps=1000).optimization, anneal_from=0.2)
    found = [plan.rate(steps) for steps in (0, 200, 400, 800, 1000, 2000)]
    assert found == pytest.approx([0.4, 0.4, 0.3, 0.1, 0.0, 0.0])


def test_no_schedule_keeps_the_rate() -> None:
    assert a_task(rate=0.4).optimization.rate(10**9) == 0.4


def test_each_purpose_member_and_seed_has_a_stream_of_its_own() -> None:
    seeds = [
        replace(a_task(), seed=seed).stream(purpose, rank)
        for seed in range(20)
        for purpose in ("act", "learn", "env 0", "env 1", "model")
        for rank in range(20)
    ]
    assert len(set(seeds)) == 2000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert a_task().stream("act", 3) == a_task().stream("act", 3)


def test_streams_do_not_depend_on_what_else_was_drawn() -> None:
    one, other = a_task().generator("act"), a_task().generator("act")
    a_task().generator("learn")
    assert one.initial_seed() == other.initial_seed() == a_task().stream("act")


def test_a_task_is_resolved_where_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    task = a_task()
    left = replace(task, device="auto", network=replace(task.network, dtype=None), threads=0, sharing=3)
    monkeypatch.setattr("gossamer.task.cores", lambda: 8)
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=9))
        here = left.resolved()
        assert (here.device, here.threads) == (device, 2)
        assert here.dtype(pictures=False) == (torch.bfloat16 if there else torch.float32)
    assert replace(left, sharing=16).resolved().threads == 1
    assert replace(left, sharing=0).resolved().threads == 0
    assert replace(left, threads=5).resolved().threads == 5


@pytest.mark.parametrize(
    ("device", "gpu", "count", "expected"),
    [
        ("cuda", None, 2, ["cuda:0", "cuda:1", "cuda:0"]),  # by rank
        ("cuda", 3, 2, ["cuda:1"] * 3),
        ("cuda", 0, 2, ["cuda:0"] * 3),
        ("cuda", None, 1, ["cuda"] * 3),
        ("cuda:1", None, 2, ["cuda:1"] * 3),  # as the user says
        ("cpu", None, 2, ["cpu"] * 3),
    ],
)
def test_workers_go_round_over_the_gpus_of_a_machine(
    device: str, gpu: int | None, count: int, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    task = replace(a_task(), device=device, gpu=gpu)
    assert [task.placed(rank).device for rank in range(3)] == expected
