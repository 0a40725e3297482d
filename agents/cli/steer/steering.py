"""The verbs that send a request to a job: `stop`, `start`, `pause`, `resume`, `move`, `scale`, `grow`; and what they and `drain` have in
common.

Each writes one request and follows its answer. Without `--wait` a verb ends when the leader has accepted the request, with it when the
request is done. Exit codes: 0 done, 1 refused or failed, 3 the deadline passed (with what is not done), 4 no such job or no live run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import click

from ....core.coordination import requests as r
from ....core.coordination.fleet import WORKERS
from ....core.coordination.metadata import CONFIG, MetadataStore
from ....core.coordination.state import JobState
from ....core.errors import EnvironmentFault
from ...process.reading import heard, shown
from ...process.requests import Outcome, Request, ask
from ...process.scaling import until_settled
from ...status.draining import progress_lines
from ..options import Target, about_job, run_async, wait_options
from ..output import output_option, plain, show_text, shown_as_json

StaysParked = Callable[[Target], int | None]
run_option = click.option(
    "--run-id", default="", metavar="ID", help="The run that the request is for.  [default: the live run]"
)


def asked(
    to: Target, request: Request, wait: bool, timeout: float, output: str, left: StaysParked | None = None
) -> None:
    """Send the request, and show the outcome. `left`: finds how many records stay parked behind it, when it is done."""

    def say(answer: Any, _: Any) -> None:
        if answer.state not in ("done", "refused", "failed"):
            click.echo(f"{request.verb} of {shown(to.job)}: {answer.state} (request {answer.uuid})", err=True)

    look = DrainWatch(to).look if request.verb == r.DRAIN and wait else None
    try:
        found = run_async(ask(to.client, to.topics, request, wait=wait, timeout_s=timeout, say=say, look=look))
    except KeyboardInterrupt:
        click.echo(f"An accepted request continues in the background: `headgate status {shown(to.job)}`", err=True)
        raise
    show_outcome(to, request, found, output, left(to) if left is not None and found.state == "done" else None)


class DrainWatch:
    """Says on standard error how far a drain is, whenever that has changed."""

    def __init__(self, to: Target) -> None:
        self._to = to
        self._said: list[str] = []

    async def look(self, state: JobState) -> None:
        """Read the heartbeats, and say what is new."""
        from ..see.status import document

        try:
            hearing = await heard(self._to.client, self._to.topics.heartbeat, state)
        except EnvironmentFault as error:
            show_text(f"the progress cannot be read: {error.what}", err=True)
            return
        found = document(self._to, state, hearing)
        if (drain := found["drain"]) is None:
            return
        lines = [
            f"{drain['done']} of {drain['of']} tasks have drained",
            *progress_lines(drain, found["tasks"], found["batches"]),
        ]
        if lines != self._said:
            self._said = lines
            show_text("\n  ".join(map(plain, lines)), err=True)


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends requests to one job, and waits for the answers as the options say."""

    to: Target
    wait: bool
    timeout: float
    output: str

    def __call__(self, request: Request, left: StaysParked | None = None) -> None:
        """Send the request, and show the outcome; see `asked`."""
        asked(self.to, request, self.wait, self.timeout, self.output, left)

    @property
    def metadata(self) -> MetadataStore:
        """The metadata of the job. A write becomes a request, which is sent and shown like any other."""
        return MetadataStore(self.to.folded, lambda request: self(Request.of(request)))


def asks(*, wait: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of all verbs that send requests; the function gets `ask`, an `Asker`, in their place.

    `wait`: the default of `--wait`; true if the answer comes at once.
    """

    def add(verb: Callable[..., None]) -> Callable[..., None]:
        @wait_options(wait=wait)
        @about_job
        @output_option
        @wraps(verb)
        def command(to: Target, wait: bool, timeout: float, output: str, **own: Any) -> None:
            verb(Asker(to, wait, timeout, output), **own)

        return command

    return add


def show_outcome(to: Target, request: Request, found: Outcome, output: str, parked: int | None = None) -> None:
    """Print the outcome, for people or for programs. `parked`: how many records stay parked behind it; None if that was not looked for."""
    if shown_as_json(output, outcome_document(to, request, found, parked)):
        return
    paused = f", {found.paused}" if found.paused else ""
    run = f"; run {found.run_id} is {found.run_state}{paused}" if found.run_id else ""
    why = f" ({found.why})" if found.why else ""
    back = (
        f"; `headgate requests withdraw {shown(to.job)} {found.uuid}` withdraws it" if found.state == "written" else ""
    )
    lines: list[Any] = list(found.progress.get("inputs", ())) if request.verb == r.GROW else []
    show_text(f"{request.verb} of {shown(to.job)}: {found.state}{'' if lines else why}{run}{back}")
    for one in lines:
        show_text(f"  {plain(r.grown_line(one))}")
    show_parked(to, parked)


def show_parked(to: Target, parked: int | None) -> None:
    """Say how many records stay parked behind a drain, if any do."""
    if parked:
        stay = f"{parked:,} record{'s stay' if parked > 1 else ' stays'} parked"
        show_text(f"{stay}, which the next run takes up: `headgate parked {shown(to.job)}` shows why")


def outcome_document(to: Target, request: Request, found: Outcome, parked: int | None = None) -> dict[str, Any]:
    """The document of `-o json`; its schema is `schemas/answer.json`."""
    return {
        "job": str(to.job),
        "request": found.uuid,
        "verb": request.verb,
        "state": found.state,
        "why": found.why,
        "run": found.run_id or None,
        "run_state": found.run_state or None,
        "progress": dict(found.progress),
        "parked": parked,
    }


@click.command()
@click.argument("job")
@run_option
@click.option(
    "--worker",
    default="",
    metavar="PROCESSOR",
    help="Stop only this worker; others prepare its tasks first, for at most `stop.prepare`. With `0s` they wait, then move.",
)
@click.option(
    "--for-good", is_flag=True, help="With --worker: the worker will not come back; its tasks do not wait for it."
)
@asks()
def stop(ask: Asker, run_id: str, worker: str, for_good: bool) -> None:
    """Commit and stop the workers. The run stays open, and `start` resumes it."""
    if for_good and not worker:
        raise click.UsageError("--for-good needs --worker")
    arguments: dict[str, Any] = {"worker": worker} if worker else {}
    if for_good:
        arguments["for_good"] = True
    ask(Request(r.STOP, run_id, arguments))


@click.command()
@click.argument("job")
@click.option("--run-id", default="", metavar="ID", help="The id of the new run, or the run to resume.")
@asks(wait=True)
def start(ask: Asker, run_id: str) -> None:
    """Resume the stopped run, or begin a new one after a drain or an end. Needs a running worker."""
    ask(Request(r.START, run_id))


stream_option = click.option("--stream", default="", metavar="TOPIC", help="Only this input.  [default: the whole job]")


@click.command()
@click.argument("job")
@stream_option
@asks(wait=True)
def pause(ask: Asker, stream: str) -> None:
    """Stop reading until `resume`, even if workers restart."""
    ask(Request(r.PAUSE, arguments={"stream": stream} if stream else {}))


@click.command()
@click.argument("job")
@stream_option
@asks(wait=True)
def resume(ask: Asker, stream: str) -> None:
    """Continue reading after `pause`."""
    ask(Request(r.RESUME, arguments={"stream": stream} if stream else {}))


@click.command()
@click.argument("job")
@click.argument("task")
@click.option("--to", "processor", required=True, metavar="PROCESSOR", help="The worker that is to run it.")
@asks()
def move(ask: Asker, task: str, processor: str) -> None:
    """Move one task to another worker. It stays there as long as that worker is alive."""
    ask(Request(r.MOVE, arguments={"task": task, "to": processor}))


@click.command()
@click.argument("job")
@click.argument("workers", type=click.IntRange(1, 1000), metavar="N")
@click.option(
    "--settled", is_flag=True, help="Wait until the workers are there, and each task runs where it is to run."
)
@asks(wait=True)
def scale(ask: Asker, workers: int, settled: bool) -> None:
    """Set the number of workers. The supervisor of `headgate run --workers` starts those that are missing, and stops the last ones.

    The number stays, also for the next run. `headgate config unset JOB workers` gives it back to `--workers`.
    """
    ask.metadata.put(CONFIG, WORKERS, workers)
    if settled:
        say = partial(show_text, err=True)
        run_async(until_settled(ask.to.client, ask.to.topics, workers, ask.timeout, say))


@click.command()
@click.argument("job")
@run_option
@asks(wait=True)
def grow(ask: Asker, run_id: str) -> None:
    """Look now for new partitions of the inputs, and for new topics of patterns. The leader looks by itself each `inputs.look-interval`.

    Says for each input what was found, and what follows. Ends when the tasks run with what they have got.
    """
    ask(Request(r.GROW, run_id))
