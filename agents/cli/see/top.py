"""`headgate top JOB`: what hurts, worst first, until `q` or Ctrl-C; `--once` shows it once.

It reads the heartbeats of all workers, as `headgate status` does, and asks no worker. What is first: failed tasks with what to do, then the
steps by their share of the work, streams by their lag, waits, workers. Exit codes: 0, or 4 if the job does not exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...process.reading import following, heard
from ...status.slow import percent
from ...status.slow import top as hurts
from ..options import Duration, Target, about_job, run_async
from ..output import output_option, plain, show_json
from .status import document, seconds

try:
    import termios
    import tty
except ImportError:  # not on every system
    termios = tty = None


@click.command()
@click.argument("job")
@click.option(
    "--every", type=Duration(), default="2s", show_default=True, metavar="TIME", help="Time between two updates."
)
@click.option("--once", is_flag=True, help="Show it once.")
@about_job
@output_option
def top(to: Target, every: float, once: bool, output: str) -> None:
    """Show what hurts, worst first: failed tasks, steps by their share of the work, lag, waits. `q` quits."""
    with contextlib.suppress(KeyboardInterrupt):
        run_async(_top(to, every, once, output))


async def _top(to: Target, every: float, once: bool, output: str) -> None:
    async with following(to.client, to.topics) as stream:
        with _keys() as quits:
            while not quits.is_set():
                due = time.monotonic() + every
                beats = await heard(to.client, to.topics.heartbeat, stream.job)
                found = hurts(document(to, await stream.to_end(), beats))
                _show(found, once, output)
                if once:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, due - time.monotonic())):
                        await quits.wait()


def _show(found: dict[str, Any], once: bool, output: str) -> None:
    if output == "json":
        show_json(found) if once else click.echo(json.dumps(found, default=str))
        return
    size = shutil.get_terminal_size()
    wide = size.columns if once is False or sys.stdout.isatty() else 200
    lines = list(lines_of(found, wide))
    if not once:
        click.clear()
        click.echo(cut(time.strftime("%H:%M:%S") + "  q quits", wide))
        lines = lines[: max(1, size.lines - 2)]
    click.echo("\n".join(lines))


@contextlib.contextmanager
def _keys() -> Iterator[asyncio.Event]:
    """Set when `q` is pressed. Without a terminal nothing is."""
    quits = asyncio.Event()
    if termios is None or tty is None or not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield quits
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)

    def pressed() -> None:
        if (key := sys.stdin.read(1)) in ("q", "Q", ""):
            quits.set()
            if not key:  # the terminal is gone
                loop.remove_reader(descriptor)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, pressed)
    try:
        yield quits
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def lines_of(found: dict[str, Any], wide: int) -> Iterator[str]:
    """The screen for people, in lines of at most so many characters; columns that do not fit are cut on the right.

    >>> empty = {"failed": [], "steps": [], "streams": [], "waits": [], "errors": [], "held": [], "workers": []}
    >>> print(*lines_of({"job": "sales/1", "run": None, "lag": None, "verdict": "no worker runs", **empty}, 40), sep="\\n")
    sales/1  no run yet  lag unknown
    no worker runs
    """
    run = found["run"] or "no run yet"
    lag = "unknown" if found["lag"] is None else f"{found['lag']:,}"
    yield cut(f"{found['job']}  {run}  lag {lag}", wide)
    yield from _wrapped(plain(found["verdict"]), wide)
    for one in found["failed"]:
        yield ""
        yield from _wrapped(f"FAILED {one['task']} on {one['worker'] or '-'}: {one['why']}", wide)
        yield from _wrapped(f"  {one['todo']}", wide)
    yield from _table(
        ["STEP", "SHARE", "BUSY", "ROWS/S"],
        ([s["step"], percent(s["share"]), percent(s["busy"]), f"{s['rows_s']:,}"] for s in found["steps"]),
        wide,
    )
    yield from _table(
        ["STREAM", "LAG", "WATERMARK DELAY", "HELD BY"],
        (
            [
                s["stream"],
                f"{s['lag']:,}",
                seconds(s["watermark_delay_s"]),
                ", ".join(filter(None, s["held_by"])) or "-",
            ]
            for s in found["streams"]
        ),
        wide,
    )
    yield from _table(["WAITS FOR", "A MINUTE"], ([w["reason"], w["a_minute"]] for w in found["waits"]), wide)
    errors = ([one["step"], one["error"], one["times"], one["a_minute"]] for one in found["errors"])
    yield from _table(["FAILS", "WITH", "TIMES", "A MINUTE"], errors, wide)
    for one in found["held"]:
        yield ""
        yield from _wrapped(f"HELD UP {one['told']}", wide)
    yield from _table(
        ["WORKER", "STATE", "LOOP", "STARVED"],
        (
            [
                w["worker"],
                "silent" if not w["alive"] else "ready" if w["ready"] else "not ready",
                *("-" if w[name] is None else percent(w[name]) for name in ("loop", "starved")),
            ]
            for w in found["workers"]
        ),
        wide,
    )


def cut(line: str, wide: int) -> str:
    """A line that does not break.

    >>> cut("abcdef", 4), cut("abcd", 4)
    ('abc…', 'abcd')
    """
    return line if len(line) <= wide else line[: wide - 1] + "…"


def _wrapped(text: str, wide: int) -> Iterator[str]:
    """All of a text: what to do must not be cut."""
    text = plain(text)
    while len(text) > wide:
        at = text.rfind(" ", 1, wide + 1)
        at = wide if at <= 0 else at
        yield text[:at]
        text = text[at:].lstrip()
    yield text


def _table(headers: Sequence[str], rows: Iterator[Sequence[object]], wide: int) -> Iterator[str]:
    """An empty line and the rows, if there are any. The first column gives way, so that numbers stay in a narrow terminal."""
    cells = [list(headers), *([plain(cell) for cell in row] for row in rows)]
    if len(cells) == 1:
        return
    widths = [max(len(line[column]) for line in cells) for column in range(len(headers))]
    widths[0] = min(widths[0], max(8, wide - sum(widths[1:]) - 2 * (len(widths) - 1)))
    yield ""
    for line in cells:
        said = [
            cut(line[0], widths[0]).ljust(widths[0]),
            *(cell.ljust(at) for cell, at in zip(line[1:], widths[1:], strict=True)),
        ]
        yield cut("  ".join(said).rstrip(), wide)
