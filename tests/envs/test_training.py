"""Every kind of observation can be trained on, evaluated and resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from some_runs import checkpoint, rows

import gossamer
from gossamer.data import Tree
from gossamer.system.errors import UserError

MODULE = """
import gymnasium, numpy as np

class OpenRoads(gymnasium.Wrapper):
    "Taxi, which must not be driven into a wall."
    def __init__(self):
        super().__init__(gymnasium.make("Taxi-v4"))
    def reset(self, **given):
        obs, info = self.env.reset(**given)
        self.mask = info["action_mask"]
        return obs, info
    def step(self, action):
        assert self.mask[action] == 1
        answer = self.env.step(action)
        self.mask = answer[4]["action_mask"]
        return answer

class Recalls(gymnasium.Env):
    "The first action is free. The next ones must be the same: without the last action, that is 1 of 4 on average."
    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(4)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.last = 0, None
        return 0, {}
    def step(self, action):
        reward, self.last, self.age = float(self.last == action), action, self.age + 1
        return 0, reward, self.age == 9, False, {}
    def state_dict(self):
        return {"age": self.age, "last": self.last}
    def load_state_dict(self, state):
        self.age, self.last = state["age"], state["last"]
"""
OWN = """
import torch
from torch import nn

class Joined(nn.Module):
    "One layer for all parts of an observation side by side."
    def __init__(self, shapes):
        super().__init__()
        self.shapes = shapes
        self.layer = nn.Linear(sum(torch.Size(shape).numel() for shape in shapes.values()), 16)
    def forward(self, parts):
        assert {name: part.shape[1:] for name, part in parts.items()} == self.shapes
        return self.layer(torch.cat([parts[name].flatten(1) for name in self.shapes], 1)).tanh()
"""
QUICK: dict[str, Any] = {"steps": 2_000, "num_envs": 4, "threads": 1}
LOCKED: dict[str, Any] = {"sync": "lock-step", "interval": 1}


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "roads.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


def trained(tmp_path: Path, env: str, architecture: str = "paac", **given: Any) -> gossamer.Run:
    return gossamer.train(architecture, env=env, run_dir=tmp_path / "run", overwrite=True, **{**QUICK, **given})


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
def test_taxi_is_trained_with_its_masks(tmp_path: Path, algorithm: str) -> None:
    run = trained(tmp_path, "roads:OpenRoads", algorithm=algorithm, steps=4_000)
    assert run.result["steps"] >= 4_000
    assert gossamer.evaluate(run.directory, episodes=2, max_steps=100).episodes == 2


@pytest.mark.parametrize(
    "env", ["FrozenLake-v1", "Blackjack-v1", "CliffWalking-v1", "more_envs:nested", "more_envs:small_picture"]
)
def test_every_kind_of_observation_is_trained_evaluated_and_resumed(tmp_path: Path, env: str) -> None:
    network = {"network": "auto"} if env.startswith("more_envs") else {}  # their pictures are tiny
    for more in ({}, {"last_action_reward": True, "memory": "gru"}):
        run = trained(tmp_path, env, steps=400, **network, **more)
        assert gossamer.evaluate(run.directory, episodes=2, max_steps=50).episodes == 2
        assert gossamer.resume(run.directory, steps=800).result["steps"] >= 800


@pytest.mark.parametrize("architecture", ["paac", "gala", "pala"])
@pytest.mark.parametrize("kind", ["nested", "pair", "discrete", "small_picture", "channels_first"])
def test_every_architecture_takes_every_kind_of_observation(tmp_path: Path, kind: str, architecture: str) -> None:
    # Two members have 17 rollouts each: as many exchanges as the first comparison of their policies needs
    remembers = {"last_action_reward": True, "memory": "gru", "memory_units": 8}
    members = {"paac": {}, "gala": {"learners": 2, **LOCKED}, "pala": {"learners": 1, **LOCKED, **remembers}}
    given = members[architecture]
    options: dict[str, Any] = {"steps": 340, "num_envs": 2, "rollout_length": 5, "network": "auto", **given}
    run = trained(tmp_path, f"more_envs:{kind}", architecture, **options)
    kl = [row["gossip/kl"] for row in rows(run.directory) if row.get("gossip/kl") is not None]
    assert bool(kl) == bool(given)
    assert all(0 <= each < 1 for each in kl)
    assert gossamer.resume(run.directory, steps=400).result["steps"] >= 400
    assert gossamer.evaluate(run.directory, episodes=2).returns == [4.0, 4.0]
    film = gossamer.record(run.directory, out=tmp_path / "film.gif")
    assert (film.steps, film.score) == (4, 4.0)
    assert film.path.stat().st_size > 0


def test_text_is_left_out_with_a_note(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, "more_envs:with_text", steps=40, num_envs=2)
    for told in (capfd.readouterr().err, (run.directory / "run.log").read_text()):
        for part in ("mission", "more/0"):
            assert f'more_envs:with_text: the part "{part}" of the observation is left out: it is text' in told
    assert gossamer.evaluate(run.directory, episodes=2).returns == [4.0, 4.0]
    policy = gossamer.load(run.directory)
    policy.act({"place": np.zeros(2), "mission": "of any length", "more": ("words", 1)})
    both = {"place": np.zeros((2, 2)), "mission": ["one", "other"], "more": ("words", [1, 0])}
    assert policy.act(both).shape == (2,)


def test_a_network_of_one_s_own_takes_every_part_of_an_observation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_networks.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)

    def weights() -> torch.Tensor:
        return checkpoint(run.directory)["workers"]["act_and_learn"]["learner"]["model"]["torso.layer.weight"]

    run = trained(tmp_path, "more_envs:nested", network="own_networks:Joined", memory="gru", steps=400)
    before = weights()
    # a picture of 2 x 3 x 4, two angles, one of 3, five switches, one of 2 and one of 3: 24 + 2 + 3 + 5 + 2 + 3 numbers
    assert before.shape == (16, 39)
    assert gossamer.resume(run.directory, steps=800).result["steps"] >= 800
    assert not (weights() == before).all(0).any()  # each number has been learned from
    assert gossamer.evaluate(run.directory, episodes=2).returns == [4.0, 4.0]
    assert gossamer.record(run.directory, out=tmp_path / "film.gif").score == 4.0


def test_a_small_picture_does_not_fit_a_large_network(tmp_path: Path) -> None:
    told = r"^--network nips: does not fit observations \[3, 5, 5\] \(too small for its convolutions: use auto\)$"
    with pytest.raises(UserError, match=told):
        trained(tmp_path, "more_envs:small_picture", network="nips")
    with pytest.raises(UserError, match=r"--network nips: does not fit observations arm/angles \[2\], .*camera \[2, 3"):
        trained(tmp_path, "more_envs:nested", network="nips")


def test_blackjack_is_learned(tmp_path: Path) -> None:
    # Random play loses 0.40 a game on average, sticking always 0.18, the best play 0.05; the standard error of 300
    # games is 0.055
    run = trained(tmp_path, "Blackjack-v1", algorithm="ppo", steps=12_000, num_envs=16, rollout_length=16)
    assert gossamer.evaluate(run.directory, episodes=300, greedy=True).mean_return > -0.27


def test_the_last_action_is_made_use_of(tmp_path: Path) -> None:
    # 9 steps, the first without reward: 8 is the best, 2 = 8 / 4 that of chance
    run = trained(tmp_path, "roads:Recalls", algorithm="ppo", steps=12_000, num_envs=8, last_action_reward=True)
    assert gossamer.evaluate(run.directory, episodes=20).mean_return > 6


def test_a_run_with_the_last_action_resumes_exactly(tmp_path: Path) -> None:
    given: dict[str, Any] = {"last_action_reward": True, "anneal_steps": 0}
    straight = trained(tmp_path, "roads:Recalls", steps=1_600, **given)
    expected = parameters(straight.directory)
    halves = trained(tmp_path, "roads:Recalls", steps=800, **given)
    gossamer.resume(halves.directory, steps=1_600)
    assert parameters(halves.directory) == expected


def parameters(directory: Path) -> dict[str, Any]:
    tree: Tree = checkpoint(directory)
    (worker,) = tree["workers"].values()
    return {name: each.tolist() for name, each in worker["learner"]["model"].items()}
