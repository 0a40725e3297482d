"""Values become columns in the same way whether they are looked at a column or a value at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records import column_chunk
from headgate.agents.records.column_chunk import columns_of_values
from headgate.core.columns.schema import ColumnSchema, ColumnSpec

SCHEMA = ColumnSchema(
    (
        ColumnSpec("s", "text"),
        ColumnSpec("n", "int64", True),
        ColumnSpec("f", "float64"),
        ColumnSpec("b", "bool", True),
    )
)
FITTING = {
    "s": st.text(max_size=3),
    "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.one_of(st.none(), st.booleans()),
}
ANYTHING = st.one_of(
    st.none(), st.text(max_size=2), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.binary(max_size=2)
)


def shown(found: Any) -> Any:
    columns, bad = found
    return repr(columns), [(index, str(error)) for index, error in bad]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.fixed_dictionaries(FITTING), max_size=6),
    st.lists(st.dictionaries(st.sampled_from("snfbx"), ANYTHING), max_size=2),
    st.sampled_from([dict, lambda row: SimpleNamespace(**row)]),
)
def test_a_column_at_a_time_and_a_value_at_a_time(fitting: list[Any], odd: list[Any], kind: Any) -> None:
    """Whatever fits, and whatever does not: the same columns, the same errors."""
    values = [kind(row) for row in (*fitting, *odd, *fitting)]
    found = columns_of_values(values, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_chunk, "_plainly", lambda *_: None)
        assert shown(found) == shown(columns_of_values(values, SCHEMA))
    assert [len(column) for column in found[0].values()] == [len(values)] * 4


def test_values_that_fit_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost ten times as much."""
    monkeypatch.setattr(column_chunk, "_one", None)
    rows = [{"s": "a", "n": 1, "f": 0.5, "b": True}, {"s": "b", "n": None, "f": 1.0}]
    columns, bad = columns_of_values(rows, SCHEMA)
    assert (columns, bad) == ({"s": ["a", "b"], "n": [1, None], "f": [0.5, 1.0], "b": [True, None]}, [])
