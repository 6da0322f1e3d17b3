"""Before a run is written: how often its program is wired and its environment made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from gossamer import cli
from gossamer.architectures.paac import PAAC
from gossamer.config.resolve import configure
from gossamer.system.errors import UserError
from gossamer.training import experiment
from gossamer.training.dry_run import dry_run


class Counted(gymnasium.Env[Any, Any]):
    """Counts its instances."""

    made: ClassVar[int] = 0
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, False, False, {}


ENV = f"{__name__}:Counted"


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "made", 0)


def counting(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def counted(*args: Any) -> Any:
        calls.append("call")
        return function(*args)

    return counted


@pytest.mark.usefixtures("_counted")
@pytest.mark.parametrize("cluster", [None, "local"])
def test_the_program_is_wired_once_to_count_its_workers_and_once_resolved(
    cluster: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(PAAC, "program", counting(PAAC.program, calls))
    config = configure("paac", env=ENV)
    dry_run(config, cluster)
    # of environments: one for what defaults depend on, one as the configuration makes it
    assert (len(calls), Counted.made) == (2, 2)


@pytest.mark.usefixtures("_counted")
@pytest.mark.parametrize("command", ["train", "bench"])
def test_a_command_makes_one_environment_to_find_its_options(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def stop(*args: Any) -> None:
        raise UserError(f"{Counted.made} made")

    monkeypatch.setattr(experiment, "dry_run", stop)
    monkeypatch.setattr("gossamer.tools.bench.try_network", stop)
    monkeypatch.setattr(sys, "argv", ["gossamer", command, "paac", "--env", ENV])
    assert cli.main() == 2
    assert "1 made" in capfd.readouterr().err
