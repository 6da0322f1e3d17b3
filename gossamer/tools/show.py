"""What there is, and what an architecture is made of, for people to read."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.config.presets import PAPERS, TUNED, preset
from gossamer.config.settings import KNOBS, check_architecture, resolve
from gossamer.config.wiring import ARCHITECTURES, NETWORKS, OPTIMIZERS, program
from gossamer.envs import catalogue
from gossamer.options import flag
from gossamer.program import Program

KINDS = {True: "pixels", False: "vector"}


def show(architecture: str, console: Console) -> None:
    """Figure, parts and defaults of an architecture. `UserError` with near names if there is none such."""
    check_architecture(architecture)
    make = ARCHITECTURES[architecture]
    wired = program(resolve({"architecture": architecture, "env": "catch"}))
    console.print(f"[bold]{architecture}[/bold]  {escape((make.__doc__ or '').strip())}\n")
    console.print("[bold]Figure[/bold] (Mermaid, drawn from the wiring)\n")
    console.print(escape(wired.mermaid()) + "\n", soft_wrap=True)
    console.print("[bold]Parts[/bold]\n")
    for line in parts(wired):
        console.print("  " + escape(line))
    console.print("\n[bold]Defaults[/bold] by algorithm and kind of environment\n")
    console.print(_defaults(architecture))
    for (algorithm, pixels), chosen in TUNED.items():
        console.print(f"  {algorithm}, {KINDS[pixels]}: {chosen.why}")
    console.print(f"  --preset paper: {PAPERS[architecture].why}")


def parts(wired: Program) -> list[str]:
    """Hosts, workers and services with what they were wired with, a line each."""
    lines = [f"host {host.name}: {host.cpus:g} cores, {host.gpus:g} GPUs" for host in wired.hosts.values()]
    nodes = [("worker", node) for node in wired.workers] + [("service", node) for node in wired.services]
    return lines + [f"{kind} {n.name} x{n.copies} on {n.host}: {', '.join(n.parts)}" for kind, n in nodes]


def _defaults(architecture: str) -> Table:
    columns = {f"{a} {KINDS[p]}": preset(architecture, "tuned", a, p).values for a, p in TUNED}
    columns["paper"] = preset(architecture, "paper", None, True).values
    table = Table(box=None, padding=(0, 2))
    table.add_column("option", style="cyan", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for name in KNOBS:
        cells = [values.get(name) for values in columns.values()]
        if any(cell is not None for cell in cells):
            table.add_row(flag(name), *(_cell(cell) for cell in cells))
    return table


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


def overview(console: Console) -> None:
    """Everything that can be named on the command line."""
    known, others = catalogue.names(), catalogue.learnable()
    ready = others.pop("")
    rows: dict[str, Iterable[str]] = {
        "architectures": ARCHITECTURES,
        "algorithms": dict.fromkeys(algorithm for algorithm, _ in TUNED),
        "networks": [*NETWORKS, "module:factory"],
        "optimisers": OPTIMIZERS,
        "toy environments": known["toy"],
        "atari environments": known["atari"],
        "gymnasium environments": ready,
        "and, when installed": [f"{', '.join(ids)} ({command})" for command, ids in others.items()],
        "your environment": ["module:factory (a gymnasium.Env)"],
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for what, names in rows.items():
        table.add_row(what, escape(", ".join(names) or 'none; run pip install "gossamer[atari]"'))
    console.print(table)
