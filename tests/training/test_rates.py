"""What a resumed run says of its learning rate."""

from __future__ import annotations

from gossamer.config.resolve import configure
from gossamer.training.rates import rates


def test_a_rate_that_falls_until_the_end() -> None:
    config = configure("paac", env="catch", steps=1000, learning_rate=0.01, final_fraction=0.1)
    # 0.01 * (1 - 0.9 * 500 / 1000)
    assert rates(config, 500) == "learning rate 0.0055 now, 0.001 at the end (step 1,000)"


def test_a_rate_that_has_fallen_names_the_option_that_changes_it() -> None:
    config = configure("paac", env="catch", steps=2000, anneal_steps=1000, learning_rate=0.01, final_fraction=0.1)
    until = "it falls until step 1,000, with --anneal-steps 2000 until the end"
    assert rates(config, 1000) == f"learning rate 0.001 now and at the end (step 2,000); {until}"
    assert rates(config, 500) == f"learning rate 0.0055 now, 0.001 at the end (step 2,000); {until}"


def test_a_constant_rate() -> None:
    for constant in ({"anneal_steps": 0}, {"final_fraction": 1.0, "anneal_steps": 100}):
        config = configure("paac", env="catch", steps=2000, learning_rate=0.01, **constant)
        assert rates(config, 500) == "learning rate 0.01 now and at the end (step 2,000)"
