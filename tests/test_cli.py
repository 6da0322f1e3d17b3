"""The command as a user runs it: exit codes, output, files, and one line for what cannot be used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from some_runs import fill

from gossamer import cli, commands
from gossamer.storage.checkpoint import Store
from gossamer.system.installation import install
from gossamer.system.version import __version__
from gossamer.training.experiment import train

Command = Callable[..., tuple[int, str, str]]

TINY = ("--env", "catch", "--num-envs", 2, "--rollout-length", 4, "--steps", 80, "--threads", 1)
MY_PARTS = """
import ctypes, os
import gymnasium, numpy as np
from torch import nn

def tiny(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 8), nn.Tanh())

class Bandit(gymnasium.Env):
    "Action 1 pays."
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(2, np.float32), {}
    def step(self, action):
        return np.ones(2, np.float32), float(action), True, False, {}

class Sours(Bandit):
    "The square of the 30th reward is infinite as float32."
    age = 0
    def step(self, action):
        self.age += 1
        return np.ones(2, np.float32), 3e38 if self.age == 30 else 1.0, self.age % 10 == 0, False, {}

class Talks(Bandit):
    "Prints, as Python and as C code do."
    def __init__(self):
        print("made")
    def step(self, action):
        print("step", end="")
        os.write(1, b"by")
        ctypes.CDLL(None).printf(b"step")
        return super().step(action)

class Pair(Bandit):
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)])

class Hoards(Bandit):
    "The 20th step takes all the room there is on disk."
    age = 0
    def step(self, action):
        self.age += 1
        if self.age == 20:
            try:
                with open("disk/other", "wb", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            except OSError:
                pass
        return super().step(action)

class Grows:
    "A network that is another one each time."
    units = 8
    @classmethod
    def another(cls, shape):
        cls.units += 1
        return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], cls.units))

another = Grows.another

def nothing():
    return 3
"""


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """`gossamer ...` in this process, in a folder with modules of the user's: exit code, output, errors."""
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "my_parts", raising=False)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gossamer", *map(str, words)])
        try:
            code = cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capfd.readouterr()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of each of these architectures. Tests take a copy."""
    place = tmp_path_factory.mktemp("trained")
    tiny: dict[str, Any] = {"env": "catch", "num_envs": 2, "rollout_length": 4, "steps": 80, "threads": 1}
    more: dict[str, Any] = {"paac": {}, "gala": {"learners": 4}}
    return {name: train(name, **tiny, **more[name], run_dir=str(place / name)).directory for name in more}


def process(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    gossamer = Path(sys.executable).with_name("gossamer")  # the installed command: its sys.path has no working folder
    start = [str(gossamer)] if gossamer.exists() else [sys.executable, "-m", "gossamer.cli"]
    return subprocess.run([*start, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)


def test_a_directory_that_has_been_removed_gets_one_line(tmp_path: Path) -> None:
    gone = "import os, sys; os.rmdir(os.getcwd()); from gossamer.cli import main; sys.exit(main())"
    (tmp_path / "gone").mkdir()
    given = [sys.executable, "-c", gone, "runs"]
    done = subprocess.run(given, cwd=tmp_path / "gone", capture_output=True, text=True, check=False)
    told = "gossamer: the current directory has been removed; change to another one\n"
    assert (done.returncode, done.stderr) == (2, told)


def test_in_a_process_of_its_own_with_modules_of_the_user_s(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    options = ("--env", "my_parts:Bandit", "--network", "my_parts:tiny", "--steps", 2_000, "--threads", 1)
    done = process("train", "paac", *options, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("all steps done: 2,080 steps (2,080 frames) in ")
    assert done.stdout.endswith("everything is in run\n")
    lines = done.stderr.splitlines()  # no terminal: a title, and a plain line at the end at the latest
    assert lines[0] == "gossamer paac · a2c · my_parts:Bandit · seed 1"
    assert lines[-1].startswith("steps 2,080/2,000 | frames 2,080 | ")


def test_a_return_that_was_not_reached_is_said_in_the_last_line(command: Command) -> None:
    code, out, _ = command(
        "train", "paac", *TINY, "--stop-at-return", "2", "--run-dir", "run"
    )  # 1 is the best in Catch
    assert code == 0
    assert out.splitlines()[-1].startswith("all steps done, the return asked for (2) was not reached: ")


def test_a_file_of_the_user_s_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    for name in ("rich", "click", "tyro"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of mine')")
    env, options = ("--env", "my_parts:Bandit", "--steps", 80), ("--env-workers", 2, "--num-envs", 2, "--threads", 1)
    done = process(
        "train", "paac", *env, *options, "--eval-every", 40, "--eval-episodes", 1, "--run-dir", "run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "a file of mine" not in done.stderr
    done = process("study", "paac", "--seeds", 1, *env, "--", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout


def test_numbers_with_an_exponent(command: Command) -> None:
    code, _, errors = command("train", "paac", *TINY, "--steps", "8e1", "--seed", "3e0", "--run-dir", "run")
    assert code == 0, errors
    assert json.loads(Path("run/config.json").read_text())["run"]["steps"] == 80
    code, told, errors = command("evaluate", "run", "--episodes", "2e0", "--json")
    assert code == 0, errors
    assert json.loads(told)["episodes"] == 2


REFUSED = {
    "not a whole number": (("train", "paac", *TINY, "--num-envs", "1.5"), "--num-envs 1.5: must be of type int"),
    "not a number": (("train", "paac", *TINY, "--num-envs", "many"), "--num-envs many: must be of type int"),
    "no such choice": (("train", "paac", *TINY, "--precision", "fp16"), "--precision fp16: must be one of auto, fp32"),
    "no value": (("train", "paac", *TINY, "--num-envs"), "--num-envs: needs a value"),
    "no environment": (("train", "paac"), "--env: required; gossamer list shows"),
    "no architecture": (
        ("train", "--env", "catch"),
        "no architecture; use paac, a2c, a3c, ga3c, gala, pala, impala, ",
    ),
    "no command": ((), "no command; use one of train, resume"),
    "no such command": (("trian", "paac"), "unknown command trian; near: train"),
    "unknown option": (("evaluate", "run", "--colour", "red"), "unknown option --colour; see gossamer evaluate --help"),
    "nearly an option": (("evaluate", "run", "--episode", 3), "unknown option --episode; near: --episodes; see"),
    "no number of jobs": (
        ("study", "paac", "--env", "catch", "--jobs", "two"),
        "--jobs two: must be of type int; see gossamer study",
    ),
    "no number": (("evaluate", "run", "--episodes", "many"), "--episodes 'many': must be of type int"),
    "a word too many": (("train", "paac", *TINY, "stray"), "unknown option stray"),
    "no run": (("evaluate",), "a folder with runs, or a study. (required)"),
    "an algorithm": (
        ("train", "ppo", "--env", "catch"),
        "ppo is an algorithm: gossamer train paac --algorithm ppo ...",
    ),
    "quiet": (("evaluate", "run", "--quiet"), "unknown option --quiet; progress goes to stderr, which 2>/dev/null"),
    "of SB3": (("train", "paac", *TINY, "--n-steps", 5), "unknown option --n-steps; use --rollout-length"),
    "of CleanRL": (("train", "paac", *TINY, "--ent-coef", 5), "unknown option --ent-coef; use --entropy-coef"),
    "of RLlib": (("train", "paac", *TINY, "--num_envs_per_env_runner", 5), "use --num-envs"),
    "a slip": (
        ("train", "paac", *TINY, "--rolout-length", 5),
        "unknown option --rolout-length; near: --rollout-length",
    ),
    "never reached": (("train", "paac", *TINY, "--stop-at-return", "nan"), "--stop-at-return nan: must be a number"),
    "too many": (("train", "gala", *TINY, "--learners", 100_000), "--learners 100000: must be at most 1,024"),
}


BAD = {
    "decay": (("train", "paac", *TINY, "--optimizer", "rmsprop-tf", "--decay", 1), "--decay 1.0: must be below 1"),
    "no network": (("train", "paac", *TINY, "--network", "my_parts:nothing"), "--network my_parts:nothing"),
    "no factory": (("train", "paac", "--env", "my_parts:Bandits"), "near: my_parts:Bandit"),
    "no env": (("train", "paac", "--env", "my_parts:nothing"), "must return a gymnasium.Env, not int"),
    "a colon": (("train", "paac", "--env", ":foo"), "unknown environment 'foo'"),
    "a file": (("train", "paac", *TINY, "--run-dir", "my_parts.py"), "--run-dir my_parts.py: is a file"),
    "a long name": (("train", "paac", *TINY, "--run-dir", 300 * "x"), "xxx: cannot be used (File name too long)"),
    "in /proc": (("train", "paac", *TINY, "--run-dir", "/proc/run"), "--run-dir /proc/run: cannot be used ("),
    "not our run": (
        ("train", "paac", *TINY, "--run-dir", ".", "--overwrite"),
        "--overwrite: . has files and is not a run",
    ),
    "in a file": (
        ("train", "paac", *TINY, "--run-dir", "my_parts.py/run"),
        "--run-dir my_parts.py/run: cannot be used (Not a directory)",
    ),
    "bench": (("bench", "paac", *TINY, "--rounds", 0), "--rounds 0: must be at least 1"),
    "bench seconds": (("bench", "paac", *TINY, "--seconds", -1), "--seconds -1"),
    "rounds of a search": (("bench", "paac", *TINY, "--find", "--rounds", 7), "--rounds 7: has no effect with --find"),
    "bench env": (("bench", "paac", "--env", "cacth"), "near: catch"),
    "record": (("record", "nowhere"), "nowhere: not a run directory"),
    "no architecture of that name": (("train", "pacc", "--env", "catch"), "near: paac"),
    "nearly an environment": (("train", "paac", "--env", "cacth"), "near: catch"),
    "no module": (("train", "paac", "--env", "no_such_module:make"), "no_such_module"),
    "steps": (("train", "paac", *TINY, "--steps", 0), "--steps 0"),
    "keep": (("train", "paac", *TINY, "--keep", 0), "--keep 0"),
    "network for pixels": (("train", "paac", *TINY, "--network", "nips"), "--network nips"),
    "actions of a module": (("train", "paac", "--env", "my_parts:Pair"), "my_parts:Pair: actions of Tuple"),
    "no run to resume": (("resume", "nowhere"), "nowhere"),
    "no run to evaluate": (("evaluate", "nowhere"), "nowhere"),
    "nothing to show": (("show", "pac"), "paac"),
}


GALA = ("train", "gala", *TINY, "--learners", 4)
BAD_MEMBERS = {
    "in two": ((*GALA, "--graph", "0>1,1>0,2>3,3>2"), "not strongly connected"),
    "gala's hosts": ((*GALA, "--hosts", 2), "--hosts 2: not an option of gala, a2c, catch"),
    "all replay": (("train", "appo", "--env", "catch", "--replay-share", 1), "--replay-share 1.0: must be below 1"),
    "no cluster": (("train", "pala", *TINY, "--cluster", "nowhere"), "--cluster nowhere"),
}
TABLES = (REFUSED, BAD, BAD_MEMBERS)
CASES = [pytest.param(*case, id=name) for table in TABLES for name, case in table.items()]


@pytest.mark.parametrize(("words", "told"), CASES)
def test_what_cannot_be_used_gets_one_line_and_leaves_nothing(
    command: Command, words: tuple[object, ...], told: str, tmp_path: Path
) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("gossamer: ")
    assert told in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"my_parts.py", "__pycache__"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("evaluate", "run", "--episodes", 0), "--episodes 0: must be at least 1"),
        (("evaluate", "run", "--seed", -1), "--seed -1"),
        (("evaluate", "run", "--checkpoint", "frist"), "no checkpoint 'frist' in run/checkpoints; there are: step_"),
        (("record", "run", "--max-steps", 0), "--max-steps 0"),
        (("record", "run", "--out", "nowhere/film.mp4"), "there is no directory nowhere"),
        (("resume", "run", "--steps", 80), "--steps 80: the run has done 80 already"),
        (("resume", "run", "--steps", 800, "--keep", 0), "--keep 0"),
        (("resume", "run", "--steps", 800, "--eval-exact"), "--eval-exact: no evaluations without --eval-every STEPS"),
    ],
)
def test_bad_values_for_a_run_get_one_line_and_change_nothing(
    command: Command, words: tuple[object, ...], told: str, tmp_path: Path, trained: dict[str, Path]
) -> None:
    shutil.copytree(trained["paac"], tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert told in err
    assert err.splitlines()[-1].startswith("gossamer: ")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_train_resume_evaluate_and_record(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("train", "paac", *TINY, "--run-dir", "run", "--seed", 3)
    assert code == 0
    assert "80 steps" in out
    assert command("resume", "run", "--steps", 160)[0] == 0
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "tensorboard", "checkpoints", "result.json", "run.log"} <= files
    assert json.loads((tmp_path / "run" / "result.json").read_text())["steps"] == 160
    code, out, _ = command("evaluate", "run", "--episodes", 5, "--protocol", "noop", "--json")
    found = json.loads(out)
    assert code == 0
    assert list(found)[:5] == ["mean_return", "std_return", "episodes", "protocol", "returns"]
    assert (found["episodes"], len(found["returns"])) == (5, 5)
    assert found["mean_return"] == sum(found["returns"]) / 5
    assert command("record", "run")[0] == 0
    assert (tmp_path / "run" / "video.mp4").stat().st_size > 1000


def test_json_is_alone_on_stdout_though_an_environment_prints(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    options = ("--env", "my_parts:Talks", "--steps", 80, "--threads", 1, "--eval-every", 40, "--eval-episodes", 1)
    done = process("train", "paac", *options, "--run-dir", "run", cwd=tmp_path)
    assert "failed" not in done.stderr
    for episodes in (1, 3):
        done = process("evaluate", "run", "--episodes", episodes, "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["episodes"] == episodes
        assert {part: part in done.stderr for part in ("by", "step")} == {"by": True, "step": True}


def test_measurements_as_json_are_alone_on_stdout_though_worker_processes_print(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(MY_PARTS)
    options = ("--env", "my_parts:Talks", "--env-workers", 2, "--num-envs", 2, "--threads", 1)
    done = process("bench", "paac", *options, "--seconds", 0.01, "--rounds", 1, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["env_name"] == "my_parts:Talks"


def test_show_and_list(command: Command) -> None:
    for words, shown in ((("show", "paac"), "act_and_learn"), (("list",), "catch")):
        code, out, _ = command(*words)
        assert code == 0
        assert "paac" in out
        assert shown in out


def test_a_run_that_is_there_is_not_touched(command: Command, tmp_path: Path, trained: dict[str, Path]) -> None:
    shutil.copytree(trained["paac"], tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    code, _, err = command("train", "paac", *TINY, "--run-dir", "run")
    assert (code, "--overwrite" in err) == (2, True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    assert command("train", "paac", *TINY, "--run-dir", "run", "--overwrite")[0] == 0


def test_overwrite_removes_nothing_but_runs(command: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("one")
    assert command("train", "paac", *TINY, "--run-dir", "thesis", "--overwrite")[0] == 2
    assert (tmp_path / "thesis" / "chapter").read_text() == "one"


@pytest.mark.parametrize("damage", ["cut", "change", "remove"])
def test_a_damaged_checkpoint_is_named(command: Command, damage: str, tmp_path: Path, trained: dict[str, Path]) -> None:
    shutil.copytree(trained["paac"], tmp_path / "run")
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


def test_options_reach_the_run(command: Command, tmp_path: Path) -> None:
    options = ("--algorithm", "ppo", "--no-normalize-advantage", "--learning-rate", "0.01", "--keep", 1)
    assert command("train", "paac", *TINY, *options, "--num-minibatches", 2, "--run-dir", "run")[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["algorithm"]["name"], config["algorithm"]["normalize_advantage"]) == ("ppo", False)
    assert (config["algorithm"]["num_minibatches"], config["optimization"]["learning_rate"]) == (2, 0.01)
    assert (config["architecture"], config["run"]["steps"]) == ({"name": "paac", "num_envs": 2, "env_workers": 0}, 80)
    assert (config["run"]["keep"], config["run"]["device"], config["optimization"]["anneal_steps"]) == (1, "auto", 80)


def test_what_people_read_without_json(command: Command) -> None:
    command("train", "paac", *TINY, "--env", "counter", "--run-dir", "run")
    code, out, _ = command("evaluate", "run", "--episodes", 3)
    assert code == 0
    assert out == (
        "mean return 45.00, standard deviation 0.00, 3 episodes, protocol plain, sampled actions, step_000000000080\n"
    )
    code, out, _ = command("record", "run", "--out", "film.gif", "--max-steps", 3)
    cut = "the game was cut off after 3 steps (--max-steps)"
    assert (code, out) == (0, f"film.gif: 3 steps, score 3; {cut}\n")  # 0 + 1 + 2
    code, out, _ = command("record", "run", "--out", "film.gif", "--max-steps", 14, "--episodes", 3)
    cut = "the last game was cut off after 4 steps (--max-steps); 2 of 3 games recorded"
    assert (code, out) == (0, f"film.gif: 14 steps, scores 45, 6; {cut}\n")  # an episode has 10 steps; 0 + 1 + 2 + 3
    code, out, _ = command("record", "run", "--out", "film.gif", "--max-steps", 10, "--episodes", 2)
    assert (code, out) == (0, "film.gif: 10 steps, score 45; 1 of 2 games recorded\n")


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_a_cluster_that_cannot_be_reached_gets_one_line(command: Command, tmp_path: Path) -> None:
    code, out, err = command("train", "pala", *TINY, "--cluster", "127.0.0.1:9")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("gossamer: --cluster 127.0.0.1:9: ")
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("which", ["4", "-1", "two", "AVERAGE", ""])
@pytest.mark.parametrize("words", [("evaluate", "run", "--episodes", 1), ("record", "run", "--out", "film.gif")])
def test_a_member_that_is_not_there_gets_one_line(
    command: Command, words: tuple[object, ...], which: str, tmp_path: Path, trained: dict[str, Path]
) -> None:
    shutil.copytree(trained["gala"], tmp_path / "run")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, out, err = command(*words, f"--member={which}")
    assert (code, out) == (2, "")
    told = f"gossamer: --member {which}: no such member; there are: average, best, 0, 1, 2, 3"
    assert err.splitlines()[-1] == " ".join(told.split())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["gala", "pala"])
def test_members_with_different_models_end_with_2_and_one_line(command: Command, name: str) -> None:
    hosts = ("--hosts", 2, "--learners", 1, "--sync", "lock-step") if name == "pala" else ("--learners", 2)
    options = ("--network", "my_parts:another", "--steps", 10**6, "--run-dir", "run")
    code, _, err = command("train", name, *TINY, *hosts, *options)
    assert code == 2
    assert re.fullmatch(r"gossamer: model of (member|host) \d differs from .*", err.splitlines()[-1])
    assert "Traceback" not in err


@pytest.mark.parametrize("words", [(), *((name,) for name in commands.COMMANDS)], ids=str)
def test_every_command_has_help(command: Command, words: tuple[str, ...]) -> None:
    code, out, _ = command(*words, "--help")
    assert code == 0
    assert "usage: gossamer" in out
    assert len(out.splitlines()) <= 60


def test_the_help_of_train_says_how_to_see_more(command: Command) -> None:
    for words in (("train", "--help"), ("train", "gala", "--help"), ("train", "-h")):
        code, out, _ = command(*words)
        assert code == 0
        assert len(out.splitlines()) <= 60
        assert "gossamer train gala --env pong --algorithm ppo --help" in out
        assert all(text in out for text in ("--env", "--steps", "--run-dir", "paac, a2c, a3c"))


def options_shown(out: str) -> dict[str, str]:
    """The text of each option in a help text."""
    text = " ".join(line.strip("│ ") for line in out.splitlines())
    parts = re.split(r" (?=--[a-z-]+ [A-Z{])", text)
    return {part.split()[0]: part for part in parts if part.startswith("--")}


def test_the_help_of_a_composition_has_its_options_in_groups_with_their_real_defaults(command: Command) -> None:
    code, out, _ = command("train", "gala", "--env", "catch", "--algorithm", "ppo", "--learners", 9, "--help")
    assert code == 0
    titles = re.findall(r"╭─ (\w+) options ─", out)
    assert titles == ["run", "environment", "architecture", "algorithm", "network", "optimizer"]
    shown = options_shown(out)
    assert "ARCHITECTURE" in out
    assert not {"--hosts", "--message-format", "--loss-scale", "--decay", "--screen-size"} & shown.keys()
    # 0.001 for one learner, times the square root of 9; the schedule ends with the run
    assert "(default: 0.003)" in shown["--learning-rate"]
    assert "[steps, 0 to 1e+15] (default: 200000)" in shown["--anneal-steps"]
    assert "[1 to 1,000] (default: 4)" in shown["--epochs"]
    _, out, _ = command("train", "paac", "--env", "catch", "--preset", "paper", "--steps", 500, "--help")
    shown = options_shown(out)
    assert "(default: rmsprop-tf)" in shown["--optimizer"]
    assert "(default: 0.99)" in shown["--decay"]
    assert not {"--learners", "--epochs"} & shown.keys()


def test_the_help_says_that_one_worker_is_no_process_of_its_own(command: Command) -> None:
    _, out, _ = command("train", "paac", "--env", "catch", "--algorithm", "a2c", "--help")
    assert "processes for Gymnasium (0 or 1: none)" in " ".join(re.sub("[│|]", " ", out).split())


def test_help_does_not_hide_what_is_wrong(command: Command) -> None:
    assert command("train", "paac", "--env", "catch", "--n-steps", 4, "--help")[0] == 2


def test_the_version_is_printed(command: Command) -> None:
    assert command("--version") == (0, f"gossamer {__version__}\n", "")


def test_the_first_help_texts_need_no_torch() -> None:
    script = "import sys; from gossamer import cli; sys.argv[1:] = {}; cli.main(); assert 'torch' not in sys.modules"
    for words in (["--help"], ["train", "--help"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", script.format(words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_loss_that_is_nan_ends_with_2_and_says_at_which_step(command: Command, tmp_path: Path) -> None:
    options = ("--env", "my_parts:Sours", "--num-envs", 2, "--rollout-length", 4, "--threads", 1, "--run-dir", "run")
    assert command("train", "paac", *options, "--steps", 56)[0] == 0
    code, _, err = command("resume", "run", "--steps", 1000)
    # new episodes begin, for this environment cannot give its state: 30 steps of each later, in the 8th rollout
    assert code == 2
    assert err.splitlines()[-1] == "gossamer: the loss became NaN or infinite at step 112"
    assert Store(tmp_path / "run" / "checkpoints").get("last").steps == 112  # what was learned until then is kept
    assert command("evaluate", "run", "--episodes", 1)[0] == 0


def test_errors_that_nobody_foresaw_keep_their_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("gossamer.training.experiment.threads", broken)
    with pytest.raises(OSError, match="Input/output error"):
        command("train", "paac", *TINY, "--run-dir", "run")


def test_a_disk_that_fills_up_ends_with_2_and_leaves_the_last_checkpoint(command: Command, small_disk: Path) -> None:
    run = small_disk / "run"
    assert command("train", "paac", *TINY, "--run-dir", run)[0] == 0
    rows = (run / "metrics.jsonl").read_text()
    fill(small_disk / "other")
    code, _, err = command("resume", run, "--steps", 160)
    assert code == 2
    assert err.splitlines()[-1].startswith("gossamer: cannot write")
    assert "No space left on device" in err.splitlines()[-1]
    assert (run / "metrics.jsonl").read_text() == rows
    store = Store(run / "checkpoints")
    assert [path.name for path in store.directory.iterdir()] == ["step_000000000080"]
    store.get("last").load()

    (small_disk / "other").unlink()
    assert command("resume", run, "--steps", 160)[0] == 0
    assert store.get("last").steps == 160


def test_a_disk_that_fills_up_while_training_ends_with_2(
    command: Command, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.training.writer.ROW_SECONDS", 0.0)
    options = (
        "--env",
        "my_parts:Hoards",
        "--num-envs",
        2,
        "--rollout-length",
        4,
        "--threads",
        1,
        "--run-dir",
        small_disk / "run",
    )
    code, _, err = command("train", "paac", *options, "--steps", 10**7)
    assert code == 2
    title, *_, last = err.splitlines()
    assert title.startswith("gossamer paac")
    assert last == "gossamer: cannot write: No space left on device; free disk space or use another directory"
    assert "Traceback" not in err


def test_a_disk_that_is_full_from_the_start_is_left_as_it_was(command: Command, small_disk: Path) -> None:
    fill(small_disk / "other")
    code, _, err = command("train", "paac", *TINY, "--run-dir", small_disk / "run")
    assert code == 2
    assert err.count("\n") == 1
    assert "No space left on device" in err
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_a_full_disk_leaves_no_checkpoint(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gossamer.storage.files.os.fsync", full)
    code, _, err = command("train", "paac", *TINY, "--run-dir", "run")
    assert code == 2
    assert "No space left on device" in err.splitlines()[-1]
    assert not list(tmp_path.glob("run/checkpoints/*"))


def test_atari_without_its_extra_says_how_to_install_it(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    code, _, err = command("train", "paac", "--env", "pong")
    assert code == 2
    assert install("atari") in err


@pytest.mark.parametrize(
    ("words", "architecture"),
    [
        ("--env=catch paac", "paac"),
        ("--overwrite paac --env catch", "paac"),
        ("--algorithm a2c --overwrite paac --env catch", "paac"),
    ],
)
def test_the_architecture_may_stand_after_options(
    command: Command, words: str, architecture: str, tmp_path: Path
) -> None:
    few = ("--steps", 8, "--num-envs", 2, "--rollout-length", 4, "--run-dir", "run")
    code, _, _ = command("train", *words.split(), *few)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (code, config["architecture"]["name"]) == (0, architecture)


def test_an_option_s_value_is_not_taken_for_the_architecture(command: Command) -> None:
    code, _, err = command("train", "--run-dir", "gala", "--overwrite", "paac", "--env", "catch")
    assert code == 2
    assert "paac or gala? Give the architecture first: gossamer train paac" in err


def test_an_export_is_not_taken_for_a_damaged_run(command: Command, trained: dict[str, Path]) -> None:
    assert command("export", trained["paac"], "--out", "policy")[0] == 0
    code, _, err = command("evaluate", "policy")
    assert code == 2
    assert "is that of an export, which gossamer.load reads; give the run's directory here" in err
