"""PostgreSQL, through psycopg. Rows go by COPY, as text, so that a column takes whatever its own type can read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...core.errors import HeadgateError
from .sink import RowsRefused, TargetDown, TargetRefuses
from .sql import SqlTable, quoted

STAGING = "headgate_rows"
"""A temporary table of the transaction, for rows on their way to an upsert."""
LINK = {
    "connect_timeout": 10,
    "application_name": "headgate",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""So that a server that is gone without a word is noticed within half a minute. A URL may say otherwise."""
BEGIN = "BEGIN; SET LOCAL lock_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '60s'"
"""A worker that was stopped in the middle of a transaction keeps its locks until the second time has passed."""
AWAY = ("08", "53", "57", "58", "40", "55", "25006", "25P03", "XX")
"""Classes of SQLSTATE, or single ones, of a server that is away, full, or locked by another client; a standby is 25006."""
OF_ROWS = ("22", "23", "44", "54000", "P0001")
"""Values that a column does not take, constraints, the check of a view, a value that is too long for an index, what a trigger refuses."""
TWICE = "21000"
"""Rows whose keys are equal in the types of the table, such as two spellings of one time, and which an upsert has met in one statement."""


class Postgres:
    """A connection to a server."""

    mark = "%s"
    locking = " FOR UPDATE"
    types: ClassVar[dict[str, str]] = {
        "int64": "BIGINT",
        "float64": "DOUBLE PRECISION",
        "bool": "BOOLEAN",
        "text": "TEXT",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "local timestamp": "TIMESTAMP",
        "date": "DATE",
        "decimal": "NUMERIC({digits}, {scale})",
        "bytes": "BYTEA",
    }

    def __init__(self, url: str) -> None:
        with _typed():
            given = conninfo_to_dict(url)
            self._link = psycopg.connect(**cast("Any", {**LINK, **given}), autocommit=True)

    def begin(self) -> None:
        """Begin a transaction, which waits for no one for ever, and for which no one waits for ever."""
        with _typed():
            self._link.execute(BEGIN)

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement."""
        with _typed():
            done = self._link.execute(cast("Any", statement), parameters)
            return done.fetchall() if done.description else []

    def create(self, name: str, statement: str) -> None:
        """Create a table, if no one else does: who may not create any can write to one that is there."""
        where = ".".join(map(quoted, name.split(".")))
        if self.run("SELECT to_regclass(%s)", (where,)) == [(None,)]:
            self.run("SELECT pg_advisory_xact_lock(hashtext('headgate'))")
            self.run(statement)

    def insert(self, table: SqlTable, rows: Any, more: str) -> None:
        """Copy rows to the table; by way of another one if keys may be there."""
        names = ", ".join(map(quoted, table.columns.names))
        if not more:
            self._copy(table.quoted, names, rows)
            return
        self.run(f"CREATE TEMPORARY TABLE {STAGING} ON COMMIT DROP AS SELECT {names} FROM {table.quoted} WITH NO DATA")
        self._copy(STAGING, names, rows)
        into = f"INSERT INTO {table.quoted} ({names}) SELECT"
        self.run(f"SAVEPOINT {STAGING}")
        try:
            self.run(f"{into} {names} FROM {STAGING}{more}")
        except TargetRefuses as error:
            if not isinstance(error.__cause__, psycopg.Error) or error.__cause__.sqlstate != TWICE:
                raise
            key = ", ".join(map(quoted, table.key))
            self.run(f"ROLLBACK TO SAVEPOINT {STAGING}")
            self.run(f"{into} DISTINCT ON ({key}) {names} FROM {STAGING} ORDER BY {key}, ctid DESC{more}")

    def _copy(self, where: str, names: str, rows: Any) -> None:
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        with (
            _typed(),
            self._link.cursor() as cursor,
            cursor.copy(cast("Any", f"COPY {where} ({names}) FROM STDIN")) as copy,
        ):
            for one in values:
                copy.write_row(one)

    def check(self) -> None:
        """Check deferred constraints now."""
        self.run("SET CONSTRAINTS ALL IMMEDIATE")

    def commit(self) -> None:
        """Commit."""
        self.run("COMMIT")

    def rollback(self) -> None:
        """Roll back."""
        if not self._link.closed and self._link.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.run("ROLLBACK")

    def close(self) -> None:
        """Close the connection. What is not committed is undone."""
        self._link.close()


@contextlib.contextmanager
def _typed() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise meant(error) from error


def meant(error: psycopg.Error) -> HeadgateError:
    """What an error of the server, or of the way there, means for a batch.

    >>> type(meant(psycopg.errors.UniqueViolation("twice"))).__name__, type(meant(psycopg.errors.UndefinedColumn("b"))).__name__
    ('RowsRefused', 'TargetRefuses')
    >>> type(meant(psycopg.OperationalError("connection refused"))).__name__
    'TargetDown'
    """
    state = error.sqlstate or ""
    detail = error.diag.message_detail
    said = f"PostgreSQL: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"
    said = f"{said} ({state})" if state else said
    if state.startswith(AWAY) or (not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)):
        return TargetDown(said, remedy="the task tries again; check that the server runs and can be reached")
    if state.startswith(OF_ROWS) or (not state and isinstance(error, psycopg.DataError)):
        return RowsRefused(f"{said}: {detail}" if detail else said)
    return TargetRefuses(said, remedy="fix the table, the rights or the declared columns")
