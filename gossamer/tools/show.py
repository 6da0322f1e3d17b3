"""Prints the available parts, and the figure, parts and defaults of an architecture."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.config.build import program
from gossamer.config.file import flat
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, NETWORKS, OPTIMIZERS, load
from gossamer.config.presets import accelerated_of, family_name, paper_of
from gossamer.config.probe import Probe
from gossamer.config.resolve import Choices, Composition, architecture_kind, build, resolve
from gossamer.envs import catalogue
from gossamer.presets.layers import EnvKind, algorithms_of, presets_of
from gossamer.program import Program
from gossamer.system.installation import install
from gossamer.system.options import flag

# An environment of each kind
EXAMPLES: dict[EnvKind, str] = {"pixels": "catch-pixels", "vector": "catch", "continuous": "Pendulum-v1"}
GAME = "pong"
A_GAME = Probe("pixels", atari=True)
USUAL = ("a2c", "ppo")  # algorithms that are shown of an architecture that names none
PIPED_WIDTH = 200  # columns, if the output is not a terminal
WHOLE = 10_000  # columns that no table needs


def console() -> Console:
    """The console: as wide as the terminal, or wide enough for every table if there is no terminal."""
    return Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)


def show(architecture: str, console: Console) -> None:
    """Print figure, parts, defaults and sizes of an architecture. Raises `UserError` if it is unknown."""
    kind = architecture_kind(architecture)
    about = (kind.__doc__ or "").strip()
    wired = program(resolve(Choices(architecture, "catch")))
    console.print(f"[bold]{architecture}[/bold]  {escape(about)}\n")
    console.print("[bold]Figure[/bold] (Mermaid, drawn from the wiring)\n")
    console.print(escape(wired.mermaid()) + "\n", soft_wrap=True)
    console.print("[bold]Parts[/bold]\n")
    for line in parts(wired):
        console.print("  " + escape(line))
    console.print("\n[bold]Defaults[/bold] by algorithm and kind of environment\n")
    tuned = {name: _tuned(name) for name in algorithms_of(kind) or USUAL}
    paper = paper_of(kind)
    for table in _defaults(architecture, tuned, paper is not None, console):
        console.print(table)
    for name, reasons in tuned.items():
        for on, why in reasons.items():
            console.print(f"  {name}, {on}: {why}")
    if paper:
        console.print(f"  --preset paper: {paper.why}")
    for name in tuned:
        for layer in accelerated_of(load("--algorithm", name, ALGORITHMS)):
            if family_name(kind, ARCHITECTURES) in layer.beside:
                console.print(f"  {name}, --preset accelerated: {layer.why}")
    console.print("\n[bold]Sizes on this machine[/bold] with an Atari game, by algorithm\n")
    for name in tuned:
        sizes = Composition(Choices(architecture, EXAMPLES["pixels"], name, probed=A_GAME)).sizes()
        console.print(f"  {name}: {sizes or 'as above; they do not follow from the machine'}", soft_wrap=True)


def _tuned(algorithm: str) -> dict[EnvKind, str]:
    """The kinds of environment that an algorithm has presets for, with their sources."""
    layers = presets_of(load("--algorithm", algorithm, ALGORITHMS))
    found = {on: [each.why for each in layers if each.kind == on and not each.beside] for on in EXAMPLES}
    return {on: "; ".join(why) for on, why in found.items() if why}


def parts(wired: Program) -> list[str]:
    """Hosts, workers and services with their arguments, one line each."""
    hosts = wired.hosts.values()
    lines = [f"host {host.name}: {_counted(host.cpus, 'core')}, {_counted(host.gpus, 'GPU')}" for host in hosts]
    nodes = [("worker", node) for node in wired.workers] + [("service", node) for node in wired.services]
    return lines + [f"{kind} {n.name} x{n.copies} on {n.host}: {', '.join(n.parts)}" for kind, n in nodes]


def _counted(number: float, what: str) -> str:
    return f"{number:g} {what}{'s' * (number != 1)}"


def _defaults(
    architecture: str, tuned: Mapping[str, Iterable[EnvKind]], paper: bool, console: Console
) -> Iterator[Table]:
    """A table of the options; where the console is too narrow for all columns several, below each other."""
    columns = {
        f"{algorithm} {kind}": _values(architecture, kind, algorithm)
        for algorithm, kinds in tuned.items()
        for kind in kinds or EXAMPLES
    }
    if paper:
        columns["paper"] = _values(architecture, "pixels", preset="paper")
    left_out = {"architecture", "env"}
    options = [name for name in dict.fromkeys(chain(*columns.values())) if name not in left_out]
    names, unlimited = list(columns), console.options.update(max_width=WHOLE)
    while names:
        for fits in range(len(names), 0, -1):
            table = _table(options, {name: columns[name] for name in names[:fits]})
            if console.measure(table, options=unlimited).maximum <= console.width or fits == 1:
                break
        yield table
        names = names[fits:]


def _table(options: Sequence[str], columns: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2))
    table.add_column("option", style="cyan", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for option in options:
        table.add_row(flag(option), *(_cell(values.get(option)) for values in columns.values()))
    return table


def _values(architecture: str, kind: EnvKind, algorithm: str | None = None, preset: str = "tuned") -> dict[str, Any]:
    """The default of every option for this kind of environment, on the cores that presets are tuned on; for pictures
    those of an Atari game, if there are any."""
    game = kind == "pixels" and bool(catalogue.names()["atari"])
    choices = Choices(architecture, GAME if game else EXAMPLES[kind], algorithm, preset=preset)
    made = Composition(replace(choices, probed=A_GAME) if kind == "pixels" else choices)
    return flat(build(made.kinds, made.tuned(), env=choices.env, preset=preset))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


def overview(console: Console) -> None:
    """Print every name that the command line accepts."""
    known, others = catalogue.names(), catalogue.learnable()
    ready = others.pop("")
    rows: dict[str, Iterable[str]] = {
        "architectures": [*ARCHITECTURES, "module:Name"],
        "algorithms": [*ALGORITHMS, "module:Name"],
        "networks": [*NETWORKS, "module:factory"],
        "optimizers": [*OPTIMIZERS, "module:Name"],
        "toy environments": known["toy"],
        "atari environments": known["atari"],
        "sets of atari games": [*catalogue.SETS, "pong,breakout:2 (any games, with their shares)"],
        "gymnasium environments": ready,
        "available after installing": [f"{', '.join(ids)} ({command})" for command, ids in others.items()],
        "your environment": ["module:factory (a gymnasium.Env)"],
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for what, names in rows.items():
        table.add_row(what, escape(", ".join(names) or f"none; run {install('atari')}"))
    console.print(table)
