"""Observations and actions of an agent, as data for a browser: pictures as data addresses, numbers as lists."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import imageio.v3 as imageio
import numpy as np
import torch
from torch import Tensor

from gossamer.data import Action, Array
from gossamer.spaces import Box, Discrete, MultiDiscrete, Spec
from gossamer.spaces.observations import ASIDE

SMALL = 50_000  # pixels, up to which a picture is sent exactly (PNG)
NUMBERS = 256  # of one observation, that are shown


def picture(pixels: Array) -> str:
    """Pixels [H, W] or [H, W, 3] uint8 as a `data:` address: PNG, or JPEG where they are many."""
    small = pixels.shape[0] * pixels.shape[1] <= SMALL
    buffer = BytesIO()
    if small:
        imageio.imwrite(buffer, pixels, extension=".png", compress_level=1)
    else:
        imageio.imwrite(buffer, pixels, extension=".jpeg", quality=85)
    return f"data:image/{'png' if small else 'jpeg'};base64," + base64.b64encode(buffer.getvalue()).decode()


def observation(spec: Spec, obs: Array) -> list[dict[str, Any]]:
    """The parts of an observation [*O]: each has a name and a shape, and a picture or numbers."""
    parts = []
    for part in spec.parts:
        if part.name not in ASIDE:
            array = spec.layout.array(obs, part.name) if spec.layout else obs
            shown = {"picture": picture(tiled(array))} if part.picture else {"numbers": _rounded(array[:NUMBERS])}
            parts.append({"name": part.name, "shape": list(part.shape), **shown})
    return parts


def tiled(channels: Array) -> Array:
    """A picture [C, H, W] as the network gets it: colours [H, W, 3] if C is 3, else its channels side by side
    [H, C W], uint8. Pictures of floats are scaled from 0..1, or else from their least to their greatest value."""
    if channels.dtype != np.uint8:
        low, high = min(0.0, float(channels.min())), max(1.0, float(channels.max()))
        channels = np.rint(255 * (channels - low) / (high - low)).astype(np.uint8)
    if len(channels) == 3:
        return np.ascontiguousarray(np.moveaxis(channels, 0, -1))
    return np.concatenate(list(channels), axis=1)


def action(spec: Spec, answer: Action) -> dict[str, Any]:
    """The decision of the policy for one observation (B = 1): `choices` with their probabilities and the one that was
    taken, and the `names` of the actions if they have any; or the `mean` and `std` of numbers, and what was `drawn`."""
    parameters, taken = answer.parameters[0].float().cpu(), answer.action[0].cpu()
    if isinstance(spec.actions, Box):
        mean, log_std = parameters.chunk(2)
        return {"mean": _rounded(mean), "std": _rounded(log_std.exp()), "drawn": _rounded(taken.flatten())}
    return {"choices": [_choice(*each) for each in _groups(spec, parameters, taken)], "names": list(spec.action_names)}


def _groups(spec: Spec, logits: Tensor, taken: Tensor) -> list[tuple[Tensor, int]]:
    """Probabilities and the one that was taken, of each independent choice."""
    if isinstance(spec.actions, Discrete):
        return [(logits.softmax(-1), int(taken))]
    if isinstance(spec.actions, MultiDiscrete):
        each = torch.split(logits, list(spec.actions.sizes))
        return [(part.softmax(-1), int(a)) for part, a in zip(each, taken, strict=True)]
    on = logits.sigmoid()
    return [(torch.stack([1 - p, p]), int(a)) for p, a in zip(on, taken, strict=True)]


def _choice(probabilities: Tensor, taken: int) -> dict[str, Any]:
    return {"probabilities": _rounded(probabilities), "taken": taken}


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]
