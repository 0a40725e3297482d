"""The schema of each table as the code declares it, and how rows of earlier schemas are read.

What it decides: which parts of a declaration are compared when the code has changed (`core.graph.schema` compares them). For an aggregate
these are the name and kind of each field, and the type of the initial state of a custom one. For a table they are the format of its
values and, if they have a declared type, the fields of that type. Functions cannot be compared, so they are not.

Promises: rows of earlier schemas are read without being rewritten. A migration function gets the field names of the old value and the
value itself. It may be called again for the same row until the migrated row is stored. If it raises, the error names the table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ....core.errors import DataError
from ....core.graph.schema import BATCHES_OF, JOIN, WINDOW, WITH_ROWS, Field, History, Schema, adopt
from ....core.task.stored.checkpoint import log_head
from ....core.windows.slots import SlotKey, pack_slot, unpack_slot
from ...cancellation import passes, said
from ...records.values import serdes
from ...records.values.serdes import Serde
from .sketches import REGISTERS

if TYPE_CHECKING:
    from .aggregates import Aggregate, AggregatePlan

Migrate = Callable[[tuple[str, ...], Any], Any]
"""`(names of the old fields, the old value) -> the new value`; for an aggregate, both values are mappings of name to state."""

AGGREGATE, TABLE, TIMERS, BATCHES = "aggregate", "table", "timers", "batch step"
CLOSED = "hg.closed"
"""Internal table of one run: the closed streams, the steps that were flushed or have stopped, the timers that wait for the next run."""
PARKED = "hg.parked"
"""Internal table: the parked records of a task, by numbers in the order in which they were parked."""
NOT_TEXT = "hg.keys"
"""Internal table: the inputs with `key="field"` and no `key_serde=` in which that field was something else than text."""
STATES = "states"
"""The format of an aggregate's value: the list of its states."""
ROWS_OF = "rows of "
"""The prefix of the format of a window that keeps rows; the rest is the name of their serde."""


STORED: Serde[Any] = serdes.stored()
"""What headgate itself keeps in a table."""
SLOT_KEY: Serde[SlotKey] = Serde("slots", pack_slot, unpack_slot)
"""The keys of a window's table."""


class TableSpec(NamedTuple):
    """A table of a task: its name, the serdes of its keys and values, how long rows live, and the schema of its values."""

    name: str
    key: Serde[Any]
    value: Serde[Any]
    schema: Schema
    ttl_ms: int | None = None
    migrate: Migrate | None = None
    plan: AggregatePlan | None = None
    """For an aggregate or a window: its compiled aggregates."""
    blocks: bool = False
    """For a window: a row holds the states of several keys."""
    keys: Serde[Any] | None = None
    """For a window or a join, whose rows stand in slots: the serde of the keys in a slot."""


# ------------------------------------------------------------------------------------------------------- what is declared


def schema_of_aggregate(plan: AggregatePlan, key: Serde[Any]) -> Schema:
    """The schema of the table of an aggregate's states."""
    return Schema(AGGREGATE, key.name, STATES, plan.fields, by_position=True)


def schema_of_window(window: str, plan: AggregatePlan, key: Serde[Any]) -> Schema:
    """The schema of the table of a window's states.

    Windows of another kind or length need another table, because the same end would stand for other rows.
    """
    return Schema(WINDOW + window, key.name, STATES, plan.fields, by_position=True)


def schema_of_rows(window: str, key: Serde[Any], rows: Serde[Any]) -> Schema:
    """The schema of the table of a window that keeps rows."""
    return Schema(WINDOW + window + WITH_ROWS, key.name, ROWS_OF + rows.name)


def schema_of_join(join: str, key: Serde[Any], rows: Sequence[str]) -> Schema:
    """The schema of the table of a join of two streams. `rows`: how those of each side are kept."""
    return Schema(JOIN + join, key.name, ROWS_OF + " and ".join(rows))


def schema_of_table(key: Serde[Any], value: Serde[Any]) -> Schema:
    """The schema of a table that holds the user's values."""
    return Schema(TABLE, key.name, _format(value), _fields(value.type) if _is_typed(value) else ())


def schema_of_batches(format: str, window: str) -> Schema:
    """The schema of the table of a batch step. `window`: its windows, if it has any; other windows need another table."""
    return schema_of_own(f"{BATCHES_OF}{window}" if window else BATCHES, format)


def schema_of_own(kind: str, format: str) -> Schema:
    """The schema of a table that headgate keeps for a step."""
    return Schema(kind, "msgpack", format)


def _is_typed(serde: Serde[Any]) -> bool:
    return serde.type is not None and serde.name.partition("(")[0] in ("json", "msgpack") and serde.name.endswith(")")


def _format(serde: Serde[Any]) -> str:
    """The format of the bytes. A type changes how they are read, not what they are, unless its fields are identified by position."""
    if not _is_typed(serde):
        return serde.name
    base = serde.name.partition("(")[0]
    return f"{base} arrays of {serde.name}" if _by_place(serde.type) else base


def _by_place(kind: Any) -> bool:
    return bool(getattr(getattr(kind, "__struct_config__", None), "array_like", False))


def _fields(kind: Any) -> tuple[Field, ...]:
    library: Any = importlib.import_module("msgspec.inspect")
    found: Any = library.type_info(kind)
    return tuple(
        Field(one.encode_name, "field", _words(one.type, ()), required=one.required)
        for one in getattr(found, "fields", ())
    )


def _words(type_: Any, seen: tuple[Any, ...]) -> str:
    """A type as text that stays the same as long as the type does. `seen`: the classes that contain it."""
    kind = type(type_).__name__.removesuffix("Type").lower()
    cls = getattr(type_, "cls", None)
    if cls is not None and cls in seen:
        return cls.__qualname__
    inner = (*seen, cls) if cls is not None else seen
    if kind == "union":
        return (" | " if not seen else "/").join(sorted(_words(one, (*seen, None)) for one in type_.types))
    if fields := getattr(type_, "fields", None):
        return (
            "{"
            + ", ".join(f"{f.encode_name}{'' if f.required else '?'}: {_words(f.type, inner)}" for f in fields)
            + "}"
        )
    if kind == "literal":
        return f"literal{sorted(map(repr, type_.values))}"
    if cls is not None:
        return f"{kind} {cls.__qualname__}"
    parts = [getattr(type_, name, None) for name in ("key_type", "value_type", "item_type")]
    parts += list(getattr(type_, "item_types", ()))
    words = [_words(one, inner or (None,)) for one in parts if one is not None]
    return f"{kind}[{', '.join(words)}]" if words else kind


# ----------------------------------------------------------------------------------------------- rows of earlier schemas


class Layout:
    """How the values of one table are written now, and how values of earlier schemas are read."""

    def __init__(self, spec: TableSpec, history: History) -> None:
        self.spec = spec
        self.history = history
        self.number = history.number
        self.head = log_head(None, history.number)
        """The prefix of the bytes of a value without an expiry."""

    def read(self, number: int, body: bytes) -> Any:
        """Convert the value of a row of an earlier schema to the present one."""
        if number > self.number:
            raise DataError(
                f"table {self.spec.name}: a row was written under schema {number}, and {self.number} is the newest known",
                remedy="the task log is damaged, or a newer run has written it",
            )
        if self.spec.blocks:
            return self._block(number, body)
        if self.history.needs_function(number):
            return self._migrated(number, _reader(self.history.versions[number].value, self.spec.value)(body))
        if self.spec.plan is None:
            return self.spec.value.loads(body)
        return self.adapt(number, self.spec.value.loads(body))

    def _block(self, number: int, body: bytes) -> Any:
        """Convert a block of keys with their states, or a session with its states. Other rows of a window's table have no schema that could
        change."""
        stored = self.spec.value.loads(body)
        if not isinstance(stored, list):
            return stored
        *head, states = stored
        one = self._migrated if self.history.needs_function(number) else self.adapt
        in_block = isinstance(head[-1], list)
        return [*head, [one(number, state) for state in states] if in_block else one(number, states)]

    def adapt(self, number: int, states: Sequence[Any]) -> list[Any]:
        """Reorder states from the positions of an earlier schema to those of the present one; a new field gets its initial state."""
        assert self.spec.plan is not None
        made = self.spec.plan.start()
        for place, source in enumerate(self.history.places(number)):
            if source is not None:
                made[place] = states[source]
        return made

    def of_partials(self, digested: int | None) -> int:
        """The schema of partial states with this digest, which were in flight when the code was changed."""
        found = None if digested is None else self.history.find(digested)
        if found is None or self.history.needs_function(found):
            raise DataError(
                f"aggregate '{self.spec.name}': partial aggregates of old code are in flight, and do not fit this code",
                remedy="run the old code again, drain the job, and only then change it",
            )
        return found

    def _migrated(self, number: int, stored: Any) -> Any:
        version, plan = self.history.versions[number], self.spec.plan
        names = tuple(field.name for field in version.fields)
        old = dict(zip(names, stored, strict=True)) if plan is not None else stored
        migrate = self.spec.migrate
        assert migrate is not None
        try:
            new = migrate(names, old)
            return new if plan is None else _by_name(plan, new)
        except BaseException as error:
            if passes(error):
                raise
            raise DataError(
                f"table {self.spec.name}: migrate() raised {said(error)} for {old!r:.200}",
                remedy="correct the function; it gets the names of the old fields and the old value",
            ) from error


def _by_name(plan: AggregatePlan, new: Any) -> list[Any]:
    if not isinstance(new, Mapping):
        raise TypeError(f"it returned {new!r:.80}, not a mapping of names to states")
    unknown = [name for name in new if name not in plan.names]
    if unknown:
        raise ValueError(f"it returned '{unknown[0]}', but the aggregate has {', '.join(plan.names)}")
    states = plan.start()
    for place, name in enumerate(plan.names):
        if name in new:
            states[place] = _state(plan.parts[place], name, new[name])
    return states


def _state(part: Aggregate, name: str, state: Any) -> Any:
    """Check that the aggregate can continue with this state: nothing checks it again before rows are added to it."""
    fits, needed = FORMS.get(part.form or part.name, (None, ""))
    if fits is not None and not fits(state):
        raise TypeError(f"it returned {state!r:.80} for '{name}', which is {part.name} and needs {needed}")
    wanted = NUMBERS.get(part.name)
    if wanted is None or type(state) in (int, float) or (part.name in ("min", "max") and isinstance(state, str | None)):
        return state
    if (
        part.name == "mean"
        and isinstance(state, list | tuple)
        and [type(one) in (int, float) for one in state] == [True, True]
    ):
        return state
    raise TypeError(f"it returned {state!r:.80} for '{name}', which is {part.name} and needs {wanted}")


def _is_list(state: Any, *lengths: int) -> bool:
    return isinstance(state, list | tuple) and (not lengths or len(cast("Sequence[Any]", state)) in lengths)


def _are_marks(state: Any) -> bool:
    return (isinstance(state, list) and set(map(type, cast("list[Any]", state))) <= {bytes}) or (
        isinstance(state, bytes) and len(state) == REGISTERS
    )


def _are_buckets(state: Any) -> bool:
    if not isinstance(state, list | tuple) or [type(one) for one in cast("list[Any]", state)] != [list, list]:
        return False
    return {type(one) for part in state for one in part} <= {int} and len(state[0]) == len(state[1])


FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "first": (lambda state: _is_list(state, 0, 1), "a list with its value, or an empty one"),
    "last where": (lambda state: _is_list(state, 0, 1), "a list with its value, or an empty one"),
    "collect": (lambda state: isinstance(state, list), "a list"),
    **dict.fromkeys(
        ("arg_max", "arg_min"),
        (lambda state: _is_list(state, 0, 2), "a list of what rows are ranked by and the value, or an empty one"),
    ),
    "top": (
        lambda state: _is_list(state) and all(_is_list(one, 2) for one in state),
        "a list of pairs, each of what rows are ranked by and the value",
    ),
    "count_distinct": (_are_marks, "a state of this aggregate as it was, or an empty list"),
    "quantile": (_are_buckets, "a state of this aggregate as it was, or a list of two empty ones"),
}
"""What states that are no numbers must be, so that adding to them cannot fail."""
NUMBERS = {
    "count": "a number",
    "sum": "a number",
    "min": "a number",
    "max": "a number",
    "mean": "a pair of count and sum",
}


def _reader(format: str, present: Serde[Any]) -> Callable[[bytes], Any]:
    """The function that reads values of a format without their type; `bytes` where only the earlier code could read them."""
    if format == STATES or format.startswith("msgpack"):
        return serdes.stored().loads
    if format.startswith("json"):
        return serdes.json().loads
    if format == "text":
        return serdes.text().loads
    return present.loads if format == present.name else bytes


def layout_of(spec: TableSpec, history: History | None = None) -> tuple[Layout, tuple[str, ...]]:
    """How a table's values are written and read, given the history in its task's log; and the changes, as text for people."""
    adopted = adopt(spec.name, history, spec.schema, migrates=spec.migrate is not None)
    return Layout(spec, adopted.history), adopted.news
