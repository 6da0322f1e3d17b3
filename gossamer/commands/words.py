"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from gossamer.config.command_line import help_text, left_open

Protocol = Literal["noop", "sticky"]
Architecture = Annotated[str, tyro.conf.Positional, help_text("Parallel architecture; see `gossamer list`.")]
Directory = Annotated[Path, tyro.conf.Positional, help_text("A run directory.")]
Which = Annotated[str, help_text("last, best, or the name of a directory under checkpoints/.")]
Under = Annotated[
    Protocol | None,
    left_open(
        "Atari: up to 30 no-ops at the start (noop), or actions that repeat with probability 0.25 (sticky).",
        Protocol,
        "(default: sticky if trained with sticky actions, else noop)",
    ),
]
Greedy = Annotated[bool, help_text("Take the most probable action instead of sampling, or that of the highest value.")]
Epsilon = Annotated[
    float | None,
    left_open("Probability of a random action, for algorithms that act by values.", float, "(default: --epsilon-end)"),
]
AsJson = Annotated[bool, help_text("Print one JSON object.")]
Game = Annotated[str | None, left_open("Of a policy for several games: only this one.", str, "(default: all)")]
Member = Annotated[str, help_text("With several members: average (of their parameters), best, or a member's number.")]
