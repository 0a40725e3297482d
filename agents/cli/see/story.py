"""`headgate story JOB [TASK|leader|WORKER]`: what the machines of a job saw and decided, by time and cause, from the stories on the
disks of its workers.

Workers are asked for their own; of one that does not answer, any other that shares its disk. `--state-dir` reads a disk without asking
anyone, with no worker alive and no broker. `--follow` goes on with what happens, until the run is over or Ctrl-C. Exit codes: 0, or 4 if
nothing of it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ....core.coordination.messages import CLOSED
from ....core.coordination.metadata import LOCALITY, stored
from ....core.errors import NotFound
from ....core.names import JobName, task_directory
from ....core.settings import duration_ms
from ...process.configuration import CommandLine
from ...process.reading import following
from ...status.documents import time_of
from ...stories.files import folders_in
from ...stories.reading import StoryReader
from ...stories.texts import document, wanted
from ..group import Mistyped
from ..options import Target, broker_options, run_async, target
from ..output import json_line, output_option, plain, shown_as_json
from ..pages import page, refusal, token_option

DEFAULT_LAST = "15m"
MOST = 5000
EVERY_S = 1.0
"""As often as workers write."""
SLACK_MS = 5000
"""A line may come so much later than others of its worker that are newer."""


@click.command()
@click.argument("job")
@click.argument("of", metavar="[TASK|leader|WORKER]", default="")
@click.option("--last", metavar="DURATION", help=f"Only lines of the last so long.  [default: {DEFAULT_LAST}]")
@click.option("--since", metavar="TIME", help="Only lines from this time on: 2026-01-01T00:00:00Z, or ms.")
@click.option("--all", "everything", is_flag=True, help="Routine, too: every chunk, commit and heartbeat.")
@click.option(
    "--lines", type=click.IntRange(1, MOST), default=500, show_default=True, help="At most so many, the newest."
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Read the stories in this state directory, and ask no worker.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until the run is over or Ctrl-C.")
@token_option
@broker_options
@output_option
def story(
    job: str,
    of: str,
    last: str | None,
    since: str | None,
    everything: bool,
    lines: int,
    state_dir: Path | None,
    follow: bool,
    web_token: str | None,
    said: CommandLine,
    output: str,
) -> None:
    """Show what the machines of a job saw and decided, by time and cause."""
    if last is not None and since is not None:
        raise click.UsageError("give --last or --since, not both")
    if follow and state_dir is not None:
        raise click.UsageError("--follow asks workers; leave out --state-dir")
    now_ms = int(time.time() * 1000)
    since_ms = now_ms - duration_ms(last or DEFAULT_LAST) if since is None else moment_ms(since)
    if state_dir is not None:
        found = on_disk(state_dir, JobName.parse(job), of, since_ms, lines, everything=everything)
    else:
        to = target(job, said, web_token=web_token)
        if follow:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the normal way to end it
                run_async(_followed(to, of, Seen(since_ms), lines, everything=everything, output=output))
            return
        found = run_async(asked(to, of, since_ms, lines, everything=everything))
    if not shown_as_json(output, found):
        show(found)


def moment_ms(text: str) -> int:
    """A time as it is typed.

    >>> moment_ms("2026-01-01T00:00:00Z"), moment_ms("1767225600000")
    (1767225600000, 1767225600000)
    """
    try:
        return int(text) if text.isdecimal() else round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError as error:
        raise Mistyped(f"{text!r} is not a time", remedy="2026-01-01T00:00:00Z, or a number of ms") from error


def on_disk(state_dir: Path, job: JobName, of: str, since_ms: int, most: int, *, everything: bool) -> dict[str, Any]:
    """The stories below a state directory, as a document; its schema is `schemas/story.json`."""
    folders = folders_in(state_dir.expanduser() / job.directory)
    if not folders:
        raise NotFound(f"{state_dir} has no story of {job}", remedy="give the --state-dir of its workers")
    reader = StoryReader(*folders)
    lines, more = reader.lines(wanted(of, everything=everything), since_ms=since_ms, most=most)
    return _made(job, since_ms, [document(one) for one in lines], more, reader.left_out.bytes, {}, 0)


@dataclass(slots=True)
class Seen:
    """What was shown so far: each worker is asked from a little before its newest line on, by its own clock."""

    since_ms: int
    newest_ms: dict[str, int] = field(default_factory=dict[str, int])
    """By the directory of a worker's story."""
    events: dict[tuple[str, str, int], int] = field(default_factory=dict[tuple[str, str, int], int])
    """The number of the last event, by worker, process and machine."""

    def since(self, folder: str) -> int:
        """From when on the lines of a worker may be new."""
        return max(self.since_ms, self.newest_ms.get(folder, 0) - SLACK_MS)

    def new(self, lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those of these lines that were not shown, which they are now. Those of one machine come in their order.

        >>> one = {"worker": "w1", "process": "p", "number": 0, "event_number": 7, "at_ms": 90_000}
        >>> seen = Seen(0)
        >>> len(seen.new([one])), len(seen.new([one, {**one, "event_number": 8}])), seen.since("w1")
        (1, 1, 85000)
        """
        found: list[dict[str, Any]] = []
        for line in lines:
            machine, folder = (line["worker"], line["process"], line["number"]), task_directory(line["worker"])
            if line["event_number"] > self.events.get(machine, -1):
                self.events[machine] = line["event_number"]
                self.newest_ms[folder] = max(line["at_ms"], self.newest_ms.get(folder, 0))
                found.append(line)
        return found


async def _followed(to: Target, of: str, seen: Seen, most: int, *, everything: bool, output: str) -> None:
    """Show what has happened, and then what happens; as JSON, one line of the story on each line."""
    noted: list[str] = []
    async with following(to.client, to.topics) as stream:
        while True:
            run = (await stream.to_end()).run
            found = await answers_of(to, stored(stream.job, LOCALITY), of, seen, most, everything=everything)
            found["lines"] = seen.new(found["lines"])
            if output == "json":
                for line in found["lines"]:
                    click.echo(json_line(line))
            else:
                show_lines(found)
            notes = remarks(found) if found["lines"] else [f"not seen: {one['why']}" for one in found["unseen"]]
            for note in notes:
                if note not in noted:
                    click.echo(plain(note), err=True)
            noted = notes
            if run is not None and run.state in CLOSED:
                click.echo(
                    f"run {plain(run.run_id)} is {run.state}; what came last is on the disks of its workers", err=True
                )
                return
            most = MOST
            await asyncio.sleep(EVERY_S)


async def asked(to: Target, of: str, since_ms: int, most: int, *, everything: bool) -> dict[str, Any]:
    """The stories of all workers, as they answer; a document like that of `on_disk`."""
    async with following(to.client, to.topics) as stream:
        workers = stored(stream.job, LOCALITY)
    if not workers:
        raise NotFound(
            f"no worker of {to.job} runs, and only workers answer",
            remedy="read a disk with --state-dir, on the machine where they ran",
        )
    return await answers_of(to, workers, of, Seen(since_ms), most, everything=everything)


async def answers_of(
    to: Target, workers: Mapping[str, Any], of: str, seen: Seen, most: int, *, everything: bool
) -> dict[str, Any]:
    """What these workers answer, each from its own time on."""
    since_ms = seen.since_ms

    def query(folder: str) -> dict[str, str]:
        return {"of": of, "since": str(seen.since(folder)), "most": str(most), "all": "1" if everything else ""}

    urls = {name: str(one["url"] or "") for name, one in workers.items()}
    first = await asyncio.gather(*(_ask(to, url, query(task_directory(name))) for name, url in urls.items()))
    answers = {name: answer for name, (status, answer) in zip(urls, first, strict=True) if status == 200}
    holders = {folder: name for name, answer in answers.items() for folder in answer["here"]}
    rest = {folder: name for folder, name in holders.items() if folder not in map(task_directory, answers)}
    second = await asyncio.gather(
        *(_ask(to, urls[name], {**query(folder), "folder": folder}) for folder, name in rest.items())
    )
    others = [answer for status, answer in second if status == 200]
    unseen = {
        name: refusal(name, status) or f"{name} cannot be reached, and no other worker has its disk"
        for name, (status, _) in zip(urls, first, strict=True)
        if status != 200 and task_directory(name) not in rest
    }
    unseen |= {name: f"{name} keeps no story: {answer['off']}" for name, answer in answers.items() if answer["off"]}
    every = [*answers.values(), *others]
    lines = sorted((line for one in every for line in one["lines"]), key=_order)
    more = sum(one["more"] for one in every) + max(0, len(lines) - most)
    left_out, lost = sum(one["left_out_bytes"] for one in every), sum(one["lost"] for one in answers.values())
    return _made(to.job, since_ms, lines[-most:], more, left_out, unseen, lost)


def _order(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["at_ms"], line["process"], line["number"], line["event_number"]


async def _ask(to: Target, url: str, query: dict[str, str]) -> tuple[int, Any]:
    return await page(to, url, "story", query) if url else (0, None)


def _made(
    job: JobName,
    since_ms: int,
    lines: list[dict[str, Any]],
    more: int,
    left_out: int,
    unseen: dict[str, str],
    lost: int,
) -> dict[str, Any]:
    return {
        "job": str(job),
        "since_ms": since_ms,
        "lines": [{"at": time_of(one["at_ms"]), **one} for one in lines],
        "more": more,
        "left_out_bytes": left_out,
        "lost": lost,
        "unseen": [{"worker": name, "why": why} for name, why in sorted(unseen.items())],
    }


def show(found: dict[str, Any]) -> None:
    """Print a story for people, and what is not shown of it."""
    show_lines(found)
    for note in remarks(found):
        click.echo(plain(note), err=True)


def show_lines(found: dict[str, Any]) -> None:
    """A line for each event, and below it what was decided."""
    for line in found["lines"]:
        if line["lost_before"]:
            click.echo(f"… {line['lost_before']} lines of {plain(line['name'])} are lost")
        click.echo(f"{str(line['at'])[:23]}  {plain(line['worker'])}  {plain(who(line))}  {plain(state(line))}")
        because = f"  ({plain(line['why'])})" if line["why"] else ""
        click.echo(f"    {plain(line['event'])}{because}")
        for decided in line["decided"]:
            click.echo(f"      → {plain(decided)}")


def who(line: dict[str, Any]) -> str:
    """The machine of a line.

    >>> who({"machine": "task", "name": "Partition 0", "grant": 3}), who({"machine": "leader", "name": "w1", "grant": None})
    ('Partition 0 #3', 'leader')
    """
    return f"{line['name']} #{line['grant']}" if line["machine"] == "task" else line["machine"]


def state(line: dict[str, Any]) -> str:
    """What became of its state.

    >>> state({"before": "waiting", "after": "restoring"}), state({"before": "working", "after": "working"})
    ('waiting → restoring', 'working')
    """
    return line["after"] if line["before"] == line["after"] else f"{line['before']} → {line['after']}"


def remarks(found: dict[str, Any]) -> list[str]:
    """What is not shown, and why.

    >>> remarks({"lines": [], "more": 0, "left_out_bytes": 0, "lost": 0, "unseen": [], "since_ms": 0})
    ['nothing but routine since 1970-01-01T00:00:00.000Z; --last or --since reach further back, --all shows routine']
    """
    found_notes: list[str] = []
    if not found["lines"]:
        since = time_of(found["since_ms"])
        found_notes.append(
            f"nothing but routine since {since}; --last or --since reach further back, --all shows routine"
        )
    if found["more"]:
        found_notes.append(f"{found['more']} older lines are not shown; see --lines and --since")
    if found["left_out_bytes"]:
        found_notes.append(f"{found['left_out_bytes']} bytes were not written completely, or are damaged")
    if found["lost"]:
        found_notes.append(f"{found['lost']} lines could not be written: a disk was full or did not answer")
    return [*found_notes, *(f"not seen: {one['why']}" for one in found["unseen"])]
