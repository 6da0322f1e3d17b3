"""Eligibility traces of a learner's environments, kept from one rollout to the next."""

from __future__ import annotations

import torch
from torch import Tensor, nn

STATE = "traces._extra_state"  # their name in a network's state


class Traces(nn.Module):
    """Accumulating traces e [B, P] of action values, inside the network, so that checkpoints include them. Each learner
    keeps its own: exchanges leave them out."""

    exchanged = False

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.zeros(0, 0)  # [B, P] after the last rollout; no rows before the first

    def before(self, begins: Tensor, size: int) -> Tensor:
        """The traces [B, P] before a rollout whose first observations begin an episode where `begins` [B] is true.
        `size`: P."""
        if self.kept.shape != (len(begins), size):
            self.kept = torch.zeros(len(begins), size)
        self.kept = self.kept.to(begins.device)
        return self.kept.masked_fill(begins.unsqueeze(1), 0.0)

    def get_extra_state(self) -> Tensor:
        """Part of the network's `state_dict`."""
        return self.kept

    def set_extra_state(self, state: Tensor) -> None:
        """Part of the network's `load_state_dict`."""
        self.kept = state.clone()


def decayed_gradients(q: Tensor, parameters: list[nn.Parameter], weight: Tensor) -> Tensor:
    """sum_t weight_t,b * gradient of q_t,b, of each environment: [B, P]. `q`, `weight` [T, B]. Keeps the graph of q."""
    each = torch.diag_embed(weight).movedim(-1, 0)  # [B, T, B]: row b has the weights of environment b alone
    # One backward pass for all fails where layers are normalised between convolutions, and is no faster with them
    if any(parameter.dim() > 2 for parameter in parameters):
        rows = [torch.autograd.grad(q, parameters, row, retain_graph=True, materialize_grads=True) for row in each]
        return torch.stack([torch.cat([gradient.reshape(-1) for gradient in row]) for row in rows])
    gradients = torch.autograd.grad(
        q, parameters, each, retain_graph=True, is_grads_batched=True, materialize_grads=True
    )
    return torch.cat([gradient.reshape(len(each), -1) for gradient in gradients], dim=1)
