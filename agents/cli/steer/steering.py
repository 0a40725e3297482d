"""The verbs that send a request to a job: `drain`, `stop`, `start`, `pause`, `resume`, `move`, `scale`.

Each writes one request and follows its answer. Without `--wait` a verb ends when the leader has accepted the request, with it when the
request is done. Exit codes: 0 done, 1 refused or failed, 3 the deadline passed (with what is not done), 4 no such job or no live run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import click

from ....core.coordination import requests as r
from ....core.coordination.fleet import WORKERS
from ....core.coordination.metadata import CONFIG, REQUESTS, MetadataStore
from ....core.coordination.state import JobState
from ....core.errors import EnvironmentFault
from ....core.names import JobName
from ...process.cascade import cascade
from ...process.reading import heard, shown
from ...process.requests import Outcome, Request, ask, drains_of, to_withdraw
from ..options import Target, about_job, run_async, wait_options
from ..output import output_option, plain, show_json, show_table, show_text, shown_as_json
from ..see.draining import progress_lines

run_option = click.option(
    "--run-id", default="", metavar="ID", help="The run that the request is for.  [default: the live run]"
)


def asked(to: Target, request: Request, wait: bool, timeout: float, output: str) -> None:
    """Send the request, and show the outcome."""

    def say(answer: Any, _: Any) -> None:
        if answer.state not in ("done", "refused", "failed"):
            click.echo(f"{request.verb} of {shown(to.job)}: {answer.state} (request {answer.uuid})", err=True)

    look = DrainWatch(to).look if request.verb == r.DRAIN and wait else None
    try:
        found = run_async(ask(to.client, to.topics, request, wait=wait, timeout_s=timeout, say=say, look=look))
    except KeyboardInterrupt:
        click.echo(f"An accepted request continues in the background: `headgate status {shown(to.job)}`", err=True)
        raise
    show_outcome(to, request, found, output)


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

    def __call__(self, request: Request) -> None:
        """Send the request, and show the outcome."""
        asked(self.to, request, self.wait, self.timeout, self.output)

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


def show_outcome(to: Target, request: Request, found: Outcome, output: str) -> None:
    """Print the outcome, for people or for programs."""
    if shown_as_json(output, outcome_document(to, request, found)):
        return
    paused = f", {found.paused}" if found.paused else ""
    run = f"; run {found.run_id} is {found.run_state}{paused}" if found.run_id else ""
    why = f" ({found.why})" if found.why else ""
    back = (
        f"; `headgate requests withdraw {shown(to.job)} {found.uuid}` withdraws it" if found.state == "written" else ""
    )
    show_text(f"{request.verb} of {shown(to.job)}: {found.state}{why}{run}{back}")


def outcome_document(to: Target, request: Request, found: Outcome) -> dict[str, Any]:
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
    }


@click.command()
@click.argument("job")
@run_option
@click.option("--mode", default=r.DEFAULT_MODE, show_default=True, help="How to drain; there is only `default` so far.")
@click.option("--list", "list_", is_flag=True, help="Only list the drains that are pending or in progress.")
@click.option(
    "--withdraw",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="REQUEST",
    help="Withdraw this pending drain (its id, or the start of it); without REQUEST the only one there is.",
)
@click.option(
    "--cascade",
    "cascade_",
    is_flag=True,
    help="Wait, then drain the jobs that read what this one shares, and so on, each after its producers.",
)
@asks()
def drain(ask: Asker, run_id: str, mode: str, list_: bool, withdraw: str | None, cascade_: bool) -> None:
    """Stop reading, finish everything that was read, and close the run for good.

    Batches and timers are flushed, results are committed, and the workers exit with 0. The next run continues after what was read.
    With `--run-id` you can request the drain before that run has started.
    """
    if sum([list_, withdraw is not None, cascade_]) > 1:
        raise click.UsageError("--list, --withdraw and --cascade exclude each other")
    if cascade_:
        drain_followers(ask, Request(r.DRAIN, run_id, {"mode": mode}))
    elif list_:
        show_drains(ask.to, drains_of(ask.to.folded()), ask.output)
    elif withdraw is not None:
        ask.metadata.remove(REQUESTS, to_withdraw(ask.to.folded(), withdraw, ask.to.job, r.DRAIN))
    else:
        ask(Request(r.DRAIN, run_id, {"mode": mode}))


def drain_followers(ask: Asker, request: Request) -> None:
    """Drain the job and those behind it, and show each outcome; the schema of the document is `schemas/drain-cascade.json`."""
    drained: list[dict[str, Any]] = []

    def tell(job: JobName, found: Outcome | None) -> None:
        to = replace(ask.to, job=job)
        if found is not None:
            drained.append(outcome_document(to, request, found))
        if ask.output == "json":
            return
        if found is not None:
            show_outcome(to, request, found, ask.output)
        else:
            click.echo(f"drain of {shown(job)}: its run is over already")

    to = ask.to
    run_async(cascade(to.client, to.topics, request.arguments, run_id=request.run_id, timeout_s=ask.timeout, tell=tell))
    if ask.output == "json":
        show_json({"job": str(to.job), "drained": drained})


def show_drains(to: Target, found: list[dict[str, Any]], output: str) -> None:
    """Print the drains, for people or for programs; the schema is `schemas/drain-list.json`."""
    if shown_as_json(output, {"job": str(to.job), "drains": found}):
        return
    show_table(
        ["REQUEST", "WRITTEN", "RUN", "MODE", "BY", "STATE", "DRAINED", "WHY"],
        (
            [
                one["request"], one["written"] or "-", one["run"] or "-", one["mode"], one["by"], one["state"],
                f"{one['done']} of {one['of']} tasks" if one["of"] else "-", one["why"] or "-",
            ]
            for one in found
        ),
        none=f"No drain of {shown(to.job)} is pending or in progress.",
    )  # fmt: skip


@click.command()
@click.argument("job")
@run_option
@click.option(
    "--worker", default="", metavar="PROCESSOR", help="Stop only this worker; its tasks wait for its return, then move."
)
@click.option("--for-good", is_flag=True, help="With --worker: the worker will not come back; its tasks move at once.")
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
@asks(wait=True)
def scale(ask: Asker, workers: int) -> None:
    """Set the number of workers. The supervisor of `headgate run --workers` starts those that are missing, and stops the last ones.

    The number stays, also for the next run. `headgate config unset JOB workers` gives it back to `--workers`.
    """
    ask.metadata.put(CONFIG, WORKERS, workers)
