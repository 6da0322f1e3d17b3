"""Updates of a learner on a GPU, recorded as CUDA graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from gossamer.algorithms.losses import Loss
from gossamer.algorithms.target import targets
from gossamer.data import Trajectory
from gossamer.exchange import Gradient, LocalStep
from gossamer.system.graphs import WARM, Recorder, addresses, forms

MOST = 4  # recordings, after which the rest is computed as it comes: parameters that move each time cannot be recorded


@dataclass(frozen=True)
class Pass:
    """The loss of an optimizer step, whose gradient lies in `.grad`."""

    loss: Loss  # detached
    local: LocalStep  # what remains of the step
    row: Tensor | None = None  # [M] loss, norm of the gradient and the loss's parts; None: before the step


@dataclass(frozen=True)
class Taken:
    """A `LocalStep` that has been taken together with the pass."""

    found: Gradient

    def gradient(self, *, checked: bool = True) -> Gradient:
        """See `LocalStep`."""
        assert not checked, "a recorded step has been taken before its gradient could be checked"
        return self.found

    def apply(self) -> None:
        """Nothing: it is done."""


Passes: TypeAlias = Callable[[Trajectory], Iterator[Pass]]  # of one batch


class RecordedUpdates:
    """The passes over batches, from recordings where there are some.

    The first batches of a form are computed as they come. Then one is recorded, pass by pass, between which a learner's
    exchange does its part. Batches are copied to the memory that was recorded. The recordings share all other memory:
    what one has found is used before another is repeated."""

    def __init__(self, model: nn.Module, trained: Sequence[nn.Parameter], rng: torch.Generator) -> None:
        """`trained`: parameters with gradients; `rng`: that the losses draw from."""
        self._model, self._trained, self._rng = model, trained, rng
        self._known, self._seen = dict[Any, _Recorded](), Counter[Any]()  # by form; batches of a form
        self._form: Any = None  # of the last batch
        self._at: tuple[int, ...] = ()  # where the parameters were then
        self._recorder: Recorder | None = None  # of all that is known
        self._recordings = 0  # so far, with those that were forgotten
        self.failure = ""  # why batches are not recorded, or not all of them

    @property
    def repeats(self) -> bool:
        """Whether there is a recording of the last batch's form."""
        return self._form in self._known

    def forget(self) -> None:
        """The optimizer's state or a parameter has moved."""
        self._known.clear()
        self._seen.clear()
        self._recorder = None  # torch refuses the memory of recordings that are all gone

    def __call__(self, batch: Trajectory, passes: Passes, recorded: Passes, kind: str) -> Iterator[Pass]:
        """The passes over a batch: of `passes`, or the repetition of what `recorded` does. `kind`: another recording is
        needed for another one."""
        if batch.finals:  # their number differs from batch to batch
            return passes(batch)
        if (at := addresses(list(self._model.parameters()))) != self._at:
            self.forget()
            self._at = at
        self._form = form = kind, _form(batch)
        if form not in self._known:
            self._seen[form] += 1
            if self._seen[form] > WARM:
                self._record(batch, recorded)
        return self._known[form].passes(batch) if form in self._known else passes(batch)

    def _record(self, batch: Trajectory, work: Passes) -> None:
        """Record the passes over such a batch, without doing them."""
        if self._recordings == MOST:
            self.failure = self.failure or f"{MOST} were, for other shapes of batches or places of parameters"
            return
        self._recordings += 1
        self._recorder = self._recorder or Recorder(batch.obs.device, [self._rng])
        try:
            self._known[self._form] = _Recorded(self._model, self._trained, self._recorder, batch, work)
        except RuntimeError as error:  # a user's network may read from the GPU
            self._recordings, self.failure = MOST, str(error).splitlines()[0]


class _Recorded:
    """The passes over batches of one form."""

    def __init__(
        self,
        model: nn.Module,
        trained: Sequence[nn.Parameter],
        recorder: Recorder,
        like: Trajectory,
        work: Passes,
    ) -> None:
        self._model, self._trained = model, trained
        self._batch = like.new_empty(like.num_envs)
        self._batch.copy_(like)
        passes, mark = work(self._batch), torch.zeros((), device=like.obs.device)
        self._recordings = list[tuple[Callable[[], None], Pass, list[Tensor | None]]]()
        while True:
            # torch warns of an empty recording, which the last one may be
            recording = recorder(lambda: (mark.zero_(), next(passes, None))[1])
            if (found := recording.result) is None:
                break
            taken = isinstance(found.local, Taken)  # no one needs the gradients any more
            self._recordings.append((recording.replay, found, [] if taken else [each.grad for each in trained]))
        self._rest = recording.replay  # what is done after the last pass

    def passes(self, batch: Trajectory) -> Iterator[Pass]:
        """The passes over a batch."""
        self._batch.copy_(batch)
        for target in targets(self._model):
            target.renewed(self._model)
        for replay, found, gradients in self._recordings:
            for parameter, gradient in zip(self._trained, gradients, strict=False):
                parameter.grad = gradient
            replay()
            yield found
        self._rest()
        for parameter in self._model.parameters():
            increment_version(parameter)  # a cast of it, for acting, is of older ones: see `Body`


def _form(batch: Trajectory) -> tuple[Any, ...]:
    tensors = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return forms({name: each for name, each in tensors.items() if isinstance(each, Tensor)}), forms(batch.state)
