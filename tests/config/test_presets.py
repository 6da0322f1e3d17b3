"""Presets are complete and say where they come from; the paper's is the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from some_runs import checkpoint, rows

import gossamer
from gossamer.algorithms import A2C, PPO
from gossamer.architectures import PAAC
from gossamer.config.file import flat
from gossamer.config.keywords import Keywords
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, OPTIMIZERS, load
from gossamer.config.presets import layers
from gossamer.config.probe import Probe
from gossamer.config.resolve import configure
from gossamer.presets.layers import presets_of
from gossamer.system.errors import UserError
from gossamer.system.options import declared


def resolve(wanted: dict[str, Any]) -> SimpleNamespace:
    """Every option of a composition, by name."""
    return SimpleNamespace(**flat(configure(**wanted)))


@pytest.mark.parametrize("env", ["catch", "catch-pixels"])
@pytest.mark.parametrize(
    ("architecture", "wanted"),
    [
        *product(["paac", "gala", "pala"], [{}, {"algorithm": "ppo"}, {"preset": "paper"}]),
        ("paac", {"preset": "accelerated"}),
        ("paac", {"preset": "accelerated", "algorithm": "dqn"}),
    ],
    ids=str,
)
def test_what_presets_say_can_be(architecture: str, env: str, wanted: dict[str, str]) -> None:
    made = resolve({"architecture": architecture, "env": env, **wanted})
    assert (made.preset, made.algorithm) == (wanted.get("preset", "tuned"), wanted.get("algorithm", "a2c"))


def parts() -> Iterator[tuple[type, dict[str, str]]]:
    """Every architecture and algorithm, with the names of those that it may be beside."""
    for known, others in ((ARCHITECTURES, ALGORITHMS), (ALGORITHMS, ARCHITECTURES)):
        yield from ((load("", name, known), others) for name in known)


def test_layers_name_their_source_and_other_parts_and_options_that_exist() -> None:
    for kind, others in parts():
        for layer in presets_of(kind):
            assert layer.why
            assert layer.options or layer.rules
            assert set(layer.beside) <= set(others), kind
            assert layer.options.keys() <= Keywords.__annotations__.keys() | {"optimizer"}, kind
            assert layer.options.get("optimizer", "adam") in OPTIMIZERS


def test_an_algorithm_sets_options_of_its_own_and_of_no_other_algorithm() -> None:
    of_algorithms = {name for each in ALGORITHMS for name in declared(load("", each, ALGORITHMS))}
    for name in ALGORITHMS:
        kind = load("", name, ALGORITHMS)
        for layer in presets_of(kind):
            assert layer.options.keys() & of_algorithms <= declared(kind).keys()


def test_a_paper_has_settings_for_its_algorithms() -> None:
    of_several = {"a3c": 4}
    for name in ARCHITECTURES:
        layers = presets_of(load("", name, ARCHITECTURES))
        papers = [len(layer.beside) for layer in layers if layer.preset == "paper"]
        assert papers == [of_several.get(name, 1)]


def test_later_layers_override_earlier_ones_and_rules_come_last() -> None:
    made = layers(PAAC, A2C, preset="tuned", seen=Probe("vector"))
    whys = [layer.why.split(":")[0] for layer in made]
    general, own = "small vectors", "tuned on Catch and CartPole-v1"
    assert whys == [general, own, own, "with memory, minibatches are whole sequences"]
    assert [layer.beside for layer in made] == [(), (), ("a2c",), ()]
    # The rate of a2c, 1e-3, becomes 2e-3 under paac, and with memory a rule makes it 5e-3
    assert resolve({"architecture": "paac", "env": "catch"}).learning_rate == 2e-3
    assert resolve({"architecture": "paac", "env": "catch", "memory": "gru"}).learning_rate == 5e-3


def test_asynchronous_ppo_and_vtrace_have_the_environments_of_ppo_and_of_appo() -> None:
    def envs(architecture: str, algorithm: str) -> int:
        return resolve({"architecture": architecture, "env": "catch-pixels", "algorithm": algorithm}).num_envs

    assert envs("paac", "appo") == envs("paac", "vtrace") == envs("paac", "ppo") == 16
    assert envs("impala", "appo") == envs("impala", "vtrace") == envs("appo", "appo") == 16


def test_the_learning_rate_falls_until_the_run_ends_unless_a_paper_says_when() -> None:
    for env in ("catch", "catch-pixels"):
        for algorithm in ("a2c", "ppo"):
            made = resolve({"architecture": "paac", "env": env, "algorithm": algorithm, "steps": 12_345})
            assert made.anneal_steps == 12_345
    assert resolve({"architecture": "paac", "env": "catch", "steps": 100, "anneal_steps": 0}).anneal_steps == 0
    assert resolve({"architecture": "paac", "env": "catch", "steps": 100, "preset": "paper"}).anneal_steps == 80_000_000


def test_the_paper_s_settings() -> None:
    # The defaults of the authors' train.py (github.com/Alfredvc/paac), and what their code has fixed
    made = resolve({"architecture": "paac", "env": "catch-pixels", "preset": "paper"})
    assert (made.num_envs, made.env_workers, made.rollout_length, made.steps) == (32, 8, 5, 80_000_000)
    assert (made.learning_rate, made.anneal_steps, made.final_fraction) == (pytest.approx(0.0224), 80_000_000, 0.0)
    assert (made.optimizer, made.decay, made.epsilon, made.max_grad_norm) == ("rmsprop-tf", 0.99, 0.1, 3.0)
    assert (made.loss_scale, made.value_coef, made.entropy_coef) == (5.0, 0.25, 0.02)
    assert (made.gamma, made.gae_lambda) == (0.99, 1.0)
    assert (made.network, made.input, made.initialization) == ("nips", "unit", "uniform")


def test_the_settings_of_the_papers_on_gossip() -> None:
    # gala: arguments.py and README of its code (4 learners x 16 simulators); pala: arguments.py of its code
    gala = resolve({"architecture": "gala", "env": "catch-pixels", "preset": "paper"})
    assert (gala.learners, gala.num_envs, gala.rollout_length, gala.steps) == (4, 16, 5, 40_000_000)
    assert (gala.optimizer, gala.decay, gala.epsilon, gala.max_grad_norm) == ("rmsprop-torch", 0.99, 1e-5, 0.5)
    assert (gala.learning_rate, gala.anneal_steps) == (pytest.approx(0.0014), 0)
    assert (gala.graph, gala.mixing, gala.sync, gala.value_coef, gala.entropy_coef) == (
        ("ring", "uniform", "never", 0.5, 0.01)
    )
    pala = resolve({"architecture": "pala", "env": "catch-pixels", "preset": "paper"})
    assert (pala.hosts, pala.learners, pala.num_envs, pala.rollout_length) == (2, 2, 16, 20)
    assert (pala.learning_rate, pala.sync, pala.staleness) == (0.0007, "bounded", 0)


@pytest.mark.parametrize("name", ["tuned", "paper"])
def test_the_learning_rate_grows_with_the_square_root_of_the_learners(name: str) -> None:
    def rate(architecture: str, **given: int | float) -> float:
        return resolve({"architecture": architecture, "env": "catch", "preset": name, **given}).learning_rate

    assert rate("gala") == pytest.approx(2 * rate("gala", learners=2) / 2**0.5)
    assert rate("gala", learners=9) == pytest.approx(1.5 * rate("gala"))
    assert rate("gala", learners=9, learning_rate=0.5) == 0.5  # what is given is meant
    if name == "tuned":
        one = rate("gala", learners=1)
        assert rate("gala") == pytest.approx(2 * one)
        assert rate("pala", hosts=3, learners=3) == pytest.approx(3 * one)
    else:
        assert rate("pala", hosts=3, learners=3) == rate("pala") == 0.0007  # its code has the plain one


def test_the_paper_on_vectors_has_a_network_that_fits_them() -> None:
    made = resolve({"architecture": "paac", "env": "catch", "preset": "paper"})
    assert (made.network, made.input, made.rollout_length) == ("mlp", "raw", 5)


def test_the_paper_has_one_algorithm() -> None:
    with pytest.raises(UserError, match="--algorithm ppo: PAAC's paper has only a2c; omit --preset paper"):
        layers(PAAC, PPO, preset="paper", seen=Probe("pixels"))


def test_impala_s_and_appo_s_published_settings() -> None:
    made = resolve({"architecture": "impala", "env": "catch-pixels", "preset": "paper"})
    assert (made.num_envs, made.rollout_length, made.loss_scale) == (32, 20, 32 * 20)  # a sum over the batch
    assert (made.learning_rate, made.anneal_steps, made.final_fraction) == (6e-4, 50_000_000, 0.0)
    assert (made.optimizer, made.decay, made.epsilon, made.max_grad_norm) == ("rmsprop-tf", 0.99, 0.01, 40.0)
    assert (made.value_coef, made.entropy_coef, made.rho_bar, made.c_bar) == (0.25, 0.01, 1.0, 1.0)  # 0.5 of 0.5
    made = resolve({"architecture": "appo", "env": "catch-pixels", "preset": "paper"})
    assert (made.num_envs * made.rollout_length, made.reuse, made.network) == (750, 2, "autoencoder")
    assert (made.surrogate, made.clip_range, made.learning_rate) == ("behaviour", 0.3, 5e-4)
    assert made.max_grad_norm * 750 == pytest.approx(10)


def test_settings_for_losses_that_are_sums_are_of_those_sums() -> None:
    made = resolve({"architecture": "r2d2", "env": "catch-pixels", "preset": "paper"})
    assert (made.sequence_length, made.rollout_length) == (80, 40)
    assert (made.epsilon * 80, made.max_grad_norm * 80) == pytest.approx((1e-3, 80.0))
    a3c, paac = (resolve({"architecture": name, "env": "catch-pixels", "preset": "paper"}) for name in ("a3c", "paac"))
    assert a3c.learning_rate * a3c.loss_scale * a3c.value_coef == pytest.approx(7e-4 * 5 * 0.25)
    # PAAC's rate is n_e times as large, for a mean over n_e environments: the step of one is that of an A3C thread
    assert paac.learning_rate / 32 * paac.loss_scale * paac.value_coef == pytest.approx(7e-4 * 5 * 0.25)


def test_several_trainers_have_no_running_statistics() -> None:
    for given in ({"trainers": 2}, {"adjust_seconds": 20.0}):
        assert not configure("ga3c", env="counter,recall", **given).network.normalize_returns
        memory = configure("ga3c", env="catch", algorithm="ppo", memory="lstm", **given).network
        assert (memory.normalize_returns, memory.normalize_observations) == (False, False)
    assert configure("ga3c", env="counter,recall", most=1, adjust_seconds=20.0).network.normalize_returns
    assert configure("ga3c", env="counter,recall").network.normalize_returns


def test_the_accelerated_settings() -> None:
    # accel_rl: accel_rl/algos/pg/{a2c,ppo}.py, accel_rl/algos/dqn/dqn.py, and its example scripts
    def accelerated(architecture: str, **given: Any) -> SimpleNamespace:
        return resolve({"architecture": architecture, "env": "pong", "preset": "accelerated", **given})

    made = accelerated("paac")
    assert (made.algorithm, made.num_envs, made.rollout_length, made.alternating) == ("a2c", 64, 5, True)
    assert (made.learning_rate, made.anneal_steps, made.final_fraction) == (7e-4, 0, 1.0)
    assert (made.optimizer, made.decay, made.epsilon, made.max_grad_norm) == ("rmsprop-a3c", 0.9, 1e-6, 0.5)
    assert (made.value_coef, made.entropy_coef, made.loss_scale, made.gae_lambda) == (0.25, 0.01, 1.0, 1.0)
    made = accelerated("paac", algorithm="ppo", num_envs=1024)
    assert (made.num_minibatches, made.epochs, made.clip_range) == (10, 4, 0.2)  # 1024 x 5 / 512
    assert (made.optimizer, made.epsilon, made.learning_rate, made.gae_lambda) == ("adam", 1e-5, 1e-3, 0.95)
    made = accelerated("dqn")
    assert (made.num_envs, made.batch_size, made.samples_per_insert, made.learning_starts) == (32, 32, 8.0, 50_000)
    assert (made.optimizer, made.decay, made.epsilon, made.learning_rate) == ("rmsprop-a3c", 0.95, 1e-6, 2.5e-4)
    assert (made.epsilon_start, made.epsilon_end, made.epsilon_steps) == (1.0, 0.1, 1_000_000)
    # The target is copied each 10,000 steps: 8 samples for each make 10,000 x 8 / 32 updates. With batches of 2,048
    # these are 39, and the rollouts of 2,048 / (8 x 4) environments owe one batch
    assert made.target_period == 2_500
    made = accelerated("paac", algorithm="dqn", batch_size=2048)
    assert (made.num_envs, made.target_period) == (64, 39)
    made = accelerated("a2c", algorithm="dqn", learners=4)  # the same in all
    assert (made.num_envs, made.batch_size, made.target_period) == (8, 8, 2_500)
    made = accelerated("a2c", algorithm="ppo", learners=4)
    assert made.num_envs * made.rollout_length / made.num_minibatches == 512 / 4
    made = accelerated("a3c", algorithm="dqn", learners=4)  # each, but for the memory
    assert (made.num_envs, made.batch_size, made.target_period) == (32, 32, 2_500)
    assert (made.buffer_size, made.learning_starts) == (250_000, 12_500)
    made = accelerated("a3c", algorithm="ppo", learners=4)
    assert made.num_envs * made.rollout_length / made.num_minibatches == 512
    with pytest.raises(
        UserError, match="--preset accelerated: not available for a2c in gala; available for a2c in paac, a2c, a3c; ppo"
    ):
        accelerated("gala")


CAMERA = "cameras:Camera"


@pytest.mark.parametrize("architecture", ["paac", "gala", "pala"])
def test_pictures_with_continuous_actions_have_defaults_for_both(architecture: str) -> None:
    made = configure(architecture, env=CAMERA)
    assert isinstance(made.algorithm, PPO)
    assert made.algorithm.entropy_coef == 0.0
    assert made.network.normalize_returns
    assert made.network.input == "background"  # as for other pictures
    memory = configure(architecture, env=CAMERA, memory="lstm")
    assert isinstance(memory.algorithm, PPO)
    assert memory.algorithm.entropy_coef == 0.0


@pytest.mark.parametrize(("architecture", "torso"), [("paac", "nips"), ("gala", "nature"), ("impala", "nips")])
def test_a_paper_s_network_gives_way_to_auto_where_pictures_are_small(architecture: str, torso: str) -> None:
    assert configure(architecture, env=CAMERA, preset="paper").network.torso == "auto"
    assert configure(architecture, env=CAMERA, preset="paper", network="nips").network.torso == "nips"
    assert configure(architecture, env="catch-pixels", preset="paper").network.torso == torso  # 42x42


def check_continuous(run: gossamer.Run) -> None:
    """Losses are finite, observations and returns are normalised, and each head has a network of its own."""
    losses = [row["loss"] for row in rows(run.directory) if row.get("loss") is not None]
    assert losses
    assert all(map(math.isfinite, losses))
    workers = checkpoint(run.directory)["workers"].values()
    models = [state["learner"]["model"] for state in workers if "learner" in state]
    for which in ("centre", "value"):
        assert any(model[f"{which}.moments.rollouts"] > 0 for model in models)
    assert all(any(name.startswith("torso.value.") for name in model) for model in models)


def test_a_robot_is_trained_with_the_defaults(tmp_path: Path) -> None:
    # 16 environments and rollouts of 128 steps: two rollouts. Each step on its leg is rewarded with 1 and some speed
    pytest.importorskip("mujoco", reason="MuJoCo is not installed (the extra `mujoco`)")
    run = gossamer.train("paac", env="Hopper-v5", steps=4_096, threads=1, run_dir=tmp_path / "run")
    assert run.result["steps"] == 4_096
    check_continuous(run)
    assert 0 < gossamer.evaluate(run.directory, episodes=4).mean_return < 1_000


@pytest.mark.parametrize("architecture", ["paac", "gala", "pala"])
def test_ppo_trains_continuous_actions_with_the_defaults(architecture: str, tmp_path: Path) -> None:
    # One rollout of 128 steps: 16 environments, or 4 learners with 4. A game of Pendulum has 200 steps, each of which
    # costs at most pi^2 + 0.1 * 8^2 + 0.001 * 2^2 = 16.3
    options: dict[str, Any] = {"env": "Pendulum-v1", "algorithm": "ppo", "steps": 2_048, "threads": 1}
    run = gossamer.train(architecture, run_dir=tmp_path / "run", **options)
    assert run.result["steps"] == 2_048
    check_continuous(run)
    assert -200 * 16.3 < gossamer.evaluate(run.directory, episodes=4).mean_return < 0


@pytest.mark.parametrize("name", ["pong", "ALE/Pong-v5"])
def test_the_pictures_of_appos_paper_are_small_under_both_names(name: str) -> None:
    made = resolve({"architecture": "appo", "env": name, "preset": "paper"})
    assert made.screen_size == 42


@pytest.mark.parametrize(
    ("env", "steps"), [("CartPole-v1", 200_000), ("Pendulum-v1", 200_000), ("catch-pixels", 200_000)]
)
def test_small_environments_have_a_run_of_minutes(env: str, steps: int) -> None:
    found = configure("paac", env=env)
    assert (found.run.steps, found.optimization.anneal_steps) == (steps, steps)


def test_games_have_more_steps_and_papers_their_own() -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    assert configure("paac", env="pong").run.steps == 10_000_000
    assert configure("paac", env="catch", preset="paper").run.steps == 80_000_000


def test_values_of_several_games_have_a_scale_of_their_own_unless_rewards_are_clipped() -> None:
    for given in (
        {"architecture": "dqn"},
        *({"architecture": "paac", "algorithm": each} for each in ("pqn", "nstep-q")),
    ):
        assert not configure(env="catch", **given).algorithm.rescale_values
        assert configure(env="counter:2,recall", num_envs=6, **given).algorithm.rescale_values
    assert not configure("dqn", env="counter:2,recall", rescale_values=False).algorithm.rescale_values
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    for clipped in (True, False):
        found = configure("dqn", env="pong,breakout", num_envs=4, clip_rewards=clipped)
        assert found.algorithm.rescale_values != clipped
