"""Writes the index of the figures, `benchmarks/results/README.md`, from the files in `benchmarks/results/current`.

    python -m benchmarks.index

A file keeps its command, machine, commit and date. A file of learning curves keeps the configuration of its runs, too:
the index compares it with today's defaults. For other files `SHOWN` says what differs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from benchmarks.curves import command
from benchmarks.pack import ENDING
from benchmarks.provenance import RESULTS, RUNS
from gossamer.config.file import RENAMED
from gossamer.system.options import flag

INDEX = RESULTS.parent / "README.md"
TODAY = "today's defaults"
SET = "the benchmark sets what matters for speed"
IN_CURVES = ""  # settings: compared with the configuration in the file
HEAD = """# Results

The files in `current/`, as `python -m benchmarks.index` lists them: every figure of the README and the docs.
[docs/results.md](../../docs/results.md) explains them. Do not edit this page: what a figure shows stands in
`benchmarks/index.py`, everything else in the files.

* **settings**: "today's defaults" if whatever the command does not name has the same default today. "earlier settings"
  names the options that have to be added today.
* **commit**: what was measured. "(changed)": the tree had changes that were not committed.
* **runs**: the runs themselves, without checkpoints. `python -m benchmarks.unpack NAME` writes them to `runs/NAME`.

Earlier figures are in the history of this folder.
"""

# Name of a file -> what it shows, and its settings
SHOWN: Mapping[str, tuple[str, str]] = {
    "speed-paac-a2c": ("Speed of PAAC with A2C on Pong and of its parts", "today's defaults but for the learning rate"),
    "speed-paac-a2c-nature": (
        "The same with the Nature network",
        "today's defaults and `--network nature`, but for the learning rate",
    ),
    "speed-paac-a2c-nature-64": (
        "The same with 64 environments",
        "today's defaults, `--network nature --num-envs 64`, but for the learning rate",
    ),
    "speed-paac-ppo": ("Speed of PAAC with PPO on Pong and of its parts", "earlier settings: today `--num-envs 32`"),
    "speed-sb3-a2c": ("Speed of PAAC with A2C compared with Stable-Baselines3", SET),
    "speed-sb3-dqn": ("Speed of DQN compared with Stable-Baselines3", SET),
    "speed-replay": ("Replay memories compared with those of cpprb, TorchRL and Stable-Baselines3", SET),
    "speed-impala-paac": (
        "Speed of IMPALA compared with PAAC",
        "the benchmark sets what matters for speed; in float32 two threads were the default",
    ),
    "speed-uneven-steps": ("Speed of IMPALA and PAAC where some steps take longer", SET),
    "speed-impala-libraries": ("Speed of IMPALA compared with Sample Factory and RLlib", SET),
    "speed-sb3-continuous": ("Speed of PAAC with PPO on MuJoCo compared with Stable-Baselines3", TODAY),
    "speed-picture-sizes": ("Speed of Atari games by the size of their pictures", SET),
    "speed-with-evaluations": ("Speed of a training while `--eval-every` evaluates", TODAY),
    "speed-with-agent": ("Speed of a training while the live page shows its agent", TODAY),
    "page-delay": ("How far the live page is behind, and its share of CPU time", TODAY),
    "demo": ("`make demo` in a fresh clone", TODAY),
    "pong-appo-ppo": ("Pong: steps and seconds to 18 of APPO and of PAAC with PPO, ten seeds", IN_CURVES),
    "pong-ppo": ("Pong: steps to 18 of PAAC with PPO, five seeds", IN_CURVES),
    "pong-lstm": ("Pong from single frames: steps to 18 of PAAC with PPO and an LSTM", IN_CURVES),
    "pong-dqn": ("Pong: DQN beside PAAC with A2C for 1,000,000 steps, one seed", IN_CURVES),
    "pong-values": (
        "Pong: DQN, Gorila, Ape-X, R2D2 and PQN on two cores each, one seed",
        "today's defaults but for `r2d2` (`--target-period 500`) and the curve `pqn, 1e-3`",
    ),
    "pong-a2c": ("Pong: steps to 18 of PAAC with A2C, one seed", IN_CURVES),
    "pong-impala": ("Pong: steps to 18 of IMPALA", IN_CURVES),
    "pong-to-20": ("Pong: steps to 20 of APPO", IN_CURVES),
    "pong-appo-parts": ("Pong: what each part of APPO is worth", IN_CURVES),
    "pong-gossip": ("Pong: steps and seconds to 18 of one learner, GALA and PALA", IN_CURVES),
    "breakout": ("Breakout, 2M steps: APPO, PAAC and GALA with PPO, IMPALA", IN_CURVES),
    "atari5": ("Atari-5, 1M steps: PAAC and GALA with PPO", TODAY),
    "continuous": ("Continuous control: PAAC and GALA with PPO compared with Stable-Baselines3", TODAY),
    "gossip-exchange": (
        "Speed of GALA and PALA with and without an exchange",
        "today's defaults but for the schedule of the learning rate",
    ),
    "gossip-rate": ("Catch: steps of GALA by its learning rate", "the defaults of that commit"),
    "gossip-pong": ("Pong with ways of gossip: steps and seconds to 18, bytes of an exchange (begun)", TODAY),
    "gossip-message": ("A message between two processes: bytes and milliseconds", SET),
    "gossip-message-hosts": ("A message between two hosts: bytes and milliseconds", SET),
    "gossip-scale": ("Gossip in virtual time from 4 to 1,024 members", SET),
    "gossip-1024-members": ("Gossip in virtual time with 1,024 members", TODAY),
    "server": ("Speed of a parameter server by shards and learners, in threads and on Ray", SET),
    "gorila-simulated": ("Gorila in virtual time from 1 to 256 bundles", SET),
    "pong-table": ("Pong, 600,000 steps: one architecture after the other, each with its tuned preset", IN_CURVES),
    "games": ("Pong, Breakout and Boxing by one network, beside one for each (begun)", TODAY),
    "mountain-car-sarsa": (
        "Parallel Sarsa on MountainCar-v0: episodes and bytes, sparse against full averaging",
        TODAY,
    ),
    "speed-precision": (
        "Speed in bfloat16 compared with float32 on a processor",
        "today's defaults but for the precision",
    ),
    "speed-sb3-small": ("Speed of PPO on small environments compared with Stable-Baselines3", SET),
    "speed-before-after": ("Speed of PAAC before and after transfers to GPUs, several games and callbacks", SET),
    "pong-envs-scaling": ("Steps to 18 on Pong with more environments, APPO and PAAC with PPO, one seed", TODAY),
    "speed-gpu-graphs": ("Speed on an H200 with and without CUDA graphs, and what bounds it", SET),
    "speed-cores": ("Ways to step the games of Pong on two cores", SET),
    "gossip-consensus": ("Time and bytes until members agree, for each way of gossip: virtual time", SET),
    "speed-alternating-toy": ("Training speed with `--alternating`: environments of a set cost", SET),
    "speed-alternating-pong": ("Training speed with `--alternating`: Pong", "today's defaults"),
    "served-threads": ("Actions per second and latency of served policies and of replicas, in threads", SET),
    "served-ray": ("Actions per second and latency of served policies and of replicas, between processes", SET),
    "start": (
        "Seconds from the command until the first steps, and until the first rate of a bench",
        "today's defaults",
    ),
    "hogwild": ("Speed of A3C in threads and in processes of one machine", SET),
    "pong-paac-envs": ("Steps to 18 on Pong with PAAC and A2C by the number of its environments, one seed", TODAY),
    "speed-paac-envs": ("Speed of PAAC with A2C on Pong by the number of its environments", "today's defaults"),
    "speed-ga3c": ("Speed of GA3C on Pong by agents, predictors and trainers, beside PAAC", SET),
    "all-reduce": ("All-reduce of a gradient between processes of one machine, beside Gloo", SET),
    "all-reduce-local": ("All-reduce of the gradients of one host's learners", SET),
    "all-reduce-simulated": ("A2C in virtual time on 2 to 256 hosts", SET),
    "impala-simulated": ("IMPALA in virtual time from 1 to 1,000 actors", SET),
}


def index() -> str:
    """The page. Raises ValueError if `SHOWN` and the files in `current` differ."""
    names = {path.stem for path in RESULTS.glob("*.json")}
    if names != SHOWN.keys():
        raise ValueError(f"benchmarks/index.py: SHOWN and current/ differ: {', '.join(sorted(names ^ SHOWN.keys()))}")
    lines = ["| figure | shows | command | settings | machine | commit | date |", "|---|---|---|---|---|---|---|"]
    for name, (shows, settings) in SHOWN.items():
        found = json.loads((RESULTS / f"{name}.json").read_text())
        cells = (files(name), shows, commands(found), settings or compared(found), machines(found), commit(found))
        lines.append(f"| {' | '.join(cells)} | {found['date'][:10]} |")
    return HEAD + "\n" + "\n".join(lines) + "\n"


def files(name: str) -> str:
    """Links to the file, its picture and its runs."""
    links = [f"[{name}](current/{name}.json)"]
    for title, path in (("picture", RESULTS / f"{name}.png"), ("runs", RUNS / f"{name}{ENDING}")):
        if path.exists():
            links.append(f"[{title}](current/{path.relative_to(RESULTS)})")
    return ", ".join(links)


def commands(found: Mapping[str, Any]) -> str:
    """What was measured: the trainings of curves, else the command of the file."""
    if "curves" not in found:
        return f"`{found.get('trained', found['command'])}`"
    return "<br>".join(f"{label}: `{short(each['trained'])}`" for label, each in found["curves"].items())


def short(trained: str) -> str:
    """The command without what every such command has, and with flags as they are typed."""
    words = trained.replace(" --preset tuned", "").removesuffix(" --seed SEED")
    return re.sub(r"--(\S+) (True|False)", lambda found: f"--{'no-' * (found[2] == 'False')}{found[1]}", words)


def compared(found: Mapping[str, Any]) -> str:
    """The options that the trainings of curves would need today, beyond those of their commands."""
    needed = {label: earlier(each["trained"], each["config"]) for label, each in found["curves"].items()}
    if not any(needed.values()):
        return TODAY
    lines = (f"{label}: today `{short(shlex.join(words))}`" for label, words in needed.items() if words)
    return "earlier settings:<br>" + "<br>".join(lines)


def earlier(trained: str, config: Mapping[str, Any]) -> list[str]:
    """The words of today's command for this configuration that `trained` lacks."""
    given = set(pairs(trained))
    return [word for pair in pairs(command(config)) if pair not in given for word in pair if word]


def pairs(line: str) -> Iterator[tuple[str, str]]:
    """Each option of a command with its value, empty for a flag; an option that was renamed has its name of today."""
    today = {flag(before): flag(name) for before, name in RENAMED.items()}
    for word, value in pairwise([*shlex.split(line), "--"]):
        if word.startswith("--"):
            name = today.get(word, word)
            if value == "False":  # as flags were written before
                name, value = f"--no-{name.removeprefix('--')}", ""
            yield name, "" if value == "True" or value.startswith("--") else value


def machines(found: Mapping[str, Any]) -> str:
    """Processors and cores: of the runs of curves, else of the measurement."""
    seeds = [seed["machine"] for each in found.get("curves", {}).values() for seed in each["seeds"]]
    found_on = {(each["processor"], each["cores"]) for each in seeds or [found["machine"]]}
    named = (f"{processor}, {cores} core{'s' * (cores > 1)}" for processor, cores in sorted(found_on))
    return "; ".join(named).replace("(R)", "").replace(" Processor", "")


def commit(found: Mapping[str, Any]) -> str:
    """The commit, short."""
    first, *rest = found["commit"].split(" ", 1)
    mark = " (changed)" if first.endswith("-dirty") else ""
    return " ".join([first.removesuffix("-dirty")[:7] + mark, *rest])


def main() -> None:
    """Write the page."""
    INDEX.write_text(index())
    print(INDEX)


if __name__ == "__main__":
    main()
