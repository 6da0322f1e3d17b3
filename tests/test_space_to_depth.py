"""Pictures as blocks, against loops; convolutions of blocks against those of pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gossamer.networks import ActorCritic, Network
from gossamer.space_to_depth import StridedConv2d, to_blocks
from gossamer.spaces import Discrete, Spec
from gossamer.torsos import Pair, block_of, mlp, nature, nips, resnet, small, tiny


def test_a_block_is_its_rows_of_pixels_with_all_channels() -> None:
    # One picture of 2 channels, 2 rows, 4 columns: channel 0 is 0..7, channel 1 is 10..17
    picture = torch.tensor([[[[0, 1, 2, 3], [4, 5, 6, 7]], [[10, 11, 12, 13], [14, 15, 16, 17]]]], dtype=torch.uint8)
    blocks = to_blocks(picture, 2)
    assert blocks.shape == (1, 8, 1, 2)
    assert blocks[0, :, 0, 0].tolist() == [0, 10, 1, 11, 4, 14, 5, 15]
    assert blocks[0, :, 0, 1].tolist() == [2, 12, 3, 13, 6, 16, 7, 17]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("channels", "height", "width", "block"), [(4, 8, 12, 4), (4, 7, 9, 2), (3, 9, 6, 3), (1, 5, 5, 1)]
)
def test_blocks_are_those_of_a_loop(dtype: torch.dtype, channels: int, height: int, width: int, block: int) -> None:
    pictures = torch.randint(256, (3, channels, height, width)).to(dtype)
    rows, columns = height // block, width // block
    expected = torch.zeros(3, block * block * channels, rows, columns, dtype=dtype)
    for y in range(rows * block):
        for x in range(columns * block):
            for c in range(channels):
                place = (y % block * block + x % block) * channels + c
                expected[:, place, y // block, x // block] = pictures[:, c, y, x]
    for format_ in (torch.contiguous_format, torch.channels_last):
        found = to_blocks(pictures.contiguous(memory_format=format_), block)
        assert torch.equal(found, expected)
        assert found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("kernel", "stride", "side"), [(4, 2, 12), (4, 2, 13), (8, 4, 23), (2, 2, 6)])
def test_a_convolution_of_blocks_is_that_of_pictures(kernel: int, stride: int, side: int) -> None:
    conv, pictures = StridedConv2d(3, 5, kernel, stride).double(), torch.randn(2, 3, side, side, dtype=torch.float64)
    assert conv.block == stride
    outputs = [conv(pictures), conv(to_blocks(pictures, stride))]
    assert_close(outputs[0], nn.functional.conv2d(pictures, conv.weight, conv.bias, stride))
    assert_close(outputs[1], outputs[0])
    towards = torch.randn_like(outputs[0])
    first, second = (torch.autograd.grad(each, list(conv.parameters()), towards) for each in outputs)
    assert_close(second, first)


def test_a_stride_that_does_not_divide_the_kernel_has_no_blocks() -> None:
    assert StridedConv2d(3, 5, 3, 2).block == 1


def test_torsos_with_a_strided_convolution_take_blocks() -> None:
    found = [block_of(each((4, 84, 84))) for each in (nips, nature, small, tiny, resnet, mlp)]
    assert found == [4, 4, 2, 1, 1, 1]
    assert block_of(Pair(nature((4, 84, 84)), nature((4, 84, 84)))) == 4


@pytest.mark.parametrize("separate_critic", [False, True])
def test_a_network_learns_from_blocks_what_it_would_learn_from_pictures(separate_critic: bool) -> None:
    network = Network(small, input_scale=1 / 64, centre=True, separate_critic=separate_critic)
    model = ActorCritic(Spec((4, 21, 21), np.dtype(np.uint8), Discrete(3)), network)
    model.centre.offset.copy_(torch.randint(256, (4, 21, 21)))
    for weight in model.policy.parameters():
        weight.data.normal_()
    obs = torch.randint(256, (6, 4, 21, 21), dtype=torch.uint8)
    assert model.prepare(obs).inputs.shape == (6, 16, 10, 10)
    outputs, gradients = [], []
    for block in (model.centre.block, 1):
        model.centre.block = block
        policy, value = model(obs)
        outputs.append((policy.parameters, value))
        loss = (policy.parameters.square().sum(-1) + value).sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert_close(outputs[0], outputs[1])
    assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-3)
    with torch.no_grad():  # acting
        policy, value = model(obs)
        assert_close((policy.parameters, value), outputs[0])
