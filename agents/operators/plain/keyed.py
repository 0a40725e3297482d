"""The operators of tables: the last value of each key, and joins with it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import Any

from ....core.columns.expressions import col
from ....core.columns.schema import BOOL, ColumnKind, ColumnSchema, ColumnSpec
from ...job.steps.keyed import JoinTableColumnsStep, JoinTableStep, TableStep
from ...records.columns.expressions import Computation
from ...records.columns.fitting import columns_of_values
from ...records.columns.groups import KeyTable
from ...records.columns.records import Records
from ...records.columns.selecting import column_of
from ...records.layout import Buffer, longs
from ...records.memory.longs import scaled, scattered
from ...records.memory.record_spans import pieces
from ...records.memory.taking import take
from ...records.memory.vectors import Vector
from ..base.addends import ChunkKeys, as_keys, chunk_keys, column_keys, keyed
from ..base.stateless import BYTES, Env, Operator, blaming, encode_keys, failing


class TableOp(Operator):
    """Keeps the last value of each key; a null value deletes the key."""

    wants_keys = BYTES

    def __init__(self, step: TableStep, env: Env) -> None:
        super().__init__(step, env)
        self.table = env.table(step.name)
        self.key_serde = step.key_serde

    def push(self, rows: Records) -> None:
        last = dict(zip(keyed(self, rows, self.key_serde), rows.values, strict=True))
        gone = [key for key, value in last.items() if value is None]
        for key in gone:
            del last[key]
        with blaming(self.step):
            self.table.put(last)
        self.table.remove(gone)
        self.forward(rows)


class JoinTableOp(Operator):
    """Joins each row with its row of a table."""

    def __init__(self, step: JoinTableStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.on = column_of(step.on) if step.on is not None else None
        self.table = env.table(step.table.name)
        self.wants_keys = BYTES if step.on is None else ""

    def push(self, rows: Records) -> None:
        values = rows.values
        serde = self.join.table.key_serde
        if self.on is not None:
            keys = encode_keys(self.step, serde, self.select(self.on, values, self.join.on), rows=rows)
        else:
            keys = keyed(self, rows, serde)
        distinct = [key for key in dict.fromkeys(keys) if key is not None]
        with blaming(self.step):
            found: dict[Any, Any] = dict(zip(distinct, self.table.fetch(distinct), strict=True))
        found[None] = None
        into = self.join.into
        if self.join.how == "inner":
            keep = [found[key] is not None for key in keys]
            if not all(keep):
                self.env.count("join_misses", keep.count(False))
                rows = rows.filtered(keep)
                keys = list(compress(keys, keep))
        with blaming(self.step):
            joined = [into(value, found[key]) for value, key in zip(rows.values, keys, strict=True)]
        self.forward(rows.with_values(joined).without_places())  # an earlier row may have set the row of the table


class JoinTableColumnsOp(Operator):
    """Adds columns of its row of a table to each row: the table is asked once for each key of a chunk, and columns are gathered by the
    numbers of these keys."""

    def __init__(self, step: JoinTableColumnsStep, env: Env) -> None:
        super().__init__(step, env)
        self.join = step
        self.table = env.table(step.table.name)
        self.wants_keys = BYTES if step.on is None else ""
        self.wanted = ColumnSchema(tuple({one.name: one for one in step.taken.values()}.values()))
        found = ColumnSchema((ColumnSpec(_FOUND, BOOL),))
        self.is_found = Computation(col(_FOUND).node, found)

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        own = frozenset() if self.join.on is None else frozenset((str(self.join.on),))
        return (behind - self.join.taken.keys()) | own

    def push(self, rows: Records) -> None:
        keys = KeyTable()
        numbers = self._keys(rows).numbers(keys)
        with blaming(self.step):
            found: list[Any] = self.table.fetch(pieces(keys.keys(array("q", range(len(keys))))[0]))
        there = [number for number, row in enumerate(found, 1) if row is not None]
        columns, bad = columns_of_values([found[number - 1] for number in there], self.wanted)
        places = scaled(numbers, add=1)
        """By base row, the number of its key, from 1 on. 0 is for rows without a key, and for those that are not selected."""
        if rows.picked is not None:
            places = scattered(places, rows.picked, rows.base_length)
        if bad:
            self._refuse(rows, places, {there[at]: error for at, error in bad})
        if self.join.how == "inner":
            rows = self._inner(rows, take(_spread(BOOL, there, [True] * len(there), len(found)), places))
        made = {
            name: take(_spread(of.type, there, columns[of.name], len(found)), places)
            for name, of in self.join.taken.items()
        }
        self.forward(rows.extended(made).without_places())  # an earlier row may have set the row of the table

    def _inner(self, rows: Records, hits: Vector) -> Records:
        """The rows that have a row of the table."""
        kept = rows.kept(self.is_found.picked(rows.extended({_FOUND: hits})))
        if missed := len(rows) - len(kept):
            self.env.count("join_misses", missed)
        return kept

    def _keys(self, rows: Records) -> ChunkKeys:
        """The keys of the rows, as the table has them."""
        on, serde = self.join.on, self.join.table.key_serde
        if on is None:
            return chunk_keys(self, rows, serde)
        keys = as_keys(rows, str(on), self.join.schema[str(on)].logical)
        return column_keys(keys, serde, rows, lambda: encode_keys(self.step, serde, rows.listed(keys), rows=rows))

    def _refuse(self, rows: Records, places: Buffer, bad: dict[int, Any]) -> None:
        """Raise the error of the rows that have a row of the table which does not fit."""
        at = longs(places)
        refused = [(place, bad[at[row]]) for place, row in enumerate(rows.indexes()) if at[row] in bad]
        if refused:
            raise failing(self.step, refused, rows)


_FOUND = "__found"


def _spread(kind: ColumnKind, numbers: Sequence[int], values: Sequence[Any], most: int) -> Vector:
    """These values in the places of their numbers, from 0 to `most`; the others are null."""
    spread: list[Any] = [None] * (most + 1)
    for number, value in zip(numbers, values, strict=True):
        spread[number] = value
    return Vector.of(kind, spread)
