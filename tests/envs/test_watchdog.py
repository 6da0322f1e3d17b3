"""An environment that does not answer is named, seldom but surely."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import some_envs

from gossamer.envs import watchdog, workers
from gossamer.envs.base import InTheMaking, VectorEnv, Watchable
from gossamer.envs.gym import Custom
from gossamer.envs.local import Local
from gossamer.envs.single import EnvSource
from gossamer.envs.toy import Catch
from gossamer.envs.watchdog import Silence, Watchdog
from gossamer.system.errors import EnvironmentFailed


class Asked:
    """Stands for environments; the test says which of them is being asked."""

    def __init__(self, *calls: tuple[int, int]) -> None:
        self.now = list(calls)

    def calls(self) -> Sequence[tuple[int, int]]:
        return self.now


def watched(env: object) -> tuple[Watchdog, list[str]]:
    told: list[str] = []
    dog = Watchdog("mine", lambda silence: told.append(str(silence)))
    dog.watch(env)  # type: ignore[type-var]
    return dog, told


def looks(dog: Watchdog, *seconds: float) -> None:
    for now in seconds:
        dog.look(now)


def test_it_tells_after_half_a_minute_and_then_each_time_after_twice_as_long() -> None:
    dog, told = watched(Asked((3, 17)))
    looks(dog, *range(0, 200, 10))
    assert told == [f"environment 3 of mine has not responded for {seconds} s" for seconds in (30, 60, 120)]


def test_it_tells_that_one_has_answered_after_all() -> None:
    env = Asked((3, 17))
    dog, told = watched(env)
    looks(dog, 0, 40)
    env.now = [(4, 18)]
    looks(dog, 50, 79)
    assert told[1:] == ["environment 3 of mine has responded after 50 s"]
    looks(dog, 80)
    assert told[2:] == ["environment 4 of mine has not responded for 30 s"]


def test_one_that_answers_each_time_or_is_not_asked_is_no_news() -> None:
    env = Asked((0, 0), (-1, 9))
    dog, told = watched(env)
    for now in range(0, 1000, 25):
        env.now[0] = (0, now)
        dog.look(now)
    assert told == []


def test_the_making_of_environments_is_watched_too() -> None:
    told: list[str] = []
    dog = Watchdog("mine", lambda silence: told.append(str(silence)))
    looks(dog, 0, 31)
    dog.watch(Catch().make(1))  # which does not say what it asks
    looks(dog, 100, 200)
    assert told == ["an environment of mine is being created and has not responded for 31 s"]


class Heard:
    """What a watchdog told, and whether it did."""

    def __init__(self) -> None:
        self.first, self.over = threading.Event(), threading.Event()
        self.silence: Silence | None = None

    def __call__(self, silence: Silence) -> None:
        self.silence = silence
        (self.over if silence.over else self.first).set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "HANG_SECONDS", 0.1)
    monkeypatch.setattr(workers, "CLOSE_SECONDS", 0.1)
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def two_steps(env: VectorEnv) -> None:
    env.reset(seed=0)
    with suppress(EnvironmentFailed):
        for _ in range(2):
            env.step(np.ones(env.num_envs, np.int64))


@pytest.mark.usefixtures("impatient")
def test_a_thread_looks_at_environments_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(some_envs.Hangs, "released", threading.Event())
    monkeypatch.setattr(some_envs.Hangs, "count", 0)
    heard = Heard()
    with Watchdog("mine", heard) as dog:
        env = dog.watch(Custom("some_envs:Hangs").make(2))
        stepping = threading.Thread(target=two_steps, args=(env,), daemon=True)
        stepping.start()
        while heard.silence is None or heard.silence.index != 1:  # a busy machine may make others slow
            heard.first.clear()
            assert heard.first.wait(timeout=30)
        some_envs.Hangs.released.set()
        assert heard.over.wait(timeout=30)
        stepping.join()


def test_its_thread_ends_with_the_context() -> None:
    with Watchdog("mine", Heard()):
        assert "watchdog of mine" in {thread.name for thread in threading.enumerate()}
    assert "watchdog of mine" not in {thread.name for thread in threading.enumerate()}


def test_worker_processes_are_asked_nothing_between_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    env = Custom("some_envs:Walk").make(4, workers=2)
    assert isinstance(env, Watchable)
    assert isinstance(env, InTheMaking)
    with closing(env):
        while env.made() < 4:  # until then each process asks one of its environments
            time.sleep(0.01)
        assert [index for index, _ in env.calls()] == [-1, -1]
        env.reset(seed=0)
        assert [index for index, _ in env.calls()] == [-1, -1]
        env.step(np.ones(4, np.int64))
        assert [index for index, _ in env.calls()] == [-1, -1]


@pytest.mark.usefixtures("impatient")
def test_a_thread_looks_at_environments_of_worker_processes() -> None:
    heard = Heard()
    with Watchdog("mine", heard) as dog:
        env = dog.watch(Custom("some_envs:SecondProcessHangs").make(4, workers=2))
        stepping = threading.Thread(target=two_steps, args=(env,), daemon=True)
        stepping.start()
        while heard.silence is None or heard.silence.index != 3:  # its start may take longer than we wait here
            heard.first.clear()
            assert heard.first.wait(timeout=30)
        env.close()  # kills them
        stepping.join()


def test_resets_screens_and_closing_are_watched() -> None:
    asked = list[int]()

    class Asks(gymnasium.Env[Any, Any]):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)
        render_mode = "rgb_array"

        def _note(self) -> None:
            asked.append(local.calls()[0][0])

        def reset(self, **given: Any) -> Any:
            self._note()
            return np.zeros(1, np.float32), {}

        def render(self) -> Any:
            self._note()
            return np.zeros((2, 2, 3), np.uint8)

        def close(self) -> None:
            self._note()

    local = Local(EnvSource("asks", Asks), 3)
    for call in (lambda: local.reset(0), local.frames, local.close):
        call()
        assert asked == [0, 1, 2]
        assert local.calls()[0][0] == -1
        asked.clear()
