"""Whole games under a named protocol, each environment its share of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from some_parts import differences
from some_runs import QUICK, checkpoint, save_always, trained
from torch import nn

import gossamer
from gossamer.envs.atari import GALA, PRESETS, Atari
from gossamer.envs.toy import Catch
from gossamer.evaluation import evaluate, games, video
from gossamer.evaluation.evaluate import Evaluation, load_policy, under
from gossamer.policy import NetworkPolicy
from gossamer.storage.checkpoint import Store
from gossamer.system.errors import UserError

KEYS = {"mean_return", "std_return", "episodes", "protocol", "returns", "steps", "checkpoint", "greedy", "member"}
KEYS |= {"cut_off", "max_steps", "epsilon", "metrics"}
TWO_KINDS = """
import gymnasium, numpy as np
class TwoKinds(gymnasium.Env):
    "Half of them play games of 1 step and lose them, the others games of 10 steps and win them."
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = 0
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length = self.length or (1 if self.np_random.random() < 0.5 else 10)
        self.age = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.age += 1
        over = self.age == self.length
        return np.zeros(2, np.float32), float(over and self.length == 10), over, False, {}
"""


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """A run on Counter, which returns 0 + 1 + .. + 9 = 45 whatever is done."""
    return trained(tmp_path / "run", env="counter").directory


@pytest.mark.parametrize("episodes", [1, 3, 32, 33, 70])
def test_so_many_whole_games(counted: Path, episodes: int) -> None:
    found = gossamer.evaluate(counted, episodes=episodes)
    assert found == Evaluation(
        mean_return=45.0,
        std_return=0.0,
        episodes=episodes,
        protocol="plain",
        returns=[45.0] * episodes,
        steps=80,
        checkpoint="step_000000000080",
        greedy=False,
    )


def test_processes_that_do_not_divide_the_games_are_fewer(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="CartPole-v1").directory
    alone, by_three = (gossamer.evaluate(run, episodes=6, env_workers=workers) for workers in (0, 4))
    assert by_three == alone


def test_quick_games_are_not_counted_more_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_kinds.py").write_text(TWO_KINDS)
    monkeypatch.syspath_prepend(tmp_path)
    run = trained(tmp_path / "run", env="two_kinds:TwoKinds")
    returns = gossamer.evaluate(run.directory, episodes=96).returns
    # 3 games of each of 32 environments; of the first 96 to end, nearly all would be lost ones. Of 32 fair coins fewer
    # than 6 or more than 26 heads come up once in 10,000 times, and the seed is fixed.
    assert returns.count(0.0) % 3 == 0
    assert 6 * 3 <= returns.count(1.0) <= 26 * 3


def test_the_spread_is_that_of_the_games(tmp_path: Path) -> None:
    found = gossamer.evaluate(trained(tmp_path / "run").directory, episodes=40)
    assert set(found.returns) == {-1.0, 1.0}
    assert found.mean_return == pytest.approx(np.mean(found.returns))
    assert found.std_return == pytest.approx(np.sqrt(1 - found.mean_return**2))  # all squares are 1


def test_it_is_written_down_and_changes_nothing_else(counted: Path) -> None:
    before = checkpoint(counted)
    found = gossamer.evaluate(counted, episodes=2)
    written = json.loads((counted / "evaluation-plain.json").read_text())
    assert written == found.to_dict()
    assert set(written) == KEYS
    assert checkpoint(counted)["workers"].keys() == before["workers"].keys()
    assert len(list((counted / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize(
    ("module", "play"),
    [(evaluate, lambda run: gossamer.evaluate(run, episodes=3)), (video, gossamer.record)],
    ids=["evaluate", "record"],
)
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_playing_leaves_parameters_and_running_statistics_as_they_are(
    module: ModuleType, play: Callable[[Path], Any], memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"normalize_observations": True, "normalize_returns": True, "memory": memory}
    directory = trained(tmp_path / "run", **options).directory
    played: list[nn.Module] = []

    def load(*given: Any, **more: Any) -> NetworkPolicy:
        policy = load_policy(*given, **more)
        played.append(policy.model)
        return policy

    with monkeypatch.context() as patch:
        patch.setattr(module, "load_policy", load)
        play(directory)
    (model,) = played
    learned = checkpoint(directory)["workers"]["act_and_learn"]["learner"]["model"]
    assert (learned["centre.moments.rollouts"], learned["value.moments.rollouts"]) == (10, 10)
    assert differences(dict(model.state_dict()), dict(learned)) == []


def test_a_run_that_still_trains_may_remove_the_checkpoint_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = trained(tmp_path / "run").directory
    real = evaluate.play_each

    def played(*given: Any, **more: Any) -> Any:
        shutil.rmtree(directory / "checkpoints")
        return real(*given, **more)

    monkeypatch.setattr(evaluate, "play_each", played)
    assert gossamer.evaluate(directory, episodes=3).episodes == 3


def test_a_seed_decides_the_games(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run").directory

    def returns(seed: int) -> list[float]:
        return gossamer.evaluate(directory, episodes=40, seed=seed).returns

    assert returns(1) == returns(1)
    assert returns(1) != returns(2)


def test_greedy_takes_the_likeliest_action(tmp_path: Path) -> None:
    # Half learned: the right light is the likeliest of the four, and the others are still drawn now and then.
    directory = trained(tmp_path / "run", env="identity", steps=8_000, num_envs=16, learning_rate=0.003).directory
    greedy = gossamer.evaluate(directory, episodes=32, greedy=True)
    assert greedy.greedy
    assert greedy.mean_return == 10.0
    assert 5.0 < gossamer.evaluate(directory, episodes=32).mean_return < 10.0


@pytest.fixture(scope="module")
def by_value(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of DQN, whose own epsilon is 0.25."""
    options: dict[str, Any] = {**QUICK, "learning_starts": 32, "epsilon_end": 0.25}
    return gossamer.train("dqn", run_dir=tmp_path_factory.mktemp("dqn") / "run", log="none", **options).directory


@pytest.mark.parametrize(
    ("given", "epsilon", "words"),
    [
        ({}, 0.25, "epsilon 0.25"),
        ({"epsilon": 0.05}, 0.05, "epsilon 0.05"),
        ({"epsilon": 0.0}, 0.0, "greedy actions"),
        ({"greedy": True}, 0.0, "greedy actions"),
    ],
)
def test_values_are_evaluated_with_a_named_epsilon(
    by_value: Path, given: dict[str, Any], epsilon: float, words: str
) -> None:
    found = gossamer.evaluate(by_value, episodes=2, **given)
    assert (found.epsilon, found.actions) == (epsilon, words)
    assert json.loads((by_value / "evaluation-plain.json").read_text())["epsilon"] == epsilon


def test_epsilon_is_the_chance_of_a_random_action(by_value: Path) -> None:
    """Greedy games are those of epsilon 0, whatever the seed of the policy draws; with epsilon 1 the network does not
    count. Catch is lost at random in 4 of 5 games."""
    greedy = gossamer.evaluate(by_value, episodes=40, greedy=True)
    assert gossamer.evaluate(by_value, episodes=40, epsilon=0.0).returns == greedy.returns
    assert gossamer.evaluate(by_value, episodes=200, epsilon=1.0).mean_return == pytest.approx(-0.6, abs=0.2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": 1.5}, r"--epsilon 1\.5: must be from 0 to 1"),
        ({"epsilon": float("nan")}, "--epsilon nan: must be from 0 to 1"),
        ({"epsilon": 0.05, "greedy": True}, r"--epsilon 0\.05: --greedy means --epsilon 0; leave one of them out"),
        ({"epsilon": 0.05}, r"--epsilon 0\.05: A2C has no epsilon; leave it out"),
    ],
)
def test_an_epsilon_that_cannot_be_is_refused(counted: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        gossamer.evaluate(counted, episodes=1, **given)


def test_any_checkpoint_can_be_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_always(monkeypatch)
    directory = trained(tmp_path / "run", steps=80).directory
    store = Store(directory / "checkpoints")
    assert [c.steps for c in store.all()][-3:] == [64, 72, 80]
    assert gossamer.evaluate(directory, episodes=1, checkpoint="step_000000000064").steps == 64
    assert gossamer.evaluate(directory, episodes=1, checkpoint="best").steps == store.get("best").steps
    with pytest.raises(UserError, match="no checkpoint 'first'"):
        gossamer.evaluate(directory, episodes=1, checkpoint="first")


def test_what_cannot_be_is_refused(counted: Path) -> None:
    with pytest.raises(UserError, match="--episodes 0: must be at least 1"):
        gossamer.evaluate(counted, episodes=0)
    for seed in (-1, 2**31):
        with pytest.raises(UserError, match=f"--seed {seed}: must be at least 0"):
            gossamer.evaluate(counted, episodes=1, seed=seed)
    with pytest.raises(UserError, match="not a run directory"):
        gossamer.evaluate(counted / "checkpoints", episodes=1)
    assert not list(counted.glob("evaluation*"))


def test_parameters_of_another_network_are_refused(counted: Path) -> None:
    config = json.loads((counted / "config.json").read_text())
    (counted / "config.json").write_text(json.dumps({**config, "env": {"name": "catch"}}))
    with pytest.raises(UserError, match=r"step_000000000080: its parameters do not fit the run's config\.json"):
        gossamer.evaluate(counted, episodes=1)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_atari_is_played_in_whole_games_of_half_an_hour(preset: object) -> None:
    for protocol, noops, sticky in (("noop", 30, 0.0), ("sticky", 0, 0.25)):
        env, name = under(Atari("pong", preset), protocol)  # type: ignore[arg-type]
        assert isinstance(env, Atari)
        assert name == protocol
        assert (env.preset.noop_max, env.preset.sticky) == (noops, sticky)
        assert (env.preset.life_loss_ends, env.preset.frame_cap) == (False, 108_000)  # 30 minutes of 60 frames a second
        assert env.preset.size == GALA.size == 84  # what the network sees stays as it was trained


def test_other_environments_have_no_protocol(counted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert under(Catch(), "sticky") == (Catch(), "plain")
    gossamer.evaluate(counted, episodes=1, protocol="sticky")
    assert "--protocol sticky ignored: counter is not an Atari game" in capsys.readouterr().err.splitlines()
    gossamer.evaluate(counted, episodes=1)
    assert capsys.readouterr().err == ""  # nobody asked for one


@pytest.mark.parametrize(("trained_with", "expected"), [("paac", "noop"), ("machado", "sticky")])
def test_the_protocol_is_that_of_training_unless_given(trained_with: str, expected: str) -> None:
    assert under(Atari("pong", PRESETS[trained_with]))[1] == expected
    assert under(Atari("pong", PRESETS[trained_with]), "noop")[1] == "noop"


def test_a_game_without_an_end_is_cut_off_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "endless.py").write_text(TWO_KINDS.replace("self.age == self.length", "False").replace("0.5", "2"))
    monkeypatch.syspath_prepend(tmp_path)
    directory = trained(tmp_path / "run", env="endless:TwoKinds").directory
    capsys.readouterr()
    found = gossamer.evaluate(directory, episodes=40, max_steps=7)  # 32 side by side, so some play a second one
    assert (len(found.returns), found.cut_off, found.max_steps) == (40, 40, 7)
    told = "40 of 40 games were cut off after 7 steps; their returns include only these steps"
    assert capsys.readouterr().err.splitlines() == [told]
    with pytest.raises(UserError, match="--max-steps 0: must be at least 1"):
        gossamer.evaluate(directory, max_steps=0)


def test_many_end_though_their_games_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endless.py").write_text(TWO_KINDS.replace("self.age == self.length", "False"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(games, "MAX_STEPS", 9)
    run = gossamer.train("gala", run_dir=tmp_path / "run", **{**QUICK, "env": "endless:TwoKinds", "learners": 2})
    assert run.result["average"]["cut_off"] == run.result["average"]["episodes"] == 10
    log = (run.directory / "run.log").read_text()
    assert "member average: 10 of 10 games were cut off after 9 steps" in log


def test_the_limit_is_half_an_hour_of_an_atari_game() -> None:
    assert games.limit(Catch()) == 27_000
    assert games.limit(under(Atari("pong"))[0]) == 108_000 / 4
    assert games.limit(under(Atari("pong", replace(PRESETS["paac"], frame_skip=3)))[0]) == 108_000 / 3


def test_parameters_that_are_not_finite_are_not_played(counted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Store(counted / "checkpoints").get("last")
    tree = found.load()
    weights = tree["workers"]["act_and_learn"]["learner"]["model"]
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = float("nan")
    with monkeypatch.context() as patch:  # as an older version would have written it
        patch.setattr("gossamer.storage.checkpoint.non_finite", lambda tensors: None)
        Store(counted / "checkpoints").save(tree, steps=81, score=None)
    with pytest.raises(UserError, match=rf"step_000000000081.*{name}.*NaN or infinite"):
        gossamer.evaluate(counted, episodes=1)
    assert gossamer.evaluate(counted, episodes=1, checkpoint="best").steps == 80
