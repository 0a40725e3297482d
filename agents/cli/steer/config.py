"""`headgate config get|set|unset|diff|history JOB`: the settings of a job, and an operator's overrides.

An override is kept in the coordinator stream and applies to all workers: a dynamic setting at once, any other from the start of the next
run to its end. Flags and environment variables of one worker take precedence: `config get` asks the workers, and shows what they mask;
`config set` and `config diff` name the workers on which an override has no effect.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import click

from ....core.coordination.metadata import CONFIG, LOCALITY, stored
from ....core.settings import WAIT, find, shown
from ...process.reading import following, heard
from ...status.documents import config_document
from ...status.of_job import overridden_on
from ..group import Group
from ..options import Target, about_job, run_async
from ..output import output_option, plain, show_table, show_text, shown_as_json
from ..pages import OK, page, refusal, token_option
from .steering import Asker, asks


@click.group(cls=Group)
def config() -> None:
    """Show settings of a job, and override them while it runs."""


@config.command()
@click.argument("job")
@click.argument("setting", required=False)
@click.option("--origin", is_flag=True, help="Show where each value comes from, also what it masks.")
@token_option
@about_job
@output_option
def get(to: Target, setting: str | None, origin: bool, output: str) -> None:
    """Show all settings, or one, as the live workers have them; if none answers, as they apply here with the overrides of the job."""
    if setting is not None:
        find(setting)
    found = run_async(_as_workers_have_them(to))
    rows = [one for one in found["settings"] if setting in (None, one["name"])]
    for one in found["unseen"]:
        click.echo(plain(f"not seen: {one['why']}"), err=True)
    if not found["workers"]:
        click.echo(f"no worker of {plain(to.job)} answers: these are the settings as they apply here", err=True)
    if shown_as_json(output, {"job": str(to.job), **found, "settings": rows}):
        return
    if setting is not None and not origin and len(rows) <= 1:
        show_text(rows[0]["value"] if rows else find(setting).default)
        return
    differ = any(set(one["workers"]) != set(found["workers"]) for one in rows)
    headers = ["SETTING", "VALUE", *(["ORIGIN", "MASKS", "KIND"] if origin else []), *(["WORKERS"] if differ else [])]
    show_table(headers, ([_cells(one, found["workers"])[header] for header in headers] for one in rows))


def _cells(one: dict[str, Any], workers: list[str]) -> dict[str, Any]:
    """A row of the table, by its headers."""
    return {
        "SETTING": one["name"],
        "VALUE": one["value"],
        "ORIGIN": one["origin"],
        "MASKS": ", ".join(one["masks"]) or "-",
        "KIND": one["kind"],
        "WORKERS": "all" if one["workers"] == workers else ", ".join(one["workers"]),
    }


async def _as_workers_have_them(to: Target) -> dict[str, Any]:
    """What the live workers answer, as one document; what applies here if none does."""
    async with following(to.client, to.topics) as stream:
        workers, overrides = stored(stream.job, LOCALITY), stored(stream.job, CONFIG)
    names = sorted(workers)
    urls = [str(workers[name]["url"] or "") for name in names]
    answers = await asyncio.gather(*(_ask(to, url) for url in urls))
    said = {name: answer for name, (status, answer) in zip(names, answers, strict=True) if status == OK}
    unseen = [
        {"worker": name, "why": refusal(name, status) or f"{name} cannot be reached"}
        for name, (status, _) in zip(names, answers, strict=True)
        if status != OK
    ]
    here = config_document(to.configuration, overrides)
    first = next(iter(said.values()), here)
    rows = one_document({name: answer["settings"] for name, answer in said.items()})
    settings = rows if said else [{**one, "workers": []} for one in here["settings"]]
    return {**first, "settings": settings, "workers": sorted(said), "unseen": unseen}


async def _ask(to: Target, url: str) -> tuple[int, Any]:
    return await page(to, url, "config") if url else (0, None)


def one_document(answers: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What workers say of their settings, together: a row for each setting, and several of one that they do not have from the same source.

    >>> [(one["value"], one["workers"]) for one in one_document({
    ...     "w1": [{"name": "stall.timeout", "value": "3m", "origin": "flag"}],
    ...     "w2": [{"name": "stall.timeout", "value": "4m", "origin": "override"}],
    ...     "w3": [{"name": "stall.timeout", "value": "4m", "origin": "override"}],
    ... })]
    [('3m', ['w1']), ('4m', ['w2', 'w3'])]
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    for worker, settings in sorted(answers.items()):
        for said in settings:
            of_name = rows.setdefault(said["name"], [])
            same = next((one for one in of_name if {**one, "workers": 0} == {**said, "workers": 0}), None)
            if same is None:
                of_name.append({**said, "workers": [worker]})
            else:
                same["workers"].append(worker)
    return [one for _, of_name in sorted(rows.items()) for one in of_name]


@config.command(name="set")
@click.argument("job")
@click.argument("setting")
@click.argument("value")
@asks(wait=True)
def set_(ask: Asker, setting: str, value: str) -> None:
    """Override a setting for the whole job."""
    ask.metadata.put(CONFIG, setting, value_of(setting, value))
    if ask.wait:
        for worker in run_async(_masking(ask.to, setting)):
            click.echo(f"overridden: a flag or variable of {plain(worker)} masks {setting}", err=True)


async def _masking(to: Target, setting: str) -> list[str]:
    """The living workers on which the override of a setting has no effect."""
    async with following(to.client, to.topics) as stream:
        beats = await heard(to.client, to.topics.heartbeat, stream.job)
        state = await stream.to_end()
    return sorted(beat.processor for beat in beats.present(state) if setting in overridden_on(beat.load, state))


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
        for name in worker["overridden"]:
            click.echo(f"overridden: a flag or variable of {worker['worker']} masks {name}", err=True)


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
            {
                "worker": beat.processor,
                "applied": int(beat.load.get("config", -1)),
                "overridden": overridden_on(beat.load, state),
            }
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
