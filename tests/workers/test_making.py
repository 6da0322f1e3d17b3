"""What is told while other processes make environments."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.envs.base import VectorEnv
from gossamer.envs.numbered import Numbered
from gossamer.envs.toy import Catch
from gossamer.task import Activity
from gossamer.workers import making
from gossamer.workers.making import await_made


class Slow:
    """Three environments; each number in `counts` is seen once."""

    def __init__(self, *counts: int) -> None:
        env = Catch().make(3)
        self.spec, self.num_envs = env.spec, env.num_envs
        self.reset, self.step, self.frames, self.close = env.reset, env.step, env.frames, env.close
        self._counts = list(counts)

    def made(self) -> int:
        return self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]


class Place:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def report(self, record: Any) -> None:
        self.told.append(record)


@pytest.mark.parametrize(("quiet", "told"), [(0.0, [3, 4]), (60.0, [])])
def test_numbers_are_told_when_they_change_after_a_while(
    monkeypatch: pytest.MonkeyPatch, quiet: float, told: list[int]
) -> None:
    monkeypatch.setattr(making, "QUIET_SECONDS", quiet)
    monkeypatch.setattr(making, "LOOK_SECONDS", 0.0)
    # 2 + 1, 2 + 1, 2 + 2, 3 + 3 of 6 environments; the second group is numbered from 3 on, and Catch is never awaited
    groups: list[VectorEnv] = [Slow(2, 2, 2, 3), Numbered(Slow(1, 1, 2, 3), 3), Catch().make(1)]
    await_made(place := Place(), groups)  # type: ignore[arg-type]
    assert place.told == [Activity(f"making environments: {count} of 6") for count in told]
