"""Calls as text."""

from __future__ import annotations

from typing import Any

from gossamer import GALA, PPO
from gossamer.training.call import call


def train(architecture: Any, *, env: str, algorithm: Any = None, overwrite: bool = False, **options: Any) -> str:
    return call(train, locals())


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
