"""Options of architectures with a replay memory that several workers share. Each gives its default, as in
`replay_shards: int = REPLAY_SHARDS(1)`."""

from __future__ import annotations

from functools import partial

from gossamer.system.options import option

REPLAY_SHARDS = partial(option, "Parts of the replay memory, each a host.", least=1, most=65_536)
MAX_AHEAD = partial(
    option,
    "Actors wait while more samples are owed, for which they have acted; 0: a batch, and a rollout of each actor.",
    least=0,
    most=10**12,
    measure="samples",
)
