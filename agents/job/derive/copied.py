"""Of which tables each worker keeps one copy, instead of one in each task.

It decides which: a table with `broadcast=True` that follows one topic, through steps that hold no state and await nothing, if the rows of
the topic go nowhere else. Everything else that every task reads stays in the tasks: a topic whose rows are also used otherwise, several
topics in one table, a stream of the job (`.broadcast(…)`), a stream of another job, an input with `start=` or `until=`.

Promise: the answer is the same for every version of the steps (with columns, with named fields), because it looks at what they are and not
at how they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....core.errors import DeclarationError
from ..steps.keyed import TableStep
from ..steps.sources import InputStep
from ..steps.step import Step, lineage, readers_of
from ..types.parking import PARK, Park


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table of which each worker keeps one copy."""

    table: TableStep
    source: InputStep
    steps: tuple[Step, ...]
    """All that runs for it, parents before children: the input, the steps behind it, and the table."""


def copied_tables(steps: Sequence[Step]) -> dict[str, CopiedTable]:
    """The tables of which each worker keeps one copy, by name."""
    readers = readers_of(steps)
    fits: dict[int, bool] = {}
    """Whether all that comes of a step ends in such tables, and nowhere else."""
    for step in reversed(steps):  # parents come before children
        if isinstance(step, TableStep):
            fits[id(step)] = step.broadcast
        else:
            plain = _plain_input(step) if isinstance(step, InputStep) else step.passing and len(step.parents) == 1
            after = readers.get(id(step), [])
            fits[id(step)] = plain and bool(after) and all(fits[id(one)] for one in after)
    found: dict[str, CopiedTable] = {}
    for step in steps:
        if isinstance(step, TableStep) and fits[id(step)]:
            behind = lineage((step,))
            source = behind[0]
            if isinstance(source, InputStep) and all(fits[id(one)] for one in behind):
                found[step.name] = CopiedTable(step, source, tuple(behind))
    return found


def _plain_input(step: InputStep) -> bool:
    """Whether all of its records are meant, wherever they are read, and they come as they were written."""
    return step.start == "oldest" and step.until is None and not (step.producers or step.pattern or step.matched)


def check_policies(copied: Iterable[CopiedTable]) -> None:
    """Refuse policies that a copy cannot carry out. That of the app is of all inputs: there, what is to be parked is left out."""
    for one in copied:
        for step in one.steps:
            policies = {"on_error": step.on_error}
            if isinstance(step, InputStep):
                policies["on_bad_data"] = step.on_bad_data
            for name, policy in policies.items():
                if isinstance(policy, Park) or policy == PARK:
                    raise DeclarationError(
                        f"{step.said}: {name}=hg.park(…) before the table '{one.table.name}', of which each worker keeps one copy: a copy "
                        "follows its topic, and tries nothing again later",
                        remedy=f'{name}="skip" leaves such records out, and counts them; "fail" stops the copy there',
                    )
