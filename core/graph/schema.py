"""The schema of a table's values: what rows were written under, what the code declares now, and how the one becomes the other.

A table has a *history*: every schema that its rows were ever written under, each with its number. A row carries the number of its
schema, so a change of the code rewrites nothing: a row is read as what it was written as. The history stands in the task's log.

What it decides: which change of a declaration keeps the state. What it promises:

- Fields are compared by name, and their order means nothing. A field that comes begins with its initial value; one that goes is gone,
  also where a later version has one of this name again: each has a number for life.
- What does not fit (another kind or type of a field, another format of the value) is refused, unless a migration function makes the
  new rows of the old ones. Other keys, or a table of another kind, are always refused.
- While rows may remain that only a migration function can read, the code must have one, and no other migration begins.
- Equal histories have equal bytes; what was packed comes back.
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
"""The table of the task's log that holds the history of each table, by its name."""
MOST_VERSIONS = 65_536
"""A row says its schema in two bytes."""
WINDOW = "window "
"""Begins the kind of a window's table; what follows says which windows they are."""
ANY = "any"
MOST_TEXT = 1000

_library = cast("Any", msgpack)
_packb: Callable[..., bytes] = _library.packb
_unpackb: Callable[..., Any] = _library.unpackb


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a value. `kind`: how it comes about (`count`, `sum` …); `of`: of what, as far as it can be named.

    `required`: a row that lacks it cannot be read, for there is no initial value.
    """

    name: str
    kind: str = ""
    type: str = ANY
    of: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """What the code declares of one table."""

    kind: str
    """Whose it is: `aggregate`, `table`, `timers`, `batches`."""
    key: str
    """The format of the keys."""
    value: str
    """The format of the values."""
    fields: tuple[Field, ...] = ()
    """What is known of the fields; () for values of no declared shape."""
    by_position: bool = False
    """Whether a value is the list of its fields; else fields stand in it by name, or are nobody's business."""


@dataclass(frozen=True, slots=True)
class Version:
    """One schema that rows were written under. `ids`: of its fields, for life."""

    value: str
    fields: tuple[Field, ...] = ()
    ids: tuple[int, ...] = ()
    migrated: bool = False
    """Only a function of the user's makes rows of this version from those of the versions before it."""


@dataclass(frozen=True, slots=True)
class History:
    """The schemas of a table, the newest last; a version's number is its place."""

    kind: str
    key: str
    versions: tuple[Version, ...]
    rewritten: int = 0
    """No row is left of a version below this number."""

    @property
    def number(self) -> int:
        """Of the version that rows are written under now."""
        return len(self.versions) - 1

    @property
    def last(self) -> Version:
        """The version that rows are written under now."""
        return self.versions[-1]

    def needs_function(self, number: int) -> bool:
        """Whether rows of this version can be read only through the user's migration function."""
        return any(version.migrated for version in self.versions[number + 1 :])

    @property
    def migrating(self) -> bool:
        """Whether such rows may remain."""
        return self.needs_function(self.rewritten)

    def finished(self) -> History:
        """Every row was written again: all are of the last version."""
        return replace(self, rewritten=self.number)

    def places(self, number: int) -> tuple[int | None, ...]:
        """For each field of the last version its place in a row of that version; None where it begins with its initial value."""
        at = {uid: place for place, uid in enumerate(self.versions[number].ids)}
        return tuple(at.get(uid) for uid in self.last.ids)

    def find(self, digested: int) -> int | None:
        """The newest version with this digest; None if there was none."""
        found = (number for number in reversed(range(len(self.versions))))
        return next((number for number in found if digest(self.versions[number].fields) == digested), None)


class Adopted(NamedTuple):
    """The history with what the code declares as its last version, and what is new in that, for people."""

    history: History
    news: tuple[str, ...] = ()


class SchemaRefused(DeclarationError):
    """The code declares a table that does not fit what is stored. `differences` in lines."""

    def __init__(self, table: str, differences: Sequence[str], remedy: str) -> None:
        self.differences = tuple(differences)
        super().__init__(
            f"the table '{table}' does not fit what is stored in it: {'; '.join(differences)}", remedy=remedy
        )


def digest(fields: Sequence[Field]) -> int:
    """A number that tells two lists of fields apart, by name, kind, type and order.

    >>> digest((Field("n", "count"),)) == digest((Field("n", "count", of="x"),)) != digest((Field("n", "sum"),))
    True
    """
    return zlib.crc32(_packb([[one.name, one.kind, one.type] for one in fields]))


def adopt(table: str, history: History | None, schema: Schema, *, migrates: bool = False) -> Adopted:
    """Compare by name what is stored with what is declared. Raises `SchemaRefused`.

    >>> old = adopt("t", None, Schema("aggregate", "text", "states", (Field("n", "count"),), by_position=True)).history
    >>> adopt("t", old, Schema("aggregate", "text", "states", (Field("x", "sum"), Field("n", "count")), by_position=True)).news
    ("'x' is new and starts with its initial value",)
    """
    if history is None:
        ids = tuple(range(len(schema.fields)))
        return Adopted(History(schema.kind, schema.key, (Version(schema.value, schema.fields, ids),)))
    foreign = _foreign(history, schema)
    if foreign:
        windows = history.kind != schema.kind and is_of_windows(history, schema)
        raise SchemaRefused(table, foreign, _ways_out(table, windows=windows))
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
    """What no function can mend."""
    found: list[str] = []
    if history.kind != schema.kind:
        found.append(f"it belongs to {_article(history.kind)}, not to {_article(schema.kind)}")
    if history.key != schema.key:
        found.append(f"its keys are {history.key}, and are to be {schema.key}")
    return found


def _article(kind: str) -> str:
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def _misfits(last: Version, schema: Schema) -> list[str]:
    found: list[str] = []
    if last.value != schema.value:
        found.append(f"its values are {last.value}, and are to be {schema.value}")
        return found
    before = {one.name: one for one in last.fields}
    for one in schema.fields:
        was = before.get(one.name)
        if was is None:
            if one.required and last.fields:
                found.append(f"'{one.name}' is new and has no default, so stored rows cannot be read")
        elif was.kind != one.kind:
            found.append(f"'{one.name}' was {was.kind}, and is to be {one.kind}")
        elif not _fits(was.type, one.type):
            found.append(f"'{one.name}' was of type {was.type}, and is to be of type {one.type}")
        elif one.required and not was.required:
            found.append(f"'{one.name}' no longer has a default, so stored rows may lack it")
    return found


def _fits(was: str, now: str) -> bool:
    """Whether each value of the one type is one of the other.

    >>> _fits("int", "float | none"), _fits("int | none", "int")
    (True, False)
    """
    if was == now or now == ANY:
        return True
    takes = set(now.split(" | "))
    return all(one in takes or (one == "int" and "float" in takes) for one in was.split(" | "))


def _news(last: Version, schema: Schema) -> list[str]:
    """What is to be said and does not keep anybody from starting."""
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
    """With the declared schema as the last version: in the place of the one before it, if rows of both look the same."""
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


def is_of_windows(history: History, schema: Schema) -> bool:
    """Whether both are of windows."""
    return history.kind.startswith(WINDOW) and schema.kind.startswith(WINDOW)


def _ways_out(table: str, *, migrate: bool = False, windows: bool = False) -> str:
    ways = [f"run the old code, or give '{table}' another name so that it starts empty"]
    if windows:
        ways.insert(0, "drain the job with the old code: that closes its open windows, and other windows can begin")
    if migrate:
        ways.append("pass migrate=, a function that converts the old values")
    ways.append(f"`headgate tables clear JOB {table}` empties it, and it starts from scratch")
    return "; ".join([*ways, "`headgate reset JOB` deletes all state of the job"])


STATE_PARTS = "state:"
"""Parts of a fingerprint that say what is kept. They may not differ within a live run; a stopped one may be resumed with others."""


def state_parts(schemas: Mapping[str, Schema]) -> dict[str, str]:
    """The schemas of a job's tables as parts of its fingerprint, `state:<table>` → text. Order means nothing, nor does of what.

    >>> state_parts({"n": Schema("aggregate", "text", "states", (Field("n", "count", of="x"),))})
    {'state:n': '{"keys": "text", "values": "states", "n": "count any"}'}
    """
    found: dict[str, str] = {}
    for name, schema in schemas.items():
        flat = {"keys": schema.key, "values": schema.value}
        if schema.kind.startswith(WINDOW):
            flat["windows"] = schema.kind.removeprefix(WINDOW)
        flat |= {one.name: f"{one.kind} {one.type}" for one in sorted(schema.fields, key=lambda one: one.name)}
        text = json.dumps(flat)
        found[STATE_PARTS + name] = (
            text if len(text) <= MOST_TEXT else json.dumps({"digest": zlib.crc32(text.encode())})
        )
    return found


# ------------------------------------------------------------------------------------------------------------ its bytes


def pack_history(history: History) -> bytes:
    """The value of its row."""
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
    """Back from the row; raises `CheckpointError`."""
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
