"""Targets of the fuzzer for Arrow: frames of other libraries and of Kafka, right and wrong ones. See `targets`."""

from __future__ import annotations

import gc
import random
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa

from headgate.agents.records.columns.arrow_take import FrameRefused, columns_of_frame
from headgate.agents.records.columns.encoder import Encoder
from headgate.agents.records.frames.arrow_columns import ArrivedColumns, in_vectors
from headgate.agents.records.frames.arrow_frames import FEWEST, FrameWriter
from headgate.agents.records.kafka.spans import packed_headers
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import pieces
from headgate.agents.records.memory.vectors import VectorBatch
from headgate.agents.records.values.serdes import json
from headgate.core.columns.schema import ColumnSpec
from headgate.core.progress.frames import ArrowFrame, FrameError, decode
from tests.core.progress.columns import mutated

from .arrow_structs import HandMade
from .targets import EDGES, KINDS, alike, exactly, ints, parts, q, shown, spans, told, vector
from .trees import framed

_NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q", "f": "f", "g": "d"}
_TEXTS = ("u", "U", "vu")
_TYPES: dict[str, Any] = {
    "c": pa.int8(),
    "C": pa.uint8(),
    "s": pa.int16(),
    "S": pa.uint16(),
    "i": pa.int32(),
    "I": pa.uint32(),
    "l": pa.int64(),
    "L": pa.uint64(),
    "f": pa.float32(),
    "g": pa.float64(),
    "b": pa.bool_(),
    "u": pa.string(),
    "U": pa.large_string(),
    "vu": pa.string_view(),
}


def _bits(flags: list[bool]) -> bytes:
    made = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        made[at >> 3] |= flag << (at & 7)
    return bytes(made)


def _text(chance: random.Random) -> bytes:
    if chance.random() < 0.03:
        return chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"0123456789abcdef\xe2\x82"))
    return "".join(chance.choice("ab😀ü\0") for _ in range(chance.choice((0, 3, 12, 13, 30)))).encode()


def _buffers(chance: random.Random, form: str, count: int) -> list[bytes | None]:
    """The buffers of an array of so many values."""
    if form == "n":
        return []
    there = None if chance.random() < 0.4 else _bits([chance.random() < 0.8 for _ in range(count)])
    if form == "b":
        return [there, _bits([chance.random() < 0.5 for _ in range(count)])]
    if form in _NUMBERS:
        data = b"".join(_number(chance, form) for _ in range(count))
        return [there, data]
    texts = [_text(chance) for _ in range(count)]
    if form == "vu":
        return [there, *_views(chance, texts)]
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    return [there, struct.pack(f"={count + 1}{'i' if form == 'u' else 'q'}", *ends), b"".join(texts)]


def _number(chance: random.Random, form: str) -> bytes:
    code = "=" + _NUMBERS[form]
    size = struct.calcsize(code)
    if form in "fg":
        return struct.pack(
            code,
            chance.choice((0.0, -0.0, 1.5, 3e38, float("inf"), float("nan"))[: 6 if chance.random() < 0.05 else 4]),
        )
    return chance.choice((bytes(size), b"\x7f" * size, b"\x80" * size, chance.randbytes(size), b"\xff" * size))


def _views(chance: random.Random, texts: list[bytes]) -> list[bytes]:
    """Views of texts, in up to three buffers."""
    data = [bytearray() for _ in range(chance.randint(1, 3))]
    views = b""
    for text in texts:
        if len(text) <= 12:
            views += struct.pack("=i12s", len(text), text)
            continue
        at = chance.randrange(len(data))
        views += struct.pack("=i4sii", len(text), text[:4], at, len(data[at]))
        data[at] += text
    return [views, *map(bytes, data), struct.pack(f"={len(data)}q", *map(len, data))]


def _arrow_array(form: str, count: int, buffers: list[bytes | None]) -> Any:
    if form == "n":
        return pa.nulls(count)
    given = [None if one is None else pa.py_buffer(exactly(one)) for one in buffers]
    # pyarrow counts the sizes of the buffers of views itself
    return pa.Array.from_buffers(_TYPES[form], count, given[:-1] if form == "vu" else given)


def frames_of_libraries_target(chance: random.Random) -> None:
    """A column in each of Arrow's layouts, from any place on; then structures that make no sense."""
    form = chance.choice([*_NUMBERS, "b", *_TEXTS, "n"])
    length, first, skipped = chance.randrange(20), chance.choice((0, 0, 1, 7, 9)), chance.choice((0, 0, 1, 8, 13))
    buffers = _buffers(chance, form, skipped + first + length + chance.choice((0, 3)))
    fitting = ["text"] if form in _TEXTS else ["bool"] if form == "b" else ["float64", "int64"]
    kind: Any = chance.choice(KINDS if form == "n" or chance.random() < 0.1 else fitting)
    fields: dict[str, Any] = {"length": first + length, "offset": skipped}
    if form == "n":
        fields["null_count"] = first + length
    wanted = [ColumnSpec("x", kind, chance.random() < 0.8)]
    streamed = chance.choice((0, 0, 1, 2))

    def given(**frame: Any) -> HandMade:
        column = ("x", form.encode(), fields, buffers)
        return HandMade([column], length, streamed=streamed, offset=first, **frame)

    def taken(frame: Any) -> Any:
        try:
            found = columns_of_frame(frame, wanted)
        except FrameRefused as error:
            return "refused", error.index
        return shown(found.rows()), [one.nulls for one in found.vectors]

    column = _arrow_array(form, skipped + first + length, buffers).slice(skipped + first, length)
    whole = pa.RecordBatch.from_arrays([column], names=["x"])
    frame: Any = pa.Table.from_batches([whole] * max(1, streamed)) if streamed else whole
    found = alike(lambda: taken(frame))
    assert told(lambda: taken(given())) == found
    _senseless(chance, form, fields, buffers, length)
    made = given(**_wrong_frame(chance))
    _refused(made, wanted)
    del made
    gc.collect(0)


def _wrong_frame(chance: random.Random) -> dict[str, Any]:
    return chance.choice(
        [{"length": one} for one in EDGES if one < 0 or one > 2**40]
        + [{"n_children": 0}, {"children": None}, {"n_children": -1}]
    )


def _refused(made: Any, wanted: list[ColumnSpec]) -> None:
    try:
        columns_of_frame(made, wanted)
    except FrameRefused:
        return
    raise AssertionError("a structure that makes no sense was taken")


def _senseless(
    chance: random.Random, form: str, fields: dict[str, Any], buffers: list[bytes | None], length: int
) -> None:
    """Places of texts that make no sense: whatever is said, nothing outside of them is read."""
    if form not in _TEXTS or not length:
        return
    torn = list(buffers)
    made = bytearray(torn[1] or b"")
    size = {"u": 4, "U": 8, "vu": 4}[form]
    at = chance.randrange(len(made) // size) * size
    down = (
        -1 if form != "vu" else chance.choice((-1, 13, 2**31 - 1, -(2**31), 3))
    )  # the end of their data is another's word
    made[at : at + size] = struct.pack("=i" if size == 4 else "=q", down)
    torn[1] = bytes(made)
    with suppress(FrameRefused):
        columns_of_frame(HandMade([("x", form.encode(), fields, torn)], length), [ColumnSpec("x", "text", True)])


def frames_of_kafka_target(chance: random.Random) -> None:
    """Frames of columns as they are written, and as they arrive damaged."""
    names, count = ("a", "b", "c"), FEWEST + chance.randrange(20)
    kinds = [chance.choice(KINDS) for _ in names]
    batch = VectorBatch(names, tuple(vector(chance, kind, count) for kind in kinds), count)
    keys, times = spans(parts(chance, count)), q(ints(chance, count))
    headers = None
    if chance.random() < 0.3:
        headers = packed_headers([[("h", one)] * chance.randrange(3) for one in parts(chance, count)])
    writer = FrameWriter(names, Encoder(names).encode)
    [one] = alike(lambda: [found.value for found in writer.records(framed(keys, times, batch, headers=headers))])[1]
    for damaged in (one, one[:1] + mutated(one[1:], chance), one[:1] + mutated(one[1:], chance)):
        try:
            frame = decode(damaged)
        except FrameError:
            continue
        if isinstance(frame, ArrowFrame) and in_vectors(frame):
            alike(lambda frame=frame: _arrived(frame))


def _arrived(frame: ArrowFrame) -> Any:
    found = ArrivedColumns([(frame, 7), (frame, 9)], json())
    columns = [shown(found.vector(name).values()) for name in found.kinds]
    headers = found.header_spans
    return columns, pieces(found.key_spans), longs(found.times).tolist(), headers and pieces(headers)


def capsules_target(chance: random.Random) -> None:
    """Vectors go out as capsules, and come back."""
    names, count = ("a", "b"), chance.randrange(20)
    kinds = [chance.choice(KINDS) for _ in names]
    batch = VectorBatch(names, tuple(vector(chance, kind, count) for kind in kinds), count)
    specs = [ColumnSpec(name, kind, True) for name, kind in zip(names, kinds, strict=True)]
    found = alike(lambda: shown(columns_of_frame(batch, specs).rows()))
    assert found == ("made", shown(batch.rows())), found
    kept = [*batch.__arrow_c_array__(), *batch.vectors[0].__arrow_c_array__()]
    chance.shuffle(kept)
    while kept:
        kept.pop()
