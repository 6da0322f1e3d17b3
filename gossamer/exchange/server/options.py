"""Options of architectures with a parameter server. Each gives its default, as in `shards: int = SHARDS(1)`."""

from __future__ import annotations

from functools import partial

from gossamer.system.options import option

SHARDS = partial(option, "Parts of the parameter server, each a host.", least=1, most=65_536)
MAX_DELAY = partial(
    option,
    "A gradient is dropped if the server has made more updates since its parameters.",
    least=0,
    most=10**12,
    measure="updates",
)
LOSS_DEVIATIONS = partial(
    option,
    "A gradient is dropped if its loss is so many standard deviations above the learner's running mean; 0: none.",
    least=0,
)
SNAPSHOT_SECONDS = partial(
    option, "Between two snapshots of a shard, which it goes on from if its host fails.", above=0, measure="seconds"
)
