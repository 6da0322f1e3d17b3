"""Sizes that fit a machine: pure functions, so no such machine is needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from gossamer.config import resolve as module
from gossamer.config.build import program, unresolved
from gossamer.config.config import Config
from gossamer.config.file import flat
from gossamer.config.names import ARCHITECTURES
from gossamer.config.presets import FITTED
from gossamer.config.probe import Probe
from gossamer.config.resolve import Choices, Composition
from gossamer.nn import torsos
from gossamer.presets.fitting import FLOATS_PER_PIXEL, GPU_SHARE, MOST_GROWTH, fit, minibatch_bytes, scaled_rollout
from gossamer.system.errors import UserError
from gossamer.system.resources import GB, Resources

CORES, GPUS = (1, 2, 4, 8, 16, 64), (0, 8 * GB, 80 * GB)
PPO = {"num_envs": 16, "rollout_length": 50, "num_minibatches": 8, "learning_rate": 1e-3, "memory": "none"} | {
    "network": "auto",
    "screen_size": 42,
    "frame_stack": 4,
}
APPO = PPO | {"hosts": 0, "learners": 1, "actors": 0, "env_workers": 1, "policy": "replica"}


def fitted(tuned: Mapping[str, Any], machine: Resources, **given: Any) -> dict[str, Any]:
    """All values, with what is given."""
    values = {**tuned, **given}
    return values | fit(tuned, values, given, machine)


def composition(architecture: str, algorithm: str | None = None, **given: Any) -> Composition:
    """On Pong's kind of environment, which need not be installed."""
    return Composition(
        Choices(architecture, "catch-pixels", algorithm, given=given, probed=Probe("pixels", atari=True))
    )


def compositions() -> list[tuple[str, str]]:
    """Every architecture with every algorithm that a rule is for, as far as they go together."""
    found = []
    for architecture, algorithm in itertools.product(ARCHITECTURES, FITTED):
        try:
            unresolved(composition(architecture, algorithm).config())
        except UserError:
            continue
        found.append((architecture, algorithm))
    return found


def claimed(config: Config, gpu: int) -> float:
    """CPUs of all hosts of the program, on a machine with or without a GPU."""
    placed = replace(config, run=replace(config.run, device="cuda" if gpu else "cpu"))
    return sum(host.cpus for host in program(placed, cluster="auto").hosts.values())


def test_the_rule() -> None:
    # 16 cores and a GPU: 8 x 16 = 128 environments, k = 8. 50 / 8^0.75 = 10.5 steps, and 128 x 10 / 100 = 12.8
    # minibatches of 100 steps
    values = fitted(PPO, Resources(16, 80 * GB))
    assert {name: values[name] for name in PPO if values[name] != PPO[name]} == {
        "num_envs": 128,
        "rollout_length": 10,
        "num_minibatches": 13,
    }
    # Without a GPU 4 x 16 = 64, k = 4: 50 / 2.83 = 17.7 steps, and 64 x 17 / 100 = 10.9
    values = fitted(PPO, Resources(16))
    assert (values["num_envs"], values["rollout_length"], values["num_minibatches"]) == (64, 17, 11)


def test_short_rollouts_stay_and_bound_the_number_of_environments() -> None:
    assert [scaled_rollout(50, growth) for growth in (1, 4, 16, 1000)] == [50, 17, 6, 5]
    assert [scaled_rollout(length, 4) for length in (3, 5, 8, 20)] == [3, 5, 5, 7]
    # Batches of 32 x 5 steps may double: 64 environments, with twice the rate, however many cores there are
    a2c = {name: value for name, value in PPO.items() if name != "num_minibatches"} | {
        "num_envs": 32,
        "rollout_length": 5,
    }
    values = fitted(a2c, Resources(64, 80 * GB))
    assert (values["num_envs"], values["rollout_length"], values["learning_rate"]) == (64, 5, 2e-3)


def test_what_is_given_wins_and_the_rest_follows() -> None:
    big = Resources(16, 80 * GB)
    values = fitted(APPO, big, num_envs=64)  # k = 4
    assert (values["num_envs"], values["rollout_length"], values["actors"], values["env_workers"]) == (64, 17, 4, 4)
    values = fitted(APPO, big, actors=2)
    assert (values["num_envs"], values["actors"], values["env_workers"]) == (64, 2, 8)
    values = fitted(APPO, big, rollout_length=50)  # 2 x 16 x 50 is the most
    assert (values["num_envs"], values["rollout_length"], values["num_minibatches"]) == (32, 50, 16)
    values = fitted(APPO, big, num_minibatches=4)
    assert (values["num_envs"], values["num_minibatches"]) == (64, 4)
    values = fitted(APPO, big, learning_rate=3e-4, policy="replica", env_workers=3)
    assert (values["learning_rate"], values["policy"], values["env_workers"]) == (3e-4, "replica", 3)
    assert fitted(APPO, Resources(2), num_envs=64)["rollout_length"] == 17
    assert fitted(APPO, Resources(2), num_envs=8) == APPO | {"num_envs": 8}  # fewer than tuned: nothing is known


def test_gradients_through_time_keep_their_length() -> None:
    values = fitted(PPO | {"memory": "lstm"}, Resources(64, 80 * GB))
    assert (values["num_envs"], values["rollout_length"], values["num_minibatches"]) == (32, 50, 16)


@pytest.mark.parametrize(
    ("cores", "gpu", "actors", "env_workers"),
    [
        (2, 80 * GB, 0, 1),
        (4, 0, 1, 2),  # one actor and the learner have two cores each
        (16, 0, 2, 5),
        (4, 80 * GB, 2, 2),
        (16, 80 * GB, 4, 4),  # the learner has the GPU
    ],
)
def test_actors_share_the_cores_and_the_gpu(cores: int, gpu: int, actors: int, env_workers: int) -> None:
    values = fitted(APPO, Resources(cores, gpu))
    assert (values["actors"], values["env_workers"]) == (actors, env_workers)


def test_hosts_share_the_machine() -> None:
    pala = PPO | {"hosts": 2, "learners": 2, "env_workers": 1}
    # 8 x 16 environments for four learners: 32 each, with a quarter of the cores
    values = fitted(pala, Resources(16, 80 * GB))
    assert (values["num_envs"], values["env_workers"]) == (32, 4)
    # Actors on hosts of their own: the cores of those are not known, and they compute on the CPU
    values = fitted(APPO | {"hosts": 2}, Resources(16, 80 * GB))
    assert (values["num_envs"], values["actors"], values["policy"]) == (32, 0, "replica")


def test_a_minibatch_fits_the_gpu() -> None:
    deep = PPO | {"network": "resnet", "screen_size": 210, "num_minibatches": 1}
    # 16 x 50 pictures of 210 x 210 x (90 + 4) floats with their gradients take 26.5 GB, and 32 x 29 take 30.8 GB
    assert minibatch_bytes(deep) == 800 * 210 * 210 * 94 * 8
    assert [fitted(deep, Resources(16, gpu))["num_envs"] for gpu in (20 * GB, 40 * GB, 80 * GB)] == [16, 16, 128]


@pytest.mark.parametrize("name", FLOATS_PER_PIXEL)
@pytest.mark.parametrize("side", [42, 84])
def test_the_outputs_of_a_network_are_about_what_the_rule_assumes(name: str, side: int) -> None:
    outputs = list[int]()
    with torch.device("meta"):
        torso: nn.Module = getattr(torsos, name)((4, side, side))
        for layer in torso.modules():
            if not list(layer.children()):
                layer.register_forward_hook(lambda layer, inputs, output: outputs.append(output.numel()))
        torso(torch.zeros(1, 4, side, side))
    assert sum(outputs) <= FLOATS_PER_PIXEL[name] * side**2 <= 4.5 * sum(outputs)  # `auto` has two networks


@pytest.mark.parametrize(("architecture", "algorithm"), compositions())
def test_every_composition_on_every_machine(architecture: str, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[tuple[int, int], dict[str, Any]] = {}
    for cores, gpu in itertools.product(CORES, GPUS):
        machine = Resources(cores, gpu)
        monkeypatch.setattr(module, "resources", lambda device, machine=machine: machine)
        composed = composition(architecture, algorithm)
        tuned, config = composed.tuned(), composed.config()
        unresolved(config)  # refuses environments that actors cannot share equally
        made[cores, gpu] = values = flat(config)
        if cores <= 2:
            assert composed.values() == tuned
        assert (
            values["num_envs"] * values["rollout_length"] <= MOST_GROWTH * tuned["num_envs"] * tuned["rollout_length"]
        )
        assert values["num_envs"] % tuned["num_envs"] == 0
        assert math.log2(values["num_envs"] / tuned["num_envs"]).is_integer()
        assert tuned["learning_rate"] <= values["learning_rate"] <= 2.001 * tuned["learning_rate"]
        assert not gpu or minibatch_bytes(values) <= GPU_SHARE * gpu
        if cores > 2 and (architecture, cores, gpu) != ("ga3c", 4, 0):  # six threads
            assert claimed(config, gpu) <= cores
    for (cores, gpu), (more, larger) in itertools.combinations(itertools.product(CORES, GPUS), 2):
        if cores <= more and gpu <= larger:
            assert made[cores, gpu]["num_envs"] <= made[more, larger]["num_envs"]
            assert made[cores, gpu]["rollout_length"] >= made[more, larger]["rollout_length"]


@pytest.mark.parametrize(
    ("architecture", "cores", "gpu", "cpus"),
    [
        ("appo", 4, 80 * GB, 4),  # 2 actors of 2 threads
        ("appo", 16, 80 * GB, 16),  # 4 of 4
        ("appo", 16, 0, 11),  # 2 of 5, and the learner
        ("ga3c", 4, 80 * GB, 4),  # 4 agents of 1
        ("ga3c", 16, 80 * GB, 16),  # 4 of 4
        ("ga3c", 16, 0, 10),  # 4 of 2, a predictor and a trainer
    ],
)
def test_what_runs_on_the_gpu_claims_no_core(
    architecture: str, cores: int, gpu: int, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "resources", lambda device: Resources(cores, gpu))
    assert claimed(composition(architecture).config(), gpu) == cpus


@pytest.mark.parametrize(
    ("cores", "gpu", "paac", "impala"), [(2, 80 * GB, 18, 18), (16, 0, 36, 36), (16, 80 * GB, 72, 36), (64, 0, 72, 72)]
)
def test_several_games_follow_the_machine_in_their_shares(
    cores: int, gpu: int, paac: int, impala: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "resources", lambda device: Resources(cores, gpu))
    probed = Probe("pixels", atari=True, games=True)
    for architecture, algorithm, envs in (("paac", "ppo", paac), ("impala", "vtrace", impala)):
        config = Composition(Choices(architecture, "counter,recall:2", algorithm, probed=probed)).config()
        unresolved(config)
        assert flat(config)["num_envs"] == envs  # 18 is the first multiple of 3 from 16 on


def test_only_tuned_presets_of_games_follow_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resources", lambda device: Resources(64, 80 * GB))
    assert composition("paac", "ppo").values()["num_envs"] == 128
    assert Composition(Choices("paac", "catch-pixels", "ppo")).values()["num_envs"] == 16
    paper = Choices("paac", "catch-pixels", "a2c", preset="paper", probed=Probe("pixels", atari=True))
    assert Composition(paper).values()["num_envs"] == 32
    assert composition("dqn").values()["num_envs"] == 16


def test_what_was_chosen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "resources", lambda device: Resources(16, 80 * GB if device == "auto" else 0))
    assert composition("appo").sizes() == (
        "sizes for 16 cores, a GPU with 80 GB: --num-envs 64 (16), --rollout-length 17 (50), --num-minibatches 11 "
        "(8), --actors 4 (0), --env-workers 4 (1); in brackets: as tuned on two cores; no more environments: 4 keep "
        "a core busy"
    )
    assert composition("paac", "ppo", num_envs=32, device="cpu").sizes() == (
        "sizes for 16 cores, no GPU, --num-envs 32: --rollout-length 29 (50), --num-minibatches 9 (8); in brackets: "
        "as tuned on two cores"
    )
    for architecture, algorithm, limit in (
        ("paac", "ppo", "learning would need more steps"),
        ("paac", "a2c", "batches would more than double"),
    ):
        assert composition(architecture, algorithm).sizes().endswith(f"; no more environments: {limit}")
    monkeypatch.setattr(module, "resources", lambda device: Resources(1))
    assert composition("appo").sizes() == "sizes for 1 core, no GPU: as tuned on two cores"
    assert composition("dqn").sizes() == ""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_envs", "64", "--num-envs '64': must be of type int"),
        ("num_envs", 0, "--num-envs 0: must be at least 1"),
        ("learning_rate", "fast", "--learning-rate 'fast': must be of type float"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        composition("appo", **{name: value})
