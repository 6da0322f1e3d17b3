"""Inputs of networks: centred, scaled and in the right format, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from some_parts import a_network
from torch.testing import assert_close

from gossamer.nn.inputs import Centred, centre_on, input_of
from gossamer.nn.networks import NetworkOptions
from gossamer.nn.torsos import mlp
from gossamer.spaces import Discrete
from gossamer.spaces.observations import Part
from gossamer.system.options import declared


def test_pictures_are_centred_on_their_background() -> None:
    centre = Centred((1, 1, 2), 1 / 64)
    centre_on(centre, {"": np.array([[[87.0, 23.0]]], np.float32)})
    obs = torch.tensor([[[[87, 23]]], [[[151, 0]]]], dtype=torch.uint8)
    # (151 - 87) / 64 = 1, (0 - 23) / 64 = -0.359375: all exact in float32
    assert centre(obs, torch.float32).flatten().tolist() == [0.0, 0.0, 1.0, -0.359375]


def test_centred_pictures_lie_channels_last_whatever_they_came_as() -> None:
    centre = Centred((3, 5, 4), 1 / 64)
    obs = (torch.arange(120, dtype=torch.uint8) * 2).view(2, 3, 5, 4)
    for came in (obs, obs.contiguous(memory_format=torch.channels_last)):
        inputs = centre(came, torch.bfloat16)
        assert inputs.dtype == torch.bfloat16
        assert inputs.is_contiguous(memory_format=torch.channels_last)
        assert_close(inputs.float(), obs / 64)  # whole numbers to 255 and their 64ths are exact in bfloat16


def test_a_new_background_counts_at_once() -> None:
    centre, obs = Centred((1, 1, 1), 0.5), torch.tensor([[[[10]]]], dtype=torch.uint8)
    found = [centre(obs, torch.float32).item()]
    centre_on(centre, {"": np.array([[[4.0]]], np.float32)})
    found.append(centre(obs, torch.float32).item())
    centre.load_state_dict({"offset": torch.tensor([[[6.0]]]), "scale": torch.tensor(2.0)})
    found.append(centre(obs, torch.float32).item())
    assert found == [5.0, 3.0, 8.0]  # 10 / 2, (10 - 4) / 2, (10 - 6) * 2
    assert centre(obs, torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("unchanged", [True, False])
def test_vectors_pass_as_they_are(unchanged: bool) -> None:
    obs = torch.tensor([[1.5, -2.0]])
    assert Centred((2,), 1.0, unchanged=unchanged)(obs, torch.float32).tolist() == [[1.5, -2.0]]
    assert Centred((2,), 1.0, unchanged=unchanged)(obs.to(torch.int8), torch.float32).tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize(("alone", "expected"), [(True, [[2.0, 0.0]]), (False, [[510.0, 0.0]])])
def test_only_a_vector_that_is_the_whole_observation_is_scaled(alone: bool, expected: list[list[float]]) -> None:
    part = Part("ram", (2,), np.dtype(np.float32))
    module = input_of(part, scale=1 / 255, centre=False, normalize=False, alone=alone)
    assert_close(module(torch.tensor([[510.0, 0.0]]), torch.float32), torch.tensor(expected))
    assert "an observation of one vector" in declared(NetworkOptions)["input"].metadata["help"]


@pytest.mark.parametrize(("centre", "same"), [(False, True), (True, False)])
def test_a_vector_is_centred_only_if_asked(centre: bool, same: bool) -> None:
    obs, model = torch.tensor([[1.5, -2.0]]), a_network((2,), Discrete(3), mlp, centre=centre)
    before = model(obs)[1].item()
    centre_on(model, {"": np.array([0.5, 0.5], np.float32)})
    assert (model(obs)[1].item() == before) is same
