"""Messages of Protobuf as columns see them.

What it decides: which value a field has. Promises:

- A field that says whether it is there (a message, an `optional` field, one of a `oneof`, every single field of proto2) is None where it
  is not. Others have their defaults, as Protobuf has it.
- An enum is its number. A `Timestamp` is a datetime, to the microsecond, where a time is wanted; a wrapper, such as `Int64Value`, is its
  value where no object is wanted. A map has text as keys, in their order.

No library is needed: messages say themselves what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ....core.columns import logical as of
from ....core.columns.logical import Logical
from ....core.columns.schema import ColumnSchema
from .nesting import Nesting, nesting

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{one}Value"
    for one in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
"""Messages that are a value that may be missing."""
FIRST_SECOND, LAST_SECOND, NANOS = -62_135_596_800, 253_402_300_799, 1_000_000_000
MESSAGE_TYPES = (10, 11)
"""The numbers of the types that are messages: groups, too."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ReadAs = Mapping[str, Any] | Logical | None
"""What a field is read as: an object with these fields, a logical type, or what a plain column holds."""
Get = Callable[[Any], Any]


def is_message(kind: Any) -> bool:
    """Whether values of this class are messages."""
    return hasattr(kind, "DESCRIPTOR") and hasattr(kind, "FromString")


def message_values(values: Sequence[Any], schema: ColumnSchema) -> Sequence[Any]:
    """These values with dicts instead of messages: of the fields that are wanted."""
    kinds = {kind for kind in set(map(type, values)) if is_message(kind)}
    if not kinds:
        return values
    getters = {kind: _object_of(kind.DESCRIPTOR, schema) for kind in kinds}
    return [getters[type(one)](one) if type(one) in getters else one for one in values]


@lru_cache(maxsize=100)
def _object_of(descriptor: Any, schema: ColumnSchema) -> Get:
    return _object(descriptor, wanted_of(nesting(schema.columns), schema))


def wanted_of(of: Nesting, schema: ColumnSchema) -> dict[str, Any]:
    """What the fields of an object are read as, by their names."""
    return {
        name: schema.columns[one].logical if isinstance(one, int) else wanted_of(one, schema)
        for name, one in of.members.items()
    }


def field_reader(descriptor: Any, name: str, wanted: ReadAs) -> Get:
    """What reads a field of messages of this type."""
    field = descriptor.fields_by_name[name]
    read = attrgetter(name)
    if is_map(field):
        each = _single(field.message_type.fields_by_name["value"], _inside(wanted, of.MAP))
        return lambda message: {_key(key): each(one) for key, one in sorted(read(message).items())}
    if is_repeated(field):
        each = _single(field, _inside(wanted, of.LIST))
        return lambda message: [each(one) for one in read(message)]
    each = _single(field, wanted)
    if field.has_presence:
        return lambda message: each(read(message)) if message.HasField(name) else None
    return read


def _inside(wanted: ReadAs, name: str) -> ReadAs:
    """What the elements of a list or a map are read as."""
    return wanted.of[0] if isinstance(wanted, Logical) and wanted.name == name else None


def _object(descriptor: Any, wanted: Mapping[str, Any]) -> Get:
    getters = {
        name: field_reader(descriptor, name, one) for name, one in wanted.items() if name in descriptor.fields_by_name
    }
    return lambda message: {name: get(message) for name, get in getters.items()}


def _single(field: Any, wanted: ReadAs) -> Get:
    """What makes of a value of a field, which is there, what is wanted; as it is, if that is none."""
    if field.type not in MESSAGE_TYPES:
        return _same
    if isinstance(wanted, Logical) and wanted.name == of.OBJECT:
        wanted = dict(zip(wanted.fields, wanted.of, strict=True))
    if isinstance(wanted, Mapping):
        return _object(field.message_type, wanted)
    name = field.message_type.full_name
    if name == TIMESTAMP and wanted is not None and wanted.name == of.TIMESTAMP:
        return _time
    return attrgetter("value") if name in WRAPPERS else _same


def _same(value: Any) -> Any:
    return value


def _time(value: Any) -> Any:
    """A point in time; the message itself, which is none, if it is outside of all years."""
    seconds, nanos = value.seconds, value.nanos
    if not (FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos < NANOS):
        return value
    return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)


def _key(key: Any) -> str:
    """A key of a map as text, as Protobuf's JSON has it."""
    return key if isinstance(key, str) else str(key).lower()


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.type == 11 and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list, or a map. Older libraries have only a number for it, and newer ones only a name."""
    found = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if found is None else bool(found)
