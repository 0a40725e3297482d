"""`headgate dev MODULE:app`: a job at work while it is written.

It runs one worker on the Kafka of `headgate kafka up`; if that is not up, on a Kafka of its own, in a temporary directory with the worker's
tables. Missing topics are created, logs are for people, and the worker is replaced when a Python file changes. What becomes of runs then is
said in `process/development.py`.

Promises: only a broker that is given with `-b` or `--config-file` is used in place of an embedded one: topics are created there, and a
variable or `headgate.toml` may name one that others need. Ctrl-C and SIGTERM end the worker, with exit code 0; a second Ctrl-C kills it,
with 130. Of a Kafka of its own nothing is left then, no process and no file, and not after kill -9 either: a guard waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ...broker.broker import Broker
from ...broker.guard import Lease
from ...broker.ports import free_ports
from ...broker.registry import enlist, running_broker, strike_off
from ...process.configuration import CommandLine, Configuration, read_properties
from ...process.development import Development
from ...process.supervisor import ENDED_AT_ONCE, run_command
from ..group import show_error
from ..options import broker_options, configured, properties_given, worker_flags
from ..output import show_text
from .run import config_file, flags

PLAIN = "security.protocol=PLAINTEXT"
"""For workers on an embedded broker whose settings file has those of another one."""


@dataclass(frozen=True, slots=True)
class DevKafka:
    """The Kafka that the job works on."""

    bootstrap: str
    embedded: bool = False
    state: Path | None = None
    """Where the tables of a job lie if this command has started Kafka: they go with it."""


@click.command()
@click.argument("target", metavar="MODULE:app")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Partitions of the topics that are created.",
)
@worker_flags
@broker_options
def dev(
    target: str,
    partitions: int,
    settings: tuple[str, ...],
    state_dir: Path | None,
    web_port: int | None,
    app_dir: Path | None,
    said: CommandLine,
) -> None:
    """Run a job on a Kafka of its own, and restart it when a Python file in the directory of MODULE changes. Ctrl-C ends all of it."""
    given = flags(settings, state_dir, web_port, "")
    for number in (signal.SIGTERM, signal.SIGHUP):  # until the loop takes them: what was begun is ended
        signal.signal(number, signal.default_int_handler)
    properties, bootstrap, pairs = properties_given(), said.bootstrap, said.pairs
    if not bootstrap and properties is not None:
        bootstrap = read_properties(properties).bootstrap
    with kafka(bootstrap) as place:
        if place.embedded:
            pairs = (*pairs, PLAIN)
        if place.state is not None:
            given = {"state.dir": str(place.state), **given}
        said = CommandLine(place.bootstrap, pairs, said.config, given)
        configuration = configured(said)
        work = Development(
            command=run_command(arguments(target, configuration, said, app_dir)),
            client=configuration.client,
            directory=(app_dir or Path.cwd()).absolute(),
            partitions=partitions,
            say=say,
            show=show_error,
            kept=place.state is None,
        )
        at_once = asyncio.run(_until_signalled(work))
    if at_once:
        raise SystemExit(ENDED_AT_ONCE)


@contextlib.contextmanager
def kafka(given: str) -> Iterator[DevKafka]:
    """The broker to use: the given one, else the running embedded one, else one that is started now and deleted afterwards."""
    if given:
        yield DevKafka(given)
        return
    if (running := running_broker()) is not None:
        say(f"Kafka is up at {running}, and stays up")
        yield DevKafka(running, embedded=True)
        return
    directory = Path(tempfile.mkdtemp(prefix="headgate-dev-"))
    lease = Lease(directory)
    with Lease.guard(directory) as guard:
        try:
            with Broker.start(directory / "kafka", secure=False, say=say) as broker:
                enlist(broker)
                try:
                    say(f"Kafka is up at {broker.bootstrap}; all commands on this machine find it there")
                    yield DevKafka(broker.bootstrap, embedded=True, state=directory / "state")
                finally:
                    strike_off(broker.data)
        finally:
            lease.release()
            guard.wait()
    say("Kafka is down; its topics and tables are gone")


def arguments(target: str, configuration: Configuration, said: CommandLine, app_dir: Path | None) -> list[str]:
    """The arguments of `headgate run`. The page keeps its address from worker to worker."""
    words = [target, "-b", configuration.client.bootstrap, "--log-format", "console"]
    for pair in said.pairs:
        words += ["-X", pair]
    if said.config is not None:
        words += ["--config", str(said.config)]
    port = configuration.value("web.port") or free_ports(1)[0]
    for name, value in {"topic.create-outputs": True, **said.settings, "web.port": port}.items():
        words += ["--set", f"{name}={value}"]
    if app_dir is not None:
        words += ["--app-dir", str(app_dir)]
    return [*words, *config_file()]


async def _until_signalled(work: Development) -> bool:
    """Work until a signal. Returns whether a second one cut the end short."""
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None
    heard: list[int] = []

    def on(number: int) -> None:
        heard.append(number)
        if heard.count(signal.SIGINT) > 1:
            running.cancel()
        elif len(heard) == 1:
            say("ending (Ctrl-C again kills the worker)")
            work.leave()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on, number)
    try:
        await work.run()
    except asyncio.CancelledError:
        if heard.count(signal.SIGINT) < 2:
            raise
        return True
    return False


def say(text: str) -> None:
    """Print a line on the terminal."""
    show_text(f"dev: {text}", err=True)
