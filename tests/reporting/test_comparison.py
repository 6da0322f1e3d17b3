"""Which runs form a method, what it is called, and what is said about runs that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from some_results import rising, write_run

import gossamer
from gossamer.reporting import comparison, runs
from gossamer.reporting.comparison import Comparison


def compared(folder: Path, **labels: Path) -> Comparison:
    return comparison.compare(*runs.load(runs.sources([folder], labels)))


def settings(architecture: str = "paac", **options: Any) -> dict[str, Any]:
    return {"architecture": architecture, "algorithm": "a2c", "learning_rate": 0.1, **options}


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([settings()], ["paac a2c"]),
        ([settings("appo", algorithm="appo")], ["appo"]),
        ([settings(), settings("gala", learners=4)], ["paac a2c", "gala a2c"]),
        # learning rates differ between architectures: that is no part of the label
        ([settings(), settings("gala", learning_rate=0.2)], ["paac a2c", "gala a2c"]),
        ([settings(), settings(learning_rate=0.2)], ["paac a2c, learning-rate 0.1", "paac a2c, learning-rate 0.2"]),
        # nor is an option of gala's one of paac's
        (
            [settings(), settings("gala", learners=2), settings("gala", learners=4)],
            ["paac a2c", "gala a2c, learners 2", "gala a2c, learners 4"],
        ),
    ],
)
def test_a_label_names_what_differs(given: list[dict[str, Any]], labels: list[str]) -> None:
    assert comparison.labels(given, ["catch"] * len(given)) == labels


def test_options_that_differ_between_environments_are_no_difference_of_methods() -> None:
    given = [settings(learning_rate=0.1), settings(learning_rate=0.2)]
    assert comparison.labels(given, ["catch", "pong"]) == ["paac a2c", "paac a2c"]


def test_seeds_form_a_method_whose_runs_are_in_order(tmp_path: Path) -> None:
    for seed in (2, 1):
        write_run(tmp_path / f"a{seed}", rising(1.0), seed=seed, keep=seed)
        write_run(tmp_path / f"b{seed}", rising(1.0), seed=seed, learning_rate=0.25)
    found = compared(tmp_path)
    assert [[run.seed for run in method.runs] for method in found.methods] == [[1, 2], [1, 2]]
    assert found.methods[1].label == "paac a2c, learning-rate 0.25"
    assert comparison.settings_that_differ(found) == {
        "learning_rate": {method.label: text for method, text in zip(found.methods, ("0.002", "0.25"), strict=True)}
    }
    assert comparison.notes(found) == []


def test_runs_that_differ_in_logs_and_evaluations_are_seeds_of_one_method(tmp_path: Path) -> None:
    write_run(tmp_path / "1", rising(1.0), seed=1)
    write_run(tmp_path / "2", rising(1.0), seed=2, log="none", checkpoint_every=5.0)
    write_run(tmp_path / "3", rising(1.0), seed=3, eval_every=500, eval_episodes=5, eval_protocol="noop")
    found = compared(tmp_path)
    assert [method.label for method in found.methods] == ["paac a2c"]
    assert comparison.notes(found) == []


def test_machines_are_those_of_the_hosts(tmp_path: Path) -> None:
    learner = {
        "processor": "EPYC",
        "cores": 64,
        "gpu": "H100",
        "torch": "2.13.0",
        "device": "cuda",
        "precision": "bf16",
    }
    actors = {"processor": "Xeon", "cores": 2, "gpu": None, "torch": "2.13.0", "device": "cpu", "precision": "fp32"}
    hosts = {"main": learner, "actors[0]": actors, "actors[1]": actors}
    write_run(tmp_path / "1", rising(1.0), seed=1, result={"hosts": hosts})
    write_run(tmp_path / "2", rising(1.0), seed=2)  # of an older version
    both = "EPYC, 64 cores, H100, torch 2.13.0, bf16 on cuda; with Xeon, 2 cores, torch 2.13.0, fp32 on cpu"
    assert comparison.machines(compared(tmp_path).runs) == [both, "Some CPU, 2 cores, torch 2.13.0"]


def test_options_of_one_architecture_are_empty_for_the_other(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rising(1.0))
    write_run(tmp_path / "b", rising(1.0), architecture="gala", learners=2)
    found = comparison.settings_that_differ(compared(tmp_path))
    assert found["architecture"] == {"paac a2c": "paac", "gala a2c": "gala"}
    assert found["learners"] == {"paac a2c": "", "gala a2c": "2"}


def test_what_a_reader_must_know_is_noted(tmp_path: Path) -> None:
    other = {"machine": {"processor": "Other", "cores": 8, "gpu": "H100", "torch": "2.13.0"}, "version": "0.2.0"}
    write_run(tmp_path / "a" / "1", rising(1.0), seed=1)
    write_run(
        tmp_path / "a" / "2", rising(1.0, 400), seed=1, learning_rate=0.5, result={"stop_at_return": 0.5, **other}
    )
    notes = comparison.notes(compared(tmp_path, ours=tmp_path / "a"))
    assert [note.split(":")[0] for note in notes] == [
        "ours, catch",  # settings
        "ours, catch",  # seeds
        "catch",  # lengths
        "catch",  # told to end
        "The runs are of 2 kinds of machine",
        "The runs are of several versions of Gossamer",
    ]
    assert "differ in steps, learning_rate" in notes[0]
    assert "seed 1" in notes[1]
    assert "between 3,000 and 4,000 steps" in notes[2]
    assert "return of 0.5" in notes[3]


def test_a_difference_of_less_than_a_percent_in_length_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rising(1.0, 1000), seed=1, steps=9_000)
    write_run(tmp_path / "b", rising(1.0, 1009), seed=2, steps=9_000)
    found = compared(tmp_path)
    assert comparison.notes(found) == []
    assert found.end("catch") == 10_000


def test_a_game_alone_is_another_task_than_beside_others(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"steps": 240, "learning_starts": 64, "batch_size": 16, "num_envs": 6}
    for folder, env in (("alone", "counter"), ("beside", "counter:2,recall")):
        gossamer.train("dqn", env=env, run_dir=tmp_path / folder, rescale_values=True, log="none", **sizes)
    made = comparison.compare(*runs.load([runs.RunFolder(tmp_path / folder) for folder in ("alone", "beside")]))
    counted = [[run.env for run in method.runs] for method in made.methods]
    assert counted == [["counter"], ["counter", "recall"]]
    assert "games one" in made.methods[0].label
    assert "games counter:2,recall" in made.methods[1].label
