import argparse
import contextlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from some_gpu import a_gpu

import gossamer
from benchmarks import (
    actors,
    actors_peers,
    all_reduce,
    continuous,
    curves,
    envs_scaling,
    gpu,
    gradients,
    hogwild,
    paac_envs,
    pack,
    peers,
    provenance,
    redraw,
    served,
    server,
    simulated,
    simulated_server,
    table,
    unpack,
)
from benchmarks.gossip import __main__ as gossip
from benchmarks.gossip import pong, scale
from gossamer import commands
from gossamer.config.file import to_dict
from gossamer.config.resolve import configure
from gossamer.launch.threads import threads
from gossamer.reporting.runs import RunFolder, load


def row(steps: int, mean_return: float | None, episodes: int = 200) -> dict[str, Any]:
    return {"steps": steps, "seconds": steps / 10, "mean_return": mean_return, "episodes": episodes}


def test_ours_is_compared_with_the_better_of_the_peers_within_each_round() -> None:
    rounds = [
        {"sb3-dummy": 400.0, "sb3-subproc": 500.0, "gossamer": 2000.0, "gossamer-fp32": 1000.0},
        {"sb3-dummy": 900.0, "sb3-subproc": 500.0, "gossamer": 1500.0, "gossamer-fp32": 1000.0},
        {"sb3-dummy": 300.0, "sb3-subproc": 800.0, "gossamer": 2400.0, "gossamer-fp32": 1200.0},
    ]
    found = peers.summarise(rounds)
    # medians: dummy 400, subproc 500. By round: 2000/500 = 4, 1500/500 = 3, 2400/800 = 3; fp32: 2, 2, 1.5.
    assert found["median"] == {"sb3-dummy": 400.0, "sb3-subproc": 500.0, "gossamer": 2000.0, "gossamer-fp32": 1000.0}
    assert found["peer"] == "sb3-subproc"
    assert found["ratio"]["gossamer"] == {"rounds": [4.0, 3.0, 3.0], "median": 3.0}
    assert found["ratio"]["gossamer-fp32"] == {"rounds": [2.0, 2.0, 1.5], "median": 2.0}


def test_a_thinned_curve_keeps_its_ends_and_its_order() -> None:
    rows = [row(0, None), *(row(step, step / 2) for step in range(1, 1001))]
    thin = curves.thinned(rows, points=4)
    # of the 1,000 rows with a return, numbers 0, 999 // 3 = 333, 666 and 999
    assert thin == [[1, 0.1, 0.5], [334, 33.4, 167.0], [667, 66.7, 333.5], [1000, 100.0, 500.0]]
    assert curves.thinned(rows[:3]) == [[1, 0.1, 0.5], [2, 0.2, 1.0]]


def test_never_is_later_than_any_number() -> None:
    assert curves.median([3, None, 1]) == 3
    assert curves.median([None, 2, None]) is None
    assert curves.median([1, 4]) == 2.5
    assert curves.median([1, None]) is None  # halfway to never is never


def settings(**changed: Any) -> dict[str, Any]:
    return to_dict(configure("paac", env="catch", **changed))


def write_run(directory: Path, rows: list[dict[str, Any]], **changed: Any) -> Path:
    directory.mkdir()
    result = {
        "ended": "all steps done",
        "short": 0,
        "steps": rows[-1]["steps"],
        "seconds": rows[-1]["seconds"],
        "steps_per_second": 10.0,
        "mean_return": rows[-1]["mean_return"],
        "machine": {"cores": 2},
        "config": settings(**changed),
    }
    (directory / "config.json").write_text(json.dumps(result["config"]))
    (directory / "result.json").write_text(json.dumps(result))
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rows))
    return directory


def test_curves_are_built_from_run_directories(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [row(10, 0.0), row(20, 0.9)], seed=1, steps=20)
    two = write_run(tmp_path / "two", [row(10, 0.8), row(20, 0.9)], seed=2, steps=20)
    three = write_run(tmp_path / "three", [row(10, 0.0), row(20, 0.1)], seed=3, steps=20)
    found = curves.build({"ppo": [one, two, three]}, goal=0.8)["curves"]["ppo"]
    assert [(seed["seed"], seed["goal_steps"]) for seed in found["seeds"]] == [(1, 20), (2, 10), (3, None)]
    assert (found["median_goal_steps"], found["median_goal_seconds"]) == (20, 2.0)
    assert found["seeds"][0]["curve"] == [[10, 1.0, 0.0], [20, 2.0, 0.9]]
    curves.plot({"ppo": [one, two, three]}, 0.8, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_stored_curve_is_drawn_again(tmp_path: Path) -> None:
    seeds = [{"seed": seed, "curve": [[100, 1.0, 0.0], [200, 2.0, 0.5 * seed]]} for seed in (1, 2)]
    found = {"curves": {"ours": {"trained": "gossamer train paac --env catch --steps 200", "seeds": seeds}}}
    one, two = redraw.stored(found)
    assert (two.label, two.env, two.seed, two.points[-1]) == ("ours", "catch", 2, [200, 2.0, 1.0])
    (run,), left_out = load([RunFolder(redraw.stand_in(tmp_path / "run", two), "ours")])
    assert left_out == []
    assert (run.curve.steps.tolist(), run.curve.returns.tolist(), run.frames_per_step) == ([100, 200], [0.0, 1.0], 4)
    redraw.draw([one, two], 0.8, tmp_path / "plot.png", chosen=("steps",))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_is_trained_without_a_verb() -> None:
    parser = table._parser()
    assert [parser.parse_args(words).verb for words in ([], ["--only", "GA3C", "--seeds", "1"], ["show"])] == [
        "train",
        "train",
        "show",
    ]


def test_the_table_keeps_each_run_and_asks_for_what_it_lacks() -> None:
    labels = list(table.SYSTEMS)[:2]
    empty: dict[str, Any] = {"curves": {}}
    assert list(table.missing(empty, labels, [1, 2])) == [
        (labels[0], 1),
        (labels[1], 1),
        (labels[0], 2),
        (labels[1], 2),
    ]
    run = {
        "seed": 2,
        "seconds": 300.0,
        "steps_per_second": 2000.0,
        "goal_steps": None,
        "goal_seconds": None,
        "cores_busy": 1.9,
        "policy_lag": {"mean": 0.0},
        "gradients": None,
        "replay": None,
        "curve": [[150_000, 75.0, -20.0], [250_000, 125.0, -10.0], [600_000, 300.0, 17.5]],
    }
    found = table.added(empty, labels[1], run, settings())
    found = table.added(found, labels[1], {**run, "seed": 1, "goal_steps": 500_000}, settings())
    assert list(table.missing(found, labels, [1, 2, 3])) == [
        (labels[0], 1),
        (labels[0], 2),
        *((each, 3) for each in labels),
    ]
    row = table.table(found).splitlines()[2]
    # after 200,000 steps the last row is that of 150,000
    assert "| -20.0, -20.0; -10.0, -10.0; 17.5, 17.5 | 500,000, - | 300, 300 | 2,000, 2,000 | 1.90, 1.90 | 0.0" in row
    assert row.startswith(f"| {labels[1]}: `{table.SYSTEMS[labels[1]]}` | 32 x 5 | ")
    changed = {**found, "curves": {labels[1]: {**found["curves"][labels[1]], "options": "gala --interval 4"}}}
    assert list(table.missing(changed, labels[1:], [1])) == [(labels[1], 1)]  # other options: not the same run
    old = {**found["curves"][labels[1]], "config": settings(gamma=0.5)}  # a default of an earlier commit
    assert list(table.missing({**found, "curves": {labels[1]: old}}, labels[1:], [1])) == [(labels[1], 1)]


def test_a_run_that_was_to_end_there_knows_when_it_was_there(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [row(10, 0.0), row(20, 0.7)])  # 0.8 was between two rows
    result = json.loads((run / "result.json").read_text())
    for stop, steps, seconds in ((0.8, 14, 2.0), (0.75, None, None)):
        (run / "result.json").write_text(json.dumps({**result, "stop_at_return": stop, "solved_steps": 14}))
        found = curves.load(run, goal=0.8)
        assert (found["goal_steps"], found["goal_seconds"]) == (steps, seconds)


def test_the_command_of_a_run_says_what_the_presets_do_not() -> None:
    said = curves.command(settings(algorithm="ppo", steps=500, clip_range=0.25, seed=7))
    assert said == (
        "gossamer train paac --env catch --preset tuned --algorithm ppo --steps 500 --clip-range 0.25 --seed SEED"
    )


def test_runs_of_one_label_may_differ_in_their_seed_only(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [row(10, 0.0)], seed=1)
    two = write_run(tmp_path / "two", [row(10, 0.0)], seed=2, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"more than their seed.*--learning-rate 0.5"):
        curves.build({"a": [one, two]}, goal=0.8)


def test_a_run_that_a_signal_ended_is_not_finished(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [row(10, 0.0)])
    assert curves.finished(run)
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**result, "ended": "SIGINT"}))
    assert not curves.finished(run)
    assert not curves.finished(tmp_path / "nowhere")


def test_a_result_is_kept_as_it_is_with_a_line_for_each_list_of_numbers(tmp_path: Path) -> None:
    content = {
        "notes": ["two  spaces", "[1,\n 2]"],
        "curve": [[1, 2.5, -0.5], [2, 1e-9, None]],
        "marks": [[1, 2], [3, -4]],
        "ratio": [3.0],
    }
    path = provenance.keep("some", content, tmp_path)
    assert path == tmp_path / "some.json"
    assert json.loads(path.read_text()) == content
    assert "[1, 2.5, -0.5]" in path.read_text()
    assert "[[1, 2], [3, -4]]" in path.read_text()


def test_provenance_says_where_a_figure_comes_from() -> None:
    found = provenance.provenance()
    assert found["command"].startswith("python ")
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory_gb"] > 0
    assert set(found["versions"]) == {"python", "gossamer", "torch", "numpy", "gymnasium", "ale-py"}
    assert found["commit"].startswith("unknown") or len(found["commit"].removesuffix("-dirty")) == 40


def test_gossip_benchmarks_share_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = gossip.parser()
    for name in gossip.BENCHMARKS:
        given = parser.parse_args([name])
        assert (given.name, given.out) == (f"gossip-{name}", provenance.RESULTS)
    monkeypatch.setattr(sys, "argv", ["gossip", "scale", "--most", "4", "--iterations", "4", "--out", str(tmp_path)])
    gossip.main()
    found = json.loads((tmp_path / "gossip-scale.json").read_text())
    cases = [(row["graph"], row["bound"], row["members"]) for row in found["figures"]["rows"]]
    assert cases == [(graph, bound, 4) for graph in scale.GRAPHS for bound in ("none", "16")]
    assert {"command", "machine", "commit", "date", "versions"} < found.keys()
    assert {path.name for path in tmp_path.iterdir()} == {"gossip-scale.json", "gossip-scale.png"}


def test_runs_with_ways_of_gossip_are_added_to_the_file_and_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, int]] = []
    run = {"seed": 0, "goal_steps": 10, "goal_seconds": 1.0, "bytes": 4.0}
    monkeypatch.setattr(curves, "train", lambda options, seed, *args, **more: trained.append((options[0], seed)))
    monkeypatch.setattr(pong, "one", lambda directory, goal: {**run, "seed": int(directory.name.split("-")[1])})
    words = ["gossip", "pong", "--out", str(tmp_path), "--work", str(tmp_path / "runs")]
    for more in (["--only", "gala", "--seeds", "2"], ["--only", "gala", "pala", "--seeds", "1", "2"]):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        gossip.main()
    assert trained == [("gala", 2), ("gala", 1), ("pala", 1), ("pala", 2)]
    found = json.loads((tmp_path / "gossip-pong.json").read_text())["figures"]
    assert {label: [each["seed"] for each in of["runs"]] for label, of in found.items()} == {
        "gala": [1, 2],
        "pala": [1, 2],
    }
    monkeypatch.setitem(pong.WAYS, "gala", "gala --learners 2")  # other options: its runs are made anew
    assert [label for label, runs in pong.known(tmp_path / "gossip-pong.json").items() if runs] == ["pala"]


@pytest.mark.parametrize(("what", "file"), [("local", "all-reduce-local"), ("simulate", "all-reduce-simulated")])
def test_all_reduce_writes_its_figures(what: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["all_reduce", what, "--rounds", "4", "--most", "2", "--iterations", "4", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(all_reduce, "LEARNERS", (2,))
    all_reduce.main()
    rows = json.loads((tmp_path / f"{file}.json").read_text())["figures"]["rows"]
    if what == "local":
        ((learners, ours, stacked),) = [row.values() for row in rows]
        assert (learners, ours > 0, stacked > 0) == (2, True, True)
    else:
        assert [(row["hosts"], row["bandwidth"]) for row in rows] == [(2, "1Gb/s"), (2, "10Gb/s")]
        assert rows[0]["updates"] < rows[1]["updates"]


def test_the_readme_lists_every_gossip_benchmark() -> None:
    readme = (provenance.ROOT / "benchmarks" / "README.md").read_text()
    assert set(re.findall(r"benchmarks\.gossip (\w+)", readme)) == set(gossip.BENCHMARKS)


def test_actors_are_compared_with_lock_step_within_each_round() -> None:
    rounds = [
        {"paac": {"rate": 100.0, "cores": 1.5}, "impala": {"rate": 120.0, "cores": 1.9}},
        {"paac": {"rate": 200.0, "cores": 1.5}, "impala": {"rate": 210.0, "cores": 1.9}},
        {"paac": {"rate": 100.0, "cores": 1.5}, "impala": {"rate": 90.0, "cores": 1.9}},
    ]
    found = actors.figures(rounds)
    assert found["ratio to paac"] == {"impala": {"median": 1.05, "rounds": [1.2, 1.05, 0.9]}}
    assert found["impala"] == {"steps_per_second": [120, 210, 90], "cores": [1.9, 1.9, 1.9]}
    slow = {f"{side}{actors.FP32}": {**each, "rate": each["rate"] / 2} for side, each in rounds[0].items()}
    found = actors.figures([{**rounds[2], **slow}])
    assert found["ratio to paac"][f"impala{actors.FP32}"]["median"] == 1.2  # of what computes in float32, too
    even, uneven = {"rate": 100.0, "cores": 1.0}, {"rate": 40.0, "cores": 1.0}
    one = {"paac even": even, "paac uneven": uneven, "impala even": even, "impala uneven": even}
    found = actors.figures([one])
    assert (found["paac kept"]["median"], found["impala kept"]["median"]) == (0.4, 1.0)


def test_the_compared_compositions_can_be_and_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.tools.bench.WARM_UP_SECONDS", 0.05)
    for side, options in {**actors.RATE, **actors.UNEVEN}.items():
        if options["env"] != "pong":
            found = actors.measure(side, options, 0.1)
            assert found["rate"] > 0
            assert found["cores"] > 0


def test_the_sweep_of_actors_has_every_case_once_and_writes_figures_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = list(simulated.cases(1000))
    assert len(every) == 8 * len(simulated.ACTORS) - 4  # one actor has no two learners
    assert len({tuple(case.items()) for case in every}) == len(every)
    words = ["actors", "simulate", "--most", "2", "--batches", "8", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", words)
    actors.main()
    found = json.loads((tmp_path / "impala-simulated.json").read_text())["figures"]
    cases = [{name: row[name] for name in ("actors", "learners", "reuse", "bandwidth")} for row in found["rows"]]
    assert cases == list(simulated.cases(2))
    assert all(row["bound_by"] == "actors" for row in found["rows"])
    assert {path.name for path in tmp_path.iterdir()} == {"impala-simulated.json", "impala-simulated.png"}


def test_the_sweep_of_bundles_has_every_case_once_and_writes_figures_and_a_plot(tmp_path: Path) -> None:
    every = list(simulated_server.cases(256))
    free, limited = len(simulated_server.BUNDLES), len(simulated_server.LIMITED) * len(simulated_server.LIMITS)
    assert len(every) == 4 * free + 2 * limited  # shards x bandwidths, bandwidths
    assert {case["bandwidth"] for case in every if case["bundles"] == 256} == {"1Gb/s", "10Gb/s"}
    assert len({tuple(case.items()) for case in every}) == len(every)
    simulated_server.measure(tmp_path, 5, 8)
    found = json.loads((tmp_path / "gorila-simulated.json").read_text())["figures"]
    cases = [{key: row[key] for key in ("bundles", "shards", "bandwidth", "max_delay")} for row in found["rows"]]
    assert cases == list(simulated_server.cases(5))
    assert {path.name for path in tmp_path.iterdir()} == {"gorila-simulated.json", "gorila-simulated.png"}


def test_pushes_of_a_parameter_server_are_counted() -> None:
    threads(server.program(2, 2), seen := server.Pushes(2, 0.3))
    found = seen.figures()
    assert found["pushes"] > 0
    assert found["push_ms"] > 0
    sizes = server.sizes(2)
    assert all(4 * 1_687_719 <= size <= 4 * 1_687_719 + 2_000 for size in sizes.values())  # and padding, and headers


@pytest.mark.parametrize(("predictors", "elsewhere"), [(0, True), (1, False)])
def test_requests_of_policies_are_counted(predictors: int, elsewhere: bool) -> None:
    task, kept = served.a_task("fp32", "cpu"), served.Kept()
    threads(served.program(task, 0.2, envs=4, each=2, predictors=predictors, elsewhere=elsewhere), kept)
    found = kept.figures()
    assert len(kept.measured) == 2
    assert found["actions"] > 0
    assert 0 < found["median_ms"] <= found["p99_ms"]


def test_a_request_has_the_bytes_of_its_pictures() -> None:
    sizes = served.sizes(32)
    assert 4 * 84 * 84 <= sizes["request"] <= 4 * 84 * 84 + 20
    assert 6 * 4 + 4 <= sizes["answer"] <= 6 * 4 + 4 + 20


def test_learners_on_shared_parameters_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hogwild, "WARM_UP", 0.0)
    found = hogwild.Case("catch", 2, "threads").run(0.3)
    assert found["steps"] > 0
    assert 0 <= found["staleness"] < 20


def test_ours_is_compared_with_each_set_up_of_a_peer_within_each_round_and_the_best_is_named() -> None:
    # impala, impala-fp32; Sample Factory: medians 400 and 350; RLlib: medians 100, 200 and 50
    rates = ((900.0, 600.0, 300.0, 350.0, 100.0, 200.0, 50.0), (800.0, 600.0, 400.0, 350.0, 90.0, 100.0, 40.0),
             (700.0, 500.0, 700.0, 350.0, 900.0, 350.0, 60.0))  # fmt: skip
    rounds = [
        {side: {"rate": rate, "cores": 1.904} for side, rate in zip(actors_peers.SIDES, row, strict=True)}
        for row in rates
    ]
    found = actors_peers.figures(rounds)
    assert found["impala"] == {"steps_per_second": [900, 800, 700], "median": 800, "cores": [1.9, 1.9, 1.9]}
    assert found["best"] == {"sample-factory": actors_peers.SIDES[2], "rllib": actors_peers.SIDES[5]}
    peers = actors_peers.SIDES[2:]
    assert set(found["ratio"]) == {f"{ours} / {peer}" for ours in ("impala", "impala-fp32") for peer in peers}
    # by round: 900 / 300 = 3, 800 / 400 = 2, 700 / 700 = 1; fp32 and RLlib: 600 / 200, 600 / 100, 500 / 350
    assert found["ratio"][f"impala / {peers[0]}"] == {"median": 2.0, "rounds": [3.0, 2.0, 1.0]}
    assert found["ratio"][f"impala-fp32 / {peers[3]}"] == {"median": 3.0, "rounds": [3.0, 6.0, 1.429]}


def test_every_peer_has_its_script_its_pins_and_its_environment() -> None:
    makefile = (provenance.ROOT / "Makefile").read_text()
    for name, peer in actors_peers.PEERS.items():
        pins = (provenance.ROOT / "benchmarks" / "peers" / f"requirements-{name}.txt").read_text()
        pinned = set(re.findall(r"^([\w.-]+)(?:\[\w+\])?==", pins, flags=re.MULTILINE))
        assert {*peer.packages, "torch", "numpy", "gymnasium", "ale-py"} <= pinned
        words, marks = actors_peers.command(f"{name} {peer.setups[0]}", Path("folder"))
        assert words[-2:] == ["--marks", str(marks)]
        assert Path(words[1]).is_file()
        assert f"{peer.folder}/.installed" in makefile


@pytest.mark.parametrize(
    "command",
    [
        actors_peers.COMMAND,
        *(each.command for each in peers.WORKLOADS.values()),
        *(
            shlex.join(["train", *envs_scaling.words(method, "catch-pixels", {"num_envs": 64}, 1000)])
            for method in envs_scaling.METHODS
        ),
        *(shlex.join(["train", *paac_envs.options(64, preset, 1000)]) for preset in ("tuned", "paper")),
    ],
)
def test_our_side_of_a_comparison_has_options_that_exist(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        commands.run("train", [*shlex.split(command)[1:], "--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert set(re.findall(r"--[\w-]+", command)) <= known
    assert "--rollout-length" in known


def test_the_sizes_of_more_environments_follow_the_rule_on_any_machine() -> None:
    # 50 / 4^0.75 = 17.7 steps; 64 x 17 / 100 = 10.9 minibatches
    assert envs_scaling.sizes("paac", "catch-pixels", 64) == {
        "num_envs": 64,
        "rollout_length": 17,
        "num_minibatches": 11,
    }
    assert envs_scaling.sizes("appo", "catch-pixels", 16) == {"num_envs": 16}


def test_growth_is_relative_to_the_fewest_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"16": [100, 200], "64": [180, 240], "128": [None, 300]}
    runs = {("paac", int(envs)): [tmp_path / envs / str(i) for i in range(2)] for envs in steps}
    for folder in (folder for folders in runs.values() for folder in folders):
        folder.mkdir(parents=True)
        (folder / "result.json").touch()
    monkeypatch.setattr(
        envs_scaling, "load", lambda folder, goal: {"goal_steps": steps[folder.parent.name][int(folder.name)]}
    )
    found = envs_scaling.figures(runs, "catch-pixels", 0.9, "abc")["paac"]
    # Medians 150, 210 and none: of two runs one did not reach the goal
    assert [found[envs]["growth"] for envs in steps] == [1.0, 1.4, None]
    provenance.keep("scaling", {"goal": 0.9, "commit": "abc", "methods": {"paac": found}}, tmp_path)
    path = tmp_path / "scaling.json"
    assert envs_scaling.kept(path, 0.9, ["appo"]) == {"paac": found}
    assert envs_scaling.kept(path, 0.9, ["paac"]) == envs_scaling.kept(path, 18.0, ["appo"]) == {}


def test_a_packed_study_counts_as_finished_and_can_be_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["gala --learners 2 --num-envs 4 --eval-every 160"]
    first = gossamer.study(words, envs=["catch"], seeds=1, steps=320, directory=tmp_path / "study")
    assert first.counts["finished"] == 1
    for run in (tmp_path / "study").rglob("seed-*"):
        if run.is_dir():
            gossamer.evaluate(run, episodes=2)
    monkeypatch.setattr(sys, "argv", ["pack", str(tmp_path / "study"), "some", "--out", str(tmp_path / "archives")])
    pack.main()
    (archive,) = (tmp_path / "archives").iterdir()
    unpack.unpack(archive, tmp_path / "packed")
    assert not any((tmp_path / "packed").rglob("*.safetensors"))
    again = gossamer.study(words, envs=["catch"], seeds=1, steps=320, directory=tmp_path / "packed")
    assert again.counts["finished before"] == 1
    folders = (tmp_path / "study", tmp_path / "packed")
    reports = [gossamer.report(folder, out=folder.with_suffix(".report")).summary for folder in folders]
    for each in reports:
        each.pop("runs")  # whose directories differ
    assert reports[0] == reports[1]
    assert reports[0]["speed"][0]["gossip_staleness_mean"] is not None


def test_the_same_runs_give_the_same_archive(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = write_run(tmp_path / f"seed-{seed}", [row(step, 0.5) for step in range(300)], seed=seed)
        (run / "episodes.csv").write_text("")
        (run / "spec.json").write_text("{}")
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "metrics.jsonl").write_text("")  # no result: still training
    first, second = tmp_path / "first.tar.xz", tmp_path / "second.tar.xz"
    assert pack.pack(tmp_path, first) == 2
    unpack.unpack(first, tmp_path / "unpacked")
    assert sorted(run.name for run in (tmp_path / "unpacked").iterdir()) == ["seed-1", "seed-2"]
    assert len((tmp_path / "unpacked" / "seed-1" / "metrics.jsonl").read_text().splitlines()) == curves.POINTS
    assert pack.pack(tmp_path / "unpacked", second) == 2
    assert first.read_bytes() == second.read_bytes()


def test_runs_are_not_unpacked_over_others(tmp_path: Path) -> None:
    archive = next(provenance.RUNS.glob("*.tar.xz"))
    with pytest.raises(FileExistsError, match=r"exists: remove it, or name another folder with --to"):
        unpack.unpack(archive, tmp_path)


def test_a_folder_without_finished_runs_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no finished runs in"):
        pack.pack(tmp_path, tmp_path / "some.tar.xz")


def test_curves_take_all_runs_below_a_folder(tmp_path: Path) -> None:
    (tmp_path / "ppo").mkdir()
    runs = {seed: write_run(tmp_path / "ppo" / f"seed-{seed}", [row(10, 0.0)], seed=seed) for seed in (11, 2, 1)}
    assert curves.runs_below(tmp_path) == [runs[1], runs[2], runs[11]]
    assert curves.runs_below(runs[2]) == [runs[2]]
    with pytest.raises(FileNotFoundError, match="no finished run in"):
        curves.runs_below(tmp_path / "nowhere")


def test_packed_rows_of_metrics_keep_their_ends() -> None:
    lines = [f"{i}\n" for i in range(10)]
    assert curves.spread(lines, 4) == ["0\n", "3\n", "6\n", "9\n"]
    assert curves.spread(lines, 10) == lines


def a_training(side: str, env: str, seed: int, final: float) -> dict[str, Any]:
    origin = {"command": "train", "commit": "c", "date": "d", "machine": {"processor": "p"}}
    marks = [[0.0, 0, None], [1.0, 100, 5.0], [3.0, 300, final]]  # seconds, steps, return
    return {"side": side, "env": env, "seed": seed, "marks": marks, **origin}


def test_continuous_runs_of_the_result_file_are_kept_unless_there_is_a_newer_one() -> None:
    earlier = [continuous.kept(a_training("sb3", "Hopper-v5", seed, 10.0 * seed)) for seed in (1, 2)]
    found = [continuous.kept(a_training("sb3", "Hopper-v5", 2, 40.0))]
    runs = continuous.merged(found, earlier)
    figures = continuous.build(runs)["envs"]["Hopper-v5"]["sb3"]
    assert (figures["seeds"], figures["final_returns"], figures["mean"]) == ([1, 2], [10.0, 40.0], 25.0)
    assert figures["steps_per_second"] == [100, 100]  # from the first return on: 200 steps in 2 s


def test_speeds_of_continuous_control_are_compared_within_each_round() -> None:
    found = continuous.ratios({"gossamer": [300.0, 200.0, 400.0], "sb3": [100.0, 100.0, 100.0]})
    assert (found["ratio"], found["median_ratio"]) == ([3.0, 2.0, 4.0], 3.0)
    assert "ratio" not in continuous.ratios({"gossamer": [300.0]})


@pytest.mark.parametrize("name", gradients.CASES)
def test_gradients_are_compared_for_the_same_batch_and_parameters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_gpu(monkeypatch):  # which computes as the CPU does
        assert gradients.difference(name, "cuda", small=True) == 0
    assert gradients.gradient(gradients.CASES[name], "cpu", small=True).norm() > 0


def stages(folder: Path, monkeypatch: pytest.MonkeyPatch, *commands: str) -> argparse.Namespace:
    """What the GPU benchmark is given to write to a folder; its stages are these commands, one after the other."""
    left = iter(commands)
    monkeypatch.setattr(gpu, "started", lambda words: subprocess.Popen(next(left).split(), start_new_session=True))
    return argparse.Namespace(device="cpu", smoke=True, out=folder, again=False)


def test_a_stage_has_a_time_limit_and_is_measured_once_at_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, told = stages(tmp_path, monkeypatch, "sleep 30", "true"), []
    for seconds in (0.1, 60.0, 60.0):
        monkeypatch.setattr(gpu, "STAGES", {"pong": gpu.Stage(gpu.pong, seconds)})
        gpu.run_stage("pong", given)
        told.append(capsys.readouterr().out.split(",")[0].strip())
        kept = json.loads((tmp_path / "gpu-pong.json").read_text())
        assert {"commit", "machine", "versions"} <= kept.keys()
    assert told == ["pong: cut off after 0.1 s", "pong: whole", "pong: measured already"]
    assert kept["stage"] == {"on": "cpu smoke", "ended": "whole"}


def test_a_stage_of_the_gpu_benchmark_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.run_stage("pong", argparse.Namespace(device="cpu", smoke=True, out=tmp_path, again=False))
    kept = json.loads((tmp_path / "gpu-pong.json").read_text())
    assert capsys.readouterr().out.startswith("pong: whole, ")
    assert (kept["stage"]["ended"], kept["figures"]["steps"] >= 400) == ("whole", True)


def a_training_that_fails(words: list[str], **options: Any) -> dict[str, Any]:
    return {"failed": "gossamer: no memory", "exit_code": 2} if words[0] in ("appo", "pala") else {"steps": 400}


@pytest.mark.parametrize("stage", ["throughput", "pong", "pala"])
def test_a_stage_with_a_training_that_failed_has_failed(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "trained", a_training_that_fails)
    results = provenance.Results(f"gpu-{stage}", tmp_path, {})
    with pytest.raises(SystemExit, match=r"no result of .*(appo|pala)"):
        gpu.STAGES[stage].measure(gpu.Place("cpu", True, results))
    figures = json.loads(results.path.read_text())["figures"]
    assert "no memory" in json.dumps(figures)
    if stage == "throughput":
        assert figures["paac"] == {"steps": 400}  # what was measured is kept


def test_a_stage_with_tests_that_fail_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, stdout="1 failed, 21 passed in 9 s\n")
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: done)
    results = provenance.Results("gpu-tests", tmp_path, {})
    with pytest.raises(SystemExit, match="pytest ended with exit code 1"):
        gpu.tests(gpu.Place("cpu", True, results))
    assert json.loads(results.path.read_text())["figures"] == {
        "exit_code": 1,
        "last_line": "1 failed, 21 passed in 9 s",
    }


def test_a_stage_that_failed_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = stages(tmp_path, monkeypatch, "false", "true")
    for _ in range(2):
        gpu.run_stage("pong", given)
    told = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["pong: failed: exit code 1", "pong: whole"]


def test_the_gpu_benchmark_is_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["benchmarks.gpu"])
    with pytest.raises(SystemExit) as ended:
        gpu.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"benchmarks\.gpu: --device cuda: torch \S+ finds no GPU; use --device cpu", line)
