"""`headgate plan MODULE:app` and `headgate topics plan MODULE:app`: what would be created and placed, and what a start would be refused
with. They change nothing, and judge by the functions by which a worker and its tasks do (`process.planning`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ....core.coordination.fleet import WORKERS, idle_note, present, workers_text, workers_wanted
from ....core.coordination.leader.assignment import tasks_of
from ....core.coordination.leader.plan import Plan, overridden
from ....core.coordination.messages import OVER, SetRun
from ....core.coordination.standbys import standbys
from ....core.coordination.state import JobState
from ....core.errors import DeclarationError, HeadgateError, NotFound
from ....core.graph.graph import Graph, Input
from ....core.graph.grouping import Grouping, named_owner
from ....core.graph.grouping import counts as widths
from ....core.graph.model import JobModel, producer_sets
from ....core.graph.resolve import shared_widths
from ....core.names import natural
from ...job.derive.declaration import Declared
from ...job.derive.named_fields import on_columns
from ...job.steps.step import Step
from ...kafka.topics import ABOUT_PROPERTIES, Compared, Difference, ExistingTopic, TopicSpec, compared
from ...process.configuration import CommandLine, Configuration
from ...process.launch import bound_inputs, load_app
from ...process.patterns import find_topics
from ...process.planning import StateChange, joins, misfits, state_changes
from ...process.reading import OtherJob, folded
from ...worker.job_topics import TO_COME, JobTopics, NotThere, no_outputs, widest
from ...worker.machine_settings import leader_config, member_config
from ...worker.options import WorkerOptions
from ..group import Group
from ..options import app_dir_option, broker_options, configured, run_async
from ..output import output_option, show_fields, show_table, shown_as_json
from ..steer.adopt import adopt
from .acls import show_acls
from .topic_verbs import create, delete, describe, list_topics


@click.command()
@click.argument("target", metavar="MODULE:app")
@click.option("--bounded", is_flag=True, help="Plan a run that stops at the offsets where the inputs end now.")
@click.option(
    "--workers",
    type=click.IntRange(1, 1000),
    help="Place tasks on this many workers.  [default: what `headgate scale` has set, or the setting workers, or 1]",
)
@app_dir_option
@broker_options
@output_option
def plan(target: str, bounded: bool, workers: int | None, app_dir: Path | None, said: CommandLine, output: str) -> None:
    """Show what would be created and placed if this job ran now. Changes nothing."""
    app = load_app(target, app_dir)
    if bounded:
        bound_inputs(app)
    configuration = configured(said, app=app.settings)
    run_async(find_topics(app, configuration))
    found, refused = run_async(_plan(Declared(app), configuration, workers or 0, bounded=bounded))
    if not shown_as_json(output, found):
        show_plan(found, planned_workers(workers or 0, found["workers"]["wanted"], configuration))
    refuse(refused)


def planned_workers(flag: int, scaled: int | None, configuration: Configuration) -> int:
    """On how many workers the tasks are placed."""
    return flag or scaled or configuration.value(WORKERS) or 1


def refuse(errors: list[HeadgateError]) -> None:
    """Raise what the start would be refused with, if there is anything."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        remedies = dict.fromkeys(one.remedy for one in errors if one.remedy)
        raise HeadgateError("\n".join(one.what for one in errors), remedy="\n".join(remedies))


def show_plan(found: dict[str, Any], workers: int) -> None:
    """Print the plan for people."""
    fields = [("job", found["job"]), ("deployment", found["deployment"])]
    fields.append(("state", "yes" if found["stateful"] else "no"))
    there = found["workers"]
    if there["wanted"] or there["present"]:
        fields.append(("workers", workers_text(there["wanted"], there["present"])))
    show_fields(fields)
    click.echo()
    show_table(
        ["TOPIC", "ROLE", "PARTITIONS", "NOW"],
        ([t["topic"], t["role"], t["partitions"], t["now"]] for t in found["topics"]),
    )
    click.echo()
    places = len({one["location"] for one in (*found["tasks"], *found["locations"]) if one["location"]}) > 1
    at = {one["worker"]: one["location"] or "-" for one in found["locations"]}
    show_table(
        [
            "TASK",
            "WORKER",
            *(["STANDBY"] if found["standby"] else []),
            *(["AT", "STORE AT"] if places else []),
            "PARTITIONS",
        ],
        (
            [
                t["task"],
                t["worker"],
                *([t["standby"] or "-"] if found["standby"] else []),
                *([at.get(t["worker"], "-"), t["location"] or "-"] if places else []),
                ", ".join(t["partitions"]),
            ]
            for t in found["tasks"]
        ),
    )
    if found["copies"]:
        click.echo()
        show_table(["ONE COPY PER WORKER", "OF THE TOPIC"], ([one["table"], one["topic"]] for one in found["copies"]))
    if found["patterns"]:
        click.echo()
        show_table(
            ["PATTERN", "TOPICS", "JOIN", "LEAVE", "OTHER WIDTH"],
            (
                [
                    one["pattern"],
                    ", ".join(one["topics"]),
                    ", ".join(one["joins"]) or "-",
                    ", ".join(one["leaves"]) or "-",
                    ", ".join(f"{topic['topic']} {topic['was']} → {topic['now']}" for topic in one["widths"]) or "-",
                ]
                for one in found["patterns"]
            ),
        )
    if found["ends"]:
        click.echo()
        show_table(
            ["INPUT", "ENDS AT", "THEN ITS TIME"], ([one["input"], one["at"], one["time"]] for one in found["ends"])
        )
    click.echo()
    show_table(["STEP", "WORKS ON"], ([one["step"], one["works_on"]] for one in found["steps"]))
    for one in found["steps"]:
        if one["why"]:
            click.echo(f"Note: '{one['step']}' works on rows: {one['why']}", err=True)
    if found["timers"]:
        click.echo()
        show_table(["TIMER", "CALLED BY"], ([one["timer"], one["task"]] for one in found["timers"]))
    if idle := idle_note(workers, len(found["tasks"])):
        click.echo(f"Note: {idle}", err=True)
    for one in found["state"]:
        if not one["refused"]:
            click.echo(f"Note: the state of {', '.join(one['tasks'])}: {one['what']}", err=True)
    for one in found["differs"]:
        click.echo(f"Note: the topic {one['topic']}: {one['what']}: {one['todo']}", err=True)


@dataclass(frozen=True, slots=True)
class Intended:
    """What a leader of this code would create now, and what exists already."""

    plan: Plan
    state: JobState | None
    """The job as it is; None if it never ran."""
    before: JobModel | None
    inputs: Mapping[str, int]
    gone: Collection[str]
    """The topics of patterns among the inputs that were deleted while their run goes on: it reads the others on."""
    tasks: Grouping
    own: list[TopicSpec]
    outputs: list[TopicSpec]
    found: Mapping[str, ExistingTopic]
    compared: Compared
    commands: list[str]
    refused: list[HeadgateError]
    """What the start would be refused with."""
    lacking: list[HeadgateError]
    """The same of what `commands` create, and the job does not."""
    departures: list[Difference]
    """What of the topics is not as the settings say, and refuses no start."""
    standby: bool
    """Whether other workers follow the logs of tasks with state."""


def _options(declared: Declared, configuration: Configuration, *, bounded: bool = False) -> WorkerOptions:
    """The options of a worker that this plan is about."""
    given = configuration.given
    return WorkerOptions(declared, configuration.client, "plan", "", "plan", "plan", settings=given, bounded=bounded)


async def _intended(
    declared: Declared, configuration: Configuration, state: JobState | None
) -> tuple[JobTopics, Intended]:
    topics = JobTopics.of(configuration.client, declared, configuration.value)
    creates = topics.create_outputs
    leader = leader_config(_options(declared, configuration), configuration.given)
    plan, timing = leader.plan, overridden(leader.timing, {} if state is None else state.configs, leader.masked)
    before = None if state is None else state.model
    joined = () if state is None or state.run is None or state.run.state in OVER else state.run.joined
    refused: list[HeadgateError] = []
    lacking: list[HeadgateError] = []
    await topics.start()
    try:
        await topics.refuse_names()
        if missing := await topics.streams_to_come():
            raise NotThere(f"{TO_COME}: {', '.join(missing)}", remedy="start these jobs, then plan again")
        inputs = await topics.input_counts() | await topics.counts_of(joined)
        gone = _gone({*topics.away, *joined} - inputs.keys(), before)
        plan = plan.joined(tuple(one for one in joined if one in inputs or one in gone))
        if (missing := await topics.refuse_targets()) and not creates:
            lacking.append(no_outputs(missing, widest(inputs)))
        inputs |= gone  # a run that goes on keeps the tasks that it has
        tasks = tasks_of(plan, inputs, before)
        if tasks is None:  # everything else was counted
            raise NotThere(
                f"the run has no tasks yet, and topics with which it began were deleted: {', '.join(topics.away)}",
                remedy=f"create them again; or headgate drain {topics.names.job}, and start it again, which leaves them out",
            )
        streams = widths(tasks)
        shared = shared_widths(plan.graph, streams, {} if before is None else before.shared)
        own, outputs = topics.all_specs(
            inputs, {**streams, **shared}, _logs({} if state is None else state.changelogs, tasks)
        )
        found = await topics.topics.find([spec.name for spec in (*own, *outputs)])
        try:
            framed = plan.graph.framed  # an input may grow
            await topics.check_widths({one: n for one, n in (before.widths if before else {}).items() if one in framed})
        except HeadgateError as error:
            refused.append(error)
    finally:
        await topics.stop()
    commands = [spec.command(configuration.client) for spec in (*own, *outputs) if spec.name not in found]
    judged = compared(own, found, configuration.client)
    try:
        judged.must_fit(configuration.client)
    except HeadgateError as error:
        refused.append(error)
    departures = topics.departures([*own, *(outputs if creates else [])], found)
    made = Intended(
        plan,
        state,
        before,
        inputs,
        gone.keys(),
        tasks,
        own,
        outputs,
        found,
        judged,
        commands,
        refused,
        lacking,
        departures,
        standby=plan.stateful and timing.standby > 0,
    )
    return topics, made


def _logs(known: Mapping[str, int], tasks: Collection[str]) -> int:
    """How many partitions the task log must have: each task that the job ever had keeps its own.

    >>> _logs({}, ["Partition 0"]), _logs({"Partition 0": 0, "Partition 1": 1}, ["Partition 0"]), _logs({"a": 0}, ["a", "b"])
    (1, 2, 2)
    """
    return max(len({*known, *tasks}), max(known.values(), default=-1) + 1)


def _gone(missing: Collection[str], before: JobModel | None) -> dict[str, int]:
    """The topics of patterns that were deleted since their run began, each as wide as it was."""
    had = {} if before is None else before.streams
    return {one: had[one] for one in sorted(missing) if one in had}


async def _plan(
    declared: Declared, configuration: Configuration, workers: int, *, bounded: bool
) -> tuple[dict[str, Any], list[HeadgateError]]:
    """The plan, and what the start would be refused with."""
    state = await _state(configuration, declared)
    topics, made = await _intended(declared, configuration, state)
    changes: tuple[StateChange, ...] = ()
    refused = [*made.refused, *made.lacking]
    if state is not None:
        options = _options(declared, configuration, bounded=bounded)
        refused += joins(state.run, member_config(options, configuration.given))
        changes = await state_changes(configuration.client, topics.names.log, state, declared)
        refused += misfits(changes)
    scaled = None if state is None else workers_wanted(state)
    there = {"wanted": scaled, "present": 0 if state is None else present(state)}
    number = planned_workers(workers, scaled, configuration)
    return {**_document(declared, topics, made, changes, refused, number), "workers": there}, refused


def _document(
    declared: Declared,
    topics: JobTopics,
    made: Intended,
    changes: tuple[StateChange, ...],
    refused: list[HeadgateError],
    workers: int,
) -> dict[str, Any]:
    intended, before, grouping, found, state = made.plan, made.before, made.tasks, made.found, made.state
    rows = [
        {"topic": name, "role": "input", "partitions": n, "now": "deleted" if name in made.gone else "there"}
        for name, n in sorted(made.inputs.items())
    ]
    for spec, role in [
        *((one, _role(topics, one.name)) for one in made.own),
        *((one, "output") for one in made.outputs),
    ]:
        there, made_now = spec.name in found, role != "output" or topics.create_outputs
        rows.append(
            {
                "topic": spec.name,
                "role": role,
                "partitions": found[spec.name].partitions if there else spec.partitions,
                "now": "to be widened"
                if spec in made.compared.narrow
                else "there"
                if there
                else "to be created"
                if made_now
                else "missing",
            }
        )
    wanted = before.target if before is not None else {}
    names = list(before.processors) if before is not None and len(before.processors) == workers else []
    names = names or [f"worker-{number}" for number in range(workers)]
    stores = {task: None if state is None else state.location(task) for task in grouping}
    locations = {name: _location(state, name) for name in names}
    placed = intended.placed(state, list(grouping), locations, wanted)
    owner = {task: worker for worker, tasks in placed.items() for task in tasks}
    followed = {} if before is None else {t: p for t, p in before.standby.items() if p in locations}
    follows = standbys(owner, locations, names, followed) if made.standby else {}
    return {
        "job": str(declared.app.job),
        "deployment": intended.deployment,
        "stateful": intended.stateful,
        "topics": rows,
        "copies": [{"table": name, "topic": one.source.topic} for name, one in sorted(declared.copied.items())],
        "patterns": _patterns(declared, before, None if state is None else state.run, made.inputs, made.gone),
        "tasks": [
            {
                "task": task,
                "worker": owner.get(task),
                "standby": follows.get(task),
                "location": stores[task],
                "partitions": [f"{s}[{p}]" for s, p in grouping[task] if s not in declared.graph.copied],
            }
            for task in sorted(grouping, key=natural)
        ],
        "standby": made.standby,
        "locations": [{"worker": name, "location": locations[name]} for name in names],
        "ends": [_end(intended.graph, one) for one in intended.graph.counted if one.until is not None],
        "steps": [_step(declared, step, columns) for step, columns in on_columns(declared.steps) if not step.by_clock],
        "timers": [
            {"timer": step.name, "task": named_owner(step.name, grouping)} for step in declared.steps if step.by_clock
        ],
        "producers": [
            {"stream": one.stream, "tasks": sorted(one.tasks, key=natural)}
            for one in producer_sets(intended.graph.fed, grouping, {}).values()
        ],
        "state": [{"what": one.what, "tasks": list(one.tasks), "refused": one.refused} for one in changes],
        "differs": [{"topic": one.topic, "what": one.what, "todo": one.remedy} for one in made.departures],
        "problems": [one.what for one in refused],
    }


def _patterns(
    declared: Declared,
    before: JobModel | None,
    run: SetRun | None,
    widths: Mapping[str, int],
    deleted: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The topics of each pattern, which of them join or leave the job, and which have another width than its tasks know. What has joined a
    run that is not over is read by it already; what was deleted under such a run leaves with the next one."""
    found: dict[str, list[str]] = {}
    for topic, step in sorted(declared.inputs.items()):
        if step.matched:
            found.setdefault(step.matched, []).append(topic)
    known = {} if before is None else before.streams
    joined = set[str]() if run is None or run.state in OVER else set(run.joined)
    result: list[dict[str, Any]] = []
    for pattern, read in found.items():
        topics = sorted({*read, *(one for one in joined if re.fullmatch(pattern, one))} - set(deleted))
        gone = (known.keys() - joined - set(declared.inputs)) | set(deleted)
        result.append(
            {
                "pattern": pattern,
                "topics": topics,
                "joins": [] if before is None else [one for one in topics if one not in known],
                "leaves": sorted(one for one in gone if re.fullmatch(pattern, one)),
                "widths": [
                    {"topic": one, "was": known[one], "now": widths[one]}
                    for one in topics
                    if one in known and widths.get(one, known[one]) != known[one]
                ],
            }
        )
    return result


def _location(state: JobState | None, processor: str) -> str | None:
    """Where this worker is, or was when it left; None if that is not known."""
    if state is None:
        return None
    known = state.newest(processor) or state.member(processor)
    return None if known is None else known.location or None


def _end(graph: Graph, one: Input) -> dict[str, str]:
    """Where an input ends, and what becomes of its time then."""
    endless = next((other.stream for other in graph.counted if other.until is None), None)
    if one.until == "producers":
        time = "does not count: the run of its jobs is over"
    elif endless is not None:
        time = f"does not count: '{endless}' has no end"
    else:
        stops = " and ".join(f"'{name}'" for name in graph.stopped_by(one.stream))
        time = f"counts until every part has ended{f', unless {stops} stops reading it' if stops else ''}"
    at = one.until if isinstance(one.until, str) else "offsets" if isinstance(one.until, tuple) else f"{one.until} ms"
    return {"input": one.stream, "at": at, "time": time}


def _step(declared: Declared, step: Step, columns: bool) -> dict[str, str | None]:
    """What a step works on, and why on rows where columns were to be expected."""
    why = None if step.staged else declared.why_rows.get(step.name)
    if columns and (inside := step.why_rows()) is not None:
        columns, why = False, inside
    return {"step": declared.name(step), "works_on": "columns" if columns else "rows", "why": why}


def _role(topics: JobTopics, name: str) -> str:
    names = topics.names
    fixed = {names.coordinator: "coordinator", names.heartbeat: "heartbeat", names.log: "task log"}
    return fixed.get(name) or ("dead letters" if name == names.dead_letters else "between stages")


async def _state(configuration: Configuration, declared: Declared) -> JobState | None:
    """The job's current state; None if it never ran."""
    try:
        return await folded(configuration.client, declared.topics)
    except OtherJob as error:
        raise DeclarationError(error.what, remedy=error.remedy) from None
    except NotFound:
        return None


@click.group(cls=Group)
def topics() -> None:
    """Create, list, show and delete topics; print the commands that create those of a job; adopt a copy of a topic."""


for verb in (create, list_topics, describe, delete, adopt):
    topics.add_command(verb)


@topics.command(name="plan")
@click.argument("target", metavar="MODULE:app")
@click.option(
    "--acls", is_flag=True, help="Print the commands that grant the rights of the job instead. Asks no broker."
)
@click.option(
    "--principal",
    metavar="NAME",
    help="With --acls: the principal that gets the rights. [default: User: and the user of -X or [client]]",
)
@click.option("--no-create", is_flag=True, help="With --acls: someone else creates the job's topics.")
@app_dir_option
@broker_options
@output_option
def topics_plan(
    target: str,
    acls: bool,
    principal: str | None,
    no_create: bool,
    app_dir: Path | None,
    said: CommandLine,
    output: str,
) -> None:
    """Print the commands that create missing topics, for teams whose applications may not create topics; with --acls, those that grant the
    rights of the job.

    A missing input comes first, with N in place of the number of partitions, which no one else can choose. It is named as well, because it
    may be mistyped, and the command exits with 1. It does so, too, when a topic is there and is not as the job needs it.
    """
    if (principal is not None or no_create) and not acls:
        raise click.UsageError("--principal and --no-create say more about --acls")
    app = load_app(target, app_dir)
    if acls:
        configuration = configured(said, app=app.settings, need_broker=False)
        show_acls(Declared(app), configuration, principal, create=not no_create, output=output)
        return
    configuration = configured(said, app=app.settings)
    run_async(find_topics(app, configuration))
    commands, refused = run_async(_topics_plan(Declared(app), configuration))
    if not shown_as_json(
        output, {"job": str(app.job), "commands": commands, "problems": [one.what for one in refused]}
    ):
        for command in commands:
            click.echo(command)
        if not commands:
            click.echo("All topics exist.", err=True)
        elif configuration.client.guarded:
            click.echo(f"Note: {ABOUT_PROPERTIES}", err=True)
    refuse(refused)


async def _topics_plan(declared: Declared, configuration: Configuration) -> tuple[list[str], list[HeadgateError]]:
    """The commands that create what is missing, and what the start would be refused with all the same."""
    try:
        _, made = await _intended(declared, configuration, await _state(configuration, declared))
    except NotThere as error:
        note = "N is how many partitions that topic is to have; once the inputs exist, this command says it"
        remedy = f"{error.remedy}\n  {note}"
        return await _without_inputs(declared, configuration), [NotThere(error.what, remedy=remedy)]
    return made.commands, made.refused


async def _without_inputs(declared: Declared, configuration: Configuration) -> list[str]:
    """The commands while an input is missing: that input first."""
    topics = JobTopics.of(configuration.client, declared, configuration.value)
    await topics.start()
    try:
        specs = topics.specs_of_unknown_width()
        found = await topics.topics.find([spec.name for spec in specs])
    finally:
        await topics.stop()
    return [spec.command(configuration.client) for spec in specs if spec.name not in found]
