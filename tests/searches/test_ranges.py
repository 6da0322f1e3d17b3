"""What a search varies, as it is typed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer.searches.plan import SearchDesign
from gossamer.searches.ranges import Range, Values, parsed
from gossamer.system.errors import UserError


@pytest.mark.parametrize(
    ("text", "kind", "wanted"),
    [
        ("learning-rate=1e-4..1e-2:log", float, Range("learning_rate", 1e-4, 1e-2, log=True)),
        ("--gamma=0.9..1", float, Range("gamma", 0.9, 1.0)),
        ("num-envs=8..64:8", int, Range("num_envs", 8, 64, step=8)),
        ("num-envs=8, 1e1", int, Values("num_envs", (8, 10))),
        ("separate-critic=true,false", bool, Values("separate_critic", (True, False))),
        ("algorithm=a2c,my:Own", str, Values("algorithm", ("a2c", "my:Own"))),
        ("sizes=64,64|256", str, Values("sizes", ("64,64", "256"))),
    ],
)
def test_ranges_and_values(text: str, kind: Any, wanted: Range | Values) -> None:
    assert parsed(text, kind) == wanted


def test_a_switch_may_be_off_first(tmp_path: Path) -> None:
    for values in ("true,false", "false,true"):
        (varied,) = SearchDesign("paac", "catch", (f"separate-critic={values}",), 1, (1,), tmp_path).ranges
        assert isinstance(varied, Values)
        assert set(varied.values) == {True, False}


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ([], "--vary: required"),
        (["gamma"], "--vary gamma: give NAME=LOW..HIGH"),
        (["gamma="], "--vary gamma=: give NAME=LOW..HIGH"),
        (["gamma=0.9..1", "gamma=0,1"], "--vary: --gamma is given twice"),
        (["seed=1,2"], "--vary seed=1,2: --seed cannot vary"),
        (["max-seconds=1,2"], "--vary: --max-seconds cannot vary: it is an option of the call"),
        (["gama=0.9..1"], r"--vary: .*--gama.*near: --gamma"),
        (["rollout-length=4,8"], "--vary: the composition or the options of all runs have --rollout-length"),
        (["gamma=0.9"], "--vary gamma=0.9: only one value"),
        (["gamma=0.9,0.90"], "--vary gamma=0.9,0.90: a value is given twice"),
        (["gamma=1..0.9"], "--vary gamma=1..0.9: the first bound must be below the second"),
        (["gamma=0.9..x"], r"--vary gamma=0.9\.\.x: x is not a number"),
        (["gamma=0.9..nan"], r"--vary gamma=0.9\.\.nan: nan is not finite"),
        (["gamma=0..1:log"], r"--vary gamma=0\.\.1:log: a logarithmic range must begin above 0"),
        (["gamma=0..1:2"], r"--vary gamma=0\.\.1:2: the step must be above 0, and at most 1"),
        (["num-envs=1..2.5"], r"--vary num-envs=1\.\.2\.5: 2\.5 is not a whole number"),
        (["network=tiny..nature"], r"--vary network=.*: --network is no number"),
        (["separate-critic=true,no"], "--vary separate-critic=true,no: no is neither true nor false"),
        (["num-envs=1..0x"], r"--vary num-envs=1\.\.0x: 0x is not a whole number"),
        (["num-envs=2,0"], "--vary num-envs=0: --num-envs 0: must be at least 1"),
        (["num-minibatches=1,99", "num-envs=2,4"], "--vary num-minibatches=99 on catch: --num-minibatches 99: "),
    ],
)  # fmt: skip
def test_ranges_that_cannot_be(tmp_path: Path, vary: list[str], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}") as caught:
        SearchDesign(
            "paac --algorithm ppo --rollout-length 8", "catch", tuple(vary), 3, (1,), tmp_path, steps=800
        ).check()
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
