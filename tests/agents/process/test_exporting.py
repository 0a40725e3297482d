"""Exports: the columns that values make, and rows that do not come to their end."""

from __future__ import annotations

import doctest
import os
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from headgate.agents.process import exported_columns
from headgate.agents.process.exported_columns import ColumnKinds, to_parquet
from headgate.agents.process.exporting import TaskLeft, _drafted, _Lines
from headgate.core.errors import DataError

BYTES = {"bytes": "01ff"}


@pytest.mark.parametrize(
    ("rows", "columns", "first"),
    [
        ([("a", {"n": 1}), ("b", {"n": 2})], "__key: string, n: int64", {"__key": "a", "n": 1}),
        (
            [(1, {"n": 1}), (2, {"n": 0.5, "m": True})],
            "__key: int64, n: double, m: bool",
            {"__key": 1, "n": 1.0, "m": None},
        ),
        ([(BYTES, 7), (BYTES, 8)], "__key: binary, value: int64", {"__key": b"\x01\xff", "value": 7}),
        ([(["DE", 7], BYTES)], "__key: string, value: binary", {"__key": '["DE",7]', "value": b"\x01\xff"}),
        ([("a", {"x": [1]}), ("b", {"x": None})], "__key: string, x: string", {"__key": "a", "x": "[1]"}),
        ([("a", {"x": 1}), ("b", 7)], "__key: string, value: string", {"__key": "a", "value": '{"x":1}'}),
        ([("a", {"value": 1})], "__key: string, value: int64", {"__key": "a", "value": 1}),
        ([("a", {"__key": 1})], "__key: string, value: string", {"__key": "a", "value": '{"__key":1}'}),
        (
            [("a", {"n": 2**70}), ("b", {"n": 1})],
            "__key: string, n: string",
            {"__key": "a", "n": "1180591620717411303424"},
        ),
        ([("a", {"n": None})], "__key: string, n: string", {"__key": "a", "n": None}),
    ],
)
def test_the_columns_are_made_of_the_values(
    rows: list[tuple[Any, Any]], columns: str, first: dict[str, Any], tmp_path: Path
) -> None:
    """One schema for all files, whatever the first rows of a task look like."""
    kinds = ColumnKinds()
    for key, value in rows:
        kinds.seen(key, value)
    spelled = "".join(f'{{"key":{_json(key)},"value":{_json(value)}}}\n' for key, value in rows)
    (tmp_path / "lines").write_text(spelled)
    to_parquet(tmp_path / "lines", tmp_path / "rows.parquet", kinds)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert ", ".join(f"{field.name}: {field.type}" for field in table.schema) == columns
    assert len(table) == len(rows)
    if "n" not in first or first["n"] != str(2**70):  # orjson reads such a number as a float
        assert table.to_pylist()[0] == first


@pytest.mark.parametrize(
    "values", [[], [{"n": 1, "x": 1, "tags": None}], [{"n": None, "x": 0.5, "tags": ["a"], "who": "ann"}]]
)
def test_what_a_table_declares_decides_its_columns(values: list[Any], tmp_path: Path) -> None:
    """Two exports have the same columns, whichever rows there are."""
    kinds = ColumnKinds()
    kinds.declare({"who": "text", "n": "int", "x": "float", "tags": "json"})
    kinds.declare({"who": "json"})  # the worker of another task is being replaced
    for value in values:
        kinds.seen("a", value)
    (tmp_path / "lines").write_text("".join(f'{{"key":"a","value":{_json(value)}}}\n' for value in values))
    to_parquet(tmp_path / "lines", tmp_path / "rows.parquet", kinds)
    table = pq.read_table(tmp_path / "rows.parquet")
    found = {field.name: str(field.type) for field in table.schema}
    assert {name: found[name] for name in found if name != "__key"} == {
        "who": "string",
        "n": "int64",
        "x": "double",
        "tags": "string",
    }
    assert len(table) == len(values)


@pytest.mark.parametrize("value", [{"n": "1"}, {"n": 0.5}, {"m": 1}, 7, None, {"n": {"bytes": "01"}}])
def test_a_row_that_the_declared_type_does_not_have_is_refused(value: Any) -> None:
    """Nothing is converted in silence."""
    kinds = ColumnKinds()
    kinds.declare({"n": "int"})
    with pytest.raises(DataError, match=r"the row of 'a' has .* which the table declares"):
        kinds.seen("a", value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return str(value).replace("'", '"')


HEAD = b'{"table":"t","task":"Partition 0","worker":"w1","commit":9,"age_ms":1,"keys":"text","broadcast":false}\n'


def test_rows_without_their_last_line_are_not_taken_for_all() -> None:
    """A worker that died, or a task that left, ends the stream as if nothing were missing."""
    row = b'{"key":"a","value":1}\n'
    for end in (b"", b'{"error":"the store is closed"}\n', b'{"rows":3}\n', b'{"rows"'):
        lines = _Lines(ColumnKinds())
        assert lines.taken(HEAD + row + end) == [row]
        with pytest.raises(TaskLeft):
            lines.complete("Partition 0")
    lines = _Lines(ColumnKinds())
    found = [line for at in range(len(HEAD + row)) for line in lines.taken((HEAD + row)[at : at + 1])]
    lines.taken(b'{"rows":1}\n')
    assert found == [row]
    assert lines.complete("Partition 0")["commit"] == 9


def test_examples_hold() -> None:
    """Those of the docstrings."""
    assert doctest.testmod(exported_columns).failed == 0


def test_the_next_export_removes_what_a_killed_one_has_left(tmp_path: Path) -> None:
    """Not one that still runs, nor what only looks like it."""
    to = tmp_path / "out[1]"
    killed, lock = _drafted(to)
    (killed / "rows.jsonl").write_text("{}")
    os.close(lock)  # as its process ends
    runs, held = _drafted(to)
    another = tmp_path / f".{to.name}.mine"
    another.mkdir()
    last, lock = _drafted(to)
    assert {one.name for one in tmp_path.iterdir()} == {runs.name, another.name, last.name}
    os.close(held)
    os.close(lock)
