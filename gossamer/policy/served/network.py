"""An actor's stand-in for the network that predictors evaluate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.data import Tree, Version
from gossamer.policy.served.messages import PolicyAnswer, Request
from gossamer.spaces import Spec

ROWS = "rows"  # the only part of the state that stands for the recurrent state


class RemoteNetwork(nn.Module):
    """Answers as a network of this algorithm would, by asking. It has no parameters.

    An algorithm evaluates it like any other network and draws its actions from the actor's own generator. So a served
    policy explores as a replica does, and chooses the same actions from the same random stream, without a change in any
    algorithm: what crosses to the predictors is only what a network's `forward` or `unroll` gets.

    The recurrent state stays with the predictors. Here {`rows`: [B, 1]} stands for it: i + 1 for the state of
    environment i, 0 for the state at the start of an episode. So `memory.reset` works on it as on any state."""

    def __init__(self, ask: Callable[[Request], PolicyAnswer], spec: Spec, initial: Tree, device: str) -> None:
        """`initial`: the recurrent state [1, ...] at the start of an episode; `device`: of the actor's tensors."""
        super().__init__()
        self._ask, self._actions, self._initial, self._device = ask, spec.actions, initial, device
        self._last: tuple[Tensor, Tree] | None = None  # rows, and the state that they stood for at the last `value`
        self.acts = True  # whether the next requests are for actions: see `Request`
        self.version: Version = 0  # of the last answer's parameters

    def initial_state(self, num_envs: int) -> Tree:
        """See `Stateful`."""
        return {ROWS: torch.zeros(num_envs, 1, dtype=torch.int64, device=self._device)} if self._initial else {}

    def forward(self, obs: Tensor) -> Any:
        """What the network answers for obs [B, *O]."""
        outputs = self._outputs(self._answer(Request(obs, None, self.acts)))
        return outputs if len(outputs) > 1 else outputs[0]

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> Any:
        """What the network answers for one step: obs [1, B, *O] and the state before it."""
        (rows,) = state.values()
        answer = self._answer(Request(obs[0], rows.squeeze(-1), self.acts))
        if not self.acts:
            self._last = rows, answer.state
            return *self._outputs(answer), state
        return *self._outputs(answer), {ROWS: torch.arange(1, len(rows) + 1, device=self._device).unsqueeze(-1)}

    def recorded(self, state: Tree) -> Tree:
        """The recurrent state [B, ...] that `state` stands for. Raises `RuntimeError` if it is neither the state at the
        start of episodes nor the one of the last request that did not act."""
        if not state:
            return {}
        rows = state[ROWS]
        if self._last is not None and torch.equal(rows, self._last[0]):
            return self._last[1]
        if rows.any():
            raise RuntimeError("predictors have not been asked for this state: evaluate its observation first")
        return {name: each.to(self._device).expand(len(rows), *each.shape[1:]) for name, each in self._initial.items()}

    def _answer(self, request: Request) -> PolicyAnswer:
        answer = self._ask(request)
        self.version = answer.version
        return answer

    def _outputs(self, answer: PolicyAnswer) -> tuple[Any, ...]:
        """The answer in the form in which the network gives it."""
        first, *others = (_borrowed(each.to(self._device)) for each in answer.outputs)
        return (self._actions.distribution(first) if answer.distributions else first, *others)


def _borrowed(tensor: Tensor) -> Tensor:
    """The tensor. On a GPU, its memory is not used again before this thread's stream has done what it does with it: it
    comes from a predictor's stream."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor
