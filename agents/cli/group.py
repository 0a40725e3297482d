"""The `headgate` group: its verbs by name, and how errors are printed."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import click

from ...core.errors import DeadlinePassed, DeclarationError, EnvironmentFault, HeadgateError, NotFound, SettingError
from ...core.settings import nearest
from .output import show_text

VERBS: dict[str, tuple[str, str]] = {
    # verb: (module:command, its line in `headgate --help`), in the order of the help
    "kafka": ("start.kafka:kafka", "Run a real Kafka on this machine, without Docker or root."),
    "new": ("start.new:new", "Make a directory with a job, its test and its settings."),
    "dev": ("start.dev:dev", "Run a job on a Kafka of its own; restart it when its code changes."),
    "doctor": ("start.doctor:doctor", "Look for what is missing: broker, rights, versions, Java, disk."),
    "run": ("start.run:run", "Run a job: one worker, or several under a supervisor."),
    "plan": ("start.plan:plan", "Show what would be created and placed; change nothing."),
    "jobs": ("see.jobs:jobs", "List the jobs of this cluster, with state, workers, tasks, lag."),
    "status": ("see.status:status", "Show leader, workers, tasks, lag, watermarks, drain."),
    "top": ("see.top:top", "Show what is slow or stands: steps, lag, waits, failed tasks."),
    "story": ("see.story:story", "Show what machines saw and decided, by time and cause."),
    "watch": ("see.watch:watch", "Show the status repeatedly."),
    "drain": ("data.draining:drain", "Stop reading, finish what was read, close the run."),
    "stop": ("steer.steering:stop", "Commit and stop the workers; `start` resumes the run."),
    "start": ("steer.steering:start", "Resume the stopped run, or begin a new one."),
    "pause": ("steer.steering:pause", "Stop reading until `resume`."),
    "resume": ("steer.steering:resume", "Continue reading after `pause`."),
    "move": ("steer.steering:move", "Move one task to another worker."),
    "scale": ("steer.steering:scale", "Set the number of workers, which a supervisor follows."),
    "grow": ("steer.steering:grow", "Look now for new partitions of the inputs."),
    "seek": ("steer.seek:seek", "Continue reading an input from another position."),
    "requests": ("steer.requests:requests", "Show pending requests of a job, or withdraw one."),
    "config": ("steer.config:config", "Show settings of a job, and override them while it runs."),
    "model": ("see.model:model", "Show tasks, what each owns, and who should run it."),
    "tables": ("data.tables:tables", "Show the tables of a job, also while it runs; clear them."),
    "state": ("data.state:state", "Export tables of a job while it runs."),
    "batches": ("see.batches:batches", "Show the batches of a job: open, waiting, at Spark, done."),
    "parked": ("data.parked:parked", "Show the records that wait because their key cannot be processed."),
    "coordinator": ("steer.coordinator:coordinator", "Show the coordinator stream, message by message."),
    "frames": ("data.frames:frames", "Show what is sent between the stages of a job."),
    "dead-letters": ("data.dead_letters:dead_letters", "Show and replay records that could not be processed."),
    "send": ("data.records:send", "Write records to a topic."),
    "tail": ("data.records:tail", "Show the last records of a topic, or follow it."),
    "topics": ("start.plan:topics", "Create, list and show topics; print what a job needs."),
    "docs": ("see.docs:docs", "Show a page of the documentation, or the section about an error."),
    "reset": ("data.reset:reset", "Delete all state of a job; it starts from scratch."),
}
"""All verbs. Their help lines are here, so that `--help` imports no verb."""

FAILED, USAGE, DEADLINE, NOT_FOUND = 1, 2, 3, 4
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in a shell."""


class Mistyped(HeadgateError):
    """The input cannot be right, such as an invalid position or a message with the wrong fields."""


def exit_code(error: HeadgateError) -> int:
    """The exit code for an error.

    A mistake in the command, a setting, `headgate.toml` or the job's declaration is a usage error: nothing was started, and the same
    command would fail in the same way, so a supervisor need not restart it.
    """
    if isinstance(error, DeadlinePassed):
        return DEADLINE
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, Mistyped | SettingError | DeclarationError) else FAILED


class Group(click.Group):
    """A group that suggests the nearest verb for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, with the nearest known verb in the error message."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = nearest(args[0], known)
            hint = f"Did you mean `{ctx.command_path} {near}`?" if near else f"There are {', '.join(known)}."
            raise click.UsageError(f"There is no verb `{ctx.command_path} {args[0]}`. {hint}", ctx)
        return super().resolve_command(ctx, args)


class WithVerbs(click.Command):
    """A command with verbs in addition to its own arguments: `headgate tables JOB` and `headgate tables clear JOB`.

    If the first word is a verb, that verb runs. A job with the same name as a verb must be given with its id: `clear/1`.
    """

    verbs: Mapping[str, str] = MappingProxyType({})
    """Verb → module:command. The module is imported when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One verb."""
        return _imported(self.verbs[cmd_name]) if cmd_name in self.verbs else None

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the verb, if the first word is one."""
        if args and args[0] in self.verbs:
            verb = _imported(self.verbs[args[0]])
            return verb.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs after the options."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, _imported(at).get_short_help_str(80)) for name, at in self.verbs.items()])


def _imported(at: str) -> click.Command:
    module, _, name = at.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


class LazyGroup(Group):
    """A group that knows its verbs by name and imports a verb when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of `VERBS`."""
        return [*VERBS, *(name for name in super().list_commands(ctx) if name not in VERBS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now."""
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        return _imported(VERBS[cmd_name][0])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, VERBS[name][1]) for name in VERBS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. An expected error becomes a message and an exit code."""
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            if os.environ.get("HEADGATE_DEBUG"):
                raise
            fail(error)
        except (KeyboardInterrupt, asyncio.CancelledError):
            click.echo("Interrupted.", err=True)
            raise SystemExit(INTERRUPTED) from None
        except click.Abort as error:
            interrupted = isinstance(error.__context__, KeyboardInterrupt)
            click.echo("Interrupted." if interrupted else "Nothing was done.", err=True)
            raise SystemExit(INTERRUPTED if interrupted else FAILED) from None
        except Exception as error:
            if os.environ.get("HEADGATE_DEBUG") or not type(error).__module__.startswith("aiokafka."):
                raise
            fail(EnvironmentFault(f"Kafka refused: {error}", remedy="set HEADGATE_DEBUG=1 to see the traceback"))


def fail(error: HeadgateError) -> NoReturn:
    """Print what is wrong and what to do, and exit with the error's exit code."""
    show_error(error)
    raise SystemExit(exit_code(error))


def show_error(error: HeadgateError) -> None:
    """Print what is wrong, what to do, and where more is said about it."""
    from .sections import as_command, section_of

    show_text(f"Error: {error.what.rstrip()}", err=True)
    if error.remedy:
        show_text(f"To do: {error.remedy}", err=True)
    if place := section_of(error):
        show_text(f"More: {as_command(place)}", err=True)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="headgate", prog_name="headgate")
def main() -> None:
    """Kafka-native stream processing in Python: actors with exact completeness, and Spark for bounded batches."""
