"""Atari observations from the emulator's screens, in NumPy: equal to ale-py's native preprocessing up to rounding.

The native code works on luminance, takes the maximum of two frames, and averages areas (OpenCV's INTER_AREA). Here the
averaging is a product with two matrices of weights. A pixel can differ by 1, where the average lies between two
numbers."""

from __future__ import annotations

from functools import cache

import numpy as np

from gossamer.data import Array
from gossamer.envs.atari import AtariPreset
from gossamer.system.errors import UserError

LUMINANCE = np.array([0.2989, 0.5870, 0.1140])  # weights of red, green and blue in the emulator's palettes


class Screens:
    """The last pictures of one game. After `reset` the older ones are black, as in training."""

    def __init__(self, preset: AtariPreset) -> None:
        self._preset = preset
        self._stack = np.zeros((preset.stack, *preset.plane), np.uint8)

    def reset(self, screen: Array) -> Array:
        """The first observation of a game [stack, height, width] uint8, from its screen [H, W, 3] or [H, W] uint8."""
        self._stack = np.zeros_like(self._stack)
        return self.step(screen)

    def step(self, screen: Array, before: Array | None = None) -> Array:
        """The next observation, from the screen after the last frame of a step, and the one after the frame before it:
        sprites flicker, and training takes the maximum of both."""
        picture = grey(screen)
        if before is not None and self._preset.maxpool:
            picture = np.maximum(picture, grey(before))
        newest = resized(picture, *self._preset.plane)
        self._stack = np.concatenate([self._stack[1:], newest[None]])
        return self._stack


def grey(screen: Array) -> Array:
    """Luminance [H, W] uint8 of a screen [H, W, 3] or [H, W]. Raises `UserError` for anything else."""
    screen = np.asarray(screen)
    if screen.dtype != np.uint8 or screen.ndim not in (2, 3) or screen.shape[2:] not in ((), (3,)):
        raise UserError(f"screen: {screen.dtype} {list(screen.shape)}; give uint8 [H, W, 3], or [H, W] of luminance")
    if screen.ndim == 2:
        return screen
    found: Array = np.rint(screen @ LUMINANCE).astype(np.uint8)
    return found


def resized(picture: Array, height: int, width: int) -> Array:
    """A picture [H, W] uint8 as [height, width], each pixel the mean of the area that it covers."""
    rows, columns = picture.shape
    averages = coverage(rows, height) @ picture.astype(np.float64) @ coverage(columns, width).T
    found: Array = np.rint(averages).astype(np.uint8)
    return found


@cache
def coverage(given: int, wanted: int) -> Array:
    """Weights [wanted, given]: the share of each given pixel in the interval that a wanted one covers."""
    edges = np.arange(wanted + 1) * (given / wanted)
    pixels = np.arange(given)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    found: Array = np.clip(overlap, 0, None) * (wanted / given)
    return found
