"""Frames of a chunk of columns for functions of users, and chunks of the frames that they return.

A frame has the columns of the stream, and two of headgate's, by which its rows keep where they came from: `__row`, the number of the row in
its chunk, and `__timestamp`, its event time in milliseconds. Filtering, adding columns, sorting and exploding keep them, in any library.

What it decides: where a returned row came from.

- With `__row` it has the timestamp, the key, the headers and the offset of that row. A number that the frame does not have is refused.
- Without `__row` in a frame of the same length, it has those of the row in its place; else the greatest timestamp of the chunk, and neither
  key nor headers.
- `__timestamp`, if it was returned, is its event time.
"""

from __future__ import annotations

from array import array

from ....core.columns.schema import INT, ColumnSchema, ColumnSpec
from ....core.progress.arrow import TIMESTAMP
from ..layout import Buffer, longs
from ..memory.event_time import is_time
from ..memory.taking import take_batch, take_longs
from ..memory.vectors import Vector, VectorBatch
from .arrow_take import FrameRefused
from .records import Records

ROW = "__row"
HIDDEN = (ColumnSpec(ROW, INT, optional=True), ColumnSpec(TIMESTAMP, INT, optional=True))
"""The columns that a frame has besides those of its stream."""
_AS_IT_WAS = "return it as it was, or leave it out"


def frame_of(chunk: Records, schema: ColumnSchema) -> VectorBatch:
    """The selected rows of a chunk as a frame."""
    batch, picked = chunk.batch(schema)
    rows = array("q", range(batch.length)) if picked is None else picked
    own = (Vector(INT, len(chunk), rows), Vector(INT, len(chunk), take_longs(chunk.times, picked)))
    return VectorBatch((*batch.names, ROW, TIMESTAMP), (*take_batch(batch, picked).vectors, *own), len(chunk))


def keeps_origin(frame: VectorBatch) -> bool:
    """Whether the rows of a returned frame say where they came from."""
    return ROW in frame.names


def chunk_of(frame: VectorBatch, chunk: Records, schema: ColumnSchema) -> Records:
    """The rows of a returned frame, made of this chunk. Raises `FrameRefused`."""
    vectors = {name: frame[name] for name in schema.names}
    if keeps_origin(frame):
        rows: Buffer | None = _numbers(frame, ROW)
    elif frame.length == len(chunk):
        rows = chunk.picked
    else:
        times = longs(take_longs(chunk.times, chunk.picked))
        return Records.of_vectors(vectors, _times(frame, array("q", [max(times)]) * frame.length))
    try:
        times = take_longs(chunk.times, rows)
    except ValueError:
        raise FrameRefused(f"'{ROW}' has a row that its frame does not have", remedy=_AS_IT_WAS) from None
    return chunk.made_of(rows, vectors, _times(frame, times)).without_places()


def _numbers(frame: VectorBatch, name: str) -> Buffer:
    vector = frame[name]
    if vector.nulls:
        raise FrameRefused(f"'{name}' is null, in row {vector.values().index(None)} of the frame", remedy=_AS_IT_WAS)
    return vector.data


def _times(frame: VectorBatch, own: Buffer) -> Buffer:
    """The event times of a returned frame. `own`: those of the rows that it was made of."""
    if TIMESTAMP not in frame.names:
        return own
    times = _numbers(frame, TIMESTAMP)
    if bytes(times) != bytes(own):
        wrong = next((time for time in longs(times) if not is_time(time)), None)
        if wrong is not None:
            raise FrameRefused(f"'{TIMESTAMP}' is {wrong}, which is out of range", remedy="milliseconds since 1970")
    return times
