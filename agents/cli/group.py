"""The `headgate` group: its verbs by name, and what an error looks like to whoever typed the command."""

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

VERBS: dict[str, tuple[str, str]] = {
    # verb: (module:command, what `headgate --help` says about it); the order is the order of the help
    "kafka": ("kafka:kafka", "Run a real Kafka on this machine, without Docker or root."),
    "run": ("run:run", "Run a job: one worker, or several under a supervisor."),
    "plan": ("plan:plan", "Show what would be created and placed; change nothing."),
    "status": ("status:status", "Show leader, workers, tasks, lag, watermarks, drain."),
    "watch": ("watch:watch", "Show the status repeatedly."),
    "drain": ("steering:drain", "Stop reading, finish what was read, close the run."),
    "stop": ("steering:stop", "Commit and stop the workers; `start` resumes the run."),
    "start": ("steering:start", "Resume the stopped run, or begin a new one."),
    "pause": ("steering:pause", "Stop reading until `resume`."),
    "resume": ("steering:resume", "Continue reading after `pause`."),
    "move": ("steering:move", "Move one task to another worker."),
    "seek": ("seek:seek", "Continue reading an input from another position."),
    "requests": ("requests:requests", "Show pending requests of a job, or withdraw one."),
    "config": ("config:config", "Show settings of a job, and override them while it runs."),
    "model": ("model:model", "Show tasks, what each owns, and who should run it."),
    "tables": ("tables:tables", "Show the tables of a job, also while it runs; clear them."),
    "coordinator": ("coordinator:coordinator", "Show the coordinator stream, message by message."),
    "frames": ("frames:frames", "Show what is sent between the stages of a job."),
    "dead-letters": ("dead_letters:dead_letters", "Show and replay records that could not be processed."),
    "topics": ("plan:topics", "Print the commands that create the topics of a job."),
    "reset": ("reset:reset", "Delete all state of a job; it starts from scratch."),
}
"""Every verb, one line each. The help text stands here, so that showing it imports no verb."""

FAILED, USAGE, DEADLINE, NOT_FOUND = 1, 2, 3, 4
INTERRUPTED = 130
"""Ctrl-C, as a shell says it."""


class Mistyped(HeadgateError):
    """What was typed cannot be meant: a place that is none, a message with the wrong fields."""


def exit_code(error: HeadgateError) -> int:
    """The exit code that an error means.

    What stands wrong in the command, in a setting, in `headgate.toml` or in the declaration of the job is usage: nothing was begun, and
    the same command again ends in the same way, so whoever restarts processes need not try.
    """
    if isinstance(error, DeadlinePassed):
        return DEADLINE
    if isinstance(error, NotFound):
        return NOT_FOUND
    return USAGE if isinstance(error, Mistyped | SettingError | DeclarationError) else FAILED


class Group(click.Group):
    """A group that knows what was probably meant by a verb that it has not."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest known verb in the message."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            near = nearest(args[0], known)
            hint = f"Did you mean `{ctx.command_path} {near}`?" if near else f"There are {', '.join(known)}."
            raise click.UsageError(f"There is no verb `{ctx.command_path} {args[0]}`. {hint}", ctx)
        return super().resolve_command(ctx, args)


class WithVerbs(click.Command):
    """A command that has verbs beside its own arguments: `headgate tables JOB`, and `headgate tables clear JOB`.

    A first word that is a verb is that verb. Whose job is called like one says its id, too: `clear/1`.
    """

    verbs: Mapping[str, str] = MappingProxyType({})
    """Verb → module:command; it is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs."""
        return list(self.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        return _imported(self.verbs[cmd_name]) if cmd_name in self.verbs else None

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The verb's, if the first word is one."""
        if args and args[0] in self.verbs:
            verb = _imported(self.verbs[args[0]])
            return verb.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs, behind the options."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, _imported(at).get_short_help_str(80)) for name, at in self.verbs.items()])


def _imported(at: str) -> click.Command:
    module, _, name = at.partition(":")
    return getattr(importlib.import_module(f".{module}", __package__), name)


class LazyGroup(Group):
    """The group that knows its verbs by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order in which people meet them."""
        return [*VERBS, *(name for name in super().list_commands(ctx) if name not in VERBS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now."""
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        return _imported(VERBS[cmd_name][0])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs, without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, VERBS[name][1]) for name in VERBS])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; an error that we raise on purpose ends in a message and an exit code."""
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
    """Say what is wrong and what to do, and end with the exit code that it means."""
    click.echo(f"Error: {error.what.rstrip()}", err=True)
    if error.remedy:
        click.echo(f"To do: {error.remedy}", err=True)
    raise SystemExit(exit_code(error))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="headgate", prog_name="headgate")
def main() -> None:
    """Kafka-native stream processing in Python: actors with exact completeness, and Spark for bounded batches."""
