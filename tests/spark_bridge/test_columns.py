"""Rows as Arrow tables and blocks: nothing is lost, and what cannot stand together is said when it comes."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.errors import DataError
from headgate.spark_bridge import columns

ROWS = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(-(2**40), 2**40) | st.none(), min_size=1),
    min_size=1,
    max_size=30,
)


def test_a_field_that_only_a_later_row_has_is_kept() -> None:
    """Arrow's own guess looks at the first row alone, and would lose the field without a word."""
    assert columns.pack([{"n": 1}, {"n": 2, "s": "x"}]).to_pylist() == [{"n": 1, "s": None}, {"n": 2, "s": "x"}]


def test_dataclasses_and_structs_are_rows() -> None:
    """What typed serdes give can be batched as it is."""

    @dataclass
    class Order:
        n: int

    Paid = msgspec.defstruct("Paid", [("n", int)])
    assert columns.pack([Order(1), Paid(2), {"n": 3}]).to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.parametrize("rows", [[1], [{"n": 1}, {"n": "x"}], [{"n": 2**70}]], ids=["no row", "two types", "too big"])
def test_what_makes_no_table_is_refused_with_a_remedy(rows: list[object]) -> None:
    """A number that is no row, a field of two types, an integer that nothing holds."""
    with pytest.raises(DataError, match="flat"):
        columns.pack(rows)


def test_a_batch_learns_its_fields_as_they_come() -> None:
    """Whole numbers become fractions when a fraction comes; a text does not fit, and is said at once."""
    kind = columns.unite(None, columns.pack([{"n": 1}]))
    kind = columns.unite(kind, columns.pack([{"n": 1.5, "day": datetime.date(2026, 1, 1)}]))
    assert [str(field.type) for field in kind] == ["double", "date32[day]"]
    with pytest.raises(DataError, match="does not fit its batch"):
        columns.unite(kind, columns.pack([{"n": "x"}]))


@settings(deadline=None, max_examples=60)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_blocks_give_back_every_row_in_order(chunks: list[list[dict[str, int | None]]]) -> None:
    """However rows are cut into blocks, one table comes out, the same each time."""
    blocks = [columns.encode([columns.pack(chunk)]) for chunk in chunks]
    whole = columns.together([columns.decode(block) for block in blocks])
    names = whole.column_names
    assert whole.to_pylist() == [{name: row.get(name) for name in names} for chunk in chunks for row in chunk]
    assert whole.schema == columns.kind_of(blocks)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 500))
def test_a_split_takes_what_has_room_and_at_least_a_row(rows: int, most: int, size: int) -> None:
    """Head and rest are the whole; the head is no larger than it may be, unless a single row is."""
    table = columns.pack([{"n": n} for n in range(rows)])
    head, count, nbytes, rest = columns.split(table, most, size)
    assert (count, nbytes) == (head.num_rows, head.nbytes)
    assert 1 <= count <= most
    assert nbytes <= size or count == 1
    assert head.to_pylist() + (rest.to_pylist() if rest is not None else []) == table.to_pylist()


def test_no_blocks_have_no_kind() -> None:
    """An empty batch takes anything."""
    assert columns.kind_of([]) is None


def test_what_is_no_row_says_what_it_is() -> None:
    """A tombstone, and a plain number."""
    for rows, words in (([{"n": 1}, None], "null value is not a row.*filter"), ([7], "value of type int is not a row")):
        with pytest.raises(DataError, match=words):
            columns.pack(rows)
