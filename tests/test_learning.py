"""bfloat16 learns as float32 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gossamer


@pytest.mark.parametrize("options", [{"precision": "fp32"}, {"precision": "bf16"}], ids=lambda o: o["precision"])
def test_pictures(options: dict[str, Any], tmp_path: Path) -> None:
    run = gossamer.train(
        "paac", env="catch-pixels", algorithm="ppo", network="small", steps=60_000, stop_at_return=0.8,
        run_dir=tmp_path / "r", **options,
    )  # fmt: skip
    assert run.result["mean_return"] >= 0.8
