"""The command line as it is promised: commands, keys of JSON, exit codes, one line for what cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gossamer import cli


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path):
    """Run `gossamer ...` in this process, in a folder of its own: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gossamer", *map(str, words)])
        try:
            code = cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return run


TINY = ("--num-envs", 4, "--steps", 100, "--threads", 1)


def test_train_resume_evaluate(command, tmp_path: Path) -> None:
    code, out, _ = command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run", "--seed", 3)
    assert code == 0
    assert "100 steps" in out
    assert command("resume", "run", "--steps", 200)[0] == 0
    code, out, _ = command("evaluate", "run", "--episodes", 5, "--protocol", "noop", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"mean_return", "std_return", "episodes", "protocol", "returns"} <= found.keys()
    assert (found["episodes"], len(found["returns"])) == (5, 5)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "tensorboard", "checkpoints", "result.json", "run.log"} <= files
    assert "protocol" in json.loads((tmp_path / "run" / "result.json").read_text())


def test_record(command, tmp_path: Path) -> None:
    command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    assert command("record", "run")[0] == 0
    assert (tmp_path / "run" / "video.mp4").stat().st_size > 1000
    assert command("record", "run", "--out", "film.txt")[0] == 2


def test_bench(command) -> None:
    options = ("--seconds", 0.2, "--rounds", 1, "--threads", 1, "--json")
    code, out, _ = command("bench", "paac", "--env", "catch", *options)
    found = json.loads(out)
    assert code == 0
    assert {"env", "inference", "update", "whole", "roofline", "ratio", "bound_by"} <= found.keys()
    serial = 1 / (1 / found["env"] + 1 / found["inference"] + 1 / found["update"])
    assert found["roofline"] == pytest.approx(serial, rel=1e-3)
    assert found["ratio"] == pytest.approx(found["whole"] / found["roofline"], abs=2e-3)
    assert found["bound_by"] == min(("env", "inference", "update"), key=lambda part: found[part])


def test_show_and_list(command) -> None:
    code, out, _ = command("show", "paac")
    assert code == 0
    assert "act_and_learn" in out
    code, out, _ = command("list")
    assert code == 0
    assert "paac" in out
    assert "catch" in out


BAD = {
    "architecture": (("train", "pacc", "--env", "catch"), "paac"),
    "environment": (("train", "paac", "--env", "cacth"), "catch"),
    "module": (("train", "paac", "--env", "no_such_module:make"), "no_such_module"),
    "steps": (("train", "paac", "--env", "catch", "--steps", 0), "--steps 0"),
    "num_envs": (("train", "paac", "--env", "catch", "--num-envs", 0), "--num-envs 0"),
    "workers": (("train", "paac", "--env", "catch", "--env-workers", -1), "--env-workers -1"),
    "rollout_length": (("train", "paac", "--env", "catch", "--rollout-length", -5), "--rollout-length -5"),
    "epochs": (("train", "paac", "--env", "catch", "--algorithm", "ppo", "--epochs", 0), "--epochs 0"),
    "keep": (("train", "paac", "--env", "catch", "--keep", 0), "--keep 0"),
    "rate": (("train", "paac", "--env", "catch", "--learning-rate", 0), "--learning-rate 0"),
    "other algorithm": (("train", "paac", "--env", "catch", "--clip-range", 0.1), "ppo"),
    "device": (("train", "paac", "--env", "catch", "--device", "tpu"), "--device tpu"),
    "network": (("train", "paac", "--env", "catch", "--network", "natur"), "nature"),
    "network and env": (("train", "paac", "--env", "catch", "--network", "nips"), "--network nips"),
    "not Atari": (("train", "paac", "--env", "catch", "--screen-size", 42), "--screen-size 42"),
    "actions": (("train", "paac", "--env", "Pendulum-v1"), "Discrete"),
    "no run": (("resume", "nowhere"), "nowhere"),
    "no run to evaluate": (("evaluate", "nowhere"), "nowhere"),
    "show": (("show", "pac"), "paac"),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_used_gets_one_line_and_leaves_nothing(command, words, told: str, tmp_path: Path) -> None:
    code, _, err = command(*words)
    assert code == 2
    assert told in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_ends_with_2(command) -> None:
    assert command("train", "paac", "--env", "catch", "--colour", "red")[0] == 2


def test_a_run_that_is_there_is_not_touched(command, tmp_path: Path) -> None:
    command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    code, _, err = command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    assert (code, "--overwrite" in err) == (2, True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run", "--overwrite")[0] == 0


def test_overwrite_takes_nothing_but_runs(command, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("one")
    assert command("train", "paac", "--env", "catch", "--run-dir", "thesis", "--overwrite")[0] == 2
    assert (tmp_path / "thesis" / "chapter").read_text() == "one"


@pytest.mark.parametrize("damage", ["cut", "change", "remove"])
def test_a_damaged_checkpoint_is_named(command, damage: str, tmp_path: Path) -> None:
    command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    (file,) = (tmp_path / "run" / "checkpoints").glob("step_*/tensors.safetensors")
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-10])
    elif damage == "change":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        file.unlink()
    for words in (("evaluate", "run"), ("resume", "run", "--steps", 400)):
        code, _, err = command(*words)
        assert (code, "tensors.safetensors" in err) == (2, True)


def _with(config, part: str, **changes):
    return {**config, part: {**config[part], **changes}}


def test_a_loss_that_is_not_a_number_stops_and_keeps_what_was_good(command, tmp_path: Path) -> None:
    command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    config = tmp_path / "run" / "config.json"
    good = config.read_text()
    config.write_text(json.dumps(_with(json.loads(good), "algorithm", value_coef=1e300)))
    code, _, err = command("resume", "run", "--steps", 1000)
    assert code == 2
    assert "at step" in err
    config.write_text(good)
    assert command("evaluate", "run", "--episodes", 2)[0] == 0


def test_a_full_disk_gets_one_line(command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from gossamer.storage import checkpoint

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", full)
    code, _, err = command("train", "paac", "--env", "catch", *TINY, "--run-dir", "run")
    assert code == 2
    assert "No space left on device" in err.splitlines()[-1]
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []


def test_atari_without_its_extra_says_how_to_install_it(command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    code, _, err = command("train", "paac", "--env", "pong")
    assert code == 2
    assert 'pip install "gossamer[atari]"' in err
