"""Minibatches of pictures: inputs that are kept for all passes give what each observation gives alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms import minibatches as module
from gossamer.algorithms.minibatches import minibatches
from gossamer.data import Trajectory
from gossamer.nn.networks import ActorCritic, Network
from gossamer.nn.torsos import small
from gossamer.spaces import Discrete, Spec

T, B, SHAPE = 5, 3, (2, 14, 14)


def pictures() -> tuple[ActorCritic, Trajectory]:
    model = ActorCritic(Spec(SHAPE, np.dtype(np.uint8), Discrete(4)), Network(small, 1 / 64, centre=True))
    model.policy.get_parameter("weight").data.normal_()
    slot = Trajectory.empty(T, B, SHAPE, torch.uint8)
    slot.obs.copy_(torch.randint(256, slot.obs.shape))
    return model, slot


@pytest.mark.parametrize("kept", [module.KEPT, 0])
def test_minibatches_are_evaluated_as_alone_with_the_parameters_of_then(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", kept)
    prepared = list[int]()
    model, slot = pictures()
    prepare = model.prepare
    monkeypatch.setattr(model, "prepare", lambda obs: (prepared.append(len(obs)), prepare(obs))[1])
    obs, seen = slot.obs[:-1].flatten(0, 1), list[Tensor]()
    for index, policy, value in minibatches(model, slot, torch.Generator().manual_seed(0), count=2, epochs=3):
        inputs = model.centre(obs[index], torch.float32)
        features = model.torso(inputs)
        assert_close(policy.parameters, model.policy(features))
        assert_close(value, model.value(features).squeeze(-1))
        model.value.get_parameter("bias").data.add_(1)  # an update
        seen.append(index)
    assert [len(index) for index in seen] == [8, 7] * 3
    for first in (0, 2, 4):
        assert sorted(torch.cat(seen[first : first + 2]).tolist()) == list(range(T * B))
    assert prepared == ([15] if kept else [8, 7] * 3)
