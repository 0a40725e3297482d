"""Failed chunks: which of their records failed, which policy applies to them, and what a dead letter contains."""

from __future__ import annotations

import asyncio
import inspect
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.batching.ranges import TOPIC_ID
from ...core.errors import LimitReached, StoreUnreadable, causes
from ...core.progress.frames import FROM_HEADER
from ..cancellation import said
from ..job import steps as s
from ..job.checks import POLICIES
from ..records.frames.chunks import Chunk
from ..records.kafka.columns import OversizedData
from ..records.kafka.target_rules import UnknownTarget
from ..records.kafka.timestamps import EVENT_TIME, TIME_HEADER
from ..records.values.record import Record
from .bad_records import BadRecord
from .decode import SourceOp
from .stateless import UserCodeError
from .user_line import cut, own_traceback

if TYPE_CHECKING:
    from .pipeline import Pipeline


def chunk_id(chunk: Chunk, offsets: Sequence[int], skipped: frozenset[int]) -> str:
    """An id that is the same whenever these records are processed again as the same chunk. After a crash they may be cut otherwise."""
    first = offsets[0] if offsets else chunk.next_position
    left_out = f"-without-{zlib.crc32(repr(sorted(skipped)).encode()):08x}" if skipped else ""
    return f"{chunk.at.stream}-{chunk.at.partition}-{first}-{chunk.next_position}{left_out}"


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

    A topic whose metadata is missing is not the failure of a row: `UnknownTarget` is re-raised.
    """
    source = pipeline.sources[chunk.at.stream]
    effects = isinstance(error, UserCodeError) and error.step.irrevocable
    if effects and policy_of(error, source, pipeline.app) == "fail":
        return []
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

    if len(chunk) > 1 or each_of(error):
        failed(0, len(chunk), 0, error)
    else:
        parts.append((0, 1))
    while parts:
        first, behind = parts.pop()
        begin = 0 if in_place else first
        left_out = frozenset(index - begin for index in found if begin <= index < behind)
        if left_out.issuperset(range(first - begin, behind - begin)):
            continue
        try:
            await pipeline.chunk(rows.pick(begin, behind), left_out)
        except (asyncio.CancelledError, UnknownTarget):
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


def each_of(error: BaseException) -> dict[int, BaseException]:
    """The errors of all rows of the chunk that fail like this one; empty if they are not known."""
    if isinstance(error, BadRecord):
        return {index: BadRecord(index, cause) for index, cause in error.all.items()}
    return dict(error.all) if isinstance(error, UserCodeError) else {}


def keeps_state(pipeline: Pipeline, stream: str) -> bool:
    """Whether the effect of a row of this stream may depend on earlier rows."""
    behind = (op.step for op in pipeline.operators if stream in pipeline.reads[id(op)])
    return bool(pipeline.app.tables) or any(step.remembers or _adds_columns(step) for step in behind)


def _adds_columns(step: s.Step) -> bool:
    """Whether it adds whole numbers of columns: a sum has 64 bits, so it depends on earlier rows whether a row can be added."""
    return isinstance(step, s.ShuffleStep) and step.combine is not None and step.schema is not None


def row_in_frame(chunk: Chunk, index: int) -> int:
    """Which row of its frame a row of a chunk of frames is: all rows of a frame have its offset."""
    offset = chunk.columns.offset
    return index - bisect_left(range(index), offset(index), key=offset)


def dead_letter(
    chunk: Chunk,
    index: int,
    error: BaseException,
    task: str,
    row: int | None = None,
    *,
    topic_id: str = "",
    source: s.Step | None = None,
) -> tuple[Any, Any, list[tuple[str, bytes]]]:
    """Key, value and headers of a dead letter: the record as it was read, with its origin and the error as headers. `row`: which row of its
    frame it is; None if it came in none. `topic_id`: that of its topic; empty if it is not known. `source`: the input that it came from."""
    cause = (error.cause if isinstance(error, BadRecord) else error.__cause__) or error
    step = error.step if isinstance(error, UserCodeError) else None
    whole = [("hg-offset-last", str(cause.last).encode())] if isinstance(cause, OversizedData) else []
    own = chunk.headers[index] if chunk.has_headers else []
    headers: list[tuple[str, Any]] = [
        *((EVENT_TIME if name == TIME_HEADER else name, value) for name, value in own),
        ("hg-topic", chunk.at.stream.encode()),
        *id_header(topic_id),
        ("hg-partition", str(chunk.at.partition).encode()),
        ("hg-offset", str(chunk.columns.offset(index)).encode()),
        *whole,
        *([] if row is None else _of_frame(chunk, index, row)),
        ("hg-timestamp", str(chunk.timestamps[index]).encode()),
        *failure_headers(task, step, cause, source=source),
    ]
    return chunk.keys[index] if chunk.has_keys else None, chunk.columns.value(index), headers


def id_header(topic_id: str) -> list[tuple[str, bytes]]:
    """Which topic of that name an offset belongs to, as a header of a dead letter; none if it is not known."""
    return [(TOPIC_ID, topic_id.encode())] if topic_id else []


def _of_frame(chunk: Chunk, index: int, row: int) -> list[tuple[str, bytes]]:
    """Which row of its frame a record is, and the record that it was made of, if the writer of the frame says it."""
    made_of = chunk.made_of(chunk.columns.offset(index), row)
    return [("hg-row", str(row).encode()), *([(FROM_HEADER, made_of.encode())] if made_of else [])]


def failure_headers(
    task: str, step: s.Step | None, cause: BaseException, *more: tuple[str, bytes], source: s.Step | None = None
) -> list[tuple[str, bytes]]:
    """Where and why a record failed, as headers of its dead letter. `step`: None if it was not decoded: then `source` is the input that it
    came from. `more`: others between them."""
    where = step.place if step else "decode"
    return [
        ("hg-task", task.encode()),
        ("hg-step", where.encode()),
        *more,
        ("hg-exception", said(cause).encode(errors="backslashreplace")[:2000]),
        ("hg-traceback", own_traceback(cause, step or source).encode(errors="backslashreplace")),
    ]


def readable(error: BaseException) -> BaseException:
    """The error that a user is shown for one with which a letter, or a task, failed: without frames that are none of his."""
    shown = error.cause if isinstance(error, BadRecord) else error
    cut(shown, error.step if isinstance(error, UserCodeError) else None)
    return shown


def traceback_of(error: BaseException, source: s.Step | None = None) -> str:
    """The traceback of the user's code, from the error with which a letter failed. `source`: the input, if the letter was a chunk of it."""
    if isinstance(error, BadRecord):
        return own_traceback(error.cause, source)
    return own_traceback(error.__cause__ or error, error.step if isinstance(error, UserCodeError) else source)


def is_of_no_record(error: BaseException) -> bool:
    """Whether no record is to blame: a store could not be read, or a task may not hold more."""
    return any(isinstance(one, StoreUnreadable | LimitReached) for one in causes(error))


def store_failed(error: BaseException) -> bool:
    """Whether the error was caused by a store that could not be read, no matter which code was reading it."""
    return any(isinstance(one, StoreUnreadable) for one in causes(error))


def policy_of(error: BaseException, source: SourceOp, app: Any) -> s.Policy:
    """The policy for a failed record: the nearest one wins (operator, input, app). What no record is to blame for always fails."""
    if is_of_no_record(error):
        return "fail"
    step = source.step
    if isinstance(error, UserCodeError):
        own = error.step.on_error
        return own or (step.on_error if isinstance(step, s.InputStep) else None) or app.on_error
    # for example a table cannot store a value: user code caused this, but no particular operator
    if not isinstance(error, BadRecord):
        return (step.on_error if isinstance(step, s.InputStep) else None) or app.on_error
    return (step.on_bad_data if isinstance(step, s.InputStep) else None) or app.on_bad_data


def answer_of(found: Any, policy: str = "it") -> str:
    """What an error policy has answered; None is "skip". Raises `ValueError` for what is no answer."""
    if inspect.iscoroutine(found):
        found.close()
    if found is None:
        return "skip"
    if found not in POLICIES:
        raise ValueError(f"{policy} answered {found!r:.80}, which is not one of {', '.join(POLICIES)}")
    return found


def answer_for_result(policy: Any, record: Record[Any, Any], cause: BaseException) -> str:
    """What becomes of a row that no chunk has: such rows are not waited for, so a function must answer at once."""
    return answer_of(policy(record, cause) if callable(policy) else policy, "the error policy for a result")
