"""`--alternating` under every architecture: the same environments, steps and episodes, in two groups."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from some_parts import Watcher

from gossamer import cli
from gossamer.config.build import program
from gossamer.config.names import ARCHITECTURES
from gossamer.config.resolve import configure
from gossamer.launch.simulation import Simulation
from gossamer.loops.roles import role


@pytest.mark.parametrize(
    ("name", "given"),
    [*((name, {}) for name in ARCHITECTURES), ("impala", {"hosts": 2, "actors": 2}), ("gorila", {"actors": 2})],
    ids=str,
)
def test_every_environment_of_every_actor_plays(name: str, given: dict[str, int]) -> None:
    options: dict[str, Any] = {"env": "catch", "num_envs": 8, "rollout_length": 9, "threads": 1, **given}
    made = configure(name, alternating=True, **options)
    wired = program(made)
    acting = [copy.name for copy in wired.crew if role(copy.node).envs]
    (count,) = {envs.count for copy in wired.crew if (envs := role(copy.node).envs)}
    watcher = ByWorker(steps=len(acting) * count * 9 * 3)
    Simulation(1)(wired, watcher)
    assert sum(report.steps for report in watcher.records) >= watcher.budget.total
    for worker in acting:  # episodes of Catch have 9 steps, as rollouts have here
        rollouts = watcher.steps[worker] // (count * 9)
        assert watcher.played[worker] == Counter({env: rollouts for env in range(count) if rollouts})


class ByWorker(Watcher):
    """Keeps the steps of each worker, and how often each of its environments has ended an episode."""

    def __init__(self, *, steps: int) -> None:
        super().__init__(steps=steps)
        self.steps, self.played = Counter[str](), defaultdict[str, Counter[int]](Counter)

    def report(self, worker: str, record: object) -> None:
        before = len(self.records)
        super().report(worker, record)
        for report in self.records[before:]:
            self.steps[worker] += report.steps
            self.played[worker].update(episode.index for episode in report.episodes)


REFUSED = {
    "paac --env catch --num-envs 5": "--alternating: each actor has 5 of the --num-envs environments, which are not 2 "
    "equal groups; 4 or 6 are",
    "gala --env catch --num-envs 1": "--alternating: each actor has 1 of the --num-envs environments, which are not 2 "
    "equal groups; 2 are",
    "impala --env catch --num-envs 12 --actors 4": "--alternating: each actor has 3 of the --num-envs environments",
    "paac --env CartPole-v1 --num-envs 8 --env-workers 8": "--env-workers 8: must divide 4, the environments of each "
    "group of --alternating",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_two_groups_is_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gossamer", "train", *words.split(), "--alternating"])
    assert cli.main() == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"gossamer: {REFUSED[words]}")
    assert not list(tmp_path.iterdir())
