"""Plays with the newest checkpoint of a run and writes what happens to standard output, one JSON object a line.

A process of its own (`python -m gossamer.page.playing RUN_DIR`) of low priority, started by `player`. It ends when its
standard input does."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from gossamer.config.build import environment, observed, task
from gossamer.config.config import Config
from gossamer.data import Tree
from gossamer.envs.base import EnvFactory, VectorEnv
from gossamer.envs.games import each_game
from gossamer.evaluation.evaluate import load_policy, under
from gossamer.evaluation.members import AVERAGE
from gossamer.evaluation.video import STEPS_A_SECOND
from gossamer.nn.memory import reset
from gossamer.page.pictures import action, observation, picture
from gossamer.policy import NetworkPolicy
from gossamer.storage.checkpoint import Checkpoint, Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG
from gossamer.storage.directory import load_config
from gossamer.storage.files import to_json
from gossamer.system.errors import DamagedCheckpoint, UserError
from gossamer.system.processes import give_way

LOOK_SECONDS = 2.0  # between two looks for a newer checkpoint
PAUSE_SECONDS = 0.7  # between two games
NONE_YET = "no checkpoint yet: the agent plays as soon as there is one"


class Game:
    """Environments, the policy that plays in them, and the running game: of several games one after the other."""

    def __init__(self, config: Config) -> None:
        """Raises `UserError` where the environment cannot be made."""
        self._task = task(config.with_run(device="cpu", threads=1))
        factory, _ = under(environment(config))
        made = {name: _environment(observed(one, config)) for name, one in each_game(factory).items()}
        seed = time.time_ns() % 2**31
        self._waiting = deque((name, *of, of[0].reset(seed)) for name, of in made.items())  # the next one first
        self._name, self._env, self._no_screen, self._obs = self._waiting.popleft()
        self._several = len(made) > 1
        self._memory: Tree = {}
        self._score, self._steps, self._number = 0.0, 0, 1

    def close(self) -> None:
        """Close the environments."""
        for env in (self._env, *(env for _, env, _, _ in self._waiting)):
            env.close()

    def policy(self, checkpoint: Checkpoint) -> NetworkPolicy:
        """The average of the checkpoint's members."""
        policy = load_policy(checkpoint, self._task, self._env.spec, member=AVERAGE, greedy=False, seed=0)
        self._memory = self._memory or policy.initial_state(1)
        return policy

    def step(self, policy: NetworkPolicy) -> tuple[dict[str, Any], bool]:
        """Take one step. Return what was seen and done, and whether the game is over: the next one has then begun."""
        answer, self._memory = policy(torch.from_numpy(self._obs), self._memory)
        shown = {
            "screen": None if self._no_screen else picture(self._env.frames()[0]),
            "no_screen": self._no_screen,
            "observation": observation(self._env.spec, self._obs[0]),
            "action": action(self._env.spec, answer),
            "value": round(float(answer.value[0]), 4),
        }
        step = self._env.step(answer.action.numpy())
        self._obs, self._score, self._steps = step.obs, self._score + float(step.score[0]), self._steps + 1
        shown |= {"score": self._score, "steps": self._steps, "game": self._number}
        shown |= {"env": self._name} if self._several else {}
        over = bool(step.over[0])
        if over:
            self._memory = reset(self._memory, torch.from_numpy(step.over)) if self._memory else {}
            self._score, self._steps, self._number = 0.0, 0, self._number + 1
            self._waiting.append((self._name, self._env, self._no_screen, self._obs))
            self._name, self._env, self._no_screen, self._obs = self._waiting.popleft()
        return shown, over


def _environment(factory: EnvFactory) -> tuple[VectorEnv, str]:
    """One environment that renders, or else one that does not, and why."""
    try:
        env = factory.make(1, workers=1, render=True)
        env.reset(0)
        env.frames()
    except (UserError, RuntimeError) as error:
        return factory.make(1, workers=1), str(error)
    return env, ""


def play(directory: Path) -> Iterator[tuple[dict[str, Any], float]]:
    """Play without end: what happens, and how many seconds to show it."""
    store, checkpoint, looked = Store(directory / CHECKPOINTS), None, float("-inf")
    version, game, policy = _version(directory), Game(load_config(directory, lambda text: None)), None
    give_way()  # from here on: what was loaded until now had to be waited for
    while True:
        if time.monotonic() - looked >= LOOK_SECONDS:
            if version != (version := _version(directory)):  # another run: `train --overwrite`
                game.close()
                game, policy, checkpoint = Game(load_config(directory, lambda text: None)), None, None
            looked, newest = time.monotonic(), _newest(store)
            if newest is not None and (checkpoint is None or newest.path != checkpoint.path):
                policy, checkpoint = _loaded(game, newest) or policy, newest
        if policy is None or checkpoint is None:
            yield {"note": NONE_YET}, LOOK_SECONDS
            continue
        shown, over = game.step(policy)
        shown |= {"checkpoint": checkpoint.path.name, "trained": checkpoint.steps, "over": over}
        yield shown, PAUSE_SECONDS if over else 1 / STEPS_A_SECOND


def _version(directory: Path) -> tuple[int, int]:
    """What tells the `config.json` of one run from that of another."""
    found = (directory / CONFIG).stat()
    return found.st_ino, found.st_mtime_ns


def _newest(store: Store) -> Checkpoint | None:
    """The newest checkpoint; `UserError` for a link that leads out of the run directory."""
    checkpoints = store.all()
    if checkpoints and not checkpoints[-1].path.resolve().is_relative_to(store.directory.parent.resolve()):
        raise UserError(f"{checkpoints[-1].path}: is a link that leads out of the run directory")
    return checkpoints[-1] if checkpoints else None


def _loaded(game: Game, checkpoint: Checkpoint) -> NetworkPolicy | None:
    """The policy of a checkpoint; None if the run has removed it meanwhile, as there is a newer one."""
    try:
        return game.policy(checkpoint)
    except DamagedCheckpoint:
        if checkpoint.path.exists():
            raise
        return None


def main(directory: Path) -> None:
    """Play until standard input ends. An error is the last line that is written."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints is no moment of the game
    threading.Thread(target=_wait_for_end, daemon=True).start()
    torch.set_num_threads(1)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws the pictures; without this it needs a screen
    try:
        due = time.monotonic()
        for moment, seconds in play(directory):
            time.sleep(max(0.0, due - time.monotonic()))
            print(to_json(moment), file=lines, flush=True)
            due = time.monotonic() + seconds
    except BrokenPipeError:
        return  # the viewer has gone
    except Exception as error:
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        print(to_json({"error": " ".join(told.split())}), file=lines, flush=True)


def _wait_for_end() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
