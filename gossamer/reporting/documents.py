"""A report as Markdown, and as one HTML page that opens from disk and loads nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from gossamer.reporting.captions import Drawn, intervals, seeds
from gossamer.reporting.style import svg
from gossamer.reporting.tables import Table

CSS = """
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #666; --line: #ddd; --paper: #fff; }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p, figcaption { max-width: 52rem; }
figure { margin: 0; break-inside: avoid; }
figure img { max-width: 100%; height: auto; }
figcaption, .caption { color: var(--soft); font-size: .87rem; margin: .3rem 0 .6rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { border-bottom: 1.5px solid var(--ink); }
.number { text-align: right; padding-left: .7rem; }
ul.notes { border-left: 3px solid #d55e00; padding-left: 1.6rem; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #a0a0a0; --line: #3a3a3a; --paper: #161616; }
  figure img { filter: invert(.914) hue-rotate(180deg); }
}
@media screen and (max-width: 40rem) { /* a phone: figures keep a size that can be read, and scroll */
  body { margin: 1rem auto; }
  h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
  figure { overflow-x: auto; }
  figure img { max-width: none; min-width: 40rem; }
}
@media print {
  body { margin: 0; max-width: none; font-size: 10pt; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  td { white-space: normal; }
}
"""


def headline(summary: Mapping[str, Any]) -> str:
    """The title of a report, else its methods and environments. `summary`: the result of `reporting.summary`."""
    if summary["title"]:
        return str(summary["title"])
    methods: dict[str, dict[str, int]] = summary["methods"]
    envs = list(dict.fromkeys(env for by_env in methods.values() for env in by_env))
    return f"{', '.join(methods)} on {', '.join(envs)}"


def facts(summary: Mapping[str, Any]) -> Iterator[str]:
    """The lines above all figures."""
    yield f"{seeds(summary)}. Score: {summary['score']}. {intervals(summary, 'Intervals')}."
    yield f"Machines: {'; '.join(summary['machines'])}. Gossamer {', '.join(summary['versions'])}."


def markdown(summary: Mapping[str, Any], tables: Sequence[Table], drawn: Sequence[Drawn]) -> str:
    """The report as Markdown, which shows the .png files beside it."""
    parts = [f"# {headline(summary)}", *facts(summary)]
    parts += ["\n".join(f"- {note}" for note in summary["notes"])] if summary["notes"] else []
    parts += [f"## {each.title}\n\n![{each.title}]({each.name}.png)\n\n{each.caption}" for each in drawn]
    parts += [f"## Table: {table.title}\n\n{table.caption}\n\n{_pipes(table)}" for table in tables]
    return "\n\n".join(parts) + "\n"


def _pipes(table: Table) -> str:
    aligned = ["---" if place < table.words else "---:" for place in range(len(table.header))]
    rows = [[cell.replace("|", "\\|") for cell in row] for row in (table.header, aligned, *table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(summary: Mapping[str, Any], tables: Sequence[Table], drawn: Sequence[Drawn]) -> str:
    """The report as HTML."""
    title = escape(headline(summary))
    notes = "".join(f"<li>{escape(note)}</li>" for note in summary["notes"])
    body = [
        f"<h1>{title}</h1>",
        *(f"<p class='caption'>{escape(fact)}</p>" for fact in facts(summary)),
        f"<ul class='notes'>{notes}</ul>" if notes else "",
        *map(_figure, drawn),
        *map(_table, tables),
    ]
    viewport = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = f"<meta charset='utf-8'>{viewport}<title>{title}</title>"
    return f"<!doctype html>\n<html lang='en'><head>{head}<style>{CSS}</style></head>\n<body>\n" + "\n".join(
        body
    ) + "\n</body></html>\n"  # fmt: skip


def _figure(drawn: Drawn) -> str:
    data = b64encode(svg(drawn.figure).encode()).decode()
    picture = f"<img alt='{escape(drawn.title)}' src='data:image/svg+xml;base64,{data}'>"
    return f"<h2>{escape(drawn.title)}</h2>\n<figure>{picture}<figcaption>{escape(drawn.caption)}</figcaption></figure>"


def _table(table: Table) -> str:
    head = _row("th", table.header, table.words)
    rows = "\n".join(_row("td", row, table.words) for row in table.rows)
    return (
        f"<h2>Table: {escape(table.title)}</h2>\n<p class='caption'>{escape(table.caption)}</p>\n"
        f"<div class='scroll'><table><thead>{head}</thead>\n<tbody>{rows}</tbody></table></div>"
    )


def _row(kind: str, cells: Sequence[str], words: int) -> str:
    classes = ["" if place < words else " class='number'" for place in range(len(cells))]
    inside = (f"<{kind}{name}>{escape(cell)}</{kind}>" for name, cell in zip(classes, cells, strict=True))
    return f"<tr>{''.join(inside)}</tr>"
