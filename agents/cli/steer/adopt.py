"""`headgate topics adopt JOB TOPIC`: takes a topic for the one that the positions of a job belong to, although its id is another.

A topic that was deleted and re-created is another one: positions in it are lost. After the failover of a mirror every id differs, too, and
the records and offsets are those of before. Only an operator can know that. The tasks then keep their positions, and unfinished batches
by reference are read from the new topic.

Adopting cannot be undone, so the command shows a plan first: for each partition its task, the position, both ids, and where the log begins
and ends. A position outside of the log is refused. If no worker is running, the request waits for one, bound to the positions in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from ....core.coordination import requests as r
from ....core.errors import HeadgateError
from ....core.names import StreamPartition
from ....core.orders import HERE
from ...kafka.offsets import KafkaOffsets
from ...process.reading import following, heard, shown
from ...process.requests import Request
from ..options import Target, confirmed, run_async, yes_option
from ..output import show_json
from .seek import checkpoint_of, must_be_accepted, owners_of
from .steering import Asker, asks


@dataclass(frozen=True, slots=True)
class AdoptStep:
    """One partition of a plan."""

    at: StreamPartition
    task: str
    start: int
    end: int
    position: int | None
    """The next offset that its task reads; None before its first checkpoint."""
    before: str
    """The id of the topic that the position belongs to; empty if it is not known."""

    def __str__(self) -> str:
        where = "nowhere yet" if self.position is None else f"stays at {self.position}"
        return f"{self.at} ({self.task}): {where}; the log begins at {self.start} and ends before {self.end}"


@dataclass(frozen=True, slots=True)
class AdoptPlan:
    """What adopting a topic would do."""

    topic: str
    now: str
    """The id of the topic; empty if the brokers give none."""
    steps: list[AdoptStep]
    alive: bool

    @property
    def others(self) -> list[str]:
        """The ids of the topics that positions belong to, other than this one."""
        return sorted({one.before for one in self.steps if one.before and self.now and one.before != self.now})


@click.command()
@click.argument("job")
@click.argument("topic")
@click.option("--plan", "only_plan", is_flag=True, help="Show positions and ids, without changing anything.")
@yes_option
@asks()
def adopt(ask: Asker, topic: str, only_plan: bool, yes: bool) -> None:
    """Take a topic with another id for the one that was read before: the positions stay as they are.

    For the time after a mirror's failover, when the topic holds the same records at the same offsets under another id. Where it does not,
    use `headgate seek`. Shows ids, positions and the bounds of the log, and asks for confirmation.
    """
    plan = run_async(planned(ask.to, topic))
    if only_plan:
        show_plan(ask, plan)
        return
    if not plan.others:
        click.echo(
            f"Nothing to adopt: no position of {shown(ask.to.job)} belongs to another topic of the name {topic}."
        )
        return
    arguments: dict[str, Any] = {"stream": topic, "to": HERE}
    if not plan.alive:
        arguments["positions"] = {str(one.at.partition): one.position for one in plan.steps}
    lines = [
        f"{shown(ask.to.job)} takes the topic {topic} (id {plan.now}) for the one that it has read (id {', '.join(plan.others)}):",
        *(f"  {step}" for step in plan.steps),
        "If the topic does not hold the same records at these offsets, records are lost or processed twice.",
    ]
    confirmed("\n".join(lines), yes)
    waits = "" if plan.alive else "it waits for a worker"
    ask(Request(r.SEEK, arguments=arguments, lasting=not plan.alive, waits=waits))


def show_plan(ask: Asker, plan: AdoptPlan) -> None:
    """Print the plan, for people or for programs; its schema is `schemas/topics-adopt.json`."""
    if ask.output != "json":
        before = f", before: {', '.join(plan.others)}" if plan.others else ""
        click.echo("\n".join([f"{plan.topic}: id {plan.now or 'unknown'}{before}", *map(str, plan.steps)]))
        return
    rows = [
        {
            "partition": one.at.partition, "task": one.task, "begins": one.start, "ends": one.end, "position": one.position,
            "topic_id": one.before or None,
        }
        for one in plan.steps
    ]  # fmt: skip
    show_json(
        {
            "job": str(ask.to.job), "alive": plan.alive, "topic": plan.topic, "topic_id": plan.now or None,
            "differs": bool(plan.others), "partitions": rows,
        }
    )  # fmt: skip


async def planned(to: Target, topic: str) -> AdoptPlan:
    """The positions in this topic, with its id and theirs. Raises for a position that the topic does not have."""
    async with following(to.client, to.topics) as following_:
        beats = await heard(to.client, to.topics.heartbeat, following_.job)
        state = await following_.to_end()
    owners = owners_of(state, topic, None, to)
    must_be_accepted(to, state, topic, None, HERE)
    offsets = KafkaOffsets(to.client)
    await offsets.start()
    try:
        steps = [await _step(to, offsets, at, task, await checkpoint_of(to, state, task)) for at, task in owners]
        now = await offsets.topic_id(topic)
    finally:
        await offsets.stop()
    return AdoptPlan(topic, now, steps, bool(beats.present(state)))


async def _step(to: Target, offsets: KafkaOffsets, at: StreamPartition, task: str, checkpoint: Any) -> AdoptStep:
    start, end = await offsets.start_of(at), await offsets.end_of(at, committed=True)
    position = None if checkpoint is None else checkpoint.positions.get(at)
    before = "" if checkpoint is None else checkpoint.topics.get(at, "")
    if position is not None and not start <= position <= end:
        raise HeadgateError(
            f"the position of {at} is {position}, and the log begins at {start} and ends before {end}: it does not hold the same records",
            remedy=f"headgate seek {shown(to.job)} {at} --to oldest, or another position that exists",
        )
    return AdoptStep(at, task, start, end, position, before)
