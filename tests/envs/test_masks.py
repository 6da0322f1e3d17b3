"""Action masks: only valid actions are taken, and masks that cannot be used are named."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from more_envs import BadMask, MaskedBox
from some_parts import a_task
from torch.testing import assert_close

import gossamer
from gossamer.envs.base import Masking, UnsupportedSpace, VectorEnv
from gossamer.envs.gym import Custom, Gym, vectorise
from gossamer.envs.local import Local
from gossamer.envs.masks import Mask
from gossamer.envs.random_play import play, random_actions
from gossamer.envs.single import EnvSource
from gossamer.policy import build
from gossamer.spaces.observations import MASK, Part
from gossamer.system.errors import EnvironmentFailed

BYTES, FLOATS = np.dtype(np.uint8), np.dtype(np.float32)
REUSED: dict[str, Any] = {"reuse": 2, "depth": 3, "replay_share": 0.5}
DOORS = ["doors", "two_doors", "tuple_of_doors", "switches"]
ALL = {"doors": 5, "doors_in_observation": 5, "two_doors": 12, "tuple_of_doors": 12, "switches": 8}  # actions


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("sizes", "value", "expected"),
    [
        ((3,), np.array([0, 1, 1], np.int8), [0, 1, 1]),
        ((3,), np.array([True, False, False]), [1, 0, 0]),
        ((3,), [0, 0, 1], [0, 0, 1]),
        ((3,), np.array([0.0, 1.0, 0.5]), [0, 1, 1]),
        ((2, 3), np.array([1, 0, 0, 0, 1]), [1, 0, 0, 0, 1]),
        ((2, 3), (np.array([0, 1]), np.array([1, 1, 0])), [0, 1, 1, 1, 0]),
        ((2, 2, 2), [[0, 1], [1, 1], [1, 0]], [0, 1, 1, 1, 1, 0]),
        ((2, 2, 2, 2), np.array([[[0, 1], [1, 1]], [[1, 0], [1, 0]]]), [0, 1, 1, 1, 1, 0, 1, 0]),
    ],
)
def test_a_mask_may_come_in_several_forms(sizes: tuple[int, ...], value: Any, expected: list[int]) -> None:
    assert Mask(sizes).convert(value).tolist() == expected
    assert Mask(sizes).part == Part("action_mask", (len(expected),), BYTES)


def test_a_mask_of_the_info_is_the_last_part() -> None:
    masked = Custom("more_envs:doors", masks=True).make(2)
    assert masked.spec.parts == (Part("observation", (1,), FLOATS), Part("action_mask", (5,), BYTES))
    assert Custom("more_envs:doors").make(2).spec.layout is None
    of_taxi = Gym("Taxi-v4", masks=True).make(2).spec
    assert of_taxi.parts == (Part("observation", (500,), BYTES), Part("action_mask", (6,), BYTES))


def test_a_mask_in_the_observation_needs_no_option_and_is_used_first() -> None:
    for masks in (False, True):
        env = Custom("more_envs:doors_in_observation", masks=masks).make(1)
        assert [part.name for part in env.spec.parts] == ["action_mask", "observation"]
        assert isinstance(env, Masking)
        assert not env.gives_masks()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", [*DOORS, "doors_in_observation"])
def test_random_play_takes_open_doors_only_and_all_of_them(name: str, workers: int) -> None:
    # An environment raises at a closed door. 4 environments, 200 steps: a policy without the mask would fail at once
    env = Custom(f"more_envs:{name}", masks=True).make(4, workers=workers)
    rng, obs, taken = np.random.default_rng(0), env.reset(seed=0), set()
    for _ in range(200):
        actions = random_actions(env.spec, rng, obs)
        obs = env.step(actions).obs
        taken |= {tuple(action) for action in actions.reshape(4, -1).tolist()}
    assert len(taken) == ALL[name]
    env.close()


def test_the_random_play_before_a_run_is_valid() -> None:
    assert len(list(play(Custom("more_envs:doors", masks=True), 2, 0, 100, print))) == 101


def blind_steps(env: VectorEnv) -> None:
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        env.step(env.spec.actions.random(rng, env.num_envs))


@pytest.mark.parametrize("workers", [0, 2])
def test_without_the_mask_a_closed_door_is_taken(workers: int) -> None:
    env = Custom("more_envs:doors").make(2, workers=workers)
    with closing(env), pytest.raises(EnvironmentFailed, match=r"step\(\) raised RuntimeError: door \d is closed"):
        blind_steps(env)


@pytest.mark.parametrize("name", ["doors", "two_doors"])
def test_an_untrained_policy_is_the_softmax_over_valid_actions(name: str) -> None:
    factory = Custom(f"more_envs:{name}", masks=True)
    env = factory.make(6)
    assert env.spec.layout is not None
    model = build(a_task(factory), env.spec)
    obs = torch.from_numpy(env.reset(seed=0))
    mask = env.spec.layout.part(obs, MASK).double()
    distribution, _ = model(obs)
    everything = torch.cat([torch.zeros(6, 4), torch.ones(6, mask.shape[1])], dim=1).to(torch.uint8)
    everything[:, :4] = obs[:, :4]  # the same observations with all actions valid
    logits = model(everything)[0].parameters.double()
    sizes = [5] if name == "doors" else [3, 4]
    for one, of, valid in zip(
        distribution.parameters.double().split(sizes, 1), logits.split(sizes, 1), mask.split(sizes, 1), strict=True
    ):
        by_hand = of.exp() * valid / (of.exp() * valid).sum(1, keepdim=True)
        assert_close(one.softmax(1), by_hand, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("algorithm", ["a2c", "ppo"])
@pytest.mark.parametrize("name", [*DOORS, "doors_in_observation"])
def test_training_takes_open_doors_only(tmp_path: Path, name: str, algorithm: str) -> None:
    # The environment raises at a closed door, and a raise ends the run
    run = gossamer.train(
        "paac", env=f"more_envs:{name}", algorithm=algorithm, steps=600, num_envs=4, run_dir=tmp_path / "run"
    )
    assert run.result["steps"] >= 600
    assert gossamer.evaluate(run.directory, episodes=4, greedy=True).episodes == 4


@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        ("impala", {"algorithm": "vtrace"}),
        ("appo", {"algorithm": "appo", "memory": "lstm", "memory_units": 8, **REUSED}),
        ("gala", {"learners": 2}),
    ],
    ids=["impala", "appo", "gala"],
)
def test_other_architectures_take_open_doors_only(tmp_path: Path, architecture: str, given: dict[str, Any]) -> None:
    options: dict[str, Any] = {"steps": 1_000, "num_envs": 4, "threads": 1, **given}
    run = gossamer.train(architecture, env="more_envs:two_doors", run_dir=tmp_path / "run", **options)
    assert run.result["ended"] == "all steps done"
    assert gossamer.evaluate(run.directory, episodes=4, greedy=True).episodes == 4


def test_a_mask_is_in_use_in_worker_processes_and_after_a_resume(tmp_path: Path) -> None:
    run = gossamer.train("paac", env="more_envs:doors", steps=400, num_envs=4, env_workers=2, run_dir=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env"]["action_masks"] is True
    assert gossamer.resume(run.directory, steps=800).result["steps"] >= 800


def test_actions_that_have_no_mask_are_refused() -> None:
    with pytest.raises(UnsupportedSpace, match=r"mine: --action-masks: only choices .* not 2 continuous"):
        Local(EnvSource("mine", MaskedBox, masks=True), 1)


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({}, 'no info["action_mask"]; with --action-masks it must give one every time'),
        (None, 'no info["action_mask"]; with --action-masks it must give one every time'),
        ({"action_mask": np.ones(3)}, 'an info["action_mask"] of shape (3,); the actions need (4,)'),
        ({"action_mask": np.ones((4, 1))}, 'an info["action_mask"] of shape (4, 1); the actions need (4,)'),
        ({"action_mask": None}, 'an info["action_mask"] of shape (); the actions need (4,)'),
        ({"action_mask": np.zeros(4)}, 'an info["action_mask"] without a valid action'),
        ({"action_mask": np.array([1, 1, 0, 0])}, 'an info["action_mask"] without a valid action per choice'),
        ({"action_mask": np.array(list("abcd"))}, 'an info["action_mask"] of <U1; it must have numbers'),
        (
            {"action_mask": np.array([0, -np.inf, 0, 0])},
            'an info["action_mask"] with numbers below 0 or above 1, or NaN;',
        ),
        (
            {"action_mask": np.array([1, np.nan, 0, 1])},
            'an info["action_mask"] with numbers below 0 or above 1, or NaN;',
        ),
        ({"action_mask": [[1, 1], [[1], [1, 1]]]}, 'an info["action_mask"] that is not an array'),
    ],
)
def test_a_bad_mask_is_named(info: Any, told: str) -> None:
    env = vectorise(EnvSource("mine", partial(BadMask, info), masks=True), 2, 0)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed) as caught:
        env.step(np.zeros((2, 2), np.int64))
    assert str(caught.value).startswith(f"--env mine: environment 0: step() gave {told}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("last", [np.zeros(4), None], ids=["nothing is valid", "no mask"])
def test_the_last_observation_of_an_episode_needs_no_mask(last: Any) -> None:
    info = {} if last is None else {"action_mask": last}
    env = vectorise(EnvSource("mine", partial(BadMask, info, True), masks=True), 2, 0)
    env.reset(seed=0)
    assert env.step(np.zeros((2, 2), np.int64)).terminated.all()


def test_with_restarts_a_bad_mask_costs_one_episode() -> None:
    env = Local(EnvSource("mine", partial(BadMask, {}), "restart", masks=True), 1)
    first = env.reset(seed=0)
    step = env.step(np.zeros((1, 2), np.int64))
    assert step.truncated.all()
    np.testing.assert_array_equal(step.final_obs, first)
    (failure,) = env.failures()
    assert "step() gave no info" in str(failure)


class Ends(BadMask):
    """Its first step truncates the episode."""

    def step(self, action: Any) -> Any:
        obs, reward, _, _, info = super().step(action)
        return obs, reward, False, True, info


def test_a_truncated_episode_s_last_mask_is_kept() -> None:
    """Its value is that of the best of these actions."""
    info = {"action_mask": np.array([1, 0, 1, 1], np.int8)}
    env = vectorise(EnvSource("mine", partial(Ends, info), masks=True), 2, 0)
    env.reset(seed=0)
    step = env.step(np.zeros((2, 2), np.int64))
    assert step.final_obs is not None
    assert env.spec.layout is not None
    assert env.spec.layout.array(step.final_obs, MASK).tolist() == [[1, 0, 1, 1]] * 2
    assert env.spec.layout.array(step.obs, MASK).tolist() == [[1, 1, 1, 1]] * 2
