"""Failed chunks: which of their records failed, which policy applies to them, and what a dead letter contains."""

from __future__ import annotations

import asyncio
import traceback
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import StoreUnreadable, causes
from ..cancellation import said
from ..job import steps as s
from ..records.chunks import Chunk
from ..records.target_rules import UnknownTarget
from .bad_records import BadRecord
from .decode import SourceOp
from .stateless import UserCodeError

if TYPE_CHECKING:
    from .pipeline import Pipeline

_HERE = Path(__file__).parents[1]


def chunk_id(chunk: Chunk, offsets: Sequence[int], skipped: frozenset[int]) -> str:
    """An id that is the same whenever these records are processed again as the same chunk, so that sinks can deduplicate."""
    first = offsets[0] if offsets else chunk.next_position
    left_out = f"-without-{zlib.crc32(repr(sorted(skipped)).encode()):08x}" if skipped else ""
    return f"{chunk.at.stream}-{chunk.at.partition}-{first}-{chunk.next_position}{left_out}"


async def find_bad(
    pipeline: Pipeline, chunk: Chunk, drop: Callable[[], None] | None = None
) -> list[tuple[int, BaseException]]:
    """Find the rows of a chunk that fail, by bisection. No output of the tries is kept. The search ends at the first row whose policy is to
    fail.

    Where steps keep state, a row may fail or succeed only because of earlier rows. Each part is then tried behind all good rows before it,
    from an untouched state (`drop` discards what a try has changed in tables). So every row that is blamed fails in its place. If a
    function with effects (a sink, an agent, an actor) raised and its policy is to fail anyway, nothing is tried again.

    A topic whose metadata is missing is not the failure of a row: `UnknownTarget` is re-raised.
    """
    found: list[tuple[int, BaseException]] = []
    trouble = pipeline.trouble
    source = pipeline.sources[chunk.at.stream]
    effects = isinstance(trouble, UserCodeError) and trouble.step.irrevocable
    if trouble is not None and effects and policy_of(trouble, source, pipeline.app) == "fail":
        return found
    in_place = keeps_state(pipeline, chunk.at.stream)
    left_out: set[int] = set()
    rows = chunk.pick(0, len(chunk))  # columns, so that taking a part is cheap
    # the whole has just failed, so its halves come first; the left one is on top
    parts = [(len(chunk) // 2, len(chunk)), (0, len(chunk) // 2)] if len(chunk) > 1 else [(0, 1)]
    while parts:
        first, behind = parts.pop()
        try:
            await pipeline.chunk(rows.pick(0 if in_place else first, behind), frozenset(left_out))
        except (asyncio.CancelledError, UnknownTarget):
            raise
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            if behind - first == 1:
                found.append((first, error))
                if in_place:
                    left_out.add(first)
                if policy_of(error, source, pipeline.app) == "fail":
                    return found
            else:
                middle = (first + behind) // 2
                parts += [(middle, behind), (first, middle)]
        pipeline.drop()
        if drop is not None:
            drop()
        await asyncio.sleep(0)  # let the worker's other tasks run, and its leader answer
    return found


def keeps_state(pipeline: Pipeline, stream: str) -> bool:
    """Whether the effect of a row of this stream may depend on earlier rows."""
    behind = (op.step for op in pipeline.operators if stream in pipeline.reads[id(op)])
    return bool(pipeline.app.tables) or any(step.remembers or _adds_columns(step) for step in behind)


def _adds_columns(step: s.Step) -> bool:
    """Whether it adds whole numbers of columns: a sum has 64 bits, so it depends on earlier rows whether a row can be added."""
    return isinstance(step, s.ShuffleStep) and step.combine is not None and step.schema is not None


def dead_letter(chunk: Chunk, index: int, error: BaseException, task: str) -> tuple[Any, Any, list[tuple[str, bytes]]]:
    """Key, value and headers of a dead letter: the record as it was read, with its origin and the error as headers."""
    cause = (error.cause if isinstance(error, BadRecord) else error.__cause__) or error
    step = error.step if isinstance(error, UserCodeError) else None
    where = step.name or f"{step.verb} ({step.where})" if step else "decode"
    headers = [
        *(chunk.headers[index] if chunk.has_headers else ()),
        ("hg-topic", chunk.at.stream.encode()),
        ("hg-partition", str(chunk.at.partition).encode()),
        ("hg-offset", str(chunk.offsets[index]).encode()),
        ("hg-timestamp", str(chunk.timestamps[index]).encode()),
        ("hg-task", task.encode()),
        ("hg-step", where.encode()),
        ("hg-exception", said(cause).encode(errors="backslashreplace")[:2000]),
        ("hg-traceback", own_traceback(cause).encode(errors="backslashreplace")),
    ]
    return chunk.keys[index], chunk.values[index], headers


def traceback_of(error: BaseException) -> str:
    """The traceback of the user's code, from the error with which a letter failed."""
    return own_traceback((error.cause if isinstance(error, BadRecord) else error.__cause__) or error)


def own_traceback(cause: BaseException) -> str:
    """The traceback of the user's code, without the headgate frames above it and without the first try of the whole chunk."""
    tb = cause.__traceback__
    while tb is not None and tb.tb_next is not None and _HERE in Path(tb.tb_frame.f_code.co_filename).parents:
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(cause), cause, tb, chain=cause.__cause__ is not None))[-8000:]


def store_failed(error: BaseException) -> bool:
    """Whether the error was caused by a store that could not be read, no matter which code was reading it."""
    return any(isinstance(one, StoreUnreadable) for one in causes(error))


def policy_of(error: BaseException, source: SourceOp, app: Any) -> s.Policy:
    """The policy for a failed record: the nearest one wins (operator, then input, then app). A store that cannot be read always fails."""
    if store_failed(error):
        return "fail"
    step = source.step
    if isinstance(error, UserCodeError):
        own = error.step.on_error
        return own or (step.on_error if isinstance(step, s.InputStep) else None) or app.on_error
    # for example a table cannot store a value: user code caused this, but no particular operator
    if not isinstance(error, BadRecord):
        return (step.on_error if isinstance(step, s.InputStep) else None) or app.on_error
    return (step.on_bad_data if isinstance(step, s.InputStep) else None) or app.on_bad_data
