"""Plots of the figures of a page: bars, drawn from its own tables, so that a plot never says another number than the table below it.

Each plot is a file for light pages and one for dark ones in `docs/pictures`. `make docs` writes them; the tests compare.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from .pages import ROOT

WIDTH, LABEL, BAR, GAP, HEAD = 900, 400, 15, 12, 34
COLORS = {
    "light": {"text": "#1d2b33", "faint": "#5f707a", "ours": "#1f6f8b", "theirs": "#b4c1c7"},
    "dark": {"text": "#e6edf2", "faint": "#93a4af", "ours": "#4fb3d9", "theirs": "#4a5a64"},
}
NUMBER = re.compile(r"[\d,]+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Plot:
    """Which columns of which table of a page are drawn, and what they are."""

    name: str
    page: str
    section: str
    columns: tuple[str, ...]
    title: str


PLOTS = (
    Plot("throughput", "docs/speed.md", "Throughput", ("A", "B", "C"), "thousand records per second, one worker"),
    Plot(
        "latency",
        "docs/speed.md",
        "Latency",
        ("p50", "p99"),
        "milliseconds until a reader has the result, 1,000 records per second",
    ),
)


def table(text: str, section: str) -> tuple[list[str], list[list[str]]]:
    """The first table of a section: its head and its rows."""
    lines = text.split(f"\n## {section}\n", 1)[1].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("|"))
    rows: list[list[str]] = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows[0], rows[2:]


def drawn(plot: Plot, text: str, scheme: str) -> str:
    """The plot as SVG: for each row of the table a group of bars, ours in colour."""
    colors = COLORS[scheme]
    head, rows = table(text, plot.section)
    at = [head.index(column) for column in plot.columns]
    figures = [[NUMBER.match(row[place]) for place in at] for row in rows]
    most = max(float(one[0].replace(",", "")) for row in figures for one in row if one)
    parts, y = list[str](), HEAD
    for row, found in zip(rows, figures, strict=True):
        parts.append(_text(0, y + BAR * len(at) / 2 + 4, row[0], colors["text"]))
        for column, one in zip(plot.columns, found, strict=True):
            color = colors["ours" if row[0].startswith("headgate") else "theirs"]
            if one:
                value = float(one[0].replace(",", ""))
                long = round((WIDTH - LABEL - 70) * value / most, 1)
                parts.append(
                    f'<rect x="{LABEL + 30}" y="{y}" width="{long}" height="{BAR - 3}" rx="2" fill="{color}"/>'
                )
                parts.append(_text(LABEL + 35 + long, y + BAR - 5, one[0], colors["faint"]))
            parts.append(_text(LABEL, y + BAR - 5, column, colors["faint"]))
            y += BAR
        y += GAP
    title = _text(0, 16, plot.title, colors["faint"])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
        f'font-family="system-ui, sans-serif" font-size="12">\n{title}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, color: str) -> str:
    said = text if len(text) <= 66 else text[:65].rsplit(" ", 1)[0] + " …"
    return f'<text x="{x:g}" y="{y:g}" fill="{color}">{escape(said)}</text>'


def files() -> dict[str, str]:
    """All plots: the text of each file, by its path."""
    found: dict[str, str] = {}
    for plot in PLOTS:
        text = (ROOT / plot.page).read_text(encoding="utf-8")
        for scheme in COLORS:
            found[f"docs/pictures/{plot.name}-{scheme}.svg"] = drawn(plot, text, scheme)
    return found
