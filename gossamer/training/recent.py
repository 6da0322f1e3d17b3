"""The last episodes of a run or of a member."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from gossamer.task import Episode

RECENT = 100  # episodes that a mean return is taken over, of each game


class Recent:
    """The last 100 episodes; of several games, of each one."""

    def __init__(self, *, games: int = 0) -> None:
        """`games`: how many there are, of several."""
        self._several, self._expected = games > 0, max(1, games)
        self._games = dict[str, deque[Episode]]()  # in the order in which their first episodes ended

    def extend(self, episodes: Iterable[Episode]) -> None:
        """Add episodes."""
        for episode in episodes:
            game = episode.env if self._several else ""
            self._games.setdefault(game, deque(maxlen=RECENT)).append(episode)

    def drop(self, number: int, games: Sequence[str] = ()) -> None:
        """Remove this number of the last episodes, or all. `games`: of these episodes and perhaps later ones, in order;
        of several games only theirs are removed."""
        for game in [*games[:number]] if self._several else [""] * number:
            if self._games.get(game):
                self._games[game].pop()

    def __iter__(self) -> Iterator[Episode]:
        return chain.from_iterable(self._games.values())

    def __len__(self) -> int:
        return sum(map(len, self._games.values()))

    @property
    def by_game(self) -> Mapping[str, Sequence[Episode]]:
        """The episodes of each of several games; of one game by an empty name."""
        return self._games

    @property
    def full(self) -> bool:
        """Whether there are 100 episodes, of each game."""
        return self.of_all and all(len(each) == RECENT for each in self._games.values())

    @property
    def of_all(self) -> bool:
        """Whether there are episodes of each game."""
        return sum(map(bool, self._games.values())) >= self._expected

    @property
    def returns(self) -> dict[str, float]:
        """The mean return of each of several games, by name; empty for one game."""
        return {game: _mean(each) for game, each in self._games.items() if each} if self._several else {}

    @property
    def mean_return(self) -> float | None:
        """The mean return; of several games the mean of theirs, whichever ends more episodes. None before the first
        episode, of several games before the first of each."""
        means = [_mean(each) for each in self._games.values() if each]
        return sum(means) / len(means) if self.of_all else None

    def to_list(self) -> list[list[Any]]:
        """Score and steps of each episode, its game where there are several, and its metrics if it has any."""
        return [
            [e.score, e.steps, *([e.env] if self._several else []), *([dict(e.metrics)] if e.metrics else [])]
            for e in self
        ]

    def load(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add the episodes of `to_list`."""
        for score, steps, *rest in rows:
            game = next((each for each in rest if isinstance(each, str)), "")
            metrics = next((each for each in rest if isinstance(each, dict)), {})
            self.extend([Episode(float(score), int(steps), game, metrics=metrics)])


def _mean(episodes: Sequence[Episode]) -> float:
    return sum(e.score for e in episodes) / len(episodes)
