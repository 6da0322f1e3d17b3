"""Space to depth: pictures as blocks of pixels, so that a convolution with a stride becomes one with stride 1.

A block is s x s pixels of all channels. Where s divides k, a convolution with a kernel of k x k pixels and stride s is
one with a kernel of k/s x k/s blocks and stride 1. It sums the same products and is faster, as few channels become
many."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_WORDS = {16: torch.complex128, 8: torch.int64, 4: torch.int32, 2: torch.int16}  # by their bytes


def to_blocks(pictures: Tensor, block: int) -> Tensor:
    """Map [N, C, H, W] to [N, block^2 * C, H // block, W // block], channels-last. The new channels are in the order
    (row, column, channel). Rows and columns beyond the last whole block are left out. Fast if `pictures` are bytes and
    channels-last."""
    count, channels, height, width = pictures.shape
    rows, columns = height // block, width // block
    whole = pictures.permute(0, 2, 3, 1)[:, : rows * block, : columns * block]
    lines = whole.contiguous().view(count, rows, block, columns, block * channels)  # the last dimension: a block's line
    word = _word(lines)
    blocks = (lines.view(word) if word else lines).transpose(2, 3).contiguous()
    flat = blocks.view(pictures.dtype) if word else blocks
    return flat.view(count, rows, columns, block**2 * channels).permute(0, 3, 1, 2)


def _word(lines: Tensor) -> torch.dtype | None:
    """A type whose elements hold several bytes of a line, to copy them at once; None if lines are not bytes."""
    if lines.dtype != torch.uint8:
        return None
    return next((word for size, word in _WORDS.items() if lines.shape[-1] % size == 0), None)


class StridedConv2d(nn.Conv2d):
    """A convolution without padding that takes pictures, or their blocks of `block` x `block` pixels."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int) -> None:
        super().__init__(channels, out, kernel, stride)
        self.block = stride if kernel % stride == 0 else 1

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] or its blocks -> [N, out, H', W']."""
        if x.shape[1] == self.in_channels:
            return super().forward(x)
        return nn.functional.conv2d(x, to_blocks(self.weight, self.block), self.bias)
