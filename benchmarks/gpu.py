"""What a GPU gives, on the machine at hand, in at most eight minutes.

    .venv/bin/python -m benchmarks.gpu                            # all stages
    .venv/bin/python -m benchmarks.gpu --stages pong pala         # these only
    python -m benchmarks.gpu --device cpu --smoke --out /tmp/try  # every stage in tiny form, without a GPU

Each stage is a process of its own with a time limit, and writes `gpu-STAGE.json` as it goes, so that what was measured
before an end by force is kept. A stage in which something failed has failed, and keeps what was measured. A stage that
has finished at this commit on this device is left out; `--again` measures it once more.

* `tests`: `pytest -m gpu`.
* `gradients`: of the same batch on the CPU and on the GPU, in float32: ||GPU - CPU|| / ||CPU||, which should be below
  1e-4.
* `throughput`: steps per second of every architecture on Pong with its defaults, after the first steps, and the memory
  that torch has reserved on the GPU.
* `whole`: `gossamer bench` of PAAC with the Nature network and 128 environments.
* `pong`: APPO with its defaults until it reaches 18 on Pong.
* `pala`: PALA with two hosts on this machine's GPUs. One host is killed, and has to come back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from benchmarks import watched
from benchmarks.gradients import CASES, difference
from benchmarks.provenance import ROOT, Results, add_out, commit
from gossamer.config.names import ARCHITECTURES


@dataclass(frozen=True)
class Place:
    """How a stage measures."""

    device: str
    smoke: bool  # as little as shows that it works
    results: Results

    @property
    def game(self) -> list[str]:
        return ["--env", "catch-pixels" if self.smoke else "pong", "--device", self.device]


def tests(place: Place) -> None:
    """Run the tests that need a GPU. Without one they are skipped."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests/gpu"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    last = done.stdout.strip().splitlines()[-1:]
    place.results.write({"exit_code": done.returncode, "last_line": "".join(last)})
    if done.returncode:
        sys.exit(f"tests: pytest ended with exit code {done.returncode}")


def gradients(place: Place) -> None:
    """Compare gradients. `tf32`: with the reduced precision that torch allows for convolutions by default."""
    found: dict[str, Any] = {}
    for name in CASES:
        found[name] = {
            form: difference(name, place.device, tf32=tf32, small=place.smoke)
            for form, tf32 in (("float32", False), ("tf32", True))
        }
        place.results.write(found)


def throughput(place: Place) -> None:
    """Train with every architecture for a few seconds."""
    found: dict[str, Any] = {}
    for name in ARCHITECTURES:
        limits = ["--steps", "400", "--max-seconds", "10"] if place.smoke else ["--max-seconds", "8"]
        found[name] = trained([name, *place.game, *limits])
        place.results.write(found)
        print(name, found[name], flush=True)
    check(found)


def whole(place: Place) -> None:
    """Compare a whole program with its parts."""
    size = ["--num-envs", "8", "--seconds", "0.3"] if place.smoke else ["--num-envs", "128", "--seconds", "3"]
    network = ["--network", "small" if place.smoke else "nature"]
    command = ["bench", "paac", *place.game, *network, *size, "--rounds", "1", "--json"]
    done = subprocess.run([*gossamer(), *command], stdout=subprocess.PIPE, text=True, check=True)
    place.results.write(json.loads(done.stdout))


def pong(place: Place) -> None:
    """Train until the goal is reached."""
    limits = ["--steps", "400"] if place.smoke else ["--stop-at-return", "18", "--max-seconds", "110"]
    found = trained(["appo", *place.game, *limits])
    place.results.write(found)
    check({"appo": found})


def pala(place: Place) -> None:
    """Train on two hosts, and kill one of them after its first steps."""
    options = ["pala", *place.game, "--cluster", "local", "--hosts", "2", "--learners", "2", "--num-envs", "4"]
    limits = ["--steps", "1000000000", "--max-seconds", "14" if place.smoke else "40", "--checkpoint-every", "2"]
    killed: list[float] = []

    def kill(process: subprocess.Popen[bytes], run: Path) -> None:
        """Kill one host, once all have reported."""
        if killed or len(watched.read_marks(run / "metrics.jsonl")) < 2:
            return
        hosts = [each for each in watched.family(process.pid) if "HostProcess" in " ".join(each.cmdline())]
        max(hosts, key=lambda each: each.pid).kill()
        killed.append(time.monotonic())

    found = trained([*options, *limits], watch=kill)
    back = sum(each["came_back"] for each in found.get("failures", ()))
    place.results.write({**found, "killed": len(killed), "came_back": back})
    check({"pala": found})


def check(found: Mapping[str, Mapping[str, Any]]) -> None:
    """End this process, and so its stage, as failed if one of these trainings (see `trained`) has no result."""
    if failed := [name for name, each in found.items() if "failed" in each]:
        sys.exit(f"no result of {', '.join(failed)}: see the stage's file")


def trained(
    words: list[str], watch: Callable[[subprocess.Popen[bytes], Path], None] = lambda process, run: None
) -> dict[str, Any]:
    """Train in a process of its own, which `watch` is called with again and again. Returns what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        run, memory = Path(folder) / "run", Path(folder) / "memory"
        command = [sys.executable, "-m", "benchmarks.gpu_memory", str(memory), "train", *words, "--run-dir", str(run)]
        with open(Path(folder) / "log", "w+") as log:
            process = started(command, log)
            try:
                while process.poll() is None:
                    watch(process, run)
                    time.sleep(watched.POLL_SECONDS)
            finally:
                watched.end(process)
            log.seek(0)
            if not (run / "result.json").exists():
                return {"failed": log.read()[-500:], "exit_code": process.returncode}
        result, marks = json.loads((run / "result.json").read_text()), watched.read_marks(run / "metrics.jsonl")
        names = ("ended", "steps", "seconds", "mean_return", "solved_steps", "learned", "failures")
        return {
            **{name: result[name] for name in names},
            "device": result["machine"]["gpu"],
            "steps_per_second": round(watched.rate(marks, 0.0)) if len(marks) > 1 else None,  # without the start
            "reserved_mb": json.loads(memory.read_text()) if memory.exists() else None,
        }


def started(words: list[str], output: IO[str] | None = None) -> subprocess.Popen[bytes]:
    """A process that leads a session of its own, so that all that it starts can be ended with it."""
    return subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)


def gossamer() -> list[str]:
    """The command, of this environment and this checkout."""
    return [sys.executable, "-c", "from gossamer.cli import run; run()"]


@dataclass(frozen=True)
class Stage:
    """A stage and its time limit."""

    measure: Callable[[Place], None]
    seconds: float


STAGES: Mapping[str, Stage] = {
    "gradients": Stage(gradients, 30),
    "tests": Stage(tests, 45),
    "pong": Stage(pong, 120),
    "pala": Stage(pala, 60),
    "throughput": Stage(throughput, 200),
    "whole": Stage(whole, 25),
}


def main() -> None:
    """Run the stages one after the other, or measure one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the stages without a GPU")
    parser.add_argument("--smoke", action="store_true", help="every stage in tiny form")
    parser.add_argument("--again", action="store_true", help="also what has been measured at this commit")
    parser.add_argument("--inside", choices=STAGES, help=argparse.SUPPRESS)  # measure this one here
    add_out(parser)
    given = parser.parse_args()
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.exit(
            2, f"benchmarks.gpu: --device {given.device}: torch {torch.__version__} finds no GPU; use --device cpu\n"
        )
    if given.inside:
        results = Results(f"gpu-{given.inside}", given.out)
        STAGES[given.inside].measure(Place(given.device, given.smoke, results))
        return
    for name in given.stages:
        run_stage(name, given)


def run_stage(name: str, given: argparse.Namespace) -> None:
    """Run a stage in a process of its own, unless it has finished already, and note how it ended in its file."""
    results, wanted = Results(f"gpu-{name}", given.out), f"{given.device}{' smoke' * given.smoke}"
    known = json.loads(results.path.read_text()) if results.path.exists() else {}
    if not given.again and known.get("stage") == {"on": wanted, "ended": "whole"} and known["commit"] == commit():
        print(f"{name}: measured already, --again repeats it", flush=True)
        return
    words = ["--inside", name, "--device", given.device, *["--smoke"] * given.smoke, "--out", str(given.out)]
    results.path.unlink(missing_ok=True)
    begun, process = time.monotonic(), started([sys.executable, "-m", "benchmarks.gpu", *words])
    try:
        ended = "whole" if process.wait(STAGES[name].seconds) == 0 else f"failed: exit code {process.returncode}"
    except subprocess.TimeoutExpired:
        ended = f"cut off after {STAGES[name].seconds:g} s"
    finally:
        watched.end(process)
    found = json.loads(results.path.read_text()) if results.path.exists() else dict(results.origin)
    results.path.parent.mkdir(parents=True, exist_ok=True)
    results.path.write_text(json.dumps({**found, "stage": {"on": wanted, "ended": ended}}, indent=2) + "\n")
    print(f"{name}: {ended}, {time.monotonic() - begun:.0f} s, {results.path}", flush=True)


if __name__ == "__main__":
    main()
