"""Finds the rows of a failed chunk that fail, by running parts of it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...job.steps.step import Step
from ...learning import MustLearn
from ...records.frames.chunks import Chunk
from ..base.stateless import UserCodeError
from ..failures.failures import each_of, policy_of
from .pipeline import Pipeline


async def find_bad(
    pipeline: Pipeline, chunk: Chunk, error: BaseException, drop: Callable[[], None] | None = None
) -> list[tuple[int, BaseException]]:
    """Find the rows of a chunk that fail, which has just raised `error`. No output of the tries is kept. The search ends at the first row
    whose policy is to fail.

    It is a bisection, but for rows that cannot be read, or that have no value for an expression of columns: the decoder, or the step, names
    all of them at once, and the chunk is tried without them.

    Where steps keep state, a row may fail or succeed only because of earlier rows. Each part is then tried behind all good rows before it,
    from an untouched state (`drop` discards what a try has changed in tables). So every row that is blamed fails in its place. If a
    function with effects (a sink, an agent, an actor) raised and its policy is to fail anyway, nothing is tried again.

    What must be learned first is not the failure of a row: `MustLearn` is re-raised.
    """
    source = pipeline.sources[chunk.at.stream]
    if has_effects(error) and policy_of(error, source, pipeline.app) == "fail":
        return []
    if len(chunk) == 1:
        return [(0, each_of(error).get(0, error))]
    in_place = keeps_state(pipeline, chunk.at.stream)
    found: dict[int, BaseException] = {}
    rows = chunk.pick(0, len(chunk))  # columns, so that taking a part is cheap
    parts: list[tuple[int, int]] = []

    def failed(first: int, behind: int, begin: int, error: BaseException) -> None:
        """The rows of a part raised this; the try began at row `begin`."""
        if each := each_of(error):
            found.update({begin + index: one for index, one in each.items()})
            if policy_of(error, source, pipeline.app) == "fail":  # only rows before it may still matter
                least = begin + min(each)
                parts[:] = [(first, least)] if least > first else []
            else:
                parts.append((first, behind))
        elif behind - first == 1:
            found[first] = error
            if policy_of(error, source, pipeline.app) == "fail":
                parts.clear()
        else:
            middle = (first + behind) // 2
            parts.extend([(middle, behind), (first, middle)])  # the left one is next

    failed(0, len(chunk), 0, error)
    while parts:
        first, behind = parts.pop()
        begin = 0 if in_place else first
        left_out = frozenset(index - begin for index in found if begin <= index < behind)
        if left_out.issuperset(range(first - begin, behind - begin)):
            continue
        try:
            await pipeline.chunk(rows.pick(begin, behind), left_out)
        except (asyncio.CancelledError, MustLearn):
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            failed(first, behind, begin, error)
        pipeline.drop()
        if drop is not None:
            drop()
        await asyncio.sleep(0)  # let the worker's other tasks run, and its leader answer
    bad: list[tuple[int, BaseException]] = []
    for index in sorted(found):
        bad.append((index, found[index]))
        if policy_of(found[index], source, pipeline.app) == "fail":
            break
    return bad


def has_effects(error: BaseException) -> bool:
    """Whether a function with effects (a sink, an agent, an actor) has raised it: what it did is not undone.

    >>> has_effects(ValueError())
    False
    """
    return isinstance(error, UserCodeError) and error.step.irrevocable


def keeps_state(pipeline: Pipeline, stream: str) -> bool:
    """Whether the effect of a row of this stream may depend on earlier rows."""
    behind = (op.step for op in pipeline.operators if stream in pipeline.reads[id(op)])
    return bool(pipeline.app.tables) or any(step.remembers or _adds_columns(step) for step in behind)


def _adds_columns(step: Step) -> bool:
    """Whether it adds whole numbers of columns: a sum has 64 bits, so it depends on earlier rows whether a row can be added."""
    return step.partial and step.columns_given is not None
