"""The plot of a soak as SVG, for light pages and for dark ones: the memory of each worker, and below it when each disturbance came.

It is drawn without a library, like the plots of the documentation, where it is shown. A worker is a line; its slope after the warm-up is a
dashed one on top of it. The warm-up has a background of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

WIDTH, LEFT, RIGHT, TOP, HIGH = 900, 120, 20, 44, 260
ROW, FOOT = 18, 34
COLORS = {
    "light": {"text": "#1d2b33", "faint": "#5f707a", "grid": "#d9e0e3", "warm": "#eef2f3"},
    "dark": {"text": "#e6edf2", "faint": "#93a4af", "grid": "#33414a", "warm": "#1b252b"},
}
LINES = {
    "light": ("#1f6f8b", "#c2571a", "#5b7f2b", "#7a4b94"),
    "dark": ("#4fb3d9", "#f0a05a", "#a3cf62", "#c79be0"),
}
ROWS = (("incarnations", "incarnations"), ("move", "moves"), ("broker", "broker restarts"))
POINTS = 450
"""Of a line: the greatest value of each stretch, so that no peak is lost."""


def drawn(found: dict[str, Any]) -> dict[str, str]:
    """The plot in each scheme."""
    return {scheme: _drawn(found, COLORS[scheme], LINES[scheme]) for scheme in COLORS}


def _drawn(found: dict[str, Any], colors: dict[str, str], lines: Sequence[str]) -> str:
    seconds = max(found["minutes"] * 60, *(one["samples"][-1][0] for one in found["workers"]))
    step = _step(max(one["max_mb"] for one in found["workers"]))
    most = step * (1 + max(one["max_mb"] for one in found["workers"]) // step)
    height = TOP + HIGH + ROW * len(ROWS) + FOOT

    def x(at: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at / seconds, 1)

    def y(mb: float) -> float:
        return round(TOP + HIGH * (1 - mb / most), 1)

    low = TOP + HIGH
    parts = [_text(0, 16, "megabytes resident of each worker process, over minutes", colors["faint"])]
    parts.append(
        f'<rect x="{LEFT}" y="{TOP}" width="{x(found["warm_s"]) - LEFT:g}" height="{HIGH}" fill="{colors["warm"]}"/>'
    )
    parts.append(_text(LEFT + 6, TOP + 14, "warm-up", colors["faint"]))
    for mb in range(0, int(most) + 1, step):
        parts.append(f'<path d="M{LEFT} {y(mb):g}H{WIDTH - RIGHT}" stroke="{colors["grid"]}"/>')
        parts.append(_text(LEFT - 8, y(mb) + 4, str(mb), colors["faint"], "end"))
    for number, one in enumerate(found["workers"]):
        color = lines[number % len(lines)]
        line = " ".join(f"{x(at):g},{y(mb):g}" for at, mb in _thinned([(at, rss) for at, rss, _ in one["samples"]]))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.4"/>')
        counted = [(at, rss) for at, rss, _ in one["samples"] if at >= found["warm_s"]]
        if counted:
            middle, slope = sum(rss for _, rss in counted) / len(counted), one["slope_mb_per_min"] / 60
            centre = sum(at for at, _ in counted) / len(counted)
            ends = [(at, middle + slope * (at - centre)) for at in (counted[0][0], counted[-1][0])]
            way = "L".join(f"{x(at):g} {y(mb):g}" for at, mb in ends)
            parts.append(f'<path d="M{way}" stroke="{colors["text"]}" stroke-dasharray="5 4" stroke-width="1.2"/>')
        said = f"{one['name']}: {one['slope_mb_per_min']:+.2f} MB a minute"
        parts.append(_text(LEFT + number * 250, 36, said, color))
    moments = {kind: [at for at, which, _ in found["disturbances"] if which == kind] for kind in ("move", "broker")}
    moments["incarnations"] = [at for one in found["workers"] for at in one["incarnations"][1:] if at >= 0]
    for number, (kind, label) in enumerate(ROWS):
        at_y = low + 10 + ROW * number
        parts.append(_text(LEFT - 8, at_y + 10, label, colors["faint"], "end"))
        way = "".join(f"M{x(at):g} {at_y}v11" for at in moments[kind])
        parts.append(f'<path d="{way or "M0 0"}" stroke="{colors["text"]}" stroke-width="1.6"/>')
    for minute in _minutes(seconds / 60):
        parts.append(_text(x(minute * 60), height - 8, str(minute), colors["faint"], "middle"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12">\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _thinned(samples: Sequence[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    size = max(1, len(samples) // POINTS)
    for at in range(0, len(samples), size):
        yield max(samples[at : at + size], key=lambda one: one[1])


def _step(most: float) -> int:
    """The distance of the lines of the grid, of which there are four to ten."""
    return next((step for step in (10, 20, 25, 50, 100, 200, 500) if most / step <= 8), 1000)


def _minutes(most: float) -> range:
    return range(0, int(most) + 1, 1 if most <= 12 else 5)


def _text(x: float, y: float, text: str, color: str, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'
