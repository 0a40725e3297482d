"""The sending side of a shuffle in front of a dedupe.

Promise: of the rows that come together, the first of each key is sent, and no other: the dedupe would leave these out.
"""

from __future__ import annotations

from ...records.columns.groups import KeyTable
from ...records.columns.records import Records
from ..base.addends import chunk_keys, firsts
from .shuffles import ShuffleOp


class FirstRowsOp(ShuffleOp):
    """Sends the first row of each key of a chunk."""

    names_origins = False

    def push(self, rows: Records) -> None:
        keys = KeyTable()
        if rows.vectors is None:
            numbers = keys.numbers_listed(self.keys_of(rows))
        elif self.by is None:
            numbers = chunk_keys(self, rows, self.shuffle_step.key_serde).numbers(keys)
        else:
            numbers = self.chunk_keys(rows).numbers(keys)
        super().push(rows.at(firsts(numbers, range(len(keys)))).without_places())
