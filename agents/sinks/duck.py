"""DuckDB. A file belongs to one process at a time, and there the tasks write one after the other.

What it decides: when another process has the file, it may be a worker of before that is about to end, which releases the file with its last
breath. So the task tries again. If the same process has it for longer than a worker takes to stop, it will not go, and the task fails: two
workers cannot write to one file.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

from .sink import RowsRefused, TargetDown, TargetRefuses
from .sql import SqlTable, quoted

ROWS, TYPED, PLACE = "headgate_rows", "headgate_rows_typed", "headgate_place"
AWAY = (
    duckdb.IOException,
    duckdb.TransactionException,
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.ConnectionException,
)
OF_ROWS = (
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
)
HELD_S = 60.0
"""How long another process may have the file before it counts as one that stays: longer than a worker takes to stop."""
_LOCKED = re.compile(r"Could not set lock on file .*?(?:lock is held in (?P<who>.*?\(PID \d+\)).*)?$", re.DOTALL)
_turns: dict[str, threading.Lock] = {}
_held: dict[str, tuple[str, float]] = {}
"""By file, the process that has it, and since when it is known to; until this process has got it."""


class Duck:
    """A connection to a file."""

    mark = "?"
    locking = ""
    types: ClassVar[dict[str, str]] = {
        "int64": "BIGINT",
        "float64": "DOUBLE",
        "bool": "BOOLEAN",
        "text": "VARCHAR",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "local timestamp": "TIMESTAMP",
        "date": "DATE",
        "decimal": "DECIMAL({digits}, {scale})",
        "bytes": "BLOB",
    }

    def __init__(self, path: str) -> None:
        self.path = path
        self._turn = _turns.setdefault(path, threading.Lock())
        self._writes = False
        with self._typed():
            try:
                self._link = duckdb.connect(path)
            except duckdb.IOException as error:
                if (locked := _LOCKED.search(str(error))) is None:
                    raise
                who = locked["who"] or "which one is not known"
                said, seconds = f"DuckDB at {path}: another process has the file: {who}", _held_for(path, who)
                if seconds < HELD_S:
                    raise TargetDown(
                        said,
                        remedy="the task tries again, as that may be a worker that is about to end; a file has one process: run one worker",
                    ) from error
                raise TargetRefuses(
                    f"{said}, for {seconds:.0f} s already, and a file of DuckDB has one process",
                    remedy="end the other process, run the job with one worker, or write to PostgreSQL",
                ) from error
        _held.pop(path, None)

    @contextlib.contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            said = f"DuckDB at {self.path}: {str(error).strip().splitlines()[0]}"
            if isinstance(error, AWAY):
                raise TargetDown(
                    said, remedy="the task tries again; a file of DuckDB belongs to one process: --workers 1"
                ) from error
            if isinstance(error, OF_ROWS):
                raise RowsRefused(said) from error
            raise TargetRefuses(said, remedy="fix the table or the declared columns") from error

    def begin(self) -> None:
        """Wait for the turn, and begin."""
        self._turn.acquire()
        self._writes = True
        self.run("BEGIN")

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement."""
        with self._typed():
            return self._link.execute(statement, parameters).fetchall()

    def create(self, name: str, statement: str) -> None:
        """Create a table."""
        self.run(statement)

    def insert(self, table: SqlTable, rows: Any, more: str) -> None:
        """Insert rows from Arrow's memory."""
        names = ", ".join(map(quoted, table.columns.names))
        with self._typed():
            if more:  # keys may be equal in the types of the table alone, and of equal ones in a statement DuckDB keeps the first
                key, columns = ", ".join(map(quoted, table.key)), f"{names}, 0 AS {PLACE}"
                self._link.register(ROWS, rows.append_column(PLACE, pa.array(range(len(rows)))))
                self._link.execute(f"CREATE TEMP TABLE {TYPED} AS SELECT {columns} FROM {table.quoted} LIMIT 0")
                self._link.execute(f"INSERT INTO {TYPED} SELECT {names}, {PLACE} FROM {ROWS}")
                last = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {PLACE} DESC) = 1"
                self._link.execute(f"INSERT INTO {table.quoted} ({names}) SELECT {names} FROM {TYPED} {last}{more}")
                self._link.execute(f"DROP TABLE {TYPED}")
            else:
                self._link.register(ROWS, rows)
                self._link.execute(f"INSERT INTO {table.quoted} ({names}) SELECT {names} FROM {ROWS}")
            self._link.unregister(ROWS)

    def check(self) -> None:
        """DuckDB defers no constraint."""

    def commit(self) -> None:
        """Commit."""
        self.run("COMMIT")
        self._done()

    def rollback(self) -> None:
        """Roll back."""
        if self._writes:
            self.run("ROLLBACK")
            self._done()

    def _done(self) -> None:
        self._writes = False
        self._turn.release()

    def close(self) -> None:
        """Close the file. What is not committed is undone."""
        self._link.close()
        if self._writes:
            self._done()


def _held_for(path: str, who: str) -> float:
    """For how many seconds this process is known to have the file."""
    now = time.monotonic()
    other, since = _held.get(path, ("", now))
    if other != who:
        since = now
    _held[path] = who, since
    return now - since
