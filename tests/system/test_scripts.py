"""Under which name other processes import the main script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAYS = "from gossamer.system.scripts import script; print(script())"


@pytest.mark.parametrize(
    ("words", "name"),
    [(["-c", SAYS], "None"), (["mine.py"], "mine"), (["-m", "mine"], "mine"), (["-m", "gossamer.says"], "None")],
)
def test_the_command_itself_is_no_script(words: list[str], name: str, tmp_path: Path) -> None:
    import gossamer

    (tmp_path / "mine.py").write_text(SAYS)
    lines = f"import sys, gossamer; gossamer.__path__.append({str(tmp_path / 'more')!r})"
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "says.py").write_text(SAYS)
    if words[-1] == "gossamer.says":  # `python -m` of a module of the package
        words = ["-c", f"{lines}; import runpy; runpy.run_module('gossamer.says', run_name='__main__', alter_sys=True)"]
    env = {"PYTHONPATH": str(Path(gossamer.__file__).parents[1])}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (name, "")
