"""Options of algorithms that learn from a replay memory. Each gives its default, as in
`save_replay: bool = SAVE_REPLAY(False)`."""

from __future__ import annotations

from functools import partial

from gossamer.system.options import option

SAVE_REPLAY = partial(option, "The replay memory is part of each checkpoint, so that a resumed run goes on with it.")
REPLAY_DIR = partial(
    option, "Folder for the pictures of the replay memory, mapped into memory from files; empty: in host memory."
)
