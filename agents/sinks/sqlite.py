"""SQLite. A file has one writer at a time: the others wait for it, and after that are told that the target is away."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ...core.columns.logical import WHOLE, Logical, stored, written
from .sink import RowsRefused, TargetDown, TargetRefuses
from .sql import SqlTable, quoted

WAIT_S = 30.0
"""How long a writer waits for another one."""
AWAY = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
OF_ROWS = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH})


class Sqlite:
    """A connection to a file."""

    mark = "?"
    locking = ""
    types: ClassVar[dict[str, str]] = {
        "int64": "INTEGER",
        "float64": "REAL",
        "bool": "BOOLEAN",
        "text": "TEXT",
        **dict.fromkeys(WHOLE, "TEXT"),
        "bytes": "BLOB",
    }
    """It has no types of times and decimals: their text is exact, and its functions of dates read it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self._typed():
            self._link = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            said = f"SQLite at {self.path}: {error}"
            if code in AWAY:
                raise TargetDown(said, remedy="the task tries again; see who else writes to the file") from error
            if code in OF_ROWS or isinstance(error, sqlite3.DataError | sqlite3.InterfaceError):
                raise RowsRefused(said) from error
            raise TargetRefuses(said, remedy="fix the table or the declared columns") from error

    def begin(self) -> None:
        """Take the file for writing, now, so that what is read before the rows are written is still true afterwards."""
        self.run("BEGIN IMMEDIATE")

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement."""
        with self._typed():
            return self._link.execute(statement, parameters).fetchall()

    def create(self, name: str, statement: str) -> None:
        """Create a table."""
        self.run(statement)

    def insert(self, table: SqlTable, rows: Any, more: str) -> None:
        """Insert rows, one after the other: in SQLite that is as fast as anything."""
        names = ", ".join(map(quoted, table.columns.names))
        marks = ", ".join("?" * len(table.columns.names))
        given = zip(rows.columns, table.columns.columns, strict=True)
        values = zip(*(_values(column.to_pylist(), of.logical) for column, of in given), strict=True)
        with self._typed():
            self._link.executemany(f"INSERT INTO {table.quoted} ({names}) VALUES ({marks}){more}", values)

    def check(self) -> None:
        """Raise what a deferred foreign key would raise only at the commit."""
        if self.run("PRAGMA foreign_keys") == [(1,)] and (broken := self.run("PRAGMA foreign_key_check")):
            raise RowsRefused(f"SQLite at {self.path}: FOREIGN KEY constraint failed: {broken[0]}")

    def commit(self) -> None:
        """Commit."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Roll back."""
        if self._link.in_transaction:
            self.run("ROLLBACK")

    def close(self) -> None:
        """Close the file. What is not committed is undone."""
        self._link.close()


def _values(column: list[Any], kind: Logical | None) -> list[Any]:
    """Values as SQLite keeps them: times, dates and decimals as the text that an output has of them."""
    if kind is None or kind.name not in WHOLE:
        return column
    seconds: dict[int, str] = {}
    return [None if one is None else written(stored(one, kind), kind, seconds) for one in column]
