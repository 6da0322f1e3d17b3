"""A configuration is complete, follows from little, becomes the right parts, and refuses by name what cannot be."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Adam, Optimizer, RAdam

from gossamer.algorithms import A2C, PPO, VTrace
from gossamer.architectures import APPO, GALA
from gossamer.config.build import (
    check_effect,
    check_workers,
    device,
    device_of_run,
    gpus,
    learners,
    program,
    task,
)
from gossamer.config.composing import compose
from gossamer.config.config import Config
from gossamer.config.file import flat, from_dict, to_dict
from gossamer.config.games import unscaled
from gossamer.config.memory import check_batch, check_memory
from gossamer.config.resolve import configure, resolve
from gossamer.envs.atari import GYMNASIUM, Atari
from gossamer.envs.base import UnknownEnv, UnsupportedSpace
from gossamer.envs.gym import Gym
from gossamer.envs.last import LastActionReward
from gossamer.envs.options import AleOptions, GymOptions
from gossamer.envs.pool import EnvPool
from gossamer.evaluation.acting import task_here
from gossamer.loops import Envs, role
from gossamer.nn.optim import RMSProp, RMSPropTF
from gossamer.nn.torsos import auto
from gossamer.program import Program
from gossamer.spaces import Box
from gossamer.system.errors import UserError
from gossamer.system.options import flag
from gossamer.system.processes import cores
from gossamer.task import Task


def settings(env: str = "catch", **given: Any) -> Config:
    return configure("paac", env=env, **given)


def values(env: str = "catch", **given: Any) -> SimpleNamespace:
    return SimpleNamespace(**flat(settings(env, **given)))


def test_defaults_fit_the_kind_of_environment() -> None:
    assert (values("catch").network, values("catch").input) == ("auto", "raw")
    assert (values("catch-pixels").network, values("catch-pixels").input) == ("auto", "background")
    robot = values("Pendulum-v1", algorithm="ppo")
    assert (robot.normalize_observations, robot.normalize_returns, robot.separate_critic) == (True, True, True)
    assert not values("catch", algorithm="ppo").normalize_observations


def test_heads_that_share_a_memory_share_their_torso() -> None:
    assert not values("Pendulum-v1", algorithm="ppo", memory="lstm", num_minibatches=8).separate_critic
    assert values("catch", algorithm="ppo", memory="lstm").normalize_returns
    with pytest.raises(UserError, match="--separate-critic: has no effect with --network linear"):
        settings(network="linear", separate_critic=True)
    with pytest.raises(UserError, match="--separate-critic: not available with --memory, which both heads share"):
        settings(memory="gru", separate_critic=True)


def test_pictures_with_memory_have_smaller_steps_unless_options_are_given() -> None:
    plain, memory = values("catch-pixels", algorithm="ppo"), values("catch-pixels", algorithm="ppo", memory="lstm")
    assert memory.learning_rate < plain.learning_rate
    assert (plain.epochs, memory.epochs, memory.num_minibatches) == (3, 4, 4)
    assert values("catch-pixels", algorithm="ppo", memory="lstm", epochs=2).epochs == 2
    assert values("catch", algorithm="ppo", memory="lstm").learning_rate == plain.learning_rate  # vectors


def test_asynchronous_ppo_on_pictures_has_a_schedule_of_its_own_unless_it_has_memory() -> None:
    def schedule(env: str, algorithm: str, **given: Any) -> tuple[float, float, float]:
        made = values(env, algorithm=algorithm, **given)
        return made.anneal_from, made.final_fraction, made.entropy_final_fraction

    assert schedule("catch-pixels", "appo") == (0.35, 0.15, 0.1)
    assert schedule("catch-pixels", "appo", entropy_final_fraction=0.5) == (0.35, 0.15, 0.5)
    without = (("catch-pixels", "ppo", {}), ("catch", "appo", {}), ("catch-pixels", "appo", {"memory": "lstm"}))
    assert [schedule(env, algorithm, **given) for env, algorithm, given in without] == [(0.0, 0.1, 1.0)] * 3


@pytest.mark.parametrize("architecture", ["gala", "pala"])
def test_gossiping_learners_share_the_environments_and_minibatches_of_one(architecture: str) -> None:
    def of(name: str, **given: Any) -> SimpleNamespace:
        return SimpleNamespace(**flat(configure(name, env="Pendulum-v1", algorithm="ppo", **given)))

    one, shared = of("paac"), of(architecture)
    learners = shared.learners * getattr(shared, "hosts", 1)
    assert learners * shared.num_envs == one.num_envs
    assert (shared.num_minibatches, shared.learning_rate) == (one.num_minibatches, one.learning_rate)
    assert of(architecture, learners=1, hosts=None).num_minibatches < one.num_minibatches


def test_defaults_with_memory_fit_the_environments() -> None:
    assert values("Pendulum-v1", algorithm="ppo", memory="lstm").num_minibatches == 8  # of 16 environments
    assert values("catch", algorithm="ppo", memory="gru", num_envs=2).num_minibatches == 1
    assert values("catch", algorithm="ppo").num_minibatches == 4
    assert values("Pendulum-v1", algorithm="ppo").num_minibatches == 8  # of 256 steps
    assert values("Pendulum-v1", algorithm="ppo", num_envs=4, rollout_length=8).num_minibatches == 1


def test_minibatches_of_sequences_need_as_many_environments() -> None:
    wanted = "--num-minibatches 5: with --memory, a minibatch consists of whole rollouts of environments: at most"
    with pytest.raises(UserError, match=f"{wanted} 4"):
        settings(algorithm="ppo", memory="lstm", num_envs=4, num_minibatches=5)


def test_a_minibatch_of_one_step_has_no_normalised_advantage() -> None:
    given = {"algorithm": "ppo", "num_envs": 1, "rollout_length": 4, "num_minibatches": 4}
    with pytest.raises(
        UserError, match="--num-minibatches 4: the normalised advantage of a minibatch of one step is 0"
    ):
        settings(**given)
    settings(**given, normalize_advantage=False)
    settings(**given | {"num_minibatches": 2})


@pytest.mark.parametrize(
    ("given", "envs"),
    [
        ({}, 16),
        ({"learners": 2}, 8),  # the environments of a host are shared by its learners
        ({"hosts": 3, "actors": 2}, 48),  # each host has as many
        ({"actors": 4, "batch_rollouts": 2}, 8),
        ({"num_envs": 8, "learners": 2, "hosts": 2, "actors": 1}, 8),
    ],
)
def test_minibatches_of_a_queue_are_parts_of_a_learner_s_batch(given: dict[str, Any], envs: int) -> None:
    options = {"num_envs": 16, "rollout_length": 64, **given}
    assert flat(configure("appo", env="Pendulum-v1", **options))["num_minibatches"] == envs * 64 // 256
    with pytest.raises(UserError, match=f"with --memory, a minibatch consists of whole rollouts .* at most {envs}$"):
        configure("appo", env="Pendulum-v1", memory="lstm", num_minibatches=envs + 1, **options)


class MyPPO(PPO):
    pass


class MyAPPO(APPO):
    pass


def test_a_part_that_derives_from_another_one_has_its_presets() -> None:
    def chosen(algorithm: Any, env: str) -> dict[str, Any]:
        made = flat(configure("paac", env=env, algorithm=algorithm))
        return {name: value for name, value in made.items() if name != "algorithm"}

    for env in ("catch", "pong", "Pendulum-v1"):
        assert chosen(MyPPO(), env) == chosen("ppo", env)
    made = flat(configure(MyAPPO(), env="CartPole-v1"))
    assert (made["algorithm"], made["env_workers"]) == ("appo", 0)
    assert made["architecture"].endswith(":MyAPPO")


@pytest.mark.parametrize(("name", "workers"), [("impala", 0), ("appo", 1)])
def test_games_of_actors_share_the_cores_except_beside_long_updates(name: str, workers: int) -> None:
    assert flat(configure(name, env="pong"))["env_workers"] == workers


def test_what_is_given_wins() -> None:
    made = values(num_envs=5, learning_rate=0.5, preset="paper")
    assert (made.num_envs, made.learning_rate, made.rollout_length) == (5, 0.5, 5)
    assert values(network="small").network == "small"


def test_parts_count_as_given_with_what_was_written_out() -> None:
    # 0.3 is PPO's own default and not the preset's: what is written out is meant
    made = configure(GALA(learners=3), env="catch", algorithm=PPO(clip_range=0.3), optimizer=RMSPropTF(epsilon=0.1))
    flatly = {"algorithm": "ppo", "optimizer": "rmsprop-tf", "learners": 3, "clip_range": 0.3, "epsilon": 0.1}
    assert made == configure("gala", env="catch", **flatly)
    assert flat(made)["clip_range"] == 0.3
    assert flat(made)["epochs"] == 4  # by the preset, although PPO() alone has 3
    assert flat(configure("gala", env="catch", algorithm=PPO(epochs=3)))["epochs"] == 3


def test_keywords_are_later_than_parts() -> None:
    assert flat(configure(GALA(learners=3), env="catch", learners=5))["learners"] == 5


def test_a_class_is_a_part_with_nothing_written_out() -> None:
    assert configure(GALA, env="catch", algorithm=PPO) == configure("gala", env="catch", algorithm="ppo")  # type: ignore[arg-type]


def test_none_is_left_open() -> None:
    assert settings(seed=None, network=None) == settings()


def test_a_whole_number_will_do_for_a_float() -> None:
    assert values(learning_rate=1).learning_rate == 1


def test_whole_numbers_will_do_for_integers() -> None:
    found = to_dict(settings(steps=1e6, num_envs=np.int64(8), learning_rate=np.float32(0.5), threads=np.float64(2)))
    chosen = found["run"]["steps"], found["architecture"]["num_envs"], found["optimization"]["learning_rate"]
    assert (*chosen, found["run"]["threads"]) == (1_000_000, 8, 0.5, 2)
    assert [type(each) for each in (*chosen, found["run"]["threads"])] == [int, int, float, int]


def test_an_environment_that_is_no_name_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(UserError, match=r"^env None: must be a name, as pong, .* or module:Class"):
        configure("paac", env=nothing)


COUNTS = ["steps", "num_envs", "rollout_length", "epochs", "num_minibatches", "keep"]
ZERO_WILL_DO = ["env_workers", "threads", "anneal_steps", "seed"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *[
            (name, value, f"--{name.replace('_', '-')} {value}: must be at least 1")
            for name in COUNTS
            for value in (0, -1)
        ],
        *[(name, -1, f"--{name.replace('_', '-')} -1: must be at least 0") for name in ZERO_WILL_DO],
        ("seed", 2**31, "--seed 2147483648: must be at most 2,147,483,647"),
        ("learning_rate", 0.0, "--learning-rate 0.0: must be above 0"),
        ("learning_rate", float("nan"), "--learning-rate nan: must be"),
        ("max_grad_norm", 0, "--max-grad-norm 0: must be above 0"),
        ("gamma", 1.5, "--gamma 1.5: must be at most 1"),
        ("gamma", -0.1, "--gamma -0.1: must be at least 0"),
        ("gae_lambda", 2.0, "--gae-lambda 2.0: must be at most 1"),
        ("epsilon", 0.0, "--epsilon 0.0: must be above 0"),
        ("entropy_coef", -1.0, "--entropy-coef -1.0: must be at least 0"),
        ("precision", "fp16", "--precision fp16: must be one of auto, fp32, bf16"),
        (
            "optimizer",
            "lbfgs",
            "--optimizer lbfgs: no such optimizer; available: adam, adagrad, radam, muon, sgd, rmsp",
        ),
        ("preset", "fast", "--preset fast: must be one of tuned, paper"),
        ("steps", 1000.5, "--steps 1000.5: must be of type int"),
        ("steps", "1000", "--steps '1000': must be of type int"),
        ("steps", True, "--steps True: must be of type int"),
        ("network", "natur", "--network natur: no such network; near: nature; available: auto, nips, nature"),
        ("device", "gpu", "--device gpu: no such device; use auto, cpu, cuda or cuda:N"),
        ("device", "meta", "--device meta: not supported; use auto, cpu"),
        ("device", "cuda:99", r"--device cuda:99: this machine has \d+ CUDA devices; use auto or cpu"),
        ("screen_size", 84, "--screen-size 84: not an option of paac, ppo, adam, catch; an Atari game has it"),
        ("preprocessing", "gala", "--preprocessing gala: not an option of paac, ppo, adam, catch"),
        ("learning_rat", 1.0, "unknown option --learning-rat; near: --learning-rate"),
        ("n_steps", 128, "unknown option --n-steps; use --rollout-length"),
        ("policy_kwargs", 64, "unknown option --policy-kwargs; layers come with the network: --network NAME, --hidden"),
        ("net_arch", 64, "unknown option --net-arch; use --hidden-sizes"),
        ("hidden_sizes", "64,x", "--hidden-sizes 64,x: must be whole numbers with commas between them, as 256,256"),
        ("hidden_sizes", [64, 2.5], "--hidden-sizes 64,2.5: must be whole numbers"),
        ("hidden_sizes", (), "--hidden-sizes : must be whole numbers"),
        ("hidden_sizes", (64, 0), "--hidden-sizes 0: must be at least 1"),
        ("activation", "sigmoid", "--activation sigmoid: must be one of tanh, relu, elu, gelu, silu"),
        (
            "config",
            "x.yaml",
            "unknown option --config; gossamer train --config repeats a run, gossamer study takes a file",
        ),
        ("ent_coef", 0.1, "unknown option --ent-coef; use --entropy-coef"),
        ("lr", 0.1, "unknown option --lr; use --learning-rate"),
        ("decay", 0.9, "--decay 0.9: not an option of paac, ppo, adam, catch; rmsprop-a3c, .* have it"),
        (
            "learners",
            2,
            "--learners 2: not an option of paac, ppo, adam, catch; a2c, a3c, gala, pala, impala, appo, gorila and",
        ),
        ("threads", 10**6, "--threads 1000000: must be at most 1,024"),
        ("num_envs", 10**6, "--num-envs 1000000: must be at most 16,384"),
        ("env_workers", 10**6, "--env-workers 1000000: must be at most 1,024"),
    ],
)
def test_bad_values_are_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        task(settings(algorithm="ppo", **{name: value}))


@pytest.mark.parametrize(
    ("architecture", "given", "told"),
    [
        ("gala", {"graph": "0>1,1>2,2>3"}, "--graph 0>1,1>2,2>3: not strongly connected"),
        ("gala", {"graph": "0>1,1>0,2>3,3>2"}, "not strongly connected"),
        ("gala", {"graph": "0>1,1>2,2>0"}, "not strongly connected"),  # member 3 is alone
        ("gala", {"graph": "0>1,1>4,4>0"}, "no member 4; members are 0 to 3"),
        ("gala", {"graph": "rnig"}, "near: ring"),
        ("gala", {"graph": "0>1,1"}, "or edges as in 0>1,1>2,2>0"),
        ("gala", {"learners": 1}, "--learners 1: gossip needs at least two members"),
        ("pala", {"hosts": 1, "learners": 1}, "at least two members"),
        ("gala", {"learners": 0}, "--learners 0: must be at least 1"),
        ("pala", {"hosts": 0}, "--hosts 0: must be at least 1"),
        ("pala", {"interval": 0}, "--interval 0: must be at least 1"),
        ("pala", {"interval": 5}, "must be at most 4, a quarter of --staleness 16"),
        ("paac", {"interval": 4}, "not an option of paac, a2c, adam, catch; gala, pala and sarsa have it"),
        ("gala", {"staleness": -1}, "--staleness -1: must be at least 0"),
        ("gala", {"sync": "never", "staleness": 3}, "not used with --sync never"),
        ("paac", {"staleness": 3}, "--staleness 3: not an option of paac"),
        ("paac", {"graph": "ring"}, "--graph ring: not an option of paac"),
        ("paac", {"learners": 2}, "--learners 2: not an option of paac"),
        ("dqn", {"learners": 2}, "--learners 2: not an option of dqn, adam, catch"),
        ("paac", {"mixing": "uniform"}, "--mixing uniform: not an option of paac"),
        ("gala", {"hosts": 2}, "--hosts 2: not an option of gala"),
        ("gala", {"message_format": "int8"}, "--message-format int8: not an option of gala"),
    ],
    ids=str,
)
def test_options_of_gossip_that_cannot_be_are_refused(architecture: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        program(configure(architecture, env="catch", **given))


@pytest.mark.parametrize("name", ["nowhere:make", "math:nothing", ":make", "math:"])
def test_a_network_that_cannot_be_imported_is_refused_by_name(name: str) -> None:
    with pytest.raises(UserError, match=rf"--network {name}: cannot be imported \(.*\); give module:Name"):
        task(settings(network=name))


def test_what_only_the_other_algorithm_has_is_refused() -> None:
    owners = {"clip_range": "ppo and appo", "normalize_advantage": "ppo and appo", "epochs": "ppo, appo and pqn"}
    for name, told in owners.items():
        with pytest.raises(UserError, match=rf"{flag(name)} .*: not an option of .*a2c.*; {told} have it"):
            settings(**{name: 1})
    told = r"a2c, vtrace, nstep-q, one-step-q and sarsa have it"
    with pytest.raises(UserError, match=rf"--loss-scale 5\.0: not an option of .*ppo.*; {told}"):
        settings(algorithm="ppo", loss_scale=5.0)
    with pytest.raises(UserError, match="--algorithm ppo: PAAC's paper has only a2c"):
        settings(algorithm="ppo", preset="paper")
    assert settings(algorithm="pqn", preset="paper").preset == "paper"  # which has a paper of its own


def test_an_option_of_another_optimizer_is_not_taken_from_a_preset() -> None:
    paper = values("catch-pixels", preset="paper")
    assert (paper.optimizer, paper.epsilon) == ("rmsprop-tf", 0.1)
    assert values("catch-pixels", preset="paper", optimizer="adam").epsilon == 1e-5


def test_a_rollout_that_memory_cannot_hold_is_refused() -> None:
    made = settings(rollout_length=10**6, num_envs=16_000)
    with pytest.raises(UserError, match=r"--rollout-length 1000000: .* take 3,200 GB"):
        check_memory(made, program(made), made.env.factory().make(1).spec)


def test_hosts_of_a_cluster_have_memories_of_their_own() -> None:
    """100 bundles with a million pictures each do not fit into one machine; on a cluster each has its own."""
    made = configure("gorila", env="catch-pixels", bundles=100, buffer_size=1_000_000)
    wired, spec = program(made), made.env.factory().make(1).spec
    for cluster, refused in ((None, True), ("local", True), ("auto", False), ("10.0.0.1:6379", False)):
        with pytest.raises(UserError, match="--buffer-size 1000000: ") if refused else nullcontext():
            check_memory(made, wired, spec, cluster)
    too_much = configure("apex", env="catch-pixels", buffer_size=10**10, replay_shards=2, actors=2)
    with pytest.raises(UserError, match="its steps take"):
        check_memory(too_much, program(too_much), spec, "auto")


def takes(monkeypatch: pytest.MonkeyPatch, made: Config, cluster: str | None = None, *, disk: float = 1e15) -> float:
    """The memory of the smallest machine that the run is not refused on, in GB, to 1 %; the replay folder's disk has
    `disk` bytes."""
    wired, spec = program(made, cluster=cluster), made.env.factory().make(1).spec
    monkeypatch.setattr("gossamer.config.memory.free_space", lambda folder: int(disk))
    low, high = 1e3, 1e16  # bytes: too little, and enough
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        monkeypatch.setattr("gossamer.config.memory.total_memory", lambda there=middle: int(there))
        try:
            check_memory(made, wired, spec, cluster)
            high = middle
        except UserError:
            low = middle
    return high / 1e9


def test_what_does_not_lie_in_the_replay_folder_must_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes 56 bytes, an action of 8, and 1.05 observations of 4 floats, which are on disk. --save-replay has
    three copies of all."""
    options: dict[str, Any] = {"env": "CartPole-v1", "buffer_size": 10**9}
    assert takes(monkeypatch, configure("dqn", **options)) == pytest.approx(80.8, rel=0.02)
    folder = configure("dqn", replay_dir="/big", **options)
    assert takes(monkeypatch, folder) == pytest.approx(64, rel=0.02)
    saved = configure("dqn", replay_dir="/big", save_replay=True, **options)
    assert takes(monkeypatch, saved) == pytest.approx(64 + 3 * 80.8, rel=0.02)
    assert takes(monkeypatch, folder, disk=16.9e9) == pytest.approx(64, rel=0.02)
    monkeypatch.setattr("gossamer.config.memory.total_memory", lambda: 50 * 10**9)
    told = "--buffer-size 1000000000: its steps without their pictures take 64 GB and the machine has 50 GB; use at"
    with pytest.raises(UserError, match=told):
        check_memory(folder, program(folder), folder.env.factory().make(1).spec)
    monkeypatch.setattr("gossamer.config.memory.total_memory", lambda: 10**15)
    monkeypatch.setattr("gossamer.config.memory.free_space", lambda folder: int(16.7e9))
    with pytest.raises(UserError, match="its pictures take 17 GB and --replay-dir /big has 17 GB"):
        check_memory(folder, program(folder), folder.env.factory().make(1).spec)


@pytest.mark.parametrize("architecture", ["r2d2", "paac"])
@pytest.mark.parametrize(("memory", "tensors"), [("lstm", 2), ("gru", 1)])
def test_recurrent_states_count_in_a_memory_of_sequences(
    architecture: str, memory: str, tensors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state before each rollout of 10 steps has 512 floats for each of its tensors."""
    options: dict[str, Any] = {"env": "recall", "algorithm": "r2d2", "buffer_size": 10**8, "rollout_length": 10}
    made = {units: configure(architecture, memory=memory, memory_units=units, **options) for units in (1, 513)}
    small, large = (takes(monkeypatch, each) for each in made.values())
    assert large - small == pytest.approx(10**7 * 512 * 4 * tensors / 1e9, rel=0.03)


def test_recurrent_states_count_in_the_trajectories_that_hosts_of_actors_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"env": "recall", "hosts": 1, "replay_share": 0.5, "replay_size": 10**7}
    made = {units: configure("impala", memory="lstm", memory_units=units, **options) for units in (1, 513)}
    small, large = (takes(monkeypatch, each, "auto") for each in made.values())
    assert large - small == pytest.approx(10**7 * 512 * 4 * 2 / 1e9, rel=0.03)


def test_the_machine_that_starts_a_run_must_hold_a_checkpoint_of_all_replay_memories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The memory of one bundle and its three copies on its host; three copies of those of all bundles here."""
    one = takes(monkeypatch, configure("gorila", env="catch", bundles=1, buffer_size=10**6), "auto")
    saved = {
        bundles: configure("gorila", env="catch", bundles=bundles, buffer_size=10**6, save_replay=True)
        for bundles in (1, 100)
    }
    assert takes(monkeypatch, saved[1], "auto") == pytest.approx(4 * one, rel=0.03)
    assert takes(monkeypatch, saved[100], "auto") == pytest.approx(300 * one, rel=0.03)
    monkeypatch.setattr("gossamer.config.memory.total_memory", lambda: 10 * 10**9)
    with pytest.raises(
        UserError, match=r"--buffer-size 1000000: with --save-replay, a checkpoint of all hosts takes .* leave"
    ):
        check_memory(saved[100], program(saved[100], cluster="auto"), saved[100].env.factory().make(1).spec, "auto")


def test_replayed_rollouts_that_memory_cannot_hold_are_refused() -> None:
    options: dict[str, Any] = {"env": "catch-pixels", "replay_share": 0.5}
    for size, refused in ((10, False), (10**7, True)):
        made = configure("impala", replay_size=size, **options)
        with pytest.raises(UserError, match="--replay-size 10000000") if refused else nullcontext():
            check_memory(made, program(made), made.env.factory().make(1).spec)


def test_rollouts_must_fit_the_gpus_where_they_lie_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    options: dict[str, Any] = {"learner_hosts": 2, "rollout_length": 20, "replay_share": 0.5, "replay_size": 10_000}
    made = {where: configure("impala", env="catch-pixels", device=where, **options) for where in ("cpu", "cuda")}
    spec = made["cpu"].env.factory().make(1).spec
    one = torch.Size(spec.obs_shape).numel() * 21 * 10_000  # bytes that a learner keeps for replay
    for where, count, memory, cluster, refused in (
        ("cpu", 1, one // 2, None, False),
        ("cuda", 1, one * 3, "local", False),
        ("cuda", 1, one, "local", True),  # both hosts share it
        ("cuda", 2, one * 3 // 2, "local", False),
        ("cuda", 2, one // 2, "local", True),
        ("cuda", 2, one // 2, "auto", True),
        ("cuda", 2, one * 3 // 2, "auto", False),
        ("cuda", 0, 0, "auto", False),  # started from a machine without a GPU: nothing is known
    ):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda number, memory=memory: SimpleNamespace(total_memory=memory)
        )
        wired = program(made[where], cluster=cluster)
        told = r"--replay-size 10000 its observations .* the GPUs? ha"
        with pytest.raises(UserError, match=told) if refused else nullcontext():
            check_memory(made[where], wired, spec, cluster)


@pytest.mark.parametrize(
    ("architecture", "options", "device", "used"),
    [
        ("a2c", {"learners": 3}, "cuda", 2),
        ("appo", {"learners": 2}, "cuda", 2),
        ("gala", {"learners": 4}, "cuda", 2),
        ("appo", {}, "cuda", 1),
        ("a2c", {"learners": 3}, "cuda:1", 1),
        ("a3c", {"learners": 3}, "cuda", 1),  # which share one vector
        ("a2c", {"learners": 3}, "cpu", 0),
    ],
)
def test_learners_that_have_their_own_parameters_go_round_over_the_gpus(
    architecture: str, options: dict[str, Any], device: str, used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    properties = SimpleNamespace(total_memory=80 * 10**9, major=9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)
    made = configure(architecture, env="catch", device=device, precision="fp32", **options)
    assert gpus(program(made), None) == used


@pytest.mark.parametrize(("rollouts", "refused"), [(0, False), (10, False), (100, True)])
def test_a_batch_that_the_queue_can_never_fill_is_refused(rollouts: int, refused: bool) -> None:
    options: dict[str, Any] = {"num_envs": 8, "actors": 2, "rollout_length": 5, "steps": 1_000}
    made = configure("impala", env="catch", batch_rollouts=rollouts, **options)
    with pytest.raises(UserError, match=r"--batch-rollouts 100: .* 2,000 steps") if refused else nullcontext():
        check_batch(made, program(made))


def test_workers_must_divide_the_environments_of_each_actor() -> None:
    options: dict[str, Any] = {"env": "CartPole-v1", "num_envs": 16, "actors": 4}
    made, uneven = (configure("impala", env_workers=workers, **options) for workers in (4, 8))
    check_workers(made, program(made))
    with pytest.raises(UserError, match="--env-workers 8: must divide 4, the environments of each actor"):
        check_workers(uneven, program(uneven))


def test_threads_of_envpool_need_not_divide_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EnvPool, "check", lambda env: None)  # it may not be installed
    made = replace(configure("paac", env="catch", num_envs=6, env_workers=4), env=GymOptions("envpool:Pong-v5"))
    check_workers(made, program(made))


@pytest.mark.parametrize(
    ("options", "workers"),
    [
        ({"precision": "fp32"}, 4),  # one actor and one learner on eight cores
        ({"precision": "fp32", "learners": 2}, 2),
        ({"precision": "fp32", "env_workers": 3}, 3),
        ({"precision": "bf16"}, 0),  # when it starts, an actor finds its share of the cores
        ({"precision": "fp32", "hosts": 2}, 0),
        ({"precision": "fp32", "env": "catch"}, 0),  # no native threads
    ],
    ids=str,
)
def test_learners_in_float32_keep_a_core_each(
    options: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.envs.atari.cores", lambda: 8)
    made = program(configure("impala", **{"env": "pong", "actors": 1, "device": "cpu", **options}))
    acting = [envs for worker in made.workers if (envs := role(worker).envs) is not None]
    assert {envs.workers for envs in acting} == {workers}


def test_continuous_actions_are_learned_with_ppo_unless_the_architecture_has_an_algorithm_of_its_own() -> None:
    pytest.importorskip("gymnasium")
    for architecture, algorithm in (("paac", PPO), ("gala", PPO), ("impala", VTrace)):
        assert isinstance(configure(architecture, env="Pendulum-v1").algorithm, algorithm)
    assert isinstance(configure("paac", env="CartPole-v1").algorithm, A2C)


@pytest.mark.parametrize(
    ("env", "given", "message"),
    [
        ("catch", {"memory_units": 64}, "--memory-units 64: has no effect without --memory"),
        ("catch", {"join_vectors": True}, "--join-vectors: has no effect, as catch does not show several vectors"),
        ("catch", {"state_std": True}, "--state-std: has no effect, as the actions of catch are not continuous"),
        ("catch-pixels", {"normalize_observations": True}, "--normalize-observations: .* catch-pixels shows pictures"),
        ("catch", {"reconstruction_coef": 2.0}, "--reconstruction-coef 2.0: has no effect without an auto-encoder"),
        ("counter,recall", {"network": "autoencoder"}, "--network autoencoder: .* counter,recall shows no pictures"),
        (
            "catch",
            {"layer_norm": True, "network": "resnet"},
            "--layer-norm: not available with --network resnet; use auto",
        ),
    ],
)
def test_a_network_option_without_effect_is_refused(env: str, given: dict[str, Any], message: str) -> None:
    made = configure("paac", env=env, **given)
    with pytest.raises(UserError, match=message):
        check_effect(made, made.env.factory().make(1).spec)


def test_network_options_with_an_effect_are_taken() -> None:
    pytest.importorskip("gymnasium")
    for env, given in (("catch", {"memory": "lstm", "memory_units": 64}), ("Pendulum-v1", {"state_std": True})):
        made = configure("paac", env=env, **given)
        check_effect(made, made.env.factory().make(1).spec)


def test_counts_must_fit_each_other() -> None:
    with pytest.raises(
        UserError, match=r"--num-minibatches 7: a batch has only 6 steps \(of 3 environments, --rollout-length 2\)"
    ):
        settings(algorithm="ppo", num_envs=3, rollout_length=2, num_minibatches=7)
    with pytest.raises(UserError, match="--env-workers 5: must divide --num-envs 32"):
        settings("CartPole-v1", env_workers=5)
    assert values(env_workers=5).env_workers == 5  # toys are stepped by nobody but themselves


def test_names_that_are_not_are_answered_with_near_ones() -> None:
    with pytest.raises(UserError, match=r"^--algorithm gala: gala is an architecture: gossamer train gala \.\.\.$"):
        configure("paac", env="catch", algorithm="gala")
    with pytest.raises(UserError, match="unknown architecture 'pac'; near: paac; available: paac"):
        configure("pac", env="catch")
    with pytest.raises(UnknownEnv, match="unknown environment 'cacth'; near: catch"):
        settings("cacth")


def test_spaces_that_are_not_supported_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "envs"))
    with pytest.raises(UnsupportedSpace, match=r"some_envs:words: observations of Text\(.*are not supported"):
        settings("some_envs:words")


def test_a2c_becomes_its_task() -> None:
    made = task(
        settings(
            gamma=0.9,
            gae_lambda=0.8,
            value_coef=0.7,
            entropy_coef=0.6,
            loss_scale=0.5,
            learning_rate=0.4,
            anneal_steps=300,
            anneal_from=0.3,
            final_fraction=0.2,
            entropy_final_fraction=0.4,
            max_grad_norm=0.1,
            rollout_length=11,
            steps=12,
            seed=13,
            threads=3,
            precision="fp32",
            device="cpu",
        )
    )
    assert made.algorithm == A2C(
        gamma=0.9, gae_lambda=0.8, value_coef=0.7, entropy_coef=0.6, entropy_final_fraction=0.4, loss_scale=0.5
    )
    plan = made.optimization
    assert (plan.learning_rate, plan.anneal_steps, plan.anneal_from) == (0.4, 300, 0.3)
    assert (plan.final_fraction, plan.max_grad_norm) == (0.2, 0.1)
    assert (made.rollout_length, made.seed, made.threads, made.device) == (11, 13, 3, "cpu")
    assert (made.network.torso, made.network.dtype) == (auto, torch.float32)
    assert (made.network.input_scale, made.network.centre, made.network.orthogonal) == (1.0, False, True)


def test_ppo_becomes_its_task() -> None:
    given = {
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "value_coef": 0.7,
        "entropy_coef": 0.6,
        "clip_range": 0.5,
        "epochs": 6,
        "num_minibatches": 7,
        "normalize_advantage": False,
    }
    assert task(settings(algorithm="ppo", **given)).algorithm == PPO(**given)


def test_inputs_and_initialisations() -> None:
    def network(**given: Any) -> tuple[float, bool, bool]:
        made = task(settings("catch-pixels", **given)).network
        return made.input_scale, made.centre, made.orthogonal

    assert network(input="background", initialization="orthogonal") == (1 / 64, True, True)
    assert network(input="unit", initialization="uniform") == (1 / 255, False, False)
    assert network(input="raw") == (1.0, False, True)


def test_threads_are_those_of_the_machine_where_none_are_given() -> None:
    assert task(settings("catch-pixels", threads=0)).threads == cores()
    many = configure("pala", env="catch-pixels", hosts=2, learners=3)
    assert (learners(program(many)), task(many).threads) == (6, max(1, cores() // 6))


@pytest.mark.parametrize(
    ("name", "inside", "start", "centred"),
    [
        ("rmsprop-a3c", True, 0.0, False),
        ("rmsprop-tf", True, 1.0, False),
        ("rmsprop-torch", False, 0.0, False),
        ("rmsprop-dqn", True, 0.0, True),
    ],
)
def test_optimisers_by_name(name: str, inside: bool, start: float, centred: bool) -> None:
    made = task(settings(optimizer=name, decay=0.75, epsilon=0.25)).optimization.make(
        [nn.Parameter(torch.ones(1))], 0.5
    )
    assert isinstance(made, RMSProp)
    (group,) = made.param_groups
    assert (group["inside"], group["start"], group["centred"]) == (inside, start, centred)
    assert (group["lr"], group["decay"], group["eps"]) == (0.5, 0.75, 0.25)


@pytest.mark.parametrize(("name", "kind"), [("adam", Adam), ("radam", RAdam)])
def test_adam_by_name(name: str, kind: type[Optimizer]) -> None:
    made = task(settings(optimizer=name, epsilon=0.25)).optimization.make([nn.Parameter(torch.ones(1))], 0.5)
    assert isinstance(made, kind)
    assert (made.defaults["lr"], made.defaults["eps"], made.defaults["betas"]) == (0.5, 0.25, (0.9, 0.999))


def test_a_network_of_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_network.py").write_text(
        "from torch import nn\ndef tiny(shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], 3))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    torso = task(settings(network="my_network:tiny")).network.torso((50,))
    assert torso(torch.zeros(2, 50)).shape == (2, 3)


def test_atari_is_preprocessed_as_asked() -> None:
    pytest.importorskip("ale_py")
    env = task(settings("pong", preprocessing="machado", screen_size=48, frame_stack=1)).env
    assert isinstance(env, Atari)
    assert (env.game, env.preset.plane, env.preset.stack, env.preset.sticky) == ("pong", (48, 48), 1, 0.25)


@pytest.mark.parametrize("env", ["pong", "ALE/Pong-v5"])
def test_the_processes_of_games_are_given_by_keyword_and_by_command(env: str) -> None:
    pytest.importorskip("ale_py")
    words = ["paac", "--env", env, "--env-processes", "3"]
    typed = resolve(compose(words, prog="gossamer train", description="", command=()).choices)
    for config in (typed, configure("paac", env=env, env_processes=3)):
        made = config.env.factory()
        assert isinstance(made, Atari)
        assert made.processes == 3
    with pytest.raises(UserError, match="--env-processes -1: must be at least 0"):
        configure("paac", env=env, env_processes=-1)


def test_precision() -> None:
    for name, expected in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        assert task(settings(precision=name)).dtype(pictures=False) == expected
        assert task(settings(precision=name)).dtype(pictures=True) == expected
    assert task(settings()).network.dtype is None
    assert program(settings(), cluster="auto").workers[0].args[0].network.dtype is None  # each host chooses


def test_hosts_divide_their_own_cores_among_their_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    # 3 hosts of 2 learners. Together in one machine of 12 cores each learner has 2 threads; with 12 cores to a host, 6
    config = configure("pala", env="catch", hosts=3, learners=2, threads=0)
    monkeypatch.setattr("gossamer.task.cores", lambda: 12)
    for cluster, expected in ((None, 2), ("local", 2), ("auto", 6)):
        assert program(config, cluster=cluster).workers[0].args[0].resolved().threads == expected


def test_an_architecture_that_saves_nothing_is_refused() -> None:
    def nothing_saved(what: Task) -> Program:
        wired = Program("nothing saved")
        wired.worker(lambda ctx: None)()
        return wired

    config = replace(settings(), architecture=Mock(program=nothing_saved))
    with pytest.raises(UserError, match=r"saves no worker: .*saved=True"):
        program(config)


def test_the_device_is_chosen_by_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device("auto") == expected
    assert device("cpu") == "cpu"


def test_what_comes_after_a_run_uses_its_gpu_if_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, used in ((0, ("auto", "auto")), (1, ("cuda", "auto")), (2, ("cuda", "cuda:1"))):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert (device_of_run("cuda"), device_of_run("cuda:1")) == used
        assert (device_of_run("auto"), device_of_run("cpu")) == ("auto", "cpu")
    assert task_here(settings(device="cuda:1")).device == "cuda:1"
    assert task_here(settings(device="cuda:1"), "cpu").device == "cpu"


def test_hosts_of_a_cluster_choose_their_devices_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for given in ("auto", "cpu", "cuda"):
        assert program(settings(device=given), cluster="auto").workers[0].args[0].device == given
    with pytest.raises(UserError, match=r"^--device cuda:1: each host .* its own GPUs; use auto, cpu or cuda$"):
        program(settings(device="cuda:1"), cluster="auto")
    assert program(settings(device="cuda:1")).workers[0].args[0].device == "cuda:1"


def test_hosts_need_a_gpu_for_auto_where_this_machine_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        wired = program(settings(device="auto", precision="fp32"), cluster="auto")
        assert wired.hosts["machine"].gpus == there
        # a host that has reserved none would see one all the same, and use that of another program
        assert wired.workers[0].args[0].device == ("auto" if there else "cpu")
    assert program(settings(device="cuda", precision="fp32"), cluster="auto").workers[0].args[0].device == "cuda"


def test_settings_become_the_architecture_s_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(settings(num_envs=6, env_workers=3, device="cpu"))
    assert made.workers[0].kwargs == {"envs": Envs(6, 3)}
    assert made.hosts["machine"].gpus == 0
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert program(settings(device="cuda:0")).hosts["machine"].gpus == 1


def test_ale_ids_have_preprocessing_of_their_own() -> None:
    pytest.importorskip("ale_py")
    made = configure("paac", env="ALE/Pong-v5", screen_size=42, frame_stack=2)
    assert made.env == AleOptions("ALE/Pong-v5", 42, frame_stack=2)
    assert made.env.factory() == Atari("pong", replace(GYMNASIUM, size=42, stack=2))
    with pytest.raises(UserError, match=r"--preprocessing gala: not an option of .*ALE/Pong-v5; an Atari game has it"):
        configure("paac", env="ALE/Pong-v5", preprocessing="gala")


def test_environments_that_fail_can_be_restarted() -> None:
    assert configure("paac", env="CartPole-v1").env.factory() == Gym("CartPole-v1", on_error="fail")
    assert configure("paac", env="CartPole-v1", on_env_error="restart").env.factory() == Gym(
        "CartPole-v1", (), "restart"
    )
    with pytest.raises(
        UserError, match=r"--on-env-error restart: not an option of .*; a Gymnasium id or factory has it"
    ):
        configure("paac", env="catch", on_env_error="restart")


def test_masks_are_used_where_the_environment_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "envs"))
    for env, gives in {
        "Taxi-v4": True,  # info["action_mask"]
        "CartPole-v1": False,
        "more_envs:two_doors": True,
        "more_envs:doors_in_observation": False,  # the observation has the mask, whatever the option says
        "more_envs:MaskedBox": False,  # continuous actions cannot be masked
        "some_envs:FailsToStart": False,  # the run will report it
    }.items():
        assert values(env).action_masks is gives, env
        assert settings(env).env.factory().masks is gives  # type: ignore[attr-defined]
    assert values("Taxi-v4", action_masks=False).action_masks is False
    assert values("CartPole-v1", action_masks=True).action_masks is True


def test_the_last_action_and_reward_are_observed_if_wanted() -> None:
    assert task(settings("CartPole-v1")).env == Gym("CartPole-v1")
    assert task(settings("CartPole-v1", last_action_reward=True)).env == LastActionReward(Gym("CartPole-v1"))


def test_the_treatment_of_actions_out_of_range_reaches_the_environment() -> None:
    env = settings("Pendulum-v1", action_bounds="squash").env.factory()
    assert env.make(1).spec.actions == Box((-2.0,), (2.0,), "squash")
    with pytest.raises(UserError, match="--action-bounds wrap: must be one of clip, squash, none"):
        settings("Pendulum-v1", action_bounds="wrap")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"replay_size": 50}, "--replay-size 50: has no effect without --replay-share"),
        ({"surrogate": "impact"}, "--surrogate impact: needs a target network; add --target-period BATCHES"),
        (
            {"parallel_loading": True},
            "--parallel-loading: has no effect without --replay-share or --hosts (--no-parallel-loading leaves it out)",
        ),
    ],
)
def test_options_of_appo_that_lack_another_one(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
        configure("appo", env="catch", **options)
    assert configure("appo", env="catch", replay_share=0.5, target_period=2, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"group_size": 4, "share": 0.1}, "--share 0.1: has no effect with one group of all learners, .*"),
        ({"group_size": 4, "staleness_decay": 1.0}, "--staleness-decay 1.0: has no effect with one group .*"),
        ({"staleness": 0.0, "staleness_decay": 1.0}, "--staleness-decay 1.0: has no effect with --staleness 0, .*"),
    ],
)
def test_options_of_gossip_that_have_no_effect(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"^{told}$"):
        configure("gala", env="catch", learners=4, **options)
    assert configure("gala", env="catch", learners=4, **{**options, "group_size": 2, "staleness": 8.0})


@pytest.mark.parametrize(
    ("architecture", "options", "told"),
    [
        ("paac", {}, False),
        ("paac", {"normalize_returns": False}, True),
        ("a3c", {"algorithm": "a2c"}, True),
        ("a3c", {"algorithm": "one-step-q"}, False),  # rescales values
        ("r2d2", {"steps": 500_000}, False),  # always does
        ("sarsa", {}, True),
    ],
)
def test_returns_of_games_on_no_common_scale_are_told(architecture: str, options: dict[str, Any], told: bool) -> None:
    assert (unscaled(configure(architecture, env="counter,recall", **options)) is not None) == told
    assert unscaled(configure(architecture, env="counter", **options)) is None


def test_batches_are_assembled_ahead_where_something_is_copied_and_there_is_time_for_it() -> None:
    def loads(name: str, **given: Any) -> bool:
        made: bool = flat(configure(name, **{"env": "catch", **given}))["parallel_loading"]
        return made

    for name in ("impala", "appo"):
        assert not loads(name)
        assert loads(name, replay_share=0.5)
        assert loads(name, hosts=1)
        assert not loads(name, hosts=1, depth=1)
        assert not loads(name, hosts=1, parallel_loading=False)
        with pytest.raises(UserError, match=r"^--parallel-loading: has no effect with --depth 1 \("):
            configure(name, env="catch", hosts=1, depth=1, parallel_loading=True)
    assert loads("appo", env="catch-pixels", preset="paper", replay_share=0.5)


def test_a_run_from_before_parallel_loading_goes_on_without_it() -> None:
    stored = to_dict(configure("appo", env="catch", replay_share=0.5))
    assert stored["architecture"].pop("parallel_loading") is True
    made, notes = from_dict(stored)
    assert flat(made)["parallel_loading"] is False
    assert notes == ["architecture.parallel_loading is missing: False, as before this option existed"]


def test_a_part_that_was_copied_has_its_defaults_given_and_is_not_refused_for_them() -> None:
    assert configure(replace(APPO(), num_envs=32), env="catch").architecture.replay_share == 0
    changed = replace(PPO(), clip_range=0.1)
    assert configure("paac", env="catch", algorithm=changed, anneal_steps=0).algorithm.entropy_final_fraction == 1


def test_weights_along_a_rollout_are_at_most_those_of_a_step() -> None:
    with pytest.raises(UserError, match=r"^--c-bar 3: must be at most --rho-bar 1$"):
        configure("impala", env="catch", c_bar=3.0)
    assert configure("impala", env="catch", c_bar=3.0, rho_bar=3.0).algorithm.gamma
    assert configure("impala", env="catch", rho_bar=0.5).algorithm.gamma  # the default of c-bar is no obstacle


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"action_bounds": "clip"}, "--action-bounds clip: the actions of CartPole-v1 are not continuous"),
        ({"anneal_from": 0.5, "anneal_steps": 0}, "--anneal-from 0.5: has no effect with --anneal-steps 0"),
        ({"anneal_from": 0.5, "final_fraction": 1.0}, "--anneal-from 0.5: has no effect with --final-fraction 1"),
        (
            {"entropy_final_fraction": 0.1, "anneal_steps": 0},
            "--entropy-final-fraction 0.1: has no effect with --anneal-steps 0",
        ),
        (
            {"entropy_final_fraction": 0.1, "entropy_coef": 0.0},
            "--entropy-final-fraction 0.1: has no effect with --entropy-coef 0",
        ),
        ({"final_fraction": 0.5, "anneal_steps": 0}, "--final-fraction 0.5: has no effect with --anneal-steps 0"),
        ({"eval_episodes": 5}, "--eval-episodes 5: no evaluations without --eval-every STEPS"),
        ({"eval_exact": True}, "--eval-exact: no evaluations without --eval-every STEPS"),
        ({"eval_protocol": "noop", "eval_every": 0}, "--eval-protocol noop: no evaluations without --eval-every STEPS"),
    ],
)
def test_an_option_without_effect_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"^{told}$"):
        settings("CartPole-v1", **options)


def test_machado_s_actions_cannot_be_fewer() -> None:
    told = "--no-full-action-space: has no effect with --preprocessing machado, which has all 18 actions; leave it out"
    with pytest.raises(UserError, match=told):
        settings("pong", preprocessing="machado", full_action_space=False)
    assert values("pong", preprocessing="machado").preprocessing == "machado"


@pytest.mark.parametrize(
    ("architecture", "options", "told"),
    [
        ("ga3c", {"most": 4}, "--most 4: has no effect without --adjust-seconds"),
        (
            "pala",
            {"hosts": 1, "message_format": "int8"},
            "--message-format int8: has no effect with --hosts 1, whose members share memory",
        ),
        (
            "a3c",
            {"hosts": 2, "device": "cuda"},
            "--device cuda: the hosts of a3c share host memory, and compute on the CPU; add --shards",
        ),
    ],
)
def test_an_option_of_an_architecture_without_effect_is_refused(
    architecture: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(told)}$"):
        configure(architecture, env="catch", **options)


def test_the_number_of_environments_is_raised_to_a_multiple_of_large_shares() -> None:
    assert flat(configure("paac", env="counter:700,recall:299"))["num_envs"] == 999
