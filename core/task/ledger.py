"""What of a task is durable: a counter of changes, the commit in progress, and the task's own rows of the control table.

Every change that a restart must find increments the counter (`touch`). A commit takes all changes up to its beginning (`contribute`), and
when it is done, these are durable. Code that must wait for durability keeps the counter at its change, and asks `is_durable`. So nothing is
reported before it is durable.

The own rows are stored alongside those of `Progress`. Their keys begin with a name that no topic can have (`:heard`, `:said`, …). They
belong to a run: the first commit of another run deletes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .protocol import RequestCommit, TaskInstruction

Row = tuple[Any, ...]


class Ledger:
    """The counter of changes, and the own rows."""

    def __init__(self) -> None:
        self.made = 0
        self.durable = 0
        self.rows: dict[Row, Row] = {}
        """The rows of this run, without the run id that precedes each when it is stored."""
        self._run = ""
        self._changed: dict[Row, Row | None] = {}
        self._under_way: tuple[int, int] | None = None
        self._wanted = 0
        """The requested commit for changes that are not in the current one: 0 none, 1 normal, 2 urgent."""

    def load(self, run: str, rows: Mapping[Row, Row]) -> list[tuple[Row, Row]]:
        """Take the own rows of this run out of the control table. Returns the rows of `Progress`."""
        self._run = run
        others: list[tuple[Row, Row]] = []
        for stored, value in rows.items():
            key = tuple(stored)
            if not is_own(key):
                others.append((key, tuple(value)))
            elif value[0] == run:
                self.rows[key] = tuple(value[1:])
            else:
                self._changed[key] = None
        return others

    def put(self, key: Row, row: Row) -> None:
        """Store a row. Counts as a change if it differs."""
        if self.rows.get(key) != row:
            self.rows[key] = row
            self._changed[key] = (self._run, *row)
            self.made += 1

    def touch(self) -> int:
        """Count a change. Returns the counter."""
        self.made += 1
        return self.made

    def request_commit(self, *, urgent: bool = False) -> list[TaskInstruction]:
        """Request a commit if there is a change that the current commit does not contain, unless one was requested with the same
        urgency.
        """
        level = 2 if urgent else 1
        if self.made == self.taken or self._wanted >= level:
            return []
        self._wanted = level
        return [RequestCommit(urgent)]

    @property
    def taken(self) -> int:
        """The changes that are durable, or will be when the current commit is done."""
        return self.durable if self._under_way is None else self._under_way[1]

    def contribute(self, txn: int) -> dict[Row, Row | None] | None:
        """A commit begins: returns the own rows that changed; None if nothing at all has changed since the last one."""
        self._wanted = 0
        if self.made == self.taken:
            return None
        self._under_way = (txn, self.made)
        changed, self._changed = self._changed, {}
        return changed

    def awaits(self, txn: int) -> bool:
        """Whether this is the current commit."""
        return self._under_way is not None and self._under_way[0] == txn

    def done(self, txn: int) -> bool:
        """Note that the commit is durable. Returns False if it is not the current one."""
        if self._under_way is None or self._under_way[0] != txn:
            return False
        self.durable = self._under_way[1]
        self._under_way = None
        return True

    def done_anyway(self) -> None:
        """Note that the current commit is durable although the store refused it."""
        if self._under_way is not None:
            self.durable = self._under_way[1]
            self._under_way = None

    def forget(self) -> None:
        """Drop the changes that are not in a commit; the next holder makes them again. A commit in progress is still waited for."""
        self.made = self.taken

    def is_durable(self, count: int) -> bool:
        """Whether the change with this count is durable."""
        return count <= self.durable

    @property
    def clean(self) -> bool:
        """Whether everything is durable."""
        return self.made == self.durable


def is_own(key: Row) -> bool:
    """Whether a row of the control table is an own row, and not one of `Progress`.

    >>> is_own((":said", "sales-1-by")), is_own(("orders", 0, "own"))
    (True, False)
    """
    return isinstance(key[0], str) and key[0].startswith(":")
