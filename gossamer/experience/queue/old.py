"""Old trajectories on the hosts of actors, from which batches of a learner are completed (RLDM 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from gossamer.data import Packed, Trajectory
from gossamer.experience.base import Kept
from gossamer.experience.queue.replay import Mixed, Share
from gossamer.experience.replay.reader import split
from gossamer.experience.replay.shard import Amount, ReplayShard, Sample
from gossamer.runtime import Calling, Context
from gossamer.spaces import Spec


class OldRollouts:
    """An actor's end of the replay memory on its host."""

    def __init__(self, ctx: Context, shard: ReplayShard, spec: Spec, steps: int) -> None:
        """`spec`: of the actor's environments; `steps`: of each rollout, of all environments together."""
        self._shard, self._who, self._steps = shard, (ctx.rank, ctx.restarts), steps
        self._number = 0  # of the last rollout
        self._stored = 0  # environment steps, since the last call of `kept`
        self._held = shard.register(*self._who, spec)

    def keep(self, rollout: Packed) -> None:
        """Store a rollout that follows the last one."""
        self._number += 1
        held = self._shard.insert(*self._who, self._number, rollout)
        assert held is not None, "an actor and the memory on its host are restarted together"
        self._held = held
        self._stored += self._steps

    def kept(self) -> Kept:
        """See `Writer`."""
        kept, self._stored = Kept(self._stored, held=self._held), 0
        return kept


class OldOnHosts:
    """Adds old trajectories to each new batch: some of each host's, in proportion to how many it had at the last call.

    What a host that does not answer should have given comes from the others. Where no host has any, a batch has fewer,
    which later ones do not make up for."""

    def __init__(self, ctx: Context, share: float, shards: Sequence[ReplayShard], rng: torch.Generator) -> None:
        """`share`: see `Share`; `shards`: the memories of all hosts; `rng`: a generator of the CPU."""
        self._share, self._shards, self._rng = Share(share), shards, rng
        self._call = Calling(ctx, len(shards))
        self._amounts = [Amount(0.0, 0)] * len(shards)

    def mixed(self, fresh: Trajectory) -> Mixed:
        """See `Mixing`."""
        self._ask()
        missing = self._share.of(fresh.num_envs) if self._mass.sum() else 0
        samples = list[Sample]()
        while missing and self._mass.sum():
            drawn = self._draw(missing)
            missing -= sum(len(sample.keys) for sample in drawn)
            samples += drawn
        if not samples:
            return Mixed(fresh)
        old = [sample.data.trajectory().to(fresh.reward.device) for sample in samples]
        keys = torch.cat([torch.tensor(sample.keys) for sample in samples])
        return Mixed(Trajectory.concatenated([fresh, *old]), keys)

    @property
    def _mass(self) -> torch.Tensor:
        """Trajectories on each host [S], as of the last call to it."""
        return torch.tensor([amount.mass for amount in self._amounts], dtype=torch.float64)

    def _ask(self) -> None:
        """Ask the hosts that had none."""
        empty = [i for i, amount in enumerate(self._amounts) if not amount.windows]
        for i, amount in self._call({i: partial(self._shards[i].amount) for i in empty}).items():
            self._amounts[i] = amount

    def _draw(self, count: int) -> list[Sample]:
        """Draw so many from all hosts at the same time. Returns what those give that answer."""
        parts = dict(enumerate(split(count, self._mass, self._rng).tolist()))
        answers = self._call({i: partial(self._shards[i].draw, part) for i, part in parts.items() if part})
        for i, part in parts.items():
            if part:
                sample = answers.get(i)
                self._amounts[i] = Amount(0.0, 0) if sample is None else sample.left
        return [sample for sample in answers.values() if sample is not None]
