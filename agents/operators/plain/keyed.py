"""The operators of tables: the last value of each key, and joins with it."""

from __future__ import annotations

from itertools import compress
from typing import Any

from ...job.steps.keyed import JoinTableStep, TableStep
from ...records.columns.records import Records
from ...records.columns.selecting import column_of
from ..base.addends import keyed
from ..base.stateless import BYTES, Env, Operator, blaming, encode_keys


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
