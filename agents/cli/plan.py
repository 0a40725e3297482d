"""`headgate plan MODULE:app` and `headgate topics plan MODULE:app`: what would be created and placed. They change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...core.coordination.leader.assignment import tasks_of
from ...core.coordination.leader.plan import Plan
from ...core.coordination.placement import asked
from ...core.errors import DeclarationError, NotFound
from ...core.graph.grouping import Grouping
from ...core.graph.grouping import counts as widths
from ...core.graph.model import JobModel, producer_sets
from ...core.graph.resolve import shared_widths
from ...core.names import natural
from ..job import steps as s
from ..job.declaration import Declared
from ..job.in_arrays import makes_rows
from ..job.named_fields import on_columns
from ..kafka.topics import ABOUT_PROPERTIES, ExistingTopic, TopicSpec, differences
from ..process.configuration import CommandLine, Configuration
from ..process.launch import load_app
from ..process.reading import OtherJob, following
from ..worker.job_topics import JobTopics
from ..worker.machine_settings import leader_config
from ..worker.options import WorkerOptions
from .group import Group
from .options import broker_options, configured, run_async
from .output import output_option, show_fields, show_json, show_table

app_dir_option = click.option(
    "--app-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of MODULE.  [default: the current directory]",
)


@click.command()
@click.argument("target", metavar="MODULE:app")
@click.option(
    "--workers", type=click.IntRange(1, 1000), default=1, show_default=True, help="Place tasks on this many workers."
)
@app_dir_option
@broker_options
@output_option
def plan(
    target: str,
    workers: int,
    app_dir: Path | None,
    bootstrap: str,
    pairs: tuple[str, ...],
    config: Path | None,
    output: str,
) -> None:
    """Show what would be created and placed if this job ran now. Changes nothing."""
    app = load_app(target, app_dir)
    configuration = configured(CommandLine(bootstrap, pairs, config), app=app.settings)
    found = run_async(_plan(Declared(app), configuration, workers))
    if output == "json":
        show_json(found)
        return
    show_fields(
        [("job", found["job"]), ("deployment", found["deployment"]), ("state", "yes" if found["stateful"] else "no")]
    )
    click.echo()
    show_table(
        ["TOPIC", "ROLE", "PARTITIONS", "NOW"],
        ([t["topic"], t["role"], t["partitions"], t["now"]] for t in found["topics"]),
    )
    click.echo()
    show_table(
        ["TASK", "WORKER", "PARTITIONS"], ([t["task"], t["worker"], ", ".join(t["partitions"])] for t in found["tasks"])
    )
    click.echo()
    show_table(["STEP", "WORKS ON"], ([one["step"], one["works_on"]] for one in found["steps"]))
    for one in found["steps"]:
        if one["why"]:
            click.echo(f"Note: '{one['step']}' works on rows: {one['why']}", err=True)
    if (idle := workers - len(found["tasks"])) > 0:
        click.echo(
            f"Note: {len(found['tasks'])} tasks keep {workers - idle} workers busy; {idle} would be idle", err=True
        )
    for one in found["problems"]:
        click.echo(f"Problem: {one}", err=True)


@dataclass(frozen=True, slots=True)
class Intended:
    """What a leader of this code would create now, and what exists already."""

    plan: Plan
    before: JobModel | None
    inputs: Mapping[str, int]
    tasks: Grouping
    own: list[TopicSpec]
    outputs: list[TopicSpec]
    found: Mapping[str, ExistingTopic]
    commands: list[str]
    problems: list[str]


async def _intended(declared: Declared, configuration: Configuration) -> tuple[JobTopics, Intended]:
    topics = JobTopics(configuration.client, declared)
    options = WorkerOptions(declared, configuration.client, "plan", "", "plan", "plan", settings=configuration.given)
    plan = leader_config(options, configuration.given).plan
    before = await _model(configuration, declared)
    await topics.start()
    try:
        inputs = await topics.input_counts()
        tasks = tasks_of(plan, inputs, before)
        assert tasks is not None, "every input was counted"
        streams = widths(tasks)
        shared = shared_widths(plan.graph, streams, {} if before is None else before.shared)
        own, outputs = topics.all_specs(inputs, {**streams, **shared}, len(tasks))
        found = await topics.topics.find([spec.name for spec in (*own, *outputs)])
    finally:
        await topics.stop()
    commands = [spec.command(configuration.client) for spec in (*own, *outputs) if spec.name not in found]
    problems = _problems(own, found, configuration)
    return topics, Intended(plan, before, inputs, tasks, own, outputs, found, commands, problems)


async def _plan(declared: Declared, configuration: Configuration, workers: int) -> dict[str, Any]:
    topics, made = await _intended(declared, configuration)
    intended, before, grouping, found = made.plan, made.before, made.tasks, made.found
    rows = [
        {"topic": name, "role": "input", "partitions": n, "now": "there"} for name, n in sorted(made.inputs.items())
    ]
    for spec, role in [
        *((one, _role(topics, one.name)) for one in made.own),
        *((one, "output") for one in made.outputs),
    ]:
        there = spec.name in found
        rows.append(
            {
                "topic": spec.name,
                "role": role,
                "partitions": found[spec.name].partitions if there else spec.partitions,
                "now": "there" if there else "to be created",
            }
        )
    wanted = dict(before.wanted) if before is not None else {}
    names = list(before.processors) if before is not None and len(before.processors) == workers else []
    names = names or [f"worker-{number}" for number in range(workers)]
    placer = intended.placer_name, intended.placer
    placed = asked(*placer, list(grouping), dict.fromkeys(grouping), dict.fromkeys(names, ""), wanted)
    owner = {task: worker for worker, tasks in placed.items() for task in tasks}
    return {
        "job": str(declared.app.job),
        "deployment": intended.deployment,
        "stateful": intended.stateful,
        "topics": rows,
        "tasks": [
            {"task": task, "worker": owner.get(task), "partitions": [f"{s}[{p}]" for s, p in grouping[task]]}
            for task in sorted(grouping, key=natural)
        ],
        "steps": [_step(declared, step, columns) for step, columns in on_columns(declared.steps)],
        "producers": [
            {"stream": one.stream, "tasks": sorted(one.tasks, key=natural)}
            for one in producer_sets(intended.graph.fed, grouping, {}).values()
        ],
        "problems": made.problems,
    }


def _step(declared: Declared, step: s.Step, columns: bool) -> dict[str, str | None]:
    """What a step works on, and why on rows where columns were to be expected."""
    why = declared.why_rows.get(step.topic) if isinstance(step, s.InputStep) else None
    if columns and (inside := makes_rows(step)) is not None:
        columns, why = False, inside
    return {"step": declared.name(step), "works_on": "columns" if columns else "rows", "why": why}


def _role(topics: JobTopics, name: str) -> str:
    names = topics.names
    fixed = {names.coordinator: "coordinator", names.heartbeat: "heartbeat", names.log: "task log"}
    return fixed.get(name) or ("dead letters" if name == names.dead_letters else "between stages")


async def _model(configuration: Configuration, declared: Declared) -> JobModel | None:
    """The job's current model; None if it never ran."""
    try:
        async with following(configuration.client, declared.topics) as stream:
            return stream.job.model
    except OtherJob as error:
        raise DeclarationError(error.what, remedy=error.remedy) from None
    except NotFound:
        return None


@click.group(cls=Group)
def topics() -> None:
    """Print the commands that create the topics of a job."""


@topics.command(name="plan")
@click.argument("target", metavar="MODULE:app")
@app_dir_option
@broker_options
@output_option
def topics_plan(
    target: str, app_dir: Path | None, bootstrap: str, pairs: tuple[str, ...], config: Path | None, output: str
) -> None:
    """Print the commands that create missing topics, for teams whose applications may not create topics."""
    app = load_app(target, app_dir)
    configuration = configured(CommandLine(bootstrap, pairs, config), app=app.settings)
    _, made = run_async(_intended(Declared(app), configuration))
    found = {"job": str(app.job), "commands": made.commands, "problems": made.problems}
    if output == "json":
        show_json(found)
        return
    for command in found["commands"]:
        click.echo(command)
    for one in found["problems"]:
        click.echo(f"Problem: {one}", err=True)
    if not found["commands"]:
        click.echo("All topics exist.", err=True)
    elif configuration.client.guarded:
        click.echo(f"Note: {ABOUT_PROPERTIES}", err=True)


def _problems(specs: list[TopicSpec], found: Mapping[str, ExistingTopic], configuration: Configuration) -> list[str]:
    """The differences of existing topics from what the job needs."""
    return [
        str(one)
        for spec in specs
        if spec.name in found
        for one in differences(spec, found[spec.name], configuration.client)
    ]
