"""`headgate tables clear JOB [TABLE ...]`: empties tables, so that the next start begins with empty ones, whatever its code declares.

It needs all workers to be stopped, and fences as `reset` does. Positions, other tables, timers and batches stay as they are, and the output
says so: records that were read before are not counted again by themselves. Without names, all tables and aggregates are cleared. Timers,
and rows that wait for a batch, are pending results, so they are cleared only by name. The job's code is neither needed nor read: a table
that no code declares any more is cleared like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from ....core.coordination.state import JobState
from ....core.errors import HeadgateError, NotFound
from ....core.names import StreamPartition
from ....core.settings import offer
from ...job.types.schemas import AGGREGATE, BATCHES, TABLE, TIMERS
from ...process.clearing import Census, Kept, LogContents, leading, put_together, read_logs
from ...process.reading import shown
from ...state.opening import OWN
from ...state.scan import CHECKPOINT
from ..options import Target, about_job, confirmed, run_async, yes_option
from ..output import output_option, show_json
from .unattended import (
    between_stages,
    fence_all,
    former_stages,
    incarnations_of,
    refuse_living,
    run_text,
    state_and_living,
)

NAMED = 8
"""The most partitions of a stream that are listed one by one."""
LOST = {
    TIMERS: "its pending timers never fire",
    BATCHES: "its rows were already read, and will not be in any batch",
}


@dataclass(frozen=True, slots=True)
class ClearPlan:
    """What would be emptied, and what stays."""

    cleared: tuple[Kept, ...]
    others: tuple[str, ...]
    positions: tuple[tuple[StreamPartition, int], ...]
    run: str
    between: tuple[str, ...]
    """The job's own streams between its stages."""
    waiting: bool
    """There may be records in them."""
    alive: tuple[str, ...] = field(default=(), compare=False)

    @property
    def keys(self) -> int:
        """The number of keys that would be deleted."""
        return sum(one.keys for one in self.cleared)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not any(one.parts for one in self.cleared)


@click.command("clear")
@click.argument("job")
@click.argument("names", metavar="[TABLE]...", nargs=-1)
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Show what would be cleared and what would be kept, without changing anything.",
)
@yes_option
@about_job
@output_option
def clear(to: Target, names: tuple[str, ...], only_plan: bool, yes: bool, output: str) -> None:
    """Empty all tables of a job, or the named ones, and delete their schemas. Needs all workers to be stopped.

    The job continues reading from its current position: to fill a table again from its input, seek back. Tables that the code no
    longer declares can be cleared, too; timers and rows that wait for a batch only by name.
    """
    agreed = run_async(_planned(to, names, even_if_living=only_plan))
    if output != "json" and only_plan:
        click.echo(text(to, agreed))
    elif not only_plan and not agreed.empty:
        confirmed(text(to, agreed), yes)
        agreed = run_async(_clear(to, names, agreed))
    if output == "json":
        show_json(document(to, agreed, done=not only_plan))
    elif not only_plan:
        click.echo(outcome(to, agreed))
    if only_plan:
        refuse_living(to, agreed.alive)


def outcome(to: Target, done: ClearPlan) -> str:
    """What was done, for people."""
    names = ", ".join(f"'{one.name}'" for one in done.cleared)
    if not names:
        return f"Nothing to do: {shown(to.job)} has no tables."
    if done.empty:
        return f"Nothing to do: {names} of {shown(to.job)} {'is' if len(done.cleared) == 1 else 'are'} already empty."
    return f"{names} of {shown(to.job)}: {_many(done.keys, 'key')} deleted."


# ---------------------------------------------------------------------------------------------------------- what is planned


def plan_of(
    names: Sequence[str], found: LogContents, state: JobState, to: Target, alive: Sequence[str] = ()
) -> ClearPlan:
    """Which tables are cleared, and which stay. Raises for a table that does not exist or cannot be cleared."""
    for name in names:
        if name in OWN or name == CHECKPOINT:
            raise HeadgateError(
                f"'{name}' belongs to headgate, and cannot be cleared",
                remedy=f"`headgate reset {shown(to.job)}` deletes all state of the job",
            )
        if name not in found.tables:
            raise NotFound(f"no task log of {shown(to.job)} holds a table '{name}'", remedy=there_are(name, found))
    between = between_stages(state)
    chosen = set(names) or {name for name, one in found.tables.items() if one.kind in (TABLE, AGGREGATE)}
    return ClearPlan(
        cleared=tuple(one for name, one in found.tables.items() if name in chosen),
        others=tuple(name for name, one in found.tables.items() if name not in chosen and one.parts),
        positions=tuple(found.positions.items()),
        run=run_text(state),
        between=(*between, *former_stages(state)),
        waiting=state.live and bool(between),
        alive=tuple(alive),
    )


def there_are(name: str, found: LogContents) -> str:
    """The nearest name, and the existing ones."""
    near = offer(name, found.tables)
    every = ", ".join(f"'{one}'" for one in found.tables)
    return f"{near} There are {every}" if near.endswith("?") and len(found.tables) > 1 else near or "it holds none"


async def _planned(to: Target, names: Sequence[str], *, even_if_living: bool) -> ClearPlan:
    state, alive = await state_and_living(to)
    if not even_if_living:
        refuse_living(to, alive)
    return plan_of(names, put_together(await _logs(to, state, names)), state, to, alive)


async def _logs(to: Target, state: JobState, names: Sequence[str]) -> dict[str, Census]:
    if not state.changelogs:
        raise NotFound(f"'{shown(to.job)}' has no tasks yet", remedy="its first run creates them")
    return await read_logs(to.client, to.topics.log, state.changelogs, names)


async def _clear(to: Target, names: Sequence[str], agreed: ClearPlan) -> ClearPlan:
    """Empty what was confirmed. Workers may have started since then, so everything is checked again, once no one can lead."""
    timeout_ms = int(to.configuration.value("transaction.timeout"))
    async with leading(to.client, to.job, to.topics.log, timeout_ms=timeout_ms) as log:
        state, alive = await state_and_living(to)
        refuse_living(to, alive)
        await fence_all(to, incarnations_of(state))
        logs = await _logs(to, state, names)
        if plan_of(names, put_together(logs), state, to) != agreed:
            raise HeadgateError(f"{to.job} has changed since the plan was made", remedy="run the same command again")
        await log.clear(logs, state.changelogs, [one.name for one in agreed.cleared])
    return agreed


# ------------------------------------------------------------------------------------------------------------ what is shown


def text(to: Target, plan: ClearPlan) -> str:
    """What would happen, for people."""
    job = shown(to.job)
    lines = [f"This empties tables of {to.job} ({plan.run}), and deletes their schemas:"]
    lines += [f"  {_line(one)}" for one in plan.cleared] or ["  none: there are no tables"]
    if plan.others:
        lines.append(f"Kept: {', '.join(plan.others)}.")
    inputs = [stream for stream in _streams(plan) if stream not in plan.between]
    if inputs:
        standing = "; ".join(_stands(plan, stream) for stream in inputs)
        lines.append(
            f"The positions are kept ({standing}), so records that were read before are not counted again.\n"
            f"To fill a table again: `headgate seek {job} {inputs[0]} --to oldest`; the kept tables then count these records twice."
        )
    if plan.waiting:
        lines.append(
            "The run is not closed: records between its stages will count in the cleared tables. To avoid that, drain first."
        )
    return "\n".join(lines)


def _line(one: Kept) -> str:
    where = (
        f" in {_many(len(one.parts), 'task')}" if len(one.parts) > 1 else "".join(f" in {p.task}" for p in one.parts)
    )
    what = f"{_many(one.keys, 'key')}, {one.size} bytes{where}" if one.parts else "already empty"
    lost = f"; {LOST[one.kind]}" if one.keys and one.kind in LOST else ""
    return f"{one.name} ({one.kind}): {what}{lost}"


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _streams(plan: ClearPlan) -> list[str]:
    return list(dict.fromkeys(at.stream for at, _ in plan.positions))


def _stands(plan: ClearPlan, stream: str) -> str:
    found = [(at.partition, offset) for at, offset in plan.positions if at.stream == stream]
    if len(found) > NAMED:
        return f"{len(found)} partitions of {stream}"
    return ", ".join(f"{stream}:{partition} at {offset}" for partition, offset in found)


def document(to: Target, plan: ClearPlan, *, done: bool) -> dict[str, Any]:
    """The plan for programs; its schema is `schemas/tables-clear.json`."""
    return {
        "job": str(to.job),
        "run": plan.run,
        "alive": list(plan.alive),
        "tables": [
            {
                "table": one.name,
                "kind": one.kind,
                "tasks": [{"task": p.task, "keys": p.keys, "bytes": p.size, "schema": p.schema} for p in one.parts],
            }
            for one in plan.cleared
        ],
        "stay": list(plan.others),
        "positions": [{"stream": at.stream, "partition": at.partition, "offset": o} for at, o in plan.positions],
        "done": done,
    }
