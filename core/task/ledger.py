"""What of a task is durable: a counter of changes, the commit under way, and the task's own rows of the control table.

Every change of what a restart must find counts one up (`touch`). A commit takes everything up to its beginning (`contribute`),
and when it is done, that much is durable. Whoever must wait for durability keeps the count at which his change was made, and
asks `is_durable`. So nothing is reported before it is durable, whatever comes in between.

Own rows stand beside those of `Progress`; their keys begin with a name that no topic can have (`:heard`, `:said`, …).
They belong to a run: those of another run are deleted with the first commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .protocol import RequestCommit, TaskInstruction

Row = tuple[Any, ...]


class Ledger:
    """The count of changes, and the own rows."""

    def __init__(self) -> None:
        self.made = 0
        self.durable = 0
        self.rows: dict[Row, Row] = {}
        """Of this run, without the run that stands in front of each when it is stored."""
        self._run = ""
        self._changed: dict[Row, Row | None] = {}
        self._under_way: tuple[int, int] | None = None
        self._wanted = 0
        """Of what the commit under way does not hold: 0, no commit was requested; 1, one was; 2, an urgent one was."""

    def load(self, run: str, rows: Mapping[Row, Row]) -> list[tuple[Row, Row]]:
        """Take the own rows of this run out of the control table; give back those of `Progress`."""
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
        """Remember a row; counts as a change when it is another one."""
        if self.rows.get(key) != row:
            self.rows[key] = row
            self._changed[key] = (self._run, *row)
            self.made += 1

    def touch(self) -> int:
        """Something changed; the count at which it did."""
        self.made += 1
        return self.made

    def request_commit(self, *, urgent: bool = False) -> list[TaskInstruction]:
        """Request a commit, if something is not in the commit under way and none was requested that is as urgent."""
        level = 2 if urgent else 1
        if self.made == self.taken or self._wanted >= level:
            return []
        self._wanted = level
        return [RequestCommit(urgent)]

    @property
    def taken(self) -> int:
        """What is durable, or will be when the commit under way is done."""
        return self.durable if self._under_way is None else self._under_way[1]

    def contribute(self, txn: int) -> dict[Row, Row | None] | None:
        """A commit begins: the own rows that changed; None when nothing at all changed since the last one."""
        self._wanted = 0
        if self.made == self.taken:
            return None
        self._under_way = (txn, self.made)
        changed, self._changed = self._changed, {}
        return changed

    def done(self, txn: int) -> bool:
        """The commit is durable. False if it is not the one under way."""
        if self._under_way is None or self._under_way[0] != txn:
            return False
        self.durable = self._under_way[1]
        self._under_way = None
        return True

    def done_anyway(self) -> None:
        """The commit under way is durable, though the store could not follow."""
        if self._under_way is not None:
            self.durable = self._under_way[1]
            self._under_way = None

    def forget(self) -> None:
        """What is in no commit yet is not wanted any more: whoever comes next decides it again. A commit under way is waited for."""
        self.made = self.taken

    def is_durable(self, count: int) -> bool:
        """Whether the change that was made at this count is durable."""
        return count <= self.durable

    @property
    def clean(self) -> bool:
        """Everything is durable."""
        return self.made == self.durable


def is_own(key: Row) -> bool:
    """Whether a row of the control table is one of these, and not one of `Progress`.

    >>> is_own((":said", "sales-1-by")), is_own(("orders", 0, "own"))
    (True, False)
    """
    return isinstance(key[0], str) and key[0].startswith(":")
