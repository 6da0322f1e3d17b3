"""bfloat16 learns as float32 does."""

from __future__ import annotations

from pathlib import Path

import pytest

import gossamer


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.long)])
def test_pictures(precision: str, tmp_path: Path) -> None:
    run = gossamer.train(
        "paac", env="catch-pixels", algorithm="ppo", network="small", steps=60_000, stop_at_return=0.8,
        run_dir=tmp_path / "r", precision=precision,
    )  # fmt: skip
    assert run.result["mean_return"] >= 0.8
