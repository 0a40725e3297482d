"""Options that many verbs share, and the job that a verb is about.

`-b`, `-X`, `--config`, `--config-file` and `-o` mean the same everywhere; `JOB` is `name` or `name/id`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from ...core.coordination.state import JobState
from ...core.names import JobName, Topics
from ...core.settings import duration_ms
from ..kafka.settings import ClientSettings
from ..logger import to_stderr
from ..process.configuration import CommandLine, Configuration, configure

PROPERTIES = "headgate.properties"
"""Where the context of a command keeps what `--config-file` names."""
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def broker_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-b`, `-X`, `--config` and `--config-file`; the function gets `said`, of which `configured` makes the configuration."""

    @wraps(command)
    def run(*, bootstrap: str, pairs: tuple[str, ...], config: Path | None, **given: Any) -> Any:
        return command(said=CommandLine(bootstrap, pairs, config), **given)

    for option in (
        click.option(
            "--config-file",
            type=click.Path(path_type=Path, dir_okay=False),
            expose_value=False,
            callback=_keep_properties,
            metavar="FILE.properties",
            help="A file of Kafka client settings, as Kafka's own tools take it.",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Settings file.  [default: headgate.toml in this directory or above]",
        ),
        click.option(
            "-X",
            "pairs",
            multiple=True,
            metavar="KEY=VALUE",
            help="A Kafka client setting, by its Java or librdkafka name.",
        ),
        click.option(
            "-b",
            "--bootstrap-server",
            "bootstrap",
            default="",
            metavar="HOST:PORT",
            help="Kafka brokers.  [default: those of --config-file, HEADGATE_BOOTSTRAP, the settings file, or a running "
            "`headgate kafka up`]",
        ),
    ):
        run = option(run)
    return run


def about_job(command: Callable[..., Any]) -> Callable[..., Any]:
    """As `broker_options`, for a verb that has an argument `job`: the function gets `to`, the `Target`, for both, and for `--web-token`."""

    @wraps(command)
    def run(*, said: CommandLine, job: str, web_token: str | None = None, **given: Any) -> Any:
        return command(to=target(job, said, web_token=web_token), **given)

    return broker_options(run)


def _keep_properties(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    context.meta[PROPERTIES] = value


def properties_given() -> Path | None:
    """What `--config-file` of the command that runs names."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(PROPERTIES)


app_dir_option = click.option(
    "--app-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of MODULE.  [default: the current directory]",
)


def worker_flags(command: F) -> F:
    """Add what `headgate run` and `headgate dev` take for their worker: `--set`, `--state-dir`, `--web-port` and `--app-dir`."""
    for option in (
        app_dir_option,
        click.option(
            "--web-port",
            type=click.IntRange(0, 65535),
            help="Port of this worker's pages, the first of those of --workers N; 0 means a free port.",
        ),
        click.option(
            "--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Directory of the local tables."
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of this worker; takes precedence over all other sources.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Target:
    """The job that a verb is about, and how to reach its broker."""

    job: JobName
    topics: Topics
    configuration: Configuration

    @property
    def client(self) -> ClientSettings:
        """The client settings."""
        return self.configuration.client

    def folded(self) -> JobState:
        """The state of the job now, folded from its coordinator stream."""
        from ..process.reading import folded

        return run_async(folded(self.client, self.topics))


def target(job: str, said: CommandLine, *, web_token: str | None = None) -> Target:
    """The target that `JOB` and the broker options stand for. `web_token`: what a verb sends to pages, if it was given."""
    configuration = configured(said if web_token is None else replace(said, settings={"web.token": web_token}))
    name = JobName.parse(job)
    return Target(name, Topics(name, str(configuration.value("topic.prefix"))), configuration)


def configured(said: CommandLine, **more: Any) -> Configuration:
    """The configuration. Remarks go to standard error."""
    configuration = configure(replace(said, properties=properties_given()), **more)
    for remark in configuration.remarks:
        click.echo(f"Note: {remark}", err=True)
    return configuration


def wait_options(default: str = "25s", *, wait: bool = False) -> Callable[[F], F]:
    """Add `--wait/--no-wait` and `--timeout`; the function gets `wait` and `timeout` (in seconds)."""

    def add(command: F) -> F:
        command = click.option(
            "--timeout",
            type=Duration(),
            default=default,
            show_default=True,
            metavar="TIME",
            help="How long to wait; then exit with 3 and list what is not done.",
        )(command)
        return click.option(
            "--wait/--no-wait",
            default=wait,
            show_default=True,
            help="Wait until the request is done, not just accepted.",
        )(command)

    return add


class Duration(click.ParamType):
    """A duration: `500ms`, `25s`, `2m`. The value is a float, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds."""
        if isinstance(value, float):
            return value
        from ...core.errors import SettingError

        try:
            return duration_ms(value) / 1000
        except SettingError as error:
            self.fail(str(error), param, ctx)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a verb's coroutine. aiokafka's own log about missing brokers is suppressed, because headgate reports them itself. What headgate
    logs goes to standard error: standard output is the verb's.
    """
    import logging

    to_stderr()
    quiet, nowhere = logging.getLogger("aiokafka"), logging.NullHandler()
    before, quiet.propagate = quiet.propagate, False
    quiet.addHandler(nowhere)
    try:
        return asyncio.run(work)
    finally:  # who runs a verb inside of another program hears the library again
        quiet.removeHandler(nowhere)
        quiet.propagate = before


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def confirmed(plan: str, yes: bool) -> None:
    """Show what cannot be undone, and ask for confirmation."""
    click.echo(plan, err=True)
    if not yes:
        click.confirm("Continue?", abort=True, err=True)
