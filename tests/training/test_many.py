"""Runs of many members: what they leave, what plays at their end, and how they are gone on with."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import pytest
import torch
from some_parts import differences
from some_runs import checkpoint, has_played, result, rows, start, trained, wait_until

import gossamer
from gossamer.config.build import program, task
from gossamer.config.resolve import configure
from gossamer.envs.toy import Catch
from gossamer.evaluation.aggregate import aggregate
from gossamer.evaluation.evaluate import load_policy
from gossamer.launch.ray.errors import ClusterUnreachable
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Observer
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import load_config
from gossamer.system.errors import UserError
from gossamer.training import cluster as cluster_module
from gossamer.training import experiment, session
from gossamer.training.checkpoints import Checkpoints

# Nobody leaves before the others have closed the window of 32 updates
LOCKED: dict[str, Any] = {"sync": "bounded", "staleness": 2}
MANY: dict[str, Any] = {
    "env": "catch",
    "num_envs": 2,
    "rollout_length": 4,
    "threads": 1,
    "env_workers": 1,
    "learners": 3,
    **LOCKED,
}
STEPS = 3 * 2 * 4 * 40  # forty updates of each
NAMES = [f"act_and_learn[{i}]" for i in range(3)]


def gala(directory: Path, **given: Any) -> gossamer.Run:
    return gossamer.train("gala", run_dir=directory, **{**MANY, "steps": STEPS, **given})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> gossamer.Run:
    return gala(tmp_path_factory.mktemp("many") / "run")


def gossip(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "gossip.json").read_text())
    return found


def test_a_run_of_many_leaves_how_far_they_were_apart(run: gossamer.Run) -> None:
    found = gossip(run.directory)
    (window,) = found["windows"]
    assert (window["epoch"], window["members"], window["opened"]) == (0, 3, 0.0)  # all begin as one
    assert 0 < window["distance"] <= window["bound"]
    assert 0 < window["kl"] <= window["kl_max"]
    assert -1 <= window["gradient_cosine"] <= 1
    assert 0 < window["steps"] <= STEPS
    assert found["traffic"]["mixed"] == sum(found["traffic"]["staleness"].values()) > 0
    assert imageio.imread(run.directory / "gossip.png").shape[2] >= 3


def test_rows_have_what_is_known_of_it(run: gossamer.Run) -> None:
    last = rows(run.directory)[-1]
    (window,) = gossip(run.directory)["windows"]
    for name in ("distance", "bound", "kl", "kl_max", "gradient_cosine"):
        assert last[f"gossip/{name}"] == window[name]
    for name in ("staleness_mean", "staleness_max", "age_ms_median", "waited", "refused", "mixed"):
        assert f"gossip/{name}" in last
    assert last["updates"] == 3 * 40


def test_the_average_and_the_best_member_play_at_the_end(run: gossamer.Run) -> None:
    found = run.result
    assert found == result(run.directory)
    assert list(found["members"]) == NAMES
    best = max(NAMES, key=found["members"].__getitem__)
    assert found["best_member"]["member"] == str(NAMES.index(best))
    assert found["best_member"]["training_return"] == found["members"][best]
    for played in (found["average"], found["best_member"]):
        assert played["episodes"] == 10
        assert -1 <= played["mean_return"] <= 1
        assert played["protocol"].startswith("training: whole games")


def test_who_asks_a_run_to_end_does_not_wait_for_games(run: gossamer.Run) -> None:
    returns = {"m[1]": 2.0, "m[0]": 1.0}
    found = aggregate(load_config(run.directory), Store(run.directory / "x").get, returns, games=False, note=print)  # type: ignore[arg-type]
    assert found == {
        "members": {"m[0]": 1.0, "m[1]": 2.0},
        "average": {},
        "best_member": {"member": "1", "training_return": 2.0},
    }


def test_one_member_needs_none_of_it(tmp_path: Path) -> None:
    alone = trained(tmp_path / "run")
    assert not {"members", "average", "best_member"} & alone.result.keys()
    assert not list(alone.directory.glob("gossip*"))
    assert not any(name.startswith("gossip") for name in rows(alone.directory)[-1])
    for member in ("average", "best", "0"):
        assert gossamer.evaluate(alone.directory, episodes=2, member=member).member is None
    with pytest.raises(UserError, match="--member 1: no such member"):
        gossamer.evaluate(alone.directory, episodes=2, member="1")


def weights(run: gossamer.Run, member: str) -> dict[str, torch.Tensor]:
    what = task(load_config(run.directory))
    found = Store(run.directory / "checkpoints").get()
    policy = load_policy(found, what, Catch().make(1).spec, member=member, greedy=False, seed=0)
    return dict(policy.model.state_dict())


def test_what_plays_is_the_average_or_the_member_that_was_named(run: gossamer.Run) -> None:
    saved = [checkpoint(run.directory)["workers"][name]["learner"]["model"] for name in NAMES]
    for i, state in enumerate(saved):
        assert all(torch.equal(tensor, state[name]) for name, tensor in weights(run, str(i)).items())
    assert any(not torch.equal(saved[0][name], saved[1][name]) for name in saved[0])
    for name, tensor in weights(run, "average").items():
        torch.testing.assert_close(tensor, (saved[0][name] + saved[1][name] + saved[2][name]) / 3)
    best = run.result["best_member"]["member"]
    assert all(torch.equal(tensor, saved[int(best)][name]) for name, tensor in weights(run, "best").items())


def test_members_are_evaluated_side_by_side(run: gossamer.Run) -> None:
    best = run.result["best_member"]["member"]
    for member, whose, file in (
        ("average", "average", "evaluation-plain.json"),
        ("2", "2", "evaluation-plain-2.json"),
        ("best", best, f"evaluation-plain-{best}.json"),
    ):
        found = gossamer.evaluate(run.directory, episodes=3, member=member)
        assert (found.member, found.episodes) == (whose, 3)
        assert json.loads((run.directory / file).read_text()) == found.to_dict()
    assert gossamer.evaluate(run.directory, episodes=1).member == "average"
    with pytest.raises(UserError, match="--member 3: no such member; there are: average, best, 0, 1, 2"):
        gossamer.evaluate(run.directory, member="3")


def test_members_can_be_filmed(run: gossamer.Run) -> None:
    for member in ("average", "1"):
        assert gossamer.record(run.directory, out=run.directory / "a.gif", member=member).steps == 9
    with pytest.raises(UserError, match="--member 3: no such member"):
        gossamer.record(run.directory, member="3")


def test_a_run_of_many_can_be_gone_on_with(tmp_path: Path) -> None:
    directory = gala(tmp_path / "run").directory
    first = gossip(directory)
    resumed = gossamer.resume(directory, steps=2 * STEPS)
    assert resumed.result["steps"] == 2 * STEPS
    again = gossip(directory)
    assert again["windows"][: len(first["windows"])] == first["windows"]
    assert again["traffic"]["sent"] > first["traffic"]["sent"]
    learned = [member["learner"]["steps"] for member in checkpoint(directory)["workers"].values()]
    assert sum(learned) == 2 * STEPS  # of one budget; no member runs far ahead of the others
    assert max(learned) - min(learned) <= 2 * (LOCKED["staleness"] + 1) * 8  # two neighbours on, 8 steps an update


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gala", {"learners": 3}),
        ("gala", {"learners": 6, "group_size": 2, "mixing": "push-sum"}),
        ("pala", {"hosts": 3, "learners": 1}),
        ("pala", {"hosts": 2, "learners": 2, "group_size": 2}),
    ],
    ids=["gala", "gala in groups", "pala", "pala in groups"],
)
def test_a_resumed_run_in_the_simulation_is_the_whole_one(
    name: str, shape: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a checkpoint in its midst, to the bit: members begin their first steps together, as after a checkpoint."""
    monkeypatch.setattr(experiment, "threads", lambda program, observer: Simulation(1)(program, observer))
    steps = {"seconds": math.inf, "steps": STEPS // 2}
    monkeypatch.setattr(session, "Checkpoints", lambda *given, **more: Checkpoints(*given, **{**more, **steps}))
    few: dict[str, Any] = {"env": "catch", "num_envs": 2, "rollout_length": 4, "threads": 1, "anneal_steps": 1000}
    run = gossamer.train(name, steps=STEPS, run_dir=tmp_path / "run", keep=9, **few, **shape).directory
    whole = checkpoint(run)
    first, *later = Store(run / "checkpoints").all()
    assert first.steps < STEPS * 3 / 4
    for each in later:
        shutil.rmtree(each.path)
    gossamer.resume(run, steps=STEPS)
    assert differences(checkpoint(run)["workers"], whole["workers"]) == []


def test_groups_are_the_members_that_gossip(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = gala(tmp_path / "run", learners=4, group_size=2).directory
    assert "4 learners in 2 groups" in capfd.readouterr().err
    status = json.loads((directory / "status.json").read_text())
    assert [(each["rank"], each["group"]) for each in status["members"]] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    found = gossip(directory)
    assert {(edge["from"], edge["to"]) for edge in found["traffic"]["edges"]} == {(0, 1), (1, 0)}
    window = found["windows"][0]
    assert window["members"] == 2
    assert 0 < window["distance"] <= window["bound"]
    for member, shown in (("average", "average"), ("3", "3")):
        assert gossamer.evaluate(directory, episodes=2, member=member).member == shown


def test_windows_later_than_the_checkpoint_are_made_again(tmp_path: Path) -> None:
    directory = gala(tmp_path / "run").directory
    kept = gossip(directory)
    kept["windows"].append({**kept["windows"][0], "steps": STEPS + 1})
    (directory / "gossip.json").write_text(json.dumps(kept))
    gossamer.resume(directory, steps=STEPS + 24)
    assert [window["steps"] for window in gossip(directory)["windows"]].count(STEPS + 1) == 0


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"windows": [{}]}'])
def test_a_damaged_record_of_gossip_is_named(tmp_path: Path, damaged: str) -> None:
    directory = gala(tmp_path / "run", steps=48).directory
    (directory / "gossip.json").write_text(damaged)
    with pytest.raises(UserError, match=r"gossip\.json: truncated or altered"):
        gossamer.resume(directory, steps=96)


def test_a_signal_ends_many_with_a_checkpoint_of_all(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    given = [word for name, value in MANY.items() for word in (f"--{name}", str(value))]
    process = start("train", "gala", *given, "--steps", "10000000", "--run-dir", directory)
    wait_until(lambda: has_played(directory), process)
    process.terminate()
    printed, told = process.communicate()
    assert process.returncode == 143, told
    found = result(directory)
    assert printed.startswith(f"SIGTERM: {found['steps']:,} steps")
    assert found["average"] == {}
    assert found["best_member"].keys() == {"member", "training_return"}
    saved = checkpoint(directory)["workers"]
    assert sorted(saved) == NAMES
    assert sum(member["learner"]["steps"] for member in saved.values()) == found["steps"]
    assert (directory / "gossip.json").is_file()


def test_a_signal_during_the_final_games_leaves_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole_games = aggregate

    def interrupted(*given: Any, games: bool, note: Any) -> dict[str, Any]:
        if games:
            os.kill(os.getpid(), signal.SIGTERM)
        return whole_games(*given, games=games, note=note)

    monkeypatch.setattr(session, "aggregate", interrupted)
    found = gala(tmp_path / "run", steps=48).result
    assert (found["ended"], found["average"]) == ("all steps done", {})
    assert found["best_member"].keys() <= {"member", "training_return"}
    assert result(tmp_path / "run") == found
    assert "the final games were left out: a signal came" in (tmp_path / "run" / "run.log").read_text()


def test_only_those_that_learn_are_members() -> None:
    wired = program(configure("pala", **{**MANY, "steps": 100, "hosts": 2, "learners": 2}))
    assert {copy.node.name for copy in wired.crew} > {"act_and_learn"}
    assert wired.saved_workers == {f"act_and_learn[{i}]" for i in range(4)}


class FakeRay:
    """In place of `Ray`: notes where it is called from, and runs in this process."""

    calls: list[tuple[str | None, str]] = []  # noqa: RUF012  emptied by the fixture

    def __init__(self, address: str | None, *, env: Mapping[str, str]) -> None:
        self.address = address

    def __call__(self, wired: Program, observer: Observer) -> None:
        self.calls.append((self.address, wired.name))
        threads(wired, observer)


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> type[FakeRay]:
    @contextmanager
    def connected(address: str | None, wired: Program) -> Iterator[None]:
        yield

    monkeypatch.setattr(FakeRay, "calls", [])
    monkeypatch.setattr(cluster_module, "Ray", FakeRay)
    monkeypatch.setattr(cluster_module, "connected", connected)
    monkeypatch.setattr(cluster_module, "nodes", lambda ray: {"node": (64.0, 0.0)})
    return FakeRay


@pytest.mark.parametrize(
    ("cluster", "address"), [("local", None), ("auto", "auto"), ("10.0.0.1:6379", "10.0.0.1:6379")]
)
def test_a_cluster_takes_the_place_of_this_process(
    tmp_path: Path, fake_ray: type[FakeRay], cluster: str, address: str | None
) -> None:
    run = gala(tmp_path / "run", steps=48, cluster=cluster)
    gossamer.resume(run.directory, steps=96, cluster=cluster)
    assert fake_ray.calls == [(address, "gala")] * 2
    assert result(run.directory)["steps"] == 96


def assert_nothing_is_touched(folder: Path, message: str, cluster: str) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text("{}")
    (folder / "run" / "years of work").touch()
    with pytest.raises(UserError, match=message):
        gala(folder / "run", overwrite=True, cluster=cluster)
    with pytest.raises(UserError, match=message):
        gala(folder / "new", cluster=cluster)
    assert sorted(path.name for path in folder.rglob("*")) == ["config.json", "run", "years of work"]


def test_a_cluster_that_cannot_be_reached_is_said_before_anything_is_written(tmp_path: Path) -> None:
    assert_nothing_is_touched(tmp_path, r"--cluster nonsense: address 'nonsense'.*or local", "nonsense")


@pytest.mark.parametrize("error", [ClusterUnreachable("nobody there"), ImportError("Ray is not installed")])
def test_so_is_one_that_does_not_let_us_in(
    tmp_path: Path, fake_ray: type[FakeRay], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def connected(address: str | None, wired: Program) -> Any:
        raise error

    monkeypatch.setattr(cluster_module, "connected", connected)
    assert_nothing_is_touched(tmp_path, f"--cluster auto: {error}", "auto")


def test_a_gpu_of_the_driver_is_none_of_the_hosts(
    tmp_path: Path, fake_ray: type[FakeRay], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="--device cuda:1: each host"):
        gala(tmp_path / "run", cluster="auto", device="cuda:1")
    assert list(tmp_path.iterdir()) == []


def test_so_is_one_that_has_no_room(tmp_path: Path, fake_ray: type[FakeRay], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "nodes", lambda ray: {"node": (0.0, 0.0)})
    assert_nothing_is_touched(tmp_path, "--cluster auto: host 'machine' needs 3 cpus", "auto")
