"""The command `gossamer`, which leaves in a file how much GPU memory torch has reserved in this process at most, in MB.

python -m benchmarks.gpu_memory FILE train paac --env pong
"""

from __future__ import annotations

import atexit
import json
import sys
from pathlib import Path

import torch

from gossamer.cli import run


def main() -> None:
    """Run the command."""
    file = Path(sys.argv.pop(1))
    atexit.register(leave, file)
    run()


def leave(file: Path) -> None:
    """Write the figure: null where torch has not used a GPU."""
    used = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    file.write_text(json.dumps(round(torch.cuda.max_memory_reserved() / 1e6) if used else None))


if __name__ == "__main__":
    main()
