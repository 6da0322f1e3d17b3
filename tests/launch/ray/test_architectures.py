"""Architectures on Ray, as the command line runs them."""

from __future__ import annotations

import pytest
from some_programs import Watcher

from gossamer.config import settings, wiring
from gossamer.launch.ray.launcher import Ray
from gossamer.task import Report

pytestmark = pytest.mark.ray
QUICK = Ray(call_seconds=2.0, stop_seconds=2.0)


@pytest.mark.parametrize("architecture", wiring.ARCHITECTURES)
def test_every_architecture_runs_unchanged(architecture: str) -> None:
    given = {"architecture": architecture, "env": "catch", "num_envs": 4, "steps": 200, "threads": 1}
    program, watcher = wiring.program(settings.resolve(given)), Watcher()
    QUICK(program, watcher)
    reports = [record for _, record in watcher.records if isinstance(record, Report)]
    assert max(report.steps for report in reports) >= 200 / len(program.crew)
    assert set(watcher.states) <= {copy.name for copy in program.crew}
    assert watcher.states
