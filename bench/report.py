"""The output of the benches: a line for each figure, a table, JSON, and plots if matplotlib is installed."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any

from .rig import HERE, OUT, Figures, variant

WORKS = {
    "A": "parse, filter, add a field, write",
    "B": "re-key, count and sum per key, updates out",
    "C": "parse, add up",
    "J": "join two streams by key within 10 s, pairs out",
    "S": "B on an input whose timestamps stand still",
    "W": "re-key, count and sum per key and window of 10 s, final results",
}


def line(f: Figures) -> None:
    """Print one figure."""
    label = ", ".join([f.peer, *variant(f.shape, f.keys, f.partitions, f.workers)])
    spread = f"{min(f.rates) / 1e3:.0f}-{max(f.rates) / 1e3:.0f}"
    print(
        f"{f.work}  {label:74} {median(f.rates) / 1e3:7.1f} k/s ({spread:>9})  {median(f.per_cpu) / 1e3:7.1f} k/CPU-s  "
        f"{f.rss_mb:5.0f} MB  start {f.start_s:4.1f} s  outputs {f.outputs:,} {f.proven}  load {f.load:.1f}",
        flush=True,
    )


def surroundings() -> dict[str, Any]:
    """What makes figures comparable."""
    git = subprocess.run(
        ["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    import os

    return {
        "commit": git.stdout.strip(), "python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count(),
    }  # fmt: skip


def throughput(figures: Sequence[Figures], left_out: Mapping[str, str], *, quick: bool) -> None:
    """Print a table with ratios, write JSON, draw a plot."""
    by = {(f.peer, f.work): f for f in figures}
    peers = list(dict.fromkeys(f.peer for f in figures))
    works = sorted({f.work for f in figures})
    print(
        "\nmedian of rounds, thousand records a second (thousand a CPU second of the program); the first is so many times as fast, and"
        " does so many times as much a CPU second"
    )
    print(f"{'':74}" + "".join(f"{work:>36}" for work in works))
    ours = peers[0] if peers and peers[0].startswith("headgate") else None
    for peer in peers:
        cells: list[str] = []
        for work in works:
            f = by.get((peer, work))
            if f is None:
                cells.append("-")
                continue
            mine = by.get((ours, work)) if ours else None
            ratio = ""
            if mine and peer != ours:
                ratio = (
                    f" {median(mine.rates) / median(f.rates):.1f}x ({median(mine.per_cpu) / median(f.per_cpu):.1f}x)"
                )
            cells.append(f"{median(f.rates) / 1e3:.1f} ({median(f.per_cpu) / 1e3:.1f}){ratio}")
        print(f"{peer:74}" + "".join(f"{cell:>36}" for cell in cells))
    for what, why in left_out.items():
        print(f"left out: {what}: {why}")
    keep("throughput", {"quick": quick, "figures": [f.document() for f in figures], "left_out": dict(left_out)})
    if figures:
        bars("throughput", figures, works)


def keep(name: str, document: dict[str, Any]) -> None:
    """Write JSON to `bench/out`."""
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({**surroundings(), **document}, indent=1) + "\n", encoding="utf-8")
    print(f"# {path}")


def canvas() -> Any:
    """matplotlib without a screen; None if it is not installed."""
    if find_spec("matplotlib") is None:
        print("# no plot: matplotlib is not installed (`make bench` installs it)")
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def bars(name: str, figures: Sequence[Figures], works: Sequence[str]) -> None:
    """One panel for each work, one bar for each peer, on a logarithmic scale, because Faust would be invisible on a linear one."""
    pyplot = canvas()
    if pyplot is None:
        return
    figure, panels = pyplot.subplots(1, len(works), figsize=(5.5 * len(works), 3.2), squeeze=False)
    for panel, work in zip(panels[0], works, strict=True):
        mine = [f for f in figures if f.work == work][::-1]
        names = [f.peer.partition(", 1 thread")[0] + (" tuned" if "tuned" in f.peer else "") for f in mine]
        colors = ["#1f6f8b" if "headgate" in f.peer else "#b8c4c8" for f in mine]
        shown = panel.barh(names, [median(f.rates) / 1e3 for f in mine], color=colors)
        panel.bar_label(shown, fmt="%.0f", padding=3)
        panel.set_xscale("log")
        panel.margins(x=0.15)
        panel.set_title(f"{work}: {WORKS[work]}", fontsize=9)
        panel.set_xlabel("thousand records/s, median")
    figure.tight_layout()
    path = OUT / f"{name}.png"
    figure.savefig(path, dpi=110)
    print(f"# {path}")
