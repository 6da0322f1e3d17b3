"""Masked policies worked out by hand, for environments whose actions are several choices."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from gossamer.envs.gym import Custom
from gossamer.envs.last import LastActionReward
from gossamer.nn.networks import ActorCritic
from gossamer.spaces.observations import MASK

ENVS = str(Path(__file__).parent / "envs")  # where `DOORS` is imported from
SIZES = [3, 4]  # doors of the first and of the second choice
DOORS = LastActionReward(Custom("more_envs:two_doors", masks=True))  # its own observations are zero


def all_valid(model: ActorCritic, obs: Tensor) -> Tensor:
    """The same observations [..., *O] with all choices valid."""
    assert model.spec.layout is not None
    changed = obs.clone()
    changed[..., model.spec.layout.places[MASK][1]] = 1
    return changed


def valid_softmax(model: ActorCritic, obs: Tensor, outputs: Tensor) -> list[Tensor]:
    """The probabilities [N, size] of each choice: the softmax of the `outputs` [N, P] for `all_valid` observations over
    what is valid in obs [N, *O]."""
    assert model.spec.layout is not None
    mask = model.spec.layout.part(obs, MASK).double()
    assert 0.3 < mask.mean() < 0.9  # some choices are invalid
    weights = (outputs.double().exp() * mask).split(SIZES, 1)
    return [each / each.sum(1, keepdim=True) for each in weights]
