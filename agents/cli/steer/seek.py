"""`headgate seek JOB STREAM[:PARTITION] --to …`: continues reading an input from another position; with `--skip`, leaves out one record
(`skipping`).

A seek cannot be undone, so the command shows a plan first: for each partition the position in its task's last checkpoint, the new position,
and how many records are skipped or read again. Positions that do not exist are refused. If no worker is running, the request waits for one,
without limit. It is then bound to the positions in the plan (also to there being none yet): if a task has moved on from them, the request
is refused.

Windows that a watermark has closed stay closed within a run: what is read again is late for them. A seek backwards between two runs opens
them again, and its plan says so.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import click

from ....core.coordination import requests as r
from ....core.coordination.leader.seeks import inputs_of, refusal
from ....core.coordination.messages import AnswerState, RunState, SetAnswer, SetRequest
from ....core.coordination.state import JobState
from ....core.errors import CheckpointError, HeadgateError, NotFound
from ....core.names import StreamPartition
from ....core.orders import skips
from ....core.settings import offer
from ....core.task.stored.checkpoint import CHECKPOINT_KEY, Checkpoint, decode_checkpoint
from ...job.declare.checks import end_meant
from ...kafka.offsets import KafkaOffsets
from ...kafka.scan import scan_topic
from ...port.bounds import offset_of
from ...process.reading import following, heard, shown
from ...process.requests import Request, outcome
from ..group import Mistyped
from ..options import Target, confirmed, run_async, yes_option
from ..output import show_json
from .skipping import not_passed, rows_at, skipped_place
from .steering import Asker, asks

TAIL = 2000
"""How many records at the end of a task log are searched for the last checkpoint, before the whole log is."""
OVER = (RunState.DRAINED, RunState.ENDED)
"""The states of a run that is not resumed: the next one is another run."""


@dataclass(frozen=True, slots=True)
class SeekStep:
    """One partition of a plan."""

    at: StreamPartition
    task: str
    start: int
    end: int
    before: int | None
    """The next offset that its task would read, according to its last checkpoint; None before the first one."""
    after: int
    remade: bool = False
    """The topic was deleted and re-created since: `before` is a position in another topic."""
    rows: int = 0
    """How many rows of the record are left out; the position stays."""

    @property
    def skipped(self) -> int:
        """The number of offsets that will not be read, or of rows that are left out."""
        if self.rows:
            return self.rows
        if self.before is None or self.remade:
            return max(0, self.after - self.start)
        return max(0, self.after - max(self.start, self.before))

    @property
    def again(self) -> int:
        """The number of offsets that will be read a second time."""
        return 0 if self.before is None or self.remade else max(0, min(self.before, self.end) - self.after)

    def __str__(self) -> str:
        what = f"{self.skipped} skipped" if self.skipped else f"{self.again} read again" if self.again else "stays"
        before = (
            "nowhere yet" if self.before is None else f"{self.before}{' of an earlier topic' if self.remade else ''}"
        )
        return f"{self.at} ({self.task}): {before} → {self.after}, {what}"


@dataclass(frozen=True, slots=True)
class SeekPlan:
    """What a seek would do."""

    steps: list[SeekStep]
    alive: bool
    """A worker is alive. If none is, the request waits for one."""
    between_runs: bool
    """The last run is over."""

    @property
    def reopens(self) -> bool:
        """Whether the next run forgets which windows are closed."""
        return self._again and self.between_runs and not self.alive

    @property
    def _again(self) -> bool:
        return any(one.again for one in self.steps)

    def windows(self) -> list[str]:
        """What happens to closed windows, for people; empty if no record is read again."""
        if not self._again:
            return []
        if self.reopens:
            return [
                "Windows that watermarks have closed open again: those of the records read again give their results again."
            ]
        return [
            "Windows that are closed stay closed, and records read again are late for them. After a drain, a seek opens them again."
        ]


@click.command()
@click.argument("job")
@click.argument("place", metavar="STREAM[:PARTITION]")
@click.option(
    "--to",
    "goal",
    default="",
    metavar="oldest|newest|OFFSET|TIME",
    help="The new position; TIME is ISO 8601, such as 2026-01-31T12:00.",
)
@click.option(
    "--skip",
    "left_out",
    default="",
    metavar="OFFSET[.ROW]",
    help="Skip only this record, as the failed task names it; ROW is a row of a frame.",
)
@click.option(
    "--plan", "only_plan", is_flag=True, help="Show what would be skipped or read again, without changing anything."
)
@yes_option
@asks()
def seek(ask: Asker, place: str, goal: str, left_out: str, only_plan: bool, yes: bool) -> None:
    """Continue reading an input from another position, or leave out one record. Records that were already counted stay counted.

    Shows the old and new position of each partition and how many records will be skipped or read again, and asks for confirmation.
    Closed windows stay closed, unless the seek leads back between two runs (after a drain or an end).
    If no worker is running, the request waits for one; `headgate requests` lists pending requests and withdraws them.
    """
    stream, partition = place_of(place)
    if bool(goal) == bool(left_out):
        raise click.UsageError("give either --to or --skip")
    if left_out and partition is None:
        raise click.UsageError(f"--skip needs the partition: {stream}:PARTITION")
    to = skipped_place(left_out) if left_out else goal_of(goal)
    plan = run_async(planned(ask.to, stream, partition, to))
    if only_plan:
        show_plan(ask, plan)
        return
    arguments: dict[str, Any] = {"stream": stream, "to": to}
    if partition is not None:
        arguments["partition"] = partition
    if not plan.alive and goal:
        arguments["positions"] = {str(one.at.partition): one.before for one in plan.steps}
    if plan.reopens:
        arguments["reopens"] = True
    lines = [
        f"{shown(ask.to.job)} {f'leaves out {left_out} of {place}' if left_out else f'continues {place} at {goal}'}:",
        *(f"  {step}" for step in plan.steps),
        *plan.windows(),
    ]
    if not plan.alive:
        lines.append(
            "No worker is running: the request waits for one, and is refused if a task has "
            + ("passed the record." if left_out else "moved from the position shown here.")
        )
    confirmed("\n".join(lines), yes)
    waits = "" if plan.alive else "it waits for a worker"
    ask(Request(r.SEEK, arguments=arguments, lasting=not plan.alive, waits=waits))


def show_plan(ask: Asker, plan: SeekPlan) -> None:
    """Print the plan, for people or for programs; its schema is `schemas/seek-plan.json`."""
    if ask.output != "json":
        click.echo("\n".join([*map(str, plan.steps), *plan.windows()]))
        return
    rows = [
        {
            "stream": one.at.stream, "partition": one.at.partition, "task": one.task, "begins": one.start, "ends": one.end,
            "before": one.before, "after": one.after, "skipped": one.skipped, "again": one.again, "remade": one.remade,
        }
        for one in plan.steps
    ]  # fmt: skip
    show_json({"job": str(ask.to.job), "alive": plan.alive, "reopens": plan.reopens, "partitions": rows})


async def planned(to: Target, stream: str, partition: int | None, goal: Any) -> SeekPlan:
    """What a seek would do to each partition. Raises for a stream, partition or offset that does not exist."""
    async with following(to.client, to.topics) as following_:
        beats = await heard(to.client, to.topics.heartbeat, following_.job)
        state = await following_.to_end()
    owners = owners_of(state, stream, partition, to)
    must_be_accepted(to, state, stream, partition, goal)
    offsets = KafkaOffsets(to.client)
    await offsets.start()
    try:
        steps: list[SeekStep] = []
        for at, task in owners:
            if skips(goal):
                steps.append(await _skipping(to, state, at, task, offsets, goal))
                continue
            start, end = await offsets.start_of(at), await offsets.end_of(at, committed=True)
            after = await offset_of(offsets, at, tuple(goal) if isinstance(goal, list) else goal)
            if not start <= after <= end:
                raise HeadgateError(
                    f"there is no offset {after} in {at}: it begins at {start} and ends before {end}",
                    remedy=f"an offset from {start} to {end}, or oldest, newest, a time",
                )
            found = await checkpoint_of(to, state, task)
            before = None if found is None else found.positions.get(at)
            steps.append(SeekStep(at, task, start, end, before, after, await _remade(offsets, found, at)))
    finally:
        await offsets.stop()
    return SeekPlan(steps, bool(beats.present(state)), state.run is not None and state.run.state in OVER)


def must_be_accepted(to: Target, state: JobState, stream: str, partition: int | None, goal: Any) -> None:
    """Raise what the leader would refuse this seek with, by the rule that it asks itself."""
    if why := refusal(state, inputs_of(state) or [stream], stream, partition, goal):
        arguments = {"stream": stream, "to": goal, **({} if partition is None else {"partition": partition})}
        request = SetRequest("", r.SEEK, "", arguments)
        outcome(request, SetAnswer("", AnswerState.REFUSED, why), state, to.job)


async def _remade(offsets: KafkaOffsets, checkpoint: Checkpoint | None, at: StreamPartition) -> bool:
    known = "" if checkpoint is None else checkpoint.topics.get(at, "")
    found = await offsets.topic_id(at.stream) if known else ""
    return bool(found) and found != known


async def _skipping(
    to: Target, state: JobState, at: StreamPartition, task: str, offsets: KafkaOffsets, goal: list[Any]
) -> SeekStep:
    start, end = await offsets.start_of(at), await offsets.end_of(at, committed=True)
    found = await checkpoint_of(to, state, task)
    before = None if found is None else found.positions.get(at)
    if await _remade(offsets, found, at):
        raise HeadgateError(
            f"{at.stream} was deleted and re-created: the position {before} of {task} is in the earlier topic",
            remedy=f"headgate seek {shown(to.job)} {at} --to oldest, or another position, first",
        )
    not_passed(at, goal[1], before)
    rows = await rows_at(to, state, at, goal)
    return SeekStep(at, task, start, end, before, start if before is None else before, rows=rows)


def owners_of(state: JobState, stream: str, partition: int | None, to: Target) -> list[tuple[StreamPartition, str]]:
    """The chosen partitions, each with the task that owns it."""
    model = state.model
    if model is None:
        raise NotFound(f"'{shown(to.job)}' has no tasks yet", remedy="its first run creates them")
    owned = {at: task for task, ats in model.tasks.items() for at in ats if at.stream == stream}
    if not owned:
        raise HeadgateError(f"'{stream}' is not a stream of '{shown(to.job)}'", remedy=offer(stream, model.streams))
    chosen = [at for at in sorted(owned) if partition in (None, at.partition)]
    if not chosen:
        raise HeadgateError(
            f"there is no partition {partition} of '{stream}'", remedy=f"it has {len(owned)}, counted from 0"
        )
    return [(at, owned[at]) for at in chosen]


async def checkpoint_of(to: Target, state: JobState, task: str) -> Checkpoint | None:
    """The task's last checkpoint; None if it has none."""
    number = state.changelogs.get(task)
    if number is None:
        return None
    for last in (TAIL, None):
        found: bytes | None = None
        async for record in scan_topic(to.client, to.topics.log, partition=number, last=last):
            if record.key == CHECKPOINT_KEY:
                found = record.value
        if found is not None:
            try:
                return decode_checkpoint(found)
            except CheckpointError as error:
                raise HeadgateError(f"the position of {task} cannot be read: {error}") from error
    return None


def place_of(text: str) -> tuple[str, int | None]:
    """Stream and partition of `orders` or `orders:3`."""
    stream, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not number.isdigit():
        raise click.UsageError(f"'{text}' is not STREAM[:PARTITION]")
    return stream, int(number)


def goal_of(text: str) -> str | int | list[Any]:
    """The target of a seek, in the format of a request."""
    if text in ("oldest", "newest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise Mistyped(
            f"'{text}' is not a position to seek to",
            remedy=f"{end_meant(text)}oldest, newest, an offset, or a time in ISO form",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return ["time", int(moment.timestamp() * 1000)]
