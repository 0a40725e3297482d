"""Arrow tables and blocks: nothing is lost, and what cannot stand together is said."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DataError
from headgate.spark_bridge.data import columns

ROWS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(-(2**40), 2**40) | st.none(), min_size=1),
    min_size=1,
    max_size=30,
)


SCHEMA = pa.schema([(name, pa.int64()) for name in "abc"])


def test_blocks_of_other_columns_are_read_together_or_refused() -> None:
    """The code of a job may have declared other columns while a batch was open. What does not fit is said with what to do."""
    old, new = pa.table({"n": [1]}), pa.table({"n": [1.5], "day": [datetime.date(2026, 1, 1)]})
    assert columns.together([old, new]).to_pylist() == [
        {"n": 1.0, "day": None},
        {"n": 1.5, "day": datetime.date(2026, 1, 1)},
    ]
    with pytest.raises(DataError, match="run that code until a drain"):
        columns.together([old, pa.table({"n": ["x"]})])


@settings(deadline=None, max_examples=60)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_blocks_give_back_every_row_in_order(chunks: list[list[dict[str, int | None]]]) -> None:
    """However rows are cut into blocks, one table comes out, the same each time."""
    blocks = [columns.encode([pa.Table.from_pylist(chunk, SCHEMA)]) for chunk in chunks]
    whole = columns.together([columns.decode(block) for block in blocks])
    assert whole.to_pylist() == [{name: row.get(name) for name in "abc"} for chunk in chunks for row in chunk]
    assert whole.schema == SCHEMA


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 500))
def test_a_split_takes_what_has_room_and_at_least_a_row(rows: int, most: int, size: int) -> None:
    """Head and rest are the whole; the head is no larger than it may be, unless a single row is."""
    table = pa.table({"n": range(rows)})
    head, count, nbytes, rest = columns.split(table, most, size)
    assert (count, nbytes) == (head.num_rows, head.nbytes)
    assert 1 <= count <= most
    assert nbytes <= size or count == 1
    assert head.to_pylist() + (rest.to_pylist() if rest is not None else []) == table.to_pylist()


MAPS = {
    "text": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "number": pa.array([[(7, "x")]], pa.map_(pa.int64(), pa.string())),
    "both": pa.array([[(7, [("k", 1)]), (8, None)]], pa.map_(pa.int64(), pa.map_(pa.string(), pa.int64()))),
    "inside": pa.array(
        [{"of": [[("k", [(1, True)])]], "n": 1}],
        pa.struct([("of", pa.list_(pa.map_(pa.string(), pa.map_(pa.int64(), pa.bool_())))), ("n", pa.int64())]),
    ),
    "none": pa.array([None], pa.map_(pa.string(), pa.int64())),
}
SHOWN = {
    "text": {"k": 1},
    "number": [(7, "x")],
    "both": [(7, {"k": 1}), (8, None)],
    "inside": {"of": [{"k": [(1, True)]}], "n": 1},
    "none": None,
}


def test_a_map_is_what_its_type_says_whatever_stands_beside_it() -> None:
    """A map by text was an object, or a list of pairs if another column of the batch had a map by numbers."""
    assert columns.rows_of(pa.table(MAPS)) == [SHOWN]
    for name, values in MAPS.items():
        assert columns.rows_of(pa.table({name: values})) == [{name: SHOWN[name]}]
        assert columns.rows_of(pa.table({name: values, "number": MAPS["number"]}))[0][name] == SHOWN[name]
    assert columns.rows_of(pa.table({"n": [1]})) == [{"n": 1}]
