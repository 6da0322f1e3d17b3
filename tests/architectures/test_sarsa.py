"""Parallel Sarsa: agents that exchange what has changed most, on one host and on several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task
from some_runs import learned

import gossamer
from gossamer.algorithms import SarsaLambda
from gossamer.architectures import ParallelSarsa
from gossamer.config.resolve import configure
from gossamer.launch.simulation import Network, Simulation
from gossamer.launch.threads import threads
from gossamer.system.errors import UserError

HOSTS = {"threads": {}, "two hosts": {"hosts": 2, "learners": 2}}


@pytest.mark.parametrize("given", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("launch", [threads, Simulation(2, Network(latency=0.01))], ids=["threads", "simulation"])
def test_all_agents_have_equal_parameters_after_an_exchange_of_all(launch: Any, given: dict[str, Any]) -> None:
    """Four agents of 10 updates, of which the last is an exchange; with share 1 it is an average."""
    watcher = Watcher(steps=4 * 10 * 8)
    task = a_task(algorithm=SarsaLambda(), optimizer="sgd", rate=0.1)
    launch(ParallelSarsa(num_envs=2, interval=5, share=1.0, **given).program(task), watcher)
    states = [state for name, state in watcher.saved.items() if name.startswith("act_and_learn")]
    first, *others = [state["learner"]["model"] for state in states]
    assert len(others) == 3
    for other in others:
        for name in first:
            if name != "traces._extra_state":
                torch.testing.assert_close(other[name], first[name], atol=1e-6, rtol=1e-5)
        assert not torch.equal(other["traces._extra_state"], first["traces._extra_state"])


def test_the_bytes_of_messages_are_counted(tmp_path: Path) -> None:
    # 16 updates of 4 agents of 1 step, an exchange after every 4th: 4 * 4 * 3 messages
    sent = {}
    for share in (0.1, 1.0):
        run = gossamer.train(
            "sarsa", env="MountainCar-v0", rollout_length=1, steps=64, interval=4, share=share, log="none",
            run_dir=tmp_path / str(share),
        )  # fmt: skip
        sent[share] = json.loads((run.directory / "gossip.json").read_text())["traffic"]
    size = 8 * 81 * 3 + 8  # parameters: 8 grids of 9 x 9 tiles for each of 3 actions, a multiple of 16
    assert sent[1.0]["sent"] == sent[0.1]["sent"] == 48
    assert sent[1.0]["sent_bytes"] == 48 * 4 * size
    assert sent[0.1]["sent_bytes"] == 48 * 8 * round(0.1 * size)  # each with its index


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"learners": 1}, "--learners 1: an exchange needs at least two"),
        ({"share": 0.0}, "--share 0.0: must be above 0"),
        ({"share": 1.2}, "--share 1.2: must be at most 1"),
        ({"share": 1.0, "select": "random"}, "--select random: has no effect with --share 1"),
        ({"env": "Pendulum-v1"}, "--algorithm sarsa-lambda: Pendulum-v1 has 1 continuous actions.* use a2c, ppo"),
        ({"env": "CartPole-v1", "network": "tiles"}, "--network tiles: .*finite bounds: use mlp or auto"),
        ({"env": "catch-pixels", "network": "tiles"}, "--network tiles: .*finite bounds: use mlp or auto"),
        ({"env": "MountainCar-v0", "network": "tiles", "algorithm": "a2c"}, "--network tiles: .*action values only"),
        ({"tilings": 4}, "--tilings 4: has no effect without --network tiles"),
    ],
    ids=str,
)
def test_bad_input_gets_one_line(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as error:
        gossamer.train("sarsa", run_dir=tmp_path / "run", **{"env": "catch", **given})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"select": "changed"}, "--select changed: each learner must hear .* --graph complete --sync lock-step"),
        ({"select": "changed", "graph": "complete"}, "--sync lock-step, or --select rotation"),
        ({"mixing": "push-sum"}, "--share 0.2: --mixing push-sum"),
        (
            {"select": "changed", "graph": "complete", "sync": "lock-step", "message_format": "bf16"},
            "--message-format bf16: .* with --select changed; add --error-feedback",
        ),
        ({"share": 1.0, "error_feedback": True}, "--error-feedback: has no effect with --message-format fp32"),
        ({"share": 1.0, "staleness_decay": 0.5, "mixing": "push-sum"}, "--staleness-decay 0.5: --mixing push-sum"),
        ({"staleness_decay": 0.5, "sync": "lock-step"}, "--staleness-decay 0.5: has no effect with --sync lock-step"),
        ({"outer_momentum": 1.0}, "--outer-momentum 1.0: must be below 1"),
        ({"outer_learning_rate": 0.0}, "--outer-learning-rate 0.0: must be above 0"),
        ({"interval": 8}, "--interval 8: must be at most 4, .* or give --staleness 32"),
    ],
    ids=str,
)
def test_gossip_refuses_what_does_not_work_together(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told):
        gossamer.train("pala", env="catch", run_dir=tmp_path / "run", **{"share": 0.2, **given})
    assert not (tmp_path / "run").exists()


def test_linear_values_of_few_bounded_numbers_are_the_default_and_give_way_to_another_network() -> None:
    def found(**given: Any) -> tuple[str, float, int]:
        made = configure("sarsa", env="MountainCar-v0", **given)
        return made.network.torso, made.optimization.learning_rate, made.architecture.num_envs  # type: ignore[attr-defined]

    assert found() == ("tiles", 0.2 * 4**0.5, 1)  # one agent's rate times the root of the number of agents
    assert found(hosts=2, learners=8) == ("tiles", 0.2 * 16**0.5, 1)
    assert found(network="mlp")[:2] == ("mlp", 0.02 * 4**0.5)
    assert found(action_masks=True)[0] == "auto"


@pytest.mark.long
def test_mountain_car_is_learned_with_the_default_settings(tmp_path: Path) -> None:
    learned(tmp_path, "sarsa", env="MountainCar-v0", stop_at_return=-120.0, least=-120.0)


@pytest.mark.long
@pytest.mark.parametrize("given", HOSTS.values(), ids=HOSTS)
def test_catch_is_learned_with_the_default_settings(given: dict[str, Any], tmp_path: Path) -> None:
    learned(tmp_path, "sarsa", steps=150_000, **given)
