"""`headgate run MODULE:app`: one worker, or with `--workers N` several under a supervisor, which follows `headgate scale`.

SIGTERM and the first Ctrl-C make it commit, release and leave; a second Ctrl-C ends it at once. The exit code is the worker's: 0 if its run
closed or it was stopped, 1 if it failed or its bounded run has failed, 4 with `--no-wait` if the run is already closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from ....core.coordination.member.admission import goes_on
from ....core.coordination.messages import RunState
from ....core.errors import HeadgateError
from ....core.settings import parse, secrets_of
from ...logger import Logger
from ...process.configuration import CommandLine
from ...process.launch import RUN_FAILED, Identity, Seat, bound_inputs, load_app, state_root, take_seat, worker_options
from ...process.patterns import find_topics
from ...process.reading import shown
from ...process.signals import Signals
from ...status import documents
from ...worker.logs import FORMS, set_up
from ..group import show_error
from ..options import broker_options, configured, properties_given, worker_flags
from ..output import show_text

RESTORE_LOG_S = 5.0
WAITING_LOG_S = 1.5
OTHER_CODE = "this code cannot go on"
ADVICE = {
    "are those of the job": "give one of the two jobs another name or id: _ and - are the same in topics and directories",
    "another process": "stop that process, or give this one its own name with --processor-id",
    "is fixed for the life of a job": "change it back, or delete all state of the job with `headgate reset {job}`",
    OTHER_CODE: "run the code of that run until it ends, or until `headgate drain {job}` has closed it",
    "this code differs": "run the code that the run began with, or close the run first: `headgate drain {job} --wait`",
    "stop.timeout": "committed work is safe. Check that the brokers are running, or allow more time: --set stop.timeout=1m",
    "is live": "omit --run-id to join it, or close it: `headgate drain {job} --wait`",
    "is stopped": "resume it with `headgate start {job}`, and a worker with the --run-id of that run or none",
    "is drained": goes_on(RunState.DRAINED, "{job}"),
    "is ended": goes_on(RunState.ENDED, "{job}"),
    "can go no further": goes_on(RunState.STOPPED, "{job}", "failed"),
}
"""Advice for a worker's exit reasons."""
AGAIN = "to run it again now, use a new --run-id"
log = Logger("headgate.run")


@click.command()
@click.argument("target", metavar="MODULE:app")
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    help="Number of worker processes; they are restarted when they die, and their number follows `headgate scale`.  "
    "[default: the setting workers; else one, and no supervisor]",
)
@click.option(
    "--processor-id",
    default="",
    metavar="ID",
    help="Stable name of this worker.  [default: host name and a number]",
)
@click.option("--run-id", default="", metavar="ID", help="Begin, resume or join this run.")
@click.option(
    "--deployment",
    default="",
    metavar="ID",
    help="Identifies the code.  [default: fingerprint of graph and immutable settings]",
)
@click.option("--bounded", is_flag=True, help="Stop at the offsets where the inputs end now.")
@click.option("--no-wait", is_flag=True, help="Exit with 4 instead of waiting if the run is closed.")
@worker_flags
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    help="auto: console on a terminal, else JSON.",
)
@click.option(
    "--supervised",
    default="",
    hidden=True,
    help="The process id that the supervisor chose; it knows that the previous process is dead.",
)
@click.option("--successor", is_flag=True, hidden=True, help="A previous process with this id ran here, and is dead.")
@click.option("--since", type=int, default=0, hidden=True, help="When the supervisor started, in ms since 1970.")
@click.option("--spare", is_flag=True, hidden=True, help="Load, and wait until the supervisor says which worker to be.")
@click.option(
    "--held", type=int, hidden=True, help="The supervisor's socket: report the job there, and start on its signal."
)
@broker_options
def run(
    target: str,
    workers: int | None,
    processor_id: str,
    run_id: str,
    deployment: str,
    bounded: bool,
    no_wait: bool,
    settings: tuple[str, ...],
    state_dir: Path | None,
    web_port: int | None,
    app_dir: Path | None,
    log_format: str,
    supervised: str,
    successor: bool,
    since: int,
    spare: bool,
    held: int | None,
    said: CommandLine,
) -> None:
    """Run a job: MODULE:app is an App, or a function that returns one."""
    if spare:
        from ...process.supervisor import awaited

        role = awaited()
        processor_id, supervised, successor, since = role.processor, role.process, role.successor, role.since_ms
        web_port = role.web_port or web_port
    app = load_app(target, app_dir)
    if bounded:
        bound_inputs(app)
    said = replace(said, settings=flags(settings, state_dir, web_port, processor_id))
    configuration = configured(said, app=app.settings)
    if not supervised and held is None and (workers or configuration.value("workers")):
        from ...process.supervisor import supervise

        raise SystemExit(supervise(child_arguments(), workers or 0, app, configuration))
    if held is not None:
        from ...process.development import held as until_signalled

        run_id = until_signalled(app, configuration, held)
    root = state_root(configuration, app.job)
    seat = take_seat(root, str(configuration.value("processor.id")))
    identity = Identity(seat.processor, supervised, successor, run_id, deployment, no_wait, bounded, since)
    try:
        code = asyncio.run(live(app, configuration, seat, identity, root, log_format))
    finally:
        seat.leave()
    raise SystemExit(code)


def flags(settings: tuple[str, ...], state_dir: Path | None, web_port: int | None, processor: str) -> dict[str, Any]:
    """The settings that are given as flags."""
    found: dict[str, Any] = {}
    for pair in settings:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes NAME=VALUE, not {pair!r}")
        parse(name.strip(), value.strip())
        found[name.strip()] = value.strip()
    if state_dir is not None:
        found["state.dir"] = str(state_dir)
    if web_port is not None:
        found["web.port"] = web_port
    if processor:
        found["processor.id"] = processor
    return found


def config_file() -> list[str]:
    """`--config-file` for a child: its secrets stay in the file."""
    given = properties_given()
    return [] if given is None else ["--config-file", str(given)]


def child_arguments() -> list[str]:
    """The arguments after `run`, for the children of `--workers`."""
    context = click.get_current_context()
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in ("workers", "processor_id", "supervised", "successor", "since") or value in (
            None,
            False,
            "",
            (),
        ):
            continue
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(parameter.opts[-1])
        else:
            for one in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[-1], str(one)]
    return [*words, *config_file()]


async def live(app: Any, configuration: Any, seat: Seat, identity: Identity, root: Path, log_format: str) -> int:
    """Run one worker, from its page to its exit code."""
    from ...process.memory import prepare_process
    from ...web.door import PageDoor
    from ...web.service import Page
    from ...worker.worker import Worker

    web = {name: configuration.value(f"web.{name}") for name in ("host", "port", "token")}
    page = Page(str(web["host"]), int(web["port"]), PageDoor(str(web["host"]), str(web["token"])))
    await page.bind()
    await find_topics(app, configuration)
    options = worker_options(app, configuration, seat, identity, root=root, url=page.url)
    worker = Worker(options)
    waiting = Waiting(worker, shown(app.job))
    worker.participant.on_waiting = waiting
    prepare_process()
    bound = {
        "job": str(app.job),
        "worker": seat.processor,
        "run": lambda: page.run_id(),
        "incarnation": lambda: worker.incarnation,
    }
    set_up(
        form=log_format,
        level=str(configuration.value("log.level")),
        secrets=secrets_of(configuration.client.given, configuration.given),
        bound=bound,
    )
    click.echo(f"{seat.processor} of {app.job}: {page.url}", err=True)
    await page.start(worker, configuration)
    running = asyncio.get_running_loop().create_task(worker.run(), name="worker")
    leaving = Leaving(worker, running)
    leaving.listen()
    restores = asyncio.get_running_loop().create_task(tell_restores(worker), name="restores")
    try:
        code = await running
        if code:
            show_error(last_words(worker.participant.exit_why, shown(app.job)))
        elif "ended" in worker.participant.exit_why:
            show_text(done(worker.participant.exit_why), err=True)
        return RUN_FAILED if code and identity.process and "can go no further" in worker.participant.exit_why else code
    except asyncio.CancelledError:
        if leaving.asked:
            return 0
        raise
    except HeadgateError as error:
        if worker.ending.held:
            show_error(error)
        raise
    except Exception:  # noqa: BLE001 - the worker has logged it with its traceback
        return 1
    finally:
        restores.cancel()
        waiting.no_more()
        if not worker.ending.held:
            await page.stop()
            await worker.ending.rest()
        if worker.ending.held:
            end_without_waiting(worker)


class WorkerEnds(HeadgateError):
    """A worker that must not run, or cannot go on."""


def last_words(why: str, job: str) -> WorkerEnds:
    """What a worker that must not run or continue says at its end: the reason, and what helps.

    >>> print(last_words("run r1 is live; 'r2' may begin when it is closed", "sales").remedy)
    omit --run-id to join it, or close it: `headgate drain sales --wait`
    """
    helps = next((text for sign, text in ADVICE.items() if sign in why), "see the log above")
    return WorkerEnds(why, remedy=helps.format(job=job))


def done(why: str) -> str:
    """The last message of a worker that had nothing to do.

    >>> done("run r1 has ended")
    'Done: run r1 has ended'
    >>> done("run r1 had just ended, and counts as its own")
    'Done: run r1 had just ended, and counts as its own; to run it again now, use a new --run-id'
    """
    return f"Done: {why}{f'; {AGAIN}' if 'counts as its own' in why else ''}"


class Waiting:
    """Says that the run is closed and that this worker does not begin another. Printed once, because the wait may be without end.

    A run that the leader begins at once, for `--bounded`, a new `--run-id` or another graph, has not been waited for: nothing is said.
    """

    def __init__(self, worker: Any, job: str, after_s: float = WAITING_LOG_S) -> None:
        self.worker, self.job, self.after_s = worker, job, after_s
        self._due: asyncio.TimerHandle | None = None

    def __call__(self, why: str, state: str, failed: str) -> None:
        """Say it, if it is still so in a moment."""
        helps = ADVICE[OTHER_CODE].format(job=self.job) if OTHER_CODE in why else goes_on(state, self.job, failed)
        self.no_more()
        if helps:
            self._due = asyncio.get_running_loop().call_later(self.after_s, self._say, why, helps)

    def no_more(self) -> None:
        """Say nothing more."""
        if self._due is not None:
            self._due.cancel()

    def _say(self, why: str, helps: str) -> None:
        if self.worker.participant.why == why:
            show_text(f"Waiting: {why}.\nTo continue: {helps}", err=True)


def end_without_waiting(worker: Any) -> NoReturn:
    """Exit although a part of the worker does not end: user code that swallows its cancellation, or a client without a broker.

    Everything that must be durable is durable, and waiting would never end.
    """
    show_error(WorkerEnds(f"these did not stop and were abandoned: {', '.join(worker.ending.held)}"))
    sys.stderr.flush()
    os._exit(1 if worker.participant.exit_code is None else worker.participant.exit_code)


async def tell_restores(worker: Any) -> None:
    """Log the progress of restores every few seconds."""
    while True:
        await asyncio.sleep(RESTORE_LOG_S)
        line = restore_line(documents.restores(worker))
        if line:
            log.info(line)


def restore_line(restores: list[tuple[str, int, int, float]]) -> str:
    """The progress of running restores; empty if there are none.

    >>> restore_line([("Partition 3", 250_000, 1_000_000, 5.0)])
    'restoring Partition 3: 25 %, 250,000 of 1,000,000 records, about 15 s to go'
    """
    if not restores:
        return ""
    done, of = sum(one[1] for one in restores), sum(one[2] for one in restores)
    seconds = max(one[3] for one in restores)
    left = f", about {seconds * (of - done) / done:.0f} s to go" if done else ""
    who = restores[0][0] if len(restores) == 1 else f"{len(restores)} tasks"
    return f"restoring {who}: {100 * done // max(1, of)} %, {done:,} of {of:,} records{left}"


class Leaving:
    """Reacts to signals: the first one makes the worker leave. `signals` decides what follows if it does not, and what a second Ctrl-C
    does.
    """

    def __init__(self, worker: Any, running: asyncio.Task[int]) -> None:
        self.worker = worker
        self.running = running
        self.asked = ""

    def listen(self) -> None:
        """Take over the signals."""
        loop = asyncio.get_running_loop()
        Signals(
            lambda number: loop.call_soon_threadsafe(self.heard, number),
            lambda: self.worker.settings.seconds("stop.prepare") + self.worker.settings.seconds("stop.timeout"),
            self._nothing_suspected,
        ).listen()

    def _nothing_suspected(self) -> None:
        """A process that a person ends at once has not died of its letters."""
        for actor in list(self.worker.actors.values()):
            actor.suspicion.ended()

    def heard(self, number: signal.Signals) -> None:
        """Handle one signal."""
        name = signal.Signals(number).name
        self.asked = name
        click.echo(f"{name}: committing and leaving (Ctrl-C again exits at once)", err=True)
        if hasattr(self.worker.coordination, "member"):
            self.worker.leave(name, prepared=number == signal.SIGTERM)
        else:
            self.running.cancel()
