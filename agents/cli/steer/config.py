"""`headgate config get|set|unset|diff|history JOB`: the settings of a job, and an operator's overrides.

An override is kept in the coordinator stream and applies to all workers: a dynamic setting at once, any other from the start of the next
run to its end. Flags and environment variables of one worker take precedence; `config get` shows what they mask.
"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from ....core.coordination.metadata import CONFIG, stored
from ....core.settings import WAIT, find, shown
from ...process.reading import following, heard
from ...status.documents import config_document
from ..group import Group
from ..options import Target, about_job, run_async
from ..output import output_option, show_table, show_text, shown_as_json
from .steering import Asker, asks


@click.group(cls=Group)
def config() -> None:
    """Show settings of a job, and override them while it runs."""


@config.command()
@click.argument("job")
@click.argument("setting", required=False)
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
@about_job
@output_option
def get(to: Target, setting: str | None, origin: bool, output: str) -> None:
    """Show all settings, or one, as they apply here: with the local settings file and environment, and the overrides of the job."""
    if setting is not None:
        find(setting)
    found = config_document(to.configuration, stored(to.folded(), CONFIG))
    rows = [one for one in found["settings"] if setting in (None, one["name"])]
    if shown_as_json(output, {"job": str(to.job), **found, "settings": rows}):
        return
    if setting is not None and not origin:
        show_text(rows[0]["value"] if rows else find(setting).default)
        return
    headers = ["SETTING", "VALUE", "ORIGIN", "MASKS", "KIND"] if origin else ["SETTING", "VALUE"]
    show_table(
        headers,
        ([o["name"], o["value"], o["origin"], ", ".join(o["masks"]) or "-", o["kind"]][: len(headers)] for o in rows),
    )


@config.command(name="set")
@click.argument("job")
@click.argument("setting")
@click.argument("value")
@asks(wait=True)
def set_(ask: Asker, setting: str, value: str) -> None:
    """Override a setting for the whole job."""
    ask.metadata.put(CONFIG, setting, value_of(setting, value))


def value_of(setting: str, text: str) -> Any:
    """The value that a text stands for: numbers and flags become numbers and flags."""
    if find(setting).type in ("text", "duration", WAIT, "size", "value"):
        return text
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@config.command()
@click.argument("job")
@click.argument("setting")
@asks(wait=True)
def unset(ask: Asker, setting: str) -> None:
    """Remove an override, so that the next source applies again."""
    ask.metadata.remove(CONFIG, setting)


@config.command()
@click.argument("job")
@about_job
@output_option
def diff(to: Target, output: str) -> None:
    """Show what differs from the start of the run, and which workers have not applied it yet."""
    found = run_async(_diff(to))
    if shown_as_json(output, {"job": str(to.job), **found}):
        return
    if not found["settings"]:
        click.echo("Nothing differs.")
    else:
        show_table(
            ["SETTING", "RUN", "NOW", "KIND"], ([o["name"], o["run"], o["now"], o["kind"]] for o in found["settings"])
        )
    for worker in found["workers"]:
        if worker["applied"] < found["offset"]:
            click.echo(f"{worker['worker']} has not applied the last change yet", err=True)


async def _diff(to: Target) -> dict[str, Any]:
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job)
        state = await stream.to_end()
        started = {**state.run.settings, **state.run.overrides} if state.run is not None else {}
        rows: list[dict[str, Any]] = []
        for name, one in sorted(state.configs.items()):
            before = started.get(name, find(name).default)
            if before != one.value:
                rows.append(
                    {"name": name, "run": shown(name, before), "now": shown(name, one.value), "kind": find(name).kind}
                )
        workers = [
            {"worker": beat.processor, "applied": int(beat.load.get("config", -1))}
            for beat in sorted(beats.present(state), key=lambda beat: beat.processor)
        ]
        return {"settings": rows, "offset": state.config_offset, "workers": workers}


@config.command()
@click.argument("job")
@click.argument("setting", required=False)
@about_job
@output_option
def history(to: Target, setting: str | None, output: str) -> None:
    """Show the last changes of overrides: who set what, and when."""
    rows = [one for one in run_async(_history(to)) if setting in (None, one["name"])]
    if setting is not None and not rows:
        find(setting)
    if not shown_as_json(output, {"job": str(to.job), "changes": rows}):
        show_table(
            ["TIME", "SETTING", "VALUE", "BY"],
            ([o["time"], o["name"], o["value"], o["by"]] for o in rows),
            none="Nothing has been changed.",
        )


async def _history(to: Target) -> list[dict[str, Any]]:
    async with following(to.client, to.topics) as stream:
        rows = [
            {
                "name": name,
                "value": shown(name, change.value),
                "by": change.by,
                "at_ms": change.at_ms,
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(change.at_ms / 1000)),
            }
            for name, one in stream.job.configs.items()
            for change in one.changes
        ]
        return sorted(rows, key=lambda row: row["at_ms"])
