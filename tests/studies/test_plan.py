"""What a study trains, and what it refuses before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.storage import studies
from gossamer.storage.studies import PlannedRun
from gossamer.studies.plan import Design, check, resuming, settled
from gossamer.system.errors import UserError
from gossamer.training.sinks import choice


def design(directory: Path, *compositions: str, **given: Any) -> Design:
    return Design(
        **{"compositions": compositions, "envs": ("catch",), "seeds": (1, 2), "directory": directory, **given}
    )


def test_every_combination_has_a_run_of_its_own(tmp_path: Path) -> None:
    made = design(
        tmp_path, "paac --algorithm ppo", "four: gala --learners 4", envs=("catch", "CartPole-v1"), seeds=(3, 1),
        steps=500, options=("--num-envs", "2"),
    ).runs()  # fmt: skip
    assert len(made) == 2 * 2 * 2
    assert [(run.label, run.env, run.seed) for run in made[:5]] == [
        ("paac --algorithm ppo", "catch", 3),
        ("four", "catch", 3),
        ("paac --algorithm ppo", "CartPole-v1", 3),
        ("four", "CartPole-v1", 3),
        ("paac --algorithm ppo", "catch", 1),
    ]
    assert made[1].directory == "four/catch/seed-3"
    assert made[0].directory == "paac-algorithm-ppo/catch/seed-3"
    assert made[1].command == "gala --learners 4 --env catch --seed 3 --steps 500 --num-envs 2"
    check(made)  # all of them can be trained


def test_a_users_own_architecture_is_no_label(tmp_path: Path) -> None:
    (run,) = design(tmp_path, "my_module:Mine --num-envs 2", seeds=(1,)).runs()
    assert run.label == "my_module:Mine --num-envs 2"


def test_a_run_goes_on_with_the_options_of_a_call_only(tmp_path: Path) -> None:
    run, *_ = design(tmp_path, "paac --stop-at-return 0.5 --num-envs 2", cluster="local").runs()
    assert resuming(run, 0.0) == ["--stop-at-return", "0.5", "--cluster", "local"]


@pytest.mark.parametrize(("trained", "left"), [(0.0, 60.0), (45.5, 14.5), (61.0, 0.001)])
def test_the_time_of_a_run_is_that_of_all_its_sessions(tmp_path: Path, trained: float, left: float) -> None:
    run, *_ = design(tmp_path, "paac --max-seconds 60").runs()
    assert resuming(run, trained) == ["--max-seconds", str(left)]


@pytest.mark.parametrize("given", [{"compositions": ["paac --page"]}, {"options": ("--page",)}])
def test_a_page_of_a_run_needs_no_port(tmp_path: Path, given: dict[str, Any]) -> None:
    run, *_ = design(tmp_path, **{"compositions": ["paac"], **given}).runs()
    check([run])
    assert resuming(run, 0.0) == ["--page", "6006"]


@pytest.mark.parametrize(
    ("compositions", "given", "message"),
    [
        ((), {}, "no composition"),
        (("paac",), {"envs": ()}, "--env: required"),
        (("paac",), {"seeds": ()}, "--seeds: at least one"),
        (("paac",), {"jobs": 0}, "--jobs 0: must be at least 1"),
        (("paac", "paac"), {}, "composition paac: given twice"),
        (("paac",), {"envs": ("catch", "catch")}, "--env catch: given twice"),
        (("paac",), {"seeds": (1, 1)}, "--seeds 1: given twice"),
        (("name: ",), {}, "has no words"),
        (("paac --steps '3",), {}, "cannot be read"),
        (
            ("paac", "gala --steps 3"),
            {"steps": 7},
            "--steps 7: 'gala --steps 3' or the options of all runs have --steps",
        ),
        (("paac",), {"steps": 7, "options": ("--steps=3",)}, "--steps 7: 'paac' or the options of all runs have"),
        (("paac --cluster auto",), {"cluster": "local"}, "--cluster local: 'paac --cluster auto' or"),
        (("paac" + " --gamma 0.99" * 20,), {}, "too long for the name of a directory; give it a name"),
        (("paac --gamma 1", "paac gamma 1"), {}, "would share the directory paac-gamma-1/catch/seed-1"),
    ],
)
def test_designs_that_cannot_be(
    tmp_path: Path, compositions: tuple[str, ...], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        design(tmp_path, *compositions, **given).runs()


@pytest.mark.parametrize(
    ("composition", "message"),
    [
        ("paac --learners 3", "^paac --learners 3: --learners"),
        ("paac --help", "^paac --help: --help is not for a composition; gossamer train paac --help lists options$"),
        ("pac", "^pac: "),
        ("paac --run-dir x", "are set by the study"),
        ("paac --seed 3", "are set by the study"),
        ("paac --seed=3", "are set by the study"),
        ("mine: gala --learners 0", "^mine: --learners 0"),
        ("paac --network lstm", "^paac --network lstm on catch: "),
        ("paac --log nonsense", "^paac --log nonsense on catch: --log nonsense: "),
        ("paac --log lacking", "^paac --log lacking on catch: --log lacking: not installed; run "),
        ("paac --eval-every 100 --eval-protocol noop", "--eval-protocol noop: catch is not an Atari game"),
        ("paac --cluster nowhere:", "--cluster nowhere:: address 'nowhere:': give ip:port"),
    ],
)
def test_a_composition_that_cannot_be_trained_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composition: str, message: str
) -> None:
    monkeypatch.setitem(choice.KNOWN, "lacking", "lacking:Sink")
    with pytest.raises(UserError, match=message):
        check(design(tmp_path, composition).runs())
    assert list(tmp_path.iterdir()) == []


def settle(folder: Path, runs: list[PlannedRun]) -> None:
    with settled(folder, runs):
        pass


def test_a_study_may_grow(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    settle(folder, design(folder, "paac").runs())
    more = design(folder, "paac", "gala", envs=("CartPole-v1", "catch"), seeds=(1, 2, 3)).runs()
    settle(folder, more)
    assert studies.read(folder) == more


@pytest.mark.parametrize(
    ("first", "then"), [("10.0.0.1:6379", "10.0.0.9:6379"), (None, "auto"), ("local", None)], ids=str
)
def test_a_study_may_go_on_at_another_cluster(tmp_path: Path, first: str | None, then: str | None) -> None:
    folder = tmp_path / "s"
    settle(folder, design(folder, "paac", cluster=first).runs())
    later = design(folder, "paac", cluster=then).runs()
    settle(folder, later)
    assert studies.read(folder) == later
    settle(folder, design(folder, "paac", options=("--cluster=local",)).runs())
    assert "--cluster=local" in studies.read(folder)[0].command


@pytest.mark.parametrize(
    ("compositions", "given", "message"),
    [
        (("gala",), {}, "has another study, with paac/catch/seed-1"),
        (("paac",), {"seeds": (1,)}, "has another study, with paac/catch/seed-2"),
        (("paac",), {"steps": 7}, "has another study: paac/catch/seed-1 is `paac --env catch --seed 1` there"),
    ],
)
def test_another_study_is_refused(
    tmp_path: Path, compositions: tuple[str, ...], given: dict[str, Any], message: str
) -> None:
    settle(tmp_path, design(tmp_path, "paac").runs())
    before = studies.read(tmp_path)
    with pytest.raises(UserError, match=message):
        settle(tmp_path, design(tmp_path, *compositions, **given).runs())
    assert studies.read(tmp_path) == before


def test_a_study_that_another_call_runs_is_refused(tmp_path: Path) -> None:
    runs = design(tmp_path, "paac").runs()
    with settled(tmp_path, runs), pytest.raises(UserError, match=r"process \d+ on .* is running this study; wait"):
        settle(tmp_path, design(tmp_path, "paac", "gala").runs())
    assert studies.read(tmp_path) == runs
    assert [file.name for file in tmp_path.iterdir()] == ["study.json"]


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"has files and no study\.json"):
        settle(tmp_path, design(tmp_path, "paac").runs())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be used"):
        settle(tmp_path / "file", design(tmp_path, "paac").runs())


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 1, "runs": [{"label": "x"}]}'])
def test_a_damaged_study_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UserError, match=r"study\.json: damaged"):
        studies.read(tmp_path)


def test_a_study_of_a_later_version_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps({"format": 2, "runs": []}))
    with pytest.raises(UserError, match="later version"):
        studies.read(tmp_path)
    with pytest.raises(UserError, match="not a study"):
        studies.read(tmp_path / "other")
