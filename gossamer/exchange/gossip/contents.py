"""What a member's messages have of its parameters, and the average of its parameters with those of other messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gossamer.data import Tree
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.averaging import Received, average
from gossamer.exchange.gossip.feedback import Feedback
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.messages import Message, on_device
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.system.transfers import recorded


class Contents:
    """One member's side of it: all parameters or a selection, rounded by the member or not."""

    def __init__(self, sparse: Sparse | None, rounding: Format | None, flat: Flat, state: Tree, view: int) -> None:
        """`flat`: the member's parameters; `view`: see `Sparse.of`; `state`: see `state_dict`."""
        vector = flat.vector
        self._exact = len(vector) - flat.trained  # running statistics, which every message has as its last parameters
        self._selection = None if sparse is None else sparse.of(vector, flat.separable, state.get("known"), view)
        self._feedback: Feedback | None = None
        if rounding is not None:
            keeps = self._selection is None or self._selection.known is None
            self._feedback = Feedback(rounding, torch.zeros_like(vector) if keeps else None, self._exact)
            if "owed" in state:
                self._feedback.owed = state["owed"].to(vector.device, copy=True)
        self._published = vector  # [K] parameters of the last message

    def of(self, message: Message, exchange: int, view: int, receivers: int) -> Message:
        """The message as it is sent to so many receivers. `message` has all parameters [P]."""
        mine, sent = message.parameters, None
        message = replace(message, exact=self._exact)
        if self._selection is not None:
            values, places = self._selection.chosen(mine, exchange, view)
            sent = None if values is mine else self._selection.sent
            message = replace(message, parameters=values, places=places, whole=values is mine)
        if self._feedback is not None:
            values, packed, error = self._feedback.rounded(message.parameters, sent, message.weight * receivers)
            form = self._feedback.form
            message = replace(message, parameters=values, packed=packed, error=error, format=form, kept=True)
        self._published = message.parameters
        return replace(message, ready=recorded(mine))

    def mixed(
        self, mine: Tensor, messages: Sequence[Message], shares: Sequence[float], interval: int
    ) -> tuple[Tensor, float]:
        """Average parameters [P] with messages that have these shares, into a new vector. Returns the average and an L2
        bound of the messages' rounding errors, 0 for sparse ones."""
        received = [
            Received(on_device(m, mine.device), share, "fp32" if m.kept else m.format, m.error, m.exact)
            for m, share in zip(messages, shares, strict=True)
        ]
        if self._selection is None:
            return average(mine, received)
        places = [self._selection.places_of(m, m.iteration // interval) for m in messages]
        return self._selection.mixed(mine, self._published, received, places), 0.0

    def state_dict(self) -> Tree:
        """What the next messages depend on besides the parameters, for a checkpoint."""
        known = None if self._selection is None else self._selection.known
        owed = None if self._feedback is None else self._feedback.owed
        return {name: part.clone() for name, part in (("known", known), ("owed", owed)) if part is not None}
