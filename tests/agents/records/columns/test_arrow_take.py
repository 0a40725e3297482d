"""Frames of other libraries become columns: the compiled part and pyarrow give the same, and nothing is kept or released twice."""

from __future__ import annotations

import contextlib
import gc
import struct
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import narwhals as nw
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.arrow_take import FrameRefused, NoFrame, columns_of_frame
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.core.columns.schema import ColumnSpec

from ..arrow_structs import HandMade

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
COLUMNS = [
    ColumnSpec("s", "text", True),
    ColumnSpec("n", "int64", True),
    ColumnSpec("f", "float64", True),
    ColumnSpec("b", "bool", True),
]
ROWS: list[dict[str, Any]] = [
    {"s": "a", "n": 1, "f": 1.5, "b": True},
    {"s": None, "n": None, "f": 2.0, "b": None},
    {"s": "text of more than twelve bytes", "n": -(2**63), "f": None, "b": False},
    {"s": "", "n": 4, "f": -0.0, "b": True},
    {"s": "Zürich 😀", "n": 2**63 - 1, "f": 1e308, "b": False},
]
PARSED = {one.name: [row[one.name] for row in ROWS] for one in COLUMNS}


@pytest.fixture(params=["compiled", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "compiled" and chosen.COMPILED is None:
        pytest.skip("the compiled part is not built here")
    if request.param == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    return request.param


def batch() -> VectorBatch:
    vectors = tuple(Vector.of(one.type, PARSED[one.name]) for one in COLUMNS)
    return VectorBatch(tuple(PARSED), vectors, len(ROWS))


def pandas_of(frame: Any) -> Any:
    return pa.table(frame).to_pandas(types_mapper=pd.ArrowDtype)


LIBRARIES = {
    "itself": lambda one: one,
    "polars": pl.DataFrame,
    "polars in pieces": lambda one: pl.concat([pl.DataFrame(one)[:2], pl.DataFrame(one)[2:]], rechunk=False),
    "table": pa.table,
    "record batch": pa.record_batch,
    "pieces": lambda one: pa.concat_tables([pa.table(one).slice(0, 3), pa.table(one).slice(3)]),
    "reader": lambda one: pa.table(one).to_reader(2),
    "large": lambda one: pa.table(one).set_column(0, "s", pa.table(one)["s"].cast(pa.large_string())),
    "pandas": pandas_of,
    "narwhals": lambda one: nw.from_native(pl.DataFrame(one)),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("library", LIBRARIES)
def test_there_and_back(library: str) -> None:
    """Values, nulls, every layout of text, frames in pieces."""
    assert columns_of_frame(LIBRARIES[library](batch()), COLUMNS).rows() == ROWS


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("library", ["polars", "table", "record batch", "pandas"])
def test_part_of_a_frame(library: str) -> None:
    """A slice begins amid the bytes of its bitmaps, and has the buffers of the whole."""
    frame = LIBRARIES[library](batch())
    for first in range(4):
        part = frame.slice(first, 2) if hasattr(frame, "slice") else frame[first : first + 2]
        assert columns_of_frame(part, COLUMNS).rows() == ROWS[first : first + 2]
    assert columns_of_frame(frame[:0] if library in ("polars", "pandas") else frame.slice(0, 0), COLUMNS).rows() == []


@pytest.mark.usefixtures("way")
def test_numbers_become_what_holds_them_all() -> None:
    """Counts and lengths are small numbers in many libraries. A column without a type is null."""
    frame = pl.DataFrame(batch())
    for kind in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64):
        found = columns_of_frame(frame.with_columns(n=pl.lit(7, dtype=kind), f=pl.lit(8, dtype=kind)), COLUMNS)
        assert found.rows()[1] == {"s": None, "n": 7, "f": 8.0, "b": None}
    assert columns_of_frame(frame.with_columns(f=pl.lit(0.5, dtype=pl.Float32)), COLUMNS)["f"].values() == [0.5] * 5
    nothing = frame.select(pl.lit(None).alias(name) for name in frame.columns)
    assert columns_of_frame(nothing, COLUMNS).rows() == [dict.fromkeys(PARSED)]


@pytest.mark.usefixtures("way")
def test_hidden_columns_are_taken_where_they_are() -> None:
    """And further ones are left out."""
    frame = pa.table({"x": [1], "n": [2], "__row": [3]})
    wanted, hidden = [ColumnSpec("n", "int64")], [ColumnSpec("__row", "int64"), ColumnSpec("__timestamp", "int64")]
    assert columns_of_frame(frame, wanted, hidden).rows() == [{"n": 2, "__row": 3}]
    assert columns_of_frame(frame, wanted).rows() == [{"n": 2}]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("made", "said", "row"),
    [
        (lambda f: f.drop("s"), "no column 's': it returned n: int64, f: float64, b: bool", None),
        (lambda f: f.rename({"s": "S"}), "no column 's'.*did you mean 'S'", None),
        (lambda f: f.with_columns(n="f"), "'n' is float64, not int64: it returned s: text, n: float64.*cast it", None),
        (lambda f: f.with_columns(b="n"), "'b' is int64, not bool", None),
        (lambda f: f.with_columns(s=pl.col("s").cast(pl.Categorical)), r"'s' is categorical \(a dictionary\)", None),
        (lambda f: f.with_columns(n=pl.lit("x").cast(pl.Binary)), "'n' is .*binary.*, not int64", None),
        (lambda f: f.with_columns(f=pl.lit(float("nan"))), "'f' has a value that no float64.*row 0.*finite", 0),
        (lambda f: f.with_columns(f=pl.Series([1.0, None, 2.0, float("inf"), 0.0])), "'f' has .*row 3", 3),
        (lambda f: f.with_columns(n=pl.Series([1, 2, 2**63, 4, 5], dtype=pl.UInt64)), "'n' has .*row 2", 2),
        (lambda f: f.with_columns(x=None), "'x' is null, in row 0 .*optional", 0),
        (lambda f: f.with_columns(x=pl.Series([1, 2, 3, None, 5])), "'x' is null, in row 3", 3),
        (lambda f: f.to_arrow().append_column("s", [["x"] * 5]), "two columns 's'", None),
    ],
)
def test_another_frame_than_the_declared_one(made: Any, said: str, row: int | None) -> None:
    """The message names the column, its type, and what came instead; a row by its number."""
    frame = made(pl.DataFrame(batch()).with_columns(x=1))
    with pytest.raises(FrameRefused, match=said) as error:
        columns_of_frame(frame, [*COLUMNS, ColumnSpec("x", "int64")])
    assert error.value.index == row


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_utf8(kind: Any) -> None:
    """A library may have been told not to look. A character that two rows share is no text of either."""
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}[kind]
    for bad in ([b"a", b"\xff", b"b"], ["ä".encode()[:1], "ä".encode()[1:], b"0123456789abcdef\xc3"]):
        raw = pa.array(bad, binary)
        texts = pa.Array.from_buffers(kind, 3, raw.buffers())
        with pytest.raises(FrameRefused, match="UTF-8") as error:
            columns_of_frame(pa.table({"s": texts}), COLUMNS[:1])
        assert error.value.index == next(i for i, one in enumerate(bad) if one.decode(errors="replace").encode() != one)


async def a_coroutine() -> None:
    """An async function that somebody took for one of a frame."""


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (lambda: None, "returned None, not a frame.*changed in place"),
        (lambda: [1], "returned list, not a frame"),
        (lambda: pl.DataFrame(batch()).lazy(), r"a lazy frame \(LazyFrame\).*collect\(\)"),
        (lambda: nw.from_native(pl.DataFrame(batch())).lazy(), r"a lazy frame \(LazyFrame\).*collect\(\)"),
        (lambda: pl.DataFrame, "DataFrame itself, not a frame"),
        (lambda: pl.DataFrame(batch())["s"], r"a single column \(Series\)"),
        (lambda: pa.table(batch())["s"], r"a single column \(ChunkedArray\)"),
        (a_coroutine, "nothing awaits it"),
    ],
)
def test_what_is_no_frame(value: Any, said: str) -> None:
    """Each with what to do."""
    with pytest.raises(NoFrame, match=said):
        columns_of_frame(value(), COLUMNS)


@pytest.mark.usefixtures("way")
def test_objects_that_have_no_arrow_type() -> None:
    """pandas finds out only when it is asked for Arrow's layout."""
    with pytest.raises(FrameRefused, match="cannot be read"):
        columns_of_frame(pd.DataFrame({"n": pd.Series([1, "x"], dtype=object)}), [ColumnSpec("n", "int64")])


VALUES = {
    "s": st.one_of(st.none(), st.text(max_size=20)),
    "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "f": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    "b": st.one_of(st.none(), st.booleans()),
}


@needs_compiler
@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.fixed_dictionaries(VALUES), max_size=30),
    st.lists(st.integers(0, 30), max_size=3),
    st.integers(0, 9),
    st.data(),
)
def test_both_ways_take_the_same(rows: Any, cuts: list[int], first: int, data: Any) -> None:
    """Any values, in any pieces, of any layout, from any place on."""
    text = data.draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    kinds = {"s": text, "n": pa.int64(), "f": pa.float64(), "b": pa.bool_()}
    whole = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})
    ends = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [whole.slice(start, stop - start) for start, stop in pairwise(ends)]
    table = pa.concat_tables(pieces) if pieces else whole
    table = table.slice(min(first, len(rows)))
    compiled = columns_of_frame(table, COLUMNS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "part", chosen.PLAIN)
        plain = columns_of_frame(table, COLUMNS)
    assert compiled.rows() == plain.rows() == table.to_pylist()
    assert [bytes(one.data) for one in compiled.vectors] == [bytes(one.data) for one in plain.vectors]
    assert [one.nulls for one in compiled.vectors] == [one.nulls for one in plain.vectors]


# -------------------------------------------------------------------------------------------------------- who releases what


def longs_of(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def ints_of(*values: int) -> bytes:
    return struct.pack(f"={len(values)}i", *values)


NUMBERS = ("n", b"l", {}, [None, longs_of(1, 2)])


@needs_compiler
@pytest.mark.parametrize("times", [1, 3])
def test_a_stream_and_its_arrays_are_released_once(times: int) -> None:
    """Also where it fails amid its arrays, and where a column of it is refused. The stream itself is its capsule's."""
    good = HandMade([NUMBERS], 2, streamed=times)
    assert columns_of_frame(good, COLUMNS[1:2])["n"].values() == [1, 2] * times
    failing = HandMade([NUMBERS], 2, streamed=times, fails=5)
    with pytest.raises(FrameRefused, match="the wire broke"):
        columns_of_frame(failing, COLUMNS[1:2])
    wrong = HandMade([NUMBERS], 2, streamed=times)
    with pytest.raises(FrameRefused, match="no column"):
        columns_of_frame(wrong, COLUMNS)
    gc.collect()
    for one in (good, failing, wrong):
        assert sorted(one.released) == ["array"] * times + ["schema"]


@needs_compiler
def test_an_array_is_released_by_its_capsule() -> None:
    """Nothing is moved out of it, so who made the capsule releases it, once."""
    made = HandMade([NUMBERS], 2)
    assert columns_of_frame(made, COLUMNS[1:2])["n"].values() == [1, 2]
    assert made.released == []


TEXT = [None, ints_of(0, 1, 3), b"abc"]
LONG = struct.pack("=i4sii", 13, b"0123", 0, 1)


@needs_compiler
@pytest.mark.parametrize(
    ("column", "frame", "said"),
    [
        (("n", b"l", {"length": 1}, NUMBERS[3]), {}, "too short"),
        (("n", b"l", {"length": -1}, NUMBERS[3]), {}, "too short"),
        (("n", b"l", {"offset": -1}, NUMBERS[3]), {}, "too short"),
        (("n", b"l", {"offset": 2**62}, NUMBERS[3]), {}, "too short"),
        (NUMBERS, {"length": -1}, "no length"),
        (NUMBERS, {"length": 2**63 - 1}, "no length"),
        (NUMBERS, {"offset": -5}, "no length"),
        (NUMBERS, {"offset": 1}, "too short"),
        (NUMBERS, {"n_children": 0}, "a column is missing"),
        (NUMBERS, {"children": None}, "a column is missing"),
        (("n", b"l", {}, [None]), {}, "a buffer is missing"),
        (("n", b"l", {}, [None, None]), {}, "a buffer is missing"),
        (("n", b"l", {"buffers": None}, NUMBERS[3]), {}, "a buffer is missing"),
        (("n", b"l", {"dictionary": True}, NUMBERS[3]), {}, "dictionary"),
        (("s", b"u", {}, TEXT[:2]), {}, "a buffer is missing"),
        (("s", b"u", {}, [None, None, b"abc"]), {}, "a buffer is missing"),
        (("s", b"u", {}, [None, ints_of(0, 1, 3), None]), {}, "outside of its column"),
        (("s", b"u", {}, [None, ints_of(0, 3, 1), b"abc"]), {}, "outside of its column"),
        (("s", b"u", {}, [None, ints_of(-1, 3, 4), b"abc"]), {}, "outside of its column"),
        (("s", b"U", {}, [None, longs_of(0, 2**40, 2**41), b"abc"]), {}, "more than 2 GiB"),
        (("s", b"U", {}, [None, longs_of(-(2**63), 2**63 - 1, 3), b"abc"]), {}, "outside of its column"),
        (("s", b"vu", {}, [None, LONG * 2, b"0" * 13, longs_of(13)]), {}, "outside of its column"),
        (("s", b"vu", {}, [None, LONG * 2, b"0" * 13, None]), {}, "a buffer is missing"),
        (("s", b"vu", {}, [None, LONG * 2, None, longs_of(14)]), {}, "a buffer is missing"),
        (("s", b"vu", {}, [None, LONG * 2, longs_of()]), {}, "outside of its column"),
        (("s", b"vu", {}, [None, struct.pack("=i12s", -1, b"") * 2, longs_of()]), {}, "outside of its column"),
        (("s", b"vu", {}, [None, struct.pack("=i4sii", 13, b"", -1, 0) * 2, b"", longs_of(0)]), {}, "outside"),
        (("s", b"vu", {}, [None, struct.pack("=i4sii", 2**31 - 1, b"", 0, 2**31 - 1) * 2, b"", longs_of(9)]), {}, "outside"),
    ],
)  # fmt: skip
def test_structures_that_make_no_sense(column: Any, frame: dict[str, Any], said: str) -> None:
    """They are refused, and released like others."""
    made = HandMade([column], 2, **frame)
    wanted = [one for one in COLUMNS if one.name == column[0]]
    with pytest.raises(FrameRefused, match=said):
        columns_of_frame(made, wanted)
    streamed = HandMade([column], 2, streamed=2, **frame)
    with pytest.raises(FrameRefused, match=said):
        columns_of_frame(streamed, wanted)
    gc.collect(1)  # what this test has made is young
    assert sorted(streamed.released) == ["array", "array", "schema"]


@needs_compiler
def test_a_frame_is_taken_once() -> None:
    """Whoever moved it out of its capsules has it."""
    schema, array = batch().__arrow_c_array__()
    pa.RecordBatch._import_from_c_capsule(schema, array)

    class Taken:
        def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
            return schema, array

    with pytest.raises(FrameRefused, match="taken already"):
        columns_of_frame(Taken(), COLUMNS)
    stream = pa.table(batch()).__arrow_c_stream__()
    pa.RecordBatchReader._import_from_c_capsule(stream)

    class TakenStream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return stream

    with pytest.raises(FrameRefused, match="taken already"):
        columns_of_frame(TakenStream(), COLUMNS)


@contextlib.contextmanager
def kept(given: VectorBatch) -> Iterator[None]:
    """Nobody holds more of a batch afterwards than before."""
    buffers = [
        one for vector in given.vectors for one in (vector.data, vector.offsets, vector.validity) if one is not None
    ]
    before = [sys.getrefcount(one) for one in buffers]
    yield
    gc.collect()
    assert [sys.getrefcount(one) for one in buffers] == before


@pytest.mark.usefixtures("way")
def test_what_was_handed_over_is_released() -> None:
    """Whether it was used, half used, moved in parts, or never asked for."""
    given = batch()
    with kept(given):
        for _ in range(3):
            given.__arrow_c_array__()
            given["b"].__arrow_c_array__()
            column = pa.record_batch(given).column(1)
            frame = pl.DataFrame(given)["s"]
        assert (column.to_pylist(), frame.to_list()) == (PARSED["n"], PARSED["s"])
        del column, frame


@pytest.mark.usefixtures("way")
def test_what_is_released_while_an_exception_is_raised() -> None:
    """A function that raises drops its frames then. Each release must leave the exception as it is, and Arrow would end the process."""

    def fails(*_: Any) -> None:
        raise AssertionError

    given = batch()
    with kept(given):
        with pytest.raises(KeyError, match="mine"):
            fails(pa.table(given), pl.DataFrame(given), given.__arrow_c_array__(), {}["mine"])
