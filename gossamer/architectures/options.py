"""Options that several architectures have. Each gives its default, as in `num_envs: int = NUM_ENVS(32)`."""

from __future__ import annotations

from functools import partial

from gossamer.system.options import option

NUM_ENVS = partial(option, "Environments side by side, of each learner (n_e).", least=1, most=16_384)
ENV_WORKERS = partial(
    option,
    "Step them (n_w): threads for Atari (0: one a core), processes for Gymnasium (0 or 1: none).",
    least=0,
    most=1024,
)
