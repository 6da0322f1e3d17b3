"""A memory of whole rollouts: every one that is drawn is as it was acted, with its recurrent state."""

from __future__ import annotations

import pytest
import torch
from some_play import PACKED, PICTURES, PLAIN, Play, assert_acted

from gossamer.algorithms.base import ReplayPlan
from gossamer.experience.replay.store import ReplayStore
from gossamer.spaces import Spec

ROLLOUT, ENVS, KEPT = 4, 2, 3  # steps; environments; rollouts of each that are kept
CAPACITY = KEPT * ROLLOUT * ENVS


@pytest.mark.parametrize("spec", [PLAIN, PICTURES, PACKED], ids=["vectors", "pictures", "packed"])
@pytest.mark.parametrize("recurrent", [False, True], ids=["", "recurrent"])
def test_rollouts_are_drawn_as_they_were_acted(spec: Spec, recurrent: bool) -> None:
    plan = ReplayPlan(CAPACITY, 0, ROLLOUT, 0.0, 0, sequences=True, whole=True)
    play, rng = Play(spec, ENVS, ROLLOUT, seed=1, recurrent=recurrent), torch.Generator().manual_seed(0)
    store = ReplayStore(spec, plan, {0: ENVS}, CAPACITY)
    windows = list[int]()
    for number in range(12):
        if number == 8:  # the actor begins anew
            play.cut()
            store.cut(0)
        (rollout,) = play.rollouts(1)
        store.add(0, rollout)
        drawn = store.draw(60, rng)
        starts = set[tuple[int, int]]()
        for w, key in enumerate(drawn.keys.tolist()):
            first, env = divmod(key, ENVS)
            assert first in play.states
            assert_acted(play, drawn.data, w, first, env)
            if recurrent:
                assert torch.equal(drawn.data.state["hidden"][w], play.states[first][env])
            starts.add((first, env))
        assert drawn.data.mask is None  # they go on across the ends of episodes
        newest = sorted(play.states)[-KEPT:]
        assert {first for first, _ in starts} <= set(newest)
        assert len(starts) == store.windows
        windows.append(store.windows)
    # A final observation has a place of its own, and the first one of an episode takes as many as there are pictures
    assert ENVS <= max(windows) <= ENVS * KEPT
    assert spec is not PLAIN or max(windows) == ENVS * KEPT
