"""Evaluates a checkpoint in a process of its own, beside a run that trains:

    python -m gossamer.evaluation.background '{"run_dir": "runs/pong", "checkpoint": "step_00000100000", "episodes": 5}'

The argument has the keywords of `evaluate`. The result is the last line on stdout, as JSON. The process gives way
to the run, has one thread for torch, and computes on the CPU. It ends when its stdin closes, as it does if the run is
killed."""

from __future__ import annotations

import json
import os
import sys
import threading

from gossamer.system.processes import give_way


def main() -> None:
    """Evaluate, and print the result."""
    threading.Thread(target=_end_with_the_run, daemon=True).start()
    give_way()
    import torch

    from gossamer.evaluation.evaluate import evaluate
    from gossamer.storage.files import to_json

    torch.set_num_threads(1)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as lines:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints is no result
        result = evaluate(**json.loads(sys.argv[1]), device="cpu", env_workers=1, write=False)
        print(to_json(result.to_dict()), file=lines)


def _end_with_the_run() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
