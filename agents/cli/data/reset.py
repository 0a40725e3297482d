"""`headgate reset JOB`: deletes a job's state, runs and settings, so that it starts from scratch. Inputs and outputs are not touched.

This needs all workers to be stopped. First the leader's transactional id is taken and every recorded incarnation is fenced, so that no
worker that wakes up later can write into the new job.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import click

from ....core.errors import HeadgateError
from ...kafka.connect import CONNECT_S
from ...kafka.topics import TopicsAdmin
from ...process.launch import state_root
from ..options import Target, about_job, confirmed, run_async, yes_option
from ..output import output_option, show_json
from .unattended import (
    between_stages,
    fence_all,
    former_stages,
    incarnations_of,
    leading,
    refuse_living,
    resign,
    run_text,
    state_and_living,
)


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset would delete, and the incarnations that must be fenced first."""

    topics: list[str]
    incarnations: list[tuple[str, str]]
    directory: Path | None
    alive: list[str]
    run: str
    term: int
    """The term of the last leader."""


@click.command()
@click.argument("job")
@click.option("--dead-letters", is_flag=True, help="Also delete the dead letters.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be deleted, without changing anything.")
@yes_option
@about_job
@output_option
def reset(to: Target, dead_letters: bool, only_plan: bool, yes: bool, output: str) -> None:
    """Delete all state of a job: tables, positions, runs, overrides. Its next run starts from scratch."""
    found = run_async(_look(to, dead_letters))
    if not only_plan:
        refuse_living(to, found.alive)
        confirmed(text(to, found), yes)
        found = run_async(_reset(to, found, dead_letters))
    elif output != "json":
        click.echo(text(to, found))
    if output == "json":
        show_json(
            {
                "job": str(to.job),
                "topics": found.topics,
                "directory": str(found.directory) if found.directory else None,
                "alive": found.alive,
                "done": not only_plan,
            }
        )
    elif not only_plan:
        click.echo(f"{to.job} was reset.")
    if only_plan:
        refuse_living(to, found.alive)


def text(to: Target, found: ResetPlan) -> str:
    """What would happen, for people."""
    lines = [
        f"This deletes all state of {to.job} ({found.run}):",
        *(f"  topic {t}" for t in found.topics),
    ]
    if found.directory is not None:
        lines.append(f"  directory {found.directory}")
    return "\n".join(
        [
            *lines,
            "Inputs and outputs are kept. Positions are lost: the next run starts each input where its declaration says.",
        ]
    )


async def _look(to: Target, dead_letters: bool) -> ResetPlan:
    names = to.topics
    state, alive = await state_and_living(to)
    wanted = [
        *between_stages(state),
        *former_stages(state),
        names.log,
        names.heartbeat,
        names.coordinator,
        *([names.dead_letters] if dead_letters else []),
    ]
    root = state_root(to.configuration, to.job)
    topics = TopicsAdmin(to.client)
    await topics.start()
    try:
        there = await topics.find(wanted)
    finally:
        await topics.stop()
    return ResetPlan(
        [t for t in wanted if t in there],
        incarnations_of(state),
        root if root.exists() else None,
        alive,
        run_text(state),
        0 if state.leader is None else state.leader.term,
    )


async def _reset(to: Target, agreed: ResetPlan, dead_letters: bool) -> ResetPlan:
    """Delete what was confirmed. Workers may have started since then, so everything is checked again, once no one can lead."""
    async with leading(to, "reset") as leader:
        found = await _look(to, dead_letters)
        refuse_living(to, found.alive)
        if (found.topics, found.directory, found.run) != (agreed.topics, agreed.directory, agreed.run):
            raise HeadgateError(f"{to.job} has changed since the plan was made", remedy="run the same command again")
        await fence_all(to, found.incarnations)
        await resign(leader, to, found.term + 1)
    topics = TopicsAdmin(to.client)
    await topics.start(deadline_s=CONNECT_S)
    try:
        # the coordinator stream goes last: until then the job exists, and another reset can finish this one
        await topics.delete(found.topics)
    finally:
        await topics.stop()
    if found.directory is not None:
        shutil.rmtree(found.directory)
    return found
