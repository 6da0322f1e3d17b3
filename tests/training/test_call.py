"""Calls as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from some_runs import trained

from gossamer import GALA, PPO
from gossamer.training.call import call


def train(architecture: Any, *, env: str, algorithm: Any = None, overwrite: bool = False, **options: Any) -> str:
    return call(train, locals())


def resume(run_dir: Any) -> str:
    return call(resume, locals())


def test_a_call_has_what_was_written_out() -> None:
    written = "gossamer.train('paac', env='catch', overwrite=True, steps=2000, diagnostics=False)"
    assert train("paac", env="catch", overwrite=True, steps=2000, diagnostics=False) == written


def test_a_part_has_only_the_options_that_were_written_out() -> None:
    written = "gossamer.train(GALA(learners=4), env='pong', algorithm=PPO(epochs=3))"
    assert train(GALA(learners=4), env="pong", algorithm=PPO(epochs=3)) == written


def test_a_call_is_one_line() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd\n  thing>"

    assert train("paac", env="catch", algorithm=Odd()) == "gossamer.train('paac', env='catch', algorithm=<odd thing>)"


def test_a_run_is_called_by_its_directory(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert resume(run) == f"gossamer.resume({str(tmp_path / 'run')!r})"
