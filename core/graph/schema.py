"""The schema of a table's values: the schemas that rows were written with, the one that the code declares now, and how to get from one to
the other.

A table has a *history*: every schema that its rows were ever written with, each with a number. A row carries the number of its schema, so
a change of the code rewrites nothing: a row is read with the schema that it was written with. The history is stored in the task's log.

What it decides: which changes of a declaration keep the state. What it promises:

- Fields are compared by name; their order does not matter. A new field starts with its initial value. A removed field loses its values,
  even if a later version has a field of that name again: each field has an id of its own for life.
- A change that does not fit (another kind or type of a field, another format of the value) is refused, unless a migration function
  converts the old rows. Another key format, or a table of another kind, is always refused.
- While there may be rows that only a migration function can read, the code must have one, and no other migration may begin.
- Equal histories have equal bytes, and unpacking restores what was packed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ..errors import CheckpointError, DeclarationError

VERSION = 1
SCHEMA_TABLE = "__schema"
"""The table in the task's log that holds the history of each table, by table name."""
MOST_VERSIONS = 65_536
"""A row stores the number of its schema in two bytes."""
WINDOW = "window "
"""The prefix of the kind of a window table; the rest describes the windows."""
JOIN = "join "
"""The prefix of the kind of a join's table; the rest describes the join."""
WITH_ROWS = "-rows"
"""The suffix of the kind of a window table that holds rows instead of states."""
BATCHES_OF = "batches of "
"""The prefix of the kind of a batch step's table that holds a batch for each window; the rest describes the windows."""
OF_EVENT_TIME = (WINDOW, JOIN, BATCHES_OF)
ANY = "any"
MOST_TEXT = 1000

_library = cast("Any", msgpack)
_packb: Callable[..., bytes] = _library.packb
_unpackb: Callable[..., Any] = _library.unpackb


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a value. `kind`: how it is computed (`count`, `sum` …); `of`: from what, if that has a name.

    `required`: a row without it cannot be read, because there is no initial value.
    """

    name: str
    kind: str = ""
    type: str = ANY
    of: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """What the code declares for one table."""

    kind: str
    """What the table belongs to: `aggregate`, `table`, `timers`, `batch step`, `window …`, `join …` or `batches of …`."""
    key: str
    """The format of the keys."""
    value: str
    """The format of the values."""
    fields: tuple[Field, ...] = ()
    """The known fields; () for values without a declared structure."""
    by_position: bool = False
    """Whether a value is the list of its fields; otherwise its fields are named, or not known."""


@dataclass(frozen=True, slots=True)
class Version:
    """One schema that rows were written with. `ids`: the ids of its fields, for life."""

    value: str
    fields: tuple[Field, ...] = ()
    ids: tuple[int, ...] = ()
    migrated: bool = False
    """Only the user's migration function converts rows of earlier versions to this one."""


@dataclass(frozen=True, slots=True)
class History:
    """The schemas of a table, the newest last; a version's number is its index."""

    kind: str
    key: str
    versions: tuple[Version, ...]
    rewritten: int = 0
    """No rows are left of versions below this number."""

    @property
    def number(self) -> int:
        """The number of the version that rows are written with now."""
        return len(self.versions) - 1

    @property
    def last(self) -> Version:
        """The version that rows are written with now."""
        return self.versions[-1]

    def needs_function(self, number: int) -> bool:
        """Whether rows of this version can be read only through the user's migration function."""
        return any(version.migrated for version in self.versions[number + 1 :])

    @property
    def migrating(self) -> bool:
        """Whether there may still be rows that need the migration function."""
        return self.needs_function(self.rewritten)

    def finished(self) -> History:
        """The history once every row has been rewritten: all rows have the last version."""
        return replace(self, rewritten=self.number)

    def places(self, number: int) -> tuple[int | None, ...]:
        """For each field of the last version, its index in a row of version `number`; None if it starts with its initial value."""
        at = {uid: place for place, uid in enumerate(self.versions[number].ids)}
        return tuple(at.get(uid) for uid in self.last.ids)

    def find(self, digested: int) -> int | None:
        """The number of the newest version with this digest; None if there is none."""
        found = (number for number in reversed(range(len(self.versions))))
        return next((number for number in found if digest(self.versions[number].fields) == digested), None)


class Adopted(NamedTuple):
    """The history with the declared schema as its last version, and what is new, for people."""

    history: History
    news: tuple[str, ...] = ()


class SchemaRefused(DeclarationError):
    """The code declares a table that does not fit the stored state. `differences`: one line each."""

    def __init__(self, table: str, differences: Sequence[str], remedy: str) -> None:
        self.differences = tuple(differences)
        super().__init__(
            f"the table '{table}' does not fit what is stored in it: {'; '.join(differences)}", remedy=remedy
        )


def digest(fields: Sequence[Field]) -> int:
    """A number that distinguishes lists of fields by name, kind, type and order.

    >>> digest((Field("n", "count"),)) == digest((Field("n", "count", of="x"),)) != digest((Field("n", "sum"),))
    True
    """
    return zlib.crc32(_packb([[one.name, one.kind, one.type] for one in fields]))


def adopt(table: str, history: History | None, schema: Schema, *, migrates: bool = False) -> Adopted:
    """Compare the stored schema with the declared one, by field names. Raises `SchemaRefused`.

    >>> old = adopt("t", None, Schema("aggregate", "text", "states", (Field("n", "count"),), by_position=True)).history
    >>> adopt("t", old, Schema("aggregate", "text", "states", (Field("x", "sum"), Field("n", "count")), by_position=True)).news
    ("'x' is new and starts with its initial value",)
    """
    if history is None:
        ids = tuple(range(len(schema.fields)))
        return Adopted(History(schema.kind, schema.key, (Version(schema.value, schema.fields, ids),)))
    foreign = _foreign(history, schema)
    if foreign:
        raise SchemaRefused(table, foreign, _ways_out(table, drained=is_of_event_time(history, schema)))
    last = history.last
    if history.migrating and not migrates:
        raise SchemaRefused(
            table,
            ["some rows can be read only by the migration function, which the code no longer has"],
            "keep migrate= until the log says that every row was written again",
        )
    if (last.value, last.fields) == (schema.value, schema.fields):
        return Adopted(history)
    misfits = _misfits(last, schema)
    if misfits and not migrates:
        raise SchemaRefused(table, misfits, _ways_out(table, migrate=True))
    if misfits and history.migrating:
        raise SchemaRefused(
            table,
            [*misfits, "and the previous migration has not rewritten every row yet"],
            "run the old code until its log says that every row was written again; then change it",
        )
    return Adopted(_with(table, history, schema, migrated=bool(misfits)), (*misfits, *_news(last, schema)))


def _foreign(history: History, schema: Schema) -> list[str]:
    """Differences that no migration function can handle."""
    found: list[str] = []
    if history.kind != schema.kind:
        found.append(f"it belongs to {_article(history.kind)}, not to {_article(schema.kind)}")
    if history.key != schema.key:
        found.append(f"its keys are {history.key}, and would become {schema.key}")
    return found


def _article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def _misfits(last: Version, schema: Schema) -> list[str]:
    found: list[str] = []
    if last.value != schema.value:
        found.append(f"its values are {last.value}, and would become {schema.value}")
        return found
    before = {one.name: one for one in last.fields}
    for one in schema.fields:
        was = before.get(one.name)
        if was is None:
            if one.required and last.fields:
                found.append(f"'{one.name}' is new and has no default, so stored rows cannot be read")
        elif was.kind != one.kind:
            found.append(f"'{one.name}' was {was.kind}, and would become {one.kind}")
        elif not _fits(was.type, one.type):
            found.append(f"'{one.name}' was of type {was.type}, and would become {one.type}")
        elif one.required and not was.required:
            found.append(f"'{one.name}' no longer has a default, so stored rows may lack it")
    return found


def _fits(was: str, now: str) -> bool:
    """Whether every value of the old type is a value of the new one.

    >>> _fits("int", "float | none"), _fits("int | none", "int")
    (True, False)
    """
    if was == now or now == ANY:
        return True
    takes = set(now.split(" | "))
    return all(one in takes or (one == "int" and "float" in takes) for one in was.split(" | "))


def _news(last: Version, schema: Schema) -> list[str]:
    """Changes that are reported but do not prevent a start."""
    before = {one.name: one for one in last.fields}
    now = {one.name for one in schema.fields}
    found: list[str] = []
    for one in schema.fields:
        was = before.get(one.name)
        if was is None and last.fields and not one.required:
            found.append(f"'{one.name}' is new and starts with its initial value")
        elif was is not None and was.of != one.of:
            found.append(
                f"'{one.name}' was of {was.of or 'a function'}, and is of {one.of or 'a function'}; its value is kept"
            )
    if schema.fields:
        found += [f"'{name}' was removed, and its values are deleted" for name in before if name not in now]
    return found


def _with(table: str, history: History, schema: Schema, *, migrated: bool) -> History:
    """The history with the declared schema as the last version; it replaces the previous one if rows of both look the same."""
    last = history.last
    known = {one.name: uid for one, uid in zip(last.fields, last.ids, strict=True)}
    fresh = 1 + max((uid for version in history.versions for uid in version.ids), default=-1)
    ids: list[int] = []
    for one in schema.fields:
        uid = known.get(one.name)
        if uid is None:
            uid, fresh = fresh, fresh + 1
        ids.append(uid)
    version = Version(schema.value, schema.fields, tuple(ids), migrated or last.migrated)
    alike = version.ids == last.ids and digest(schema.fields) == digest(last.fields)
    if not migrated and (alike or not schema.by_position):
        return replace(history, versions=(*history.versions[:-1], version))
    if len(history.versions) >= MOST_VERSIONS:
        raise SchemaRefused(table, [f"it has changed {MOST_VERSIONS} times"], _ways_out(table))
    return replace(history, versions=(*history.versions, replace(version, migrated=migrated)))


def is_of_event_time(history: History, schema: Schema) -> bool:
    """Whether both belong to windows, to joins of two streams, or to batches of windows: a drain empties such a table."""
    return any(history.kind.startswith(one) and schema.kind.startswith(one) for one in OF_EVENT_TIME)


def _ways_out(table: str, *, migrate: bool = False, drained: bool = False) -> str:
    ways = [f"run the old code; when that is drained, give '{table}' another name so that it starts empty"]
    if drained:
        ways.insert(
            0,
            "drain the job with the old code: that closes what is open in it, and the new code starts with nothing open",
        )
    if migrate:
        ways.append("pass migrate=, a function that converts the old values")
    ways.append(f"`headgate tables clear JOB {table}` empties it, and it starts from scratch")
    return "; ".join([*ways, "`headgate reset JOB` deletes all state of the job"])


STATE_PARTS = "state:"
"""The parts of a fingerprint that describe the state. They may not change within a live run; a stopped run may be resumed with others."""


def state_parts(schemas: Mapping[str, Schema]) -> dict[str, str]:
    """The schemas of a job's tables as parts of its fingerprint, `state:<table>` → text. The order of fields and `of` do not matter.

    >>> state_parts({"n": Schema("aggregate", "text", "states", (Field("n", "count", of="x"),))})
    {'state:n': '{"keys": "text", "values": "states", "n": "count any"}'}
    """
    found: dict[str, str] = {}
    for name, schema in schemas.items():
        flat = {"keys": schema.key, "values": schema.value}
        if schema.kind.startswith(WINDOW):
            flat["windows"] = schema.kind.removeprefix(WINDOW)
        elif schema.kind.startswith(BATCHES_OF):
            flat["windows"] = schema.kind.removeprefix(BATCHES_OF)
        elif schema.kind.startswith(JOIN):
            flat["join"] = schema.kind.removeprefix(JOIN)
        flat |= {one.name: f"{one.kind} {one.type}" for one in sorted(schema.fields, key=lambda one: one.name)}
        text = json.dumps(flat)
        found[STATE_PARTS + name] = (
            text if len(text) <= MOST_TEXT else json.dumps({"digest": zlib.crc32(text.encode())})
        )
    return found


# ------------------------------------------------------------------------------------------------------------ its bytes


def pack_history(history: History) -> bytes:
    """The bytes of a history, as its row's value."""
    return _packb(
        {
            "v": VERSION,
            "kind": history.kind,
            "key": history.key,
            "rewritten": history.rewritten,
            "versions": [
                [
                    one.value,
                    one.migrated,
                    [
                        [uid, f.name, f.kind, f.type, f.of, f.required]
                        for uid, f in zip(one.ids, one.fields, strict=True)
                    ],
                ]
                for one in history.versions
            ],
        }
    )


def unpack_history(table: str, data: bytes) -> History:
    """The history from its row's value; raises `CheckpointError`."""
    try:
        found: Any = _unpackb(data)
        version = found["v"]
        if version > VERSION:
            raise CheckpointError(
                f"the schema of the table '{table}' has format version {version}; this headgate reads up to {VERSION}",
                remedy="run the version of headgate that wrote it, or a newer one",
            )
        versions = tuple(
            Version(
                value,
                tuple(Field(name, kind, type_, of, required) for _, name, kind, type_, of, required in fields),
                tuple(uid for uid, *_ in fields),
                migrated,
            )
            for value, migrated, fields in found["versions"]
        )
        if not versions:
            raise ValueError("no version")
        return History(found["kind"], found["key"], versions, found["rewritten"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CheckpointError(
            f"the schema of the table '{table}' cannot be read by format version {VERSION}",
            remedy="the task log is damaged or is not headgate's; restore it, or `headgate reset` the job",
        ) from error
