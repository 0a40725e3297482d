"""The account of what leaves sees what it must: each loss and each doubling in each place, and the order in the topic."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from . import outputs
from .outputs import Leaving, Named

TRUE = {"k0000": 2, "k0001": 9, "k0004": 1}
ROWS = [("k0000", 0), ("k0004", 0), ("k0000", 1)]


def row(key: str, seq: int) -> Named:
    return {"key": key, "seq": seq, "half": seq % 2, "name": key.upper()}


@pytest.mark.parametrize(
    ("place", "rows", "words"),
    [
        ("none", ROWS, []),
        ("topic", ROWS[:2], ["topic: of 2 rows of k0000, 1 are lost [1], 0 doubled []"]),
        ("topic", [*ROWS, ROWS[1]], ["topic: of 1 rows of k0004, 0 are lost [], 1 doubled [0]"]),
        ("topic", ROWS[::-1], ["topic: of 2 rows of k0000, 0 are lost [], 0 doubled []"]),
        ("table", ROWS[1:], ["table: of 2 rows of k0000, 1 are lost [0], 0 doubled []"]),
        ("table", [*ROWS, ("k0009", 0)], ["table: k0009 was never in the input"]),
        ("files", [*ROWS, *ROWS[:1]], ["files: of 2 rows of k0000, 0 are lost [], 1 doubled [0]"]),
        ("files", ROWS[::-1], []),
    ],
)
def test_each_place_is_accounted_for(tmp_path, monkeypatch, place, rows, words):
    """Only the topic has an order."""
    has = {where: rows if where == place else ROWS for where in ("topic", "table", "files")}
    leaving = Leaving("chaos", f"sqlite:///{tmp_path}/out.db", tmp_path)
    with sqlite3.connect(tmp_path / "out.db") as link:
        link.execute("CREATE TABLE named (key TEXT, seq INTEGER)")
        link.executemany("INSERT INTO named VALUES (?, ?)", has["table"])
    pq.write_table(pa.table(dict(zip(("key", "seq"), zip(*has["files"], strict=True), strict=True))), tmp_path / "f")
    monkeypatch.setattr(outputs.hg, "published", lambda path: [str(tmp_path / "f")])
    assert leaving.wrong(TRUE, (row(*one) for one in has["topic"])) == words
    leaving.files.mkdir()
    assert leaving.complete(3) == (len(has["table"]) >= 3)


def test_a_row_with_the_name_of_another_key_is_found(tmp_path):
    wrong = Leaving("chaos", "", tmp_path)
    wrong._rows = lambda: iter(())  # type: ignore[method-assign]
    assert wrong.wrong({"k0000": 1}, [row("k0000", 0) | {"name": "K0001"}])[0].endswith("has the name of another one")
