"""Rows into a table of a database, once in effect.

    begin → headgate_batches: whose grant, which batch → rows → headgate_batches: this grant, this batch → commit

The target's own transaction writes the rows and, in the table `headgate_batches`, what the target remembers of the task and stage. The
rules are in `core.batching.sinking`; how each database is spoken to is in `databases`.

Promises:

- A new owner of a task writes its grant before its first batch. From then on an earlier owner writes nothing.
- Of rows with the same key in one batch, the last one counts.
- The types of columns are the declared ones: tables that are missing are created with them, and no row decides about a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ...core.batching.sinking import Remembered, SinkBatch, SinkOwner, note_of_done
from ...core.columns.logical import BYTES, WHOLE
from ...core.columns.schema import ColumnSchema, ColumnSpec
from ...core.errors import DeclarationError
from .sink import Sink

BATCHES = "headgate_batches"
UPSERT, APPEND = "upsert", "append"
MODES = (UPSERT, APPEND)
TYPES = WHOLE | {BYTES}
"""The logical types that each database has, or has text for."""
NOTHING = Remembered(0, 0, -1, "")


@dataclass(frozen=True, slots=True)
class SqlTable:
    """The table that rows go to."""

    url: str
    name: str
    columns: ColumnSchema
    key: tuple[str, ...] = ()
    mode: str = APPEND

    @property
    def quoted(self) -> str:
        """Its name, perhaps with that of its schema."""
        return ".".join(map(quoted, self.name.split(".")))


def quoted(name: str) -> str:
    """A name as SQL has it.

    >>> print(quoted('a"b'))
    "a""b"
    """
    return '"' + name.replace('"', '""') + '"'


class Database(Protocol):
    """A connection. Everything raises the errors of `sink`."""

    mark: str
    """What stands for a parameter."""
    locking: str
    """What a select says to lock its row until the transaction ends."""
    types: ClassVar[dict[str, str]]
    """The type of a column, by that of the stream; of decimals with the places for their digits."""

    def begin(self) -> None:
        """Begin a transaction that writes."""
        ...

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement. Returns its rows, if it has any."""
        ...

    def create(self, name: str, statement: str) -> None:
        """Run a statement that creates a table, unless there is one of this name."""
        ...

    def insert(self, table: SqlTable, rows: Any, more: str) -> None:
        """Insert the rows of an Arrow table; `more`: what becomes of rows whose key is there."""
        ...

    def check(self) -> None:
        """Raise now what would be raised only at the commit."""
        ...

    def commit(self) -> None:
        """Commit."""
        ...

    def rollback(self) -> None:
        """Roll back, if a transaction is open."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SqlSink(Sink):
    """Writes the batches of one task and stage to a table."""

    transactional = True

    def __init__(self, table: SqlTable, connect: Callable[[str], Database]) -> None:
        self.table = table
        self._connect = connect
        self._database: Database | None = None
        self._owner: SinkOwner | None = None
        self._number = -1

    @property
    def _db(self) -> Database:
        assert self._database is not None, "it is open"
        return self._database

    @property
    def _who(self) -> SinkOwner:
        assert self._owner is not None, "it is open"
        return self._owner

    def open(self, owner: SinkOwner) -> None:
        """Connect, create what is missing, and write the grant. A table that batches of this stage are in is not created again: if it is
        gone, it was dropped or renamed, and the next batch is refused."""
        self._owner = owner
        self._database = db = self._connect(self.table.url)
        db.begin()
        db.create(BATCHES, _batches(db))
        if not self._has_written():
            db.create(self.table.name, created(self.table, db))
        db.commit()
        db.begin()
        before = self._remembered()
        note_of_done(before, owner, before.number)
        if before.grant != owner.grant:
            self._remember(before._replace(grant=owner.grant))
        db.commit()

    def begin(self, batch: SinkBatch) -> str | None:
        """Begin a transaction, and see whether the batch is there."""
        self._db.begin()
        self._number = batch.number
        return note_of_done(self._remembered(), self._who, batch.number)

    def write(self, rows: Any, batch: SinkBatch) -> None:
        """Write the rows."""
        table = self.table
        rows = rows.select(list(table.columns.names))
        if table.mode == UPSERT:
            rows = last_of_each(rows, table.key)
        self._db.insert(table, rows, on_conflict(table))
        self._db.check()

    def commit(self, note: str) -> None:
        """Remember the batch, and commit."""
        owner = self._who
        self._remember(Remembered(owner.grant, owner.begun_ms, self._number, note))
        self._db.commit()

    def rollback(self) -> None:
        """Undo the transaction."""
        self._db.rollback()

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()

    # ----------------------------------------------------------------------------------------------- what the target remembers

    def _has_written(self) -> bool:
        """Whether any task has written a batch of this stage."""
        db, owner = self._db, self._who
        where = f"job_uuid = {db.mark} AND stage = {db.mark} AND batch > {db.mark}"
        found = db.run(f"SELECT count(*) FROM {BATCHES} WHERE {where}", (owner.uuid, owner.stage, NOTHING.number))
        return bool(found[0][0])

    def _remembered(self) -> Remembered:
        """The row of this task and stage, locked until the transaction ends."""
        db, owner = self._db, self._who
        at = (owner.uuid, owner.task, owner.stage)
        marks = ", ".join([db.mark] * 8)
        db.run(
            f"INSERT INTO {BATCHES} VALUES ({marks}) ON CONFLICT DO NOTHING",
            (*at, *NOTHING, owner.job),
        )
        found = db.run(
            f"SELECT owner_grant, begun_ms, batch, note FROM {BATCHES} WHERE job_uuid = {db.mark} AND task = {db.mark} "
            f"AND stage = {db.mark}{db.locking}",
            at,
        )
        return Remembered(*found[0])

    def _remember(self, now: Remembered) -> None:
        db, owner, mark = self._db, self._who, self._db.mark
        db.run(
            f"UPDATE {BATCHES} SET owner_grant = {mark}, begun_ms = {mark}, batch = {mark}, note = {mark} "
            f"WHERE job_uuid = {mark} AND task = {mark} AND stage = {mark}",
            (*now, owner.uuid, owner.task, owner.stage),
        )


def _batches(db: Database) -> str:
    number, text = db.types["int64"], db.types["text"]
    return (
        f"CREATE TABLE IF NOT EXISTS {BATCHES} ("
        f"job_uuid {text} NOT NULL, task {text} NOT NULL, stage {text} NOT NULL, owner_grant {number} NOT NULL, "
        f"begun_ms {number} NOT NULL, batch {number} NOT NULL, note {text} NOT NULL, job {text} NOT NULL, "
        "PRIMARY KEY (job_uuid, task, stage))"
    )


def created(table: SqlTable, db: Database) -> str:
    """What creates the table with the declared types."""
    columns = [
        f"{quoted(one.name)} {_type(one, db)}{'' if one.optional and one.name not in table.key else ' NOT NULL'}"
        for one in table.columns.columns
    ]
    if table.mode == UPSERT:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    return f"CREATE TABLE IF NOT EXISTS {table.quoted} ({', '.join(columns)})"


def _type(column: ColumnSpec, db: Database) -> str:
    kind = column.logical
    if kind is None:
        return db.types[column.type]
    return db.types[kind.name].format(digits=kind.digits, scale=kind.scale)


def check_types(columns: ColumnSchema, where: str) -> None:
    """Refuse columns for which not every database has a type."""
    columns.flat(where)
    found = next((one for one in columns.columns if one.logical is not None and one.logical.name not in TYPES), None)
    if found is not None:
        raise DeclarationError(
            f"{where} takes no columns of the type {found.said}, such as '{found.name}'",
            remedy='leave it out: .select(…); or make a row of each element: .explode("…")',
        )


def on_conflict(table: SqlTable) -> str:
    """What becomes of a row whose key is there; nothing is said if rows are appended."""
    if table.mode == APPEND:
        return ""
    others = [name for name in table.columns.names if name not in table.key]
    sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
    return f" ON CONFLICT ({', '.join(map(quoted, table.key))}) DO " + (f"UPDATE SET {sets}" if sets else "NOTHING")


def last_of_each(rows: Any, key: Sequence[str]) -> Any:
    """The last row of each key: a statement may touch a row only once."""
    import pyarrow as pa

    places = pa.table({**{f"k{at}": rows[name] for at, name in enumerate(key)}, "place": pa.array(range(len(rows)))})
    last = places.group_by([f"k{at}" for at in range(len(key))], use_threads=False).aggregate([("place", "max")])
    return rows if len(last) == len(rows) else rows.take(last["place_max"].sort())
