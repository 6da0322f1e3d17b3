"""What a measurement consists of; not how fast anything is."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from typing import Any

import pytest

from gossamer import cli
from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.envs import once
from gossamer.envs.base import UnknownEnv
from gossamer.envs.toy import Catch
from gossamer.system.errors import UserError
from gossamer.system.usage import GPUSample
from gossamer.task import WorkerReport
from gossamer.tools import bench as module
from gossamer.tools.bench import Reports, bench
from gossamer.tools.parts import FEW, Crew, programs


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WARM_UP_SECONDS", 0.02)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    "given", [{}, {"algorithm": "ppo"}, {"env": "catch-pixels", "algorithm": "ppo", "rollout_length": 4}]
)
def test_a_measurement(given: dict[str, Any]) -> None:
    found = bench("paac", seconds=0.05, rounds=1, **{"env": "catch", "num_envs": 4, "threads": 1, **given})
    rates = {part: found[part] for part in ("env", "inference", "update", "whole", "roofline")}
    assert all(rate > 0 for rate in rates.values())
    parts = {part: found[part] for part in ("env", "inference", "update")}
    assert found["roofline"] == pytest.approx(1 / sum(1 / rate for rate in parts.values()), rel=0.01)
    assert found["ratio"] == pytest.approx(found["whole"] / found["roofline"], rel=0.01)
    assert found["bound_by"] == min(parts, key=lambda part: parts[part])
    assert (found["env_name"], found["num_envs"]) == (given.get("env", "catch"), 4)
    assert set(found["range"]) == {*rates, "ratio", "busy", "frames_per_second"}
    assert found["frames_per_second"] == pytest.approx(found["whole"], rel=0.01)  # a step of toys is one frame
    assert 0 < found["busy"] <= found["machine"]["cores"] + 0.5
    assert found["machine"]["cores"] >= 1
    assert found["peak_memory_mb"] > 0
    assert found["precision"] in ("float32", "bfloat16")


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("name", ["paac", "impala"])
def test_with_and_without_alternating(name: str) -> None:
    settings: dict[str, Any] = {"env": "catch", "num_envs": 4, "threads": 1, "alternating": True}
    found = bench(name, seconds=0.05, rounds=1, **settings)
    acting, update = max(1 / found["env"], 1 / found["inference"]), 1 / found["update"]
    if name == "impala":
        assert found["acting"] == pytest.approx(1 / acting, rel=0.01)
    else:
        assert found["roofline"] == pytest.approx(1 / (acting + update), rel=0.01)
    assert min(found["plain"], found["whole"]) > 0


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("given", "passes", "columns"),
    [
        ({}, 1, 4),
        ({"actors": 2, "batch_rollouts": 3}, 1, 6),  # of 2 environments each
        ({"reuse": 2, "depth": 3, "replay_share": 0.5}, 4, 4),
        ({"learners": 2}, 1, 2),
    ],
    ids=str,
)
def test_actors_and_learners_at_the_same_time(given: dict[str, Any], passes: float, columns: int) -> None:
    settings: dict[str, Any] = {"env": "catch", "num_envs": 4, "threads": 1, "actors": 1, **given}
    crew = Crew.of(program(configure("impala", **settings)))
    assert crew.apart
    assert (crew.actors * crew.num_envs, crew.learners) == (4, given.get("learners", 1))
    assert (crew.passes, crew.columns) == (passes, columns)
    found = bench("impala", seconds=0.05, rounds=1, **settings)
    assert found["acting"] == pytest.approx(1 / (1 / found["env"] + 1 / found["inference"]), rel=0.01)
    assert found["learning"] == pytest.approx(found["update"] / passes, rel=0.01)
    limits = {name: found[name] for name in ("acting", "learning", "cores")}
    assert found["roofline"] == min(limits.values())
    assert found["bound_by"] == min(limits, key=lambda name: limits[name])
    assert found["whole"] > 0


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("exponent", [0.0, 0.6])
def test_an_algorithm_with_replay_draws_its_batches(exponent: float) -> None:
    settings: dict[str, Any] = {"env": "catch-pixels", "num_envs": 4, "threads": 1, "learning_starts": 16}
    found = bench("dqn", seconds=0.2, rounds=1, priority_exponent=exponent, **settings)
    assert min(found[part] for part in ("env", "inference", "update", "whole")) > 0


@pytest.mark.parametrize("options", [{}, {"actors": 2, "num_envs": 8}, {"learners": 2}])
def test_the_parts_are_measured_with_the_program_s_workers(options: dict[str, Any]) -> None:
    config = configure("impala", env="catch", **options)
    crew = Crew.of(program(config))
    learning, *acting = (each.workers[0] for each in programs(config, crew, 0.1))
    assert [each.kwargs["which"] for each in acting] == [("inference",), ("env",)]
    assert {(each.copies, each.kwargs["sharing"]) for each in acting} == {(crew.actors, crew.actors)}
    assert (learning.copies, learning.kwargs["which"]) == (crew.learners, ("update",))
    assert learning.kwargs["envs"].count == crew.columns
    config = configure("gala", env="catch")
    together = [each.workers[0] for each in programs(config, Crew.of(program(config)), 0.1)]
    assert [each.kwargs["which"] for each in together] == [("update", "inference"), ("env",)]
    assert {each.kwargs["sharing"] for each in together} == {1}


@pytest.mark.usefixtures("_quick")
def test_medians_are_within_what_was_seen() -> None:
    found = bench("paac", seconds=0.02, rounds=3, env="catch", num_envs=4, threads=1)
    for name, (low, high) in found["range"].items():
        assert low <= high
        assert low - 0.1 <= found[name] <= high + 0.1, name


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"seconds": 0.0}, UserError, r"--seconds 0\.0 --rounds 5: both must be positive"),
        ({"seconds": float("nan")}, UserError, "--seconds nan"),
        ({"rounds": 0}, UserError, "--rounds 0: both must be positive"),
        ({"env": "cacth"}, UnknownEnv, "near: catch"),
        ({"num_envs": 0}, UserError, "--num-envs 0: must be at least 1"),
        ({"network": "nature"}, UserError, r"--network nature: does not fit observations \[50\]"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        bench("paac", **{"env": "catch", **given})


class Watch:
    def __init__(self) -> None:
        self.time = 7.0

    def __call__(self) -> float:
        return self.time


def test_the_first_second_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(module.time, "perf_counter", watch)
    seen, ended = Reports(seconds=2.0), []
    # reports at 0, 0.5, 1.0, .. seconds; 10 steps in each half of the first second, 100 in each half after it
    for half, steps in enumerate((10, 10, 100, 100, 100, 100, 100)):
        watch.time = 7.0 + half / 2
        seen.report("act_and_learn", WorkerReport(steps, steps, 1))
        ended.append(seen.stopping())
    assert ended == [False] * 6 + [True]  # warm from second 1, and two seconds more
    assert seen.rate() == (520 - 120) / 2


def test_the_machine_is_read_once_at_the_end_whoever_asks() -> None:
    class Slow:
        samples = 0

        def sample(self) -> None:
            self.samples += 1
            time.sleep(0.05)

        def row(self) -> dict[str, float]:
            return {"cores_busy": float(self.samples)}

    seen, usage = Reports(seconds=2.0), Slow()
    seen.marks, seen._usage = [(0.0, 0), (3.0, 100)], usage  # type: ignore[assignment]
    threads = [threading.Thread(target=seen.stopping) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (usage.samples, seen.busy) == (1, 1.0)


def test_a_rate_needs_two_reports_however_slow_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(module.time, "perf_counter", watch)
    seen = Reports(seconds=2.0)
    for _ in range(2):
        assert not seen.stopping()
        seen.report("act_and_learn", WorkerReport(100, 100, 1))
        watch.time += 10
    assert not seen.stopping()  # one warm report only: there is nothing to take a rate between
    seen.report("act_and_learn", WorkerReport(100, 100, 1))
    assert seen.stopping()
    assert seen.rate() == 10


@pytest.mark.usefixtures("_quick")
def test_progress_names_the_round_and_the_part() -> None:
    seen = list[tuple[int, str]]()
    bench("paac", seconds=0.01, rounds=2, progress=lambda *now: seen.append(now), env="catch", num_envs=2, threads=1)
    start = "starting 2 environments"
    parts = [start, "updates alone", "inference alone", start, "environments alone", "whole program"]
    assert [(number, text.partition(";")[0]) for number, text in seen] == [(n, part) for n in (1, 2) for part in parts]
    rate = r"[\d,]+"  # of the parts that have been measured before
    both = f"inference {rate}, update {rate}"
    for known, (_, text) in zip(["", "", f"update {rate}", both, both, f"env {rate}, {both}"] * 2, seen, strict=True):
        assert re.fullmatch(f"[^;]+; {known} steps/s" if known else "[^;]+", text), text


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("architecture", "made"),
    [
        # To find the preset; to check the network; four for updates and inference; all for the rest
        ("paac", [1, 1, 4, 8]),
        ("impala", [1, 1, 4, 8]),
    ],
)
def test_environments_are_made_once(monkeypatch: pytest.MonkeyPatch, architecture: str, made: list[int]) -> None:
    counts, make = list[int](), Catch.make

    def counted(self: Catch, num_envs: int, **options: Any) -> Any:
        counts.append(num_envs)
        return make(self, num_envs, **options)

    monkeypatch.setattr(Catch, "make", counted)
    monkeypatch.setattr(once, "_spec", once.OncePerProcess())
    given: dict[str, Any] = {"actors": 1} if architecture == "impala" else {}
    bench(architecture, seconds=0.01, rounds=2, env="catch", num_envs=8, threads=1, **given)
    assert counts == made


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("architecture", ["paac", "appo"])
def test_the_first_rates_wait_for_few_environments(monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    seen, make = list[str](), Catch.make

    def slow(self: Catch, num_envs: int, **options: Any) -> Any:
        seen.append(f"{num_envs} made")
        return make(self, num_envs, **options)

    monkeypatch.setattr(Catch, "make", slow)
    told = lambda round_, part: seen.append(part)  # noqa: E731
    bench(architecture, seconds=0.01, rounds=1, progress=told, env="catch", num_envs=64, threads=1)
    first = next(i for i, what in enumerate(seen) if what.endswith("steps/s"))
    assert max(int(what.split()[0]) for what in seen[:first] if what.endswith(" made")) == FEW
    assert any(what in seen[first:] for what in ("64 made", "32 made", "16 made"))


@pytest.mark.usefixtures("_quick")
def test_the_command_keeps_stdout_clean(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "paac", "--env", "catch", "--num-envs", "2", "--threads", "1", "--seconds", "0.01"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["gossamer", *words, "--rounds", "2", "--json"])
    assert cli.main() == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["architecture"] == "paac"
    lines = err.splitlines()
    start = "starting 2 environments"
    parts = [start, "updates alone", "inference alone", start, "environments alone", "whole program"]
    assert [re.split("[,;]", line)[0] for line in lines] == [
        *(f"bench: round 1 of 2: {part}" for part in parts),
        "bench: round 2 of 2: starting 2 environments",
    ]
    assert all(re.fullmatch(r".*, about \d+:\d\d left", line) for line in lines)


@pytest.mark.usefixtures("_quick")
def test_a_gpu_is_watched_while_the_whole_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Steady:
        def sample(self) -> GPUSample:
            return GPUSample(utilization=0.5, memory=2 * 10**9, watts=100.0)

    monkeypatch.setattr(module, "open_gpu", lambda device: (Steady(), ""))
    found = bench("paac", seconds=0.05, rounds=1, env="catch", num_envs=4, threads=1)
    assert (found["gpu_utilization"], found["gpu_memory_gb"], found["gpu_watts"]) == (0.5, 2.0, 100.0)
    assert found["frames_per_joule"] == pytest.approx(found["frames_per_second"] / 100, rel=0.01)
