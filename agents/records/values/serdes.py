"""Serdes: convert bytes to values and back, a chunk at a time.

    hg.json()  hg.json(Order)  hg.msgpack()  hg.text()  hg.raw()  hg.key()  hg.arrow()  hg.custom(loads, dumps, name="…")

What it decides: what is bad data. Promises:

- `loads_many` and `dumps_many` never raise for a bad record: they report its index and the reason, and convert the others.
- None stays None in both directions (Kafka's tombstone); a custom serde never sees it.
- A typed serde (`json(Order)` for a dataclass, TypedDict, msgspec Struct or `pyarrow.Schema`) checks what it reads against the type.
- `name` identifies the format of the bytes, and is part of the job's fingerprint.
"""

from __future__ import annotations

import dataclasses
import importlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache, partial
from operator import attrgetter
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, get_origin, is_typeddict, overload

import msgpack as _msgpack
import orjson

from ....core.columns.schema import ColumnSchema
from ....core.errors import DataError, DeclarationError
from ...cancellation import passes
from . import keys
from .column_types import is_arrow_schema, type_of_arrow
from .record import Headers
from .typed_json import TypedJson, struct_of
from .typed_msgpack import TypedMsgpack

T = TypeVar("T")
_SHOWN = 80
_NONE = type(None)


@dataclass(slots=True)
class Decoded(Generic[T]):
    """The values in order, with None for null and for bad records; `bad` lists the bad ones with the reason."""

    values: list[T | None]
    bad: list[tuple[int, DataError]] = field(default_factory=list)


@dataclass(slots=True)
class Encoded:
    """The bytes in order, with None for None and for bad values; `bad` lists the bad ones with the reason."""

    values: list[bytes | None]
    bad: list[tuple[int, DataError]] = field(default_factory=list)


def _of(error: BaseException, refusal: DataError) -> DataError:
    """The error of a value. What Python code below this file raised, mostly the user's, stays as its cause, for the line that raised it."""
    below = None if error.__traceback__ is None else error.__traceback__.tb_next
    if below is not None:
        refusal.__cause__ = error.with_traceback(below)
    return refusal


def _excerpt(what: object) -> str:
    try:
        text = repr(what)
    except Exception:  # noqa: BLE001 - a value whose repr() fails is refused like any other
        text = f"a {type(what).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


class Serde(Generic[T]):
    """Converts values of one kind to bytes and back.

    >>> json().loads_many([b"1", b"{", None]).values
    [1, None, None]
    """

    __slots__ = ("_decode", "_decode_many", "_encode", "_encode_many", "name", "type")

    asks: ClassVar[bool] = False
    """Whether it must learn schemas from a registry (see `agents.registry`): it reads inputs and writes outputs, and nothing in between."""
    own_headers: ClassVar[frozenset[str]] = frozenset()
    """The headers in which records may say how they are read. They are true of these bytes alone, so they are not passed on."""

    def __init__(
        self,
        name: str,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
        kind: Any = None,
        decode_many: Callable[[Sequence[bytes | None]], list[T]] | None = None,
        encode_many: Callable[[Sequence[T], set[type]], list[bytes]] | None = None,
    ) -> None:
        self.name = name
        self.type = kind
        self._encode = encode
        self._decode = decode
        self._decode_many = decode_many
        self._encode_many = encode_many

    def loads(self, data: bytes) -> T:
        """Decode one value; raises `DataError`."""
        try:
            return self._decode(data)
        except BaseException as error:
            if passes(error):
                raise
            raise self._unreadable(data, error) from error

    def dumps(self, value: T) -> bytes:
        """Encode one value; raises `DataError`."""
        try:
            return self._encode(value)
        except BaseException as error:
            if passes(error):
                raise
            raise self._unwritable(value, error) from error

    def at(self, topic: str, part: str) -> Serde[T]:
        """The serde as it writes the values (`part`: `"value"`) or the keys (`"key"`) of a topic."""
        return self

    def with_headers(
        self, data: Sequence[bytes | None], headers: Sequence[Headers], part: str
    ) -> Sequence[bytes | None]:
        """The values or keys of records, with what `own_headers` say of them in front."""
        return data

    reads_columns: ClassVar[bool] = False
    """Whether there is a `column_reader`, though the bytes are no JSON."""

    def column_reader(self, schema: ColumnSchema) -> Any:
        """What decodes records into these columns, as `Decoder` does for JSON; and says `why(bad, data)` a record is bad."""
        return None

    def know(self) -> None:
        """Raise `MustLearn` as long as something must be asked before it can write."""

    @property
    def header_name(self) -> str:
        """The header that says how the values or keys are read that it writes to a topic; empty if its bytes say it all. Only it writes
        that header."""
        return ""

    def header(self) -> bytes | None:
        """What it writes into that header; None if its bytes say it. Raises `MustLearn`, if that is not known."""
        return None

    def column_writer(self) -> Any:
        """What encodes columns, though the bytes are no JSON: `encode(batch, schema, rows)`. None if rows must be made of them."""
        return None

    def lacking(self, schema: ColumnSchema) -> str | None:
        """A field that its records must have and that is none of these columns; None if there is none, or that is not known yet."""
        return None

    @property
    def within(self) -> Serde[T]:
        """The serde with which its values go through the job's own streams and tables."""
        return self

    def loads_many(self, data: Sequence[bytes | None]) -> Decoded[T]:
        """Decode a column; values that cannot be decoded are reported in `bad`, the others are returned."""
        decode, decode_many = self._decode, self._decode_many
        try:
            if decode_many is not None:
                return Decoded(decode_many(data))  # pyright: ignore[reportArgumentType] - all of them could be decoded
            return Decoded([decode(one) for one in data])  # pyright: ignore[reportArgumentType] - None raises, and is handled below
        except BaseException:  # noqa: BLE001 - decode them one by one instead
            return self._slowly(data)

    def _slowly(self, data: Sequence[bytes | None]) -> Decoded[T]:
        out: Decoded[T] = Decoded([])
        for index, one in enumerate(data):
            value: T | None = None
            if one is not None:
                try:
                    value = self._decode(one)
                except BaseException as error:  # whatever it is, only this record is bad
                    if passes(error):
                        raise
                    out.bad.append((index, self._unreadable(one, error)))
            out.values.append(value)
        return out

    def dumps_many(self, values: Sequence[T | None]) -> Encoded:
        """Encode a column; values that cannot be encoded are reported in `bad`."""
        kinds = set(map(type, values))
        if _NONE not in kinds:  # compare types: a value's own == may do anything
            encode, encode_many = self._encode, self._encode_many
            try:
                if encode_many is not None:
                    return Encoded(encode_many(values, kinds))  # pyright: ignore[reportArgumentType] - no None is here
                return Encoded([encode(one) for one in values])  # pyright: ignore[reportArgumentType] - no None is here
            except BaseException:  # noqa: BLE001, S110 - encode them one by one instead
                pass
        out = Encoded([])
        for index, one in enumerate(values):
            data: bytes | None = None
            if one is not None:
                try:
                    data = self._encode(one)
                except BaseException as error:  # whatever it is, only this value is bad
                    if passes(error):
                        raise
                    out.bad.append((index, self._unwritable(one, error)))
            out.values.append(data)
        return out

    def _unreadable(self, data: object, error: BaseException) -> DataError:
        if isinstance(error, DataError):
            return error
        remedy = "see on_bad_data=, or give the input another serde="
        return _of(error, DataError(f"not {self.name}: {error} in {_excerpt(data)}", remedy=remedy))

    def _unwritable(self, value: object, error: BaseException) -> DataError:
        if isinstance(error, DataError):
            return error
        remedy = "give the step another serde="
        if _is_wide(value):
            remedy = "whole numbers of more than 64 bits have to become float(…) or str(…) before"
        return _of(error, DataError(f"cannot be encoded as {self.name}: {error} ({_excerpt(value)})", remedy=remedy))

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Serde) and (self.name, self.type) == (other.name, other.type)

    def __hash__(self) -> int:
        return hash((self.name, str(self.type)))


def dumps_made(serde: Serde[T], made: Callable[[], Iterable[T]]) -> Encoded:
    """As `dumps_many`, of values that are made one by one, none of which is None: one that lives no longer than its encoding costs half as
    much.
    """
    encode = serde._encode
    try:
        return Encoded([encode(one) for one in made()])
    except BaseException:  # noqa: BLE001 - encode them one by one instead
        return serde.dumps_many(list(made()))


_MARK = (1 << 29) + secrets.randbits(29)
"""Separates the values of a chunk that is parsed by one call. The number is random, so that no record can contain it on purpose."""
_BETWEEN = b",%d," % _MARK


_TOGETHER = 128
"""How many values one call parses: enough that the call's overhead does not matter, and few enough for the CPU cache."""


def _json_values(data: Sequence[bytes | None]) -> list[Any]:
    """Parse all values of a chunk in few calls, a quarter faster than one by one; raises if any of them is not one JSON value.

    A record with two values, or with half of one, shifts the separators, which is noticed.
    """
    values: list[Any] = []
    for start in range(0, len(data), _TOGETHER):
        part = data[start : start + _TOGETHER]
        found: list[Any] = orjson.loads(b"[%b]" % _BETWEEN.join(part))  # pyright: ignore[reportArgumentType] - None raises
        marks = len(part) - 1
        if len(found) != 2 * marks + 1 or found[1::2].count(_MARK) != marks:
            raise ValueError("not one JSON value in each record")
        values += found[::2]
    return values


@cache
def _encoder_of(kind: type) -> Callable[[Any], bytes] | None:
    """The JSON encoder of a Struct, or of a dataclass that orjson would not write in full; None for all other types."""
    if hasattr(kind, "__struct_fields__"):
        return importlib.import_module("msgspec").json.Encoder().encode
    if not dataclasses.is_dataclass(kind) or "__slots__" in vars(kind):
        return None
    fields = [one.name for one in dataclasses.fields(kind) if not one.name.startswith("_")]
    if len(fields) < 2 or not any(hasattr(kind, name) for name in fields):
        return None
    # msgspec leaves a missing field that has a default to the class, where orjson does not look
    values = attrgetter(*fields)

    def encode(value: Any) -> bytes:
        return bytes(memoryview(orjson.dumps(dict(zip(fields, values(value), strict=True)), default=_json_part)))

    return encode


def _json_of(value: Any) -> bytes:
    """One value in JSON."""
    encode = _encoder_of(type(value))
    return bytes(memoryview(orjson.dumps(value, default=_json_part))) if encode is None else encode(value)


def _json_part(value: Any) -> Any:
    """A part of a value that orjson does not know: a Struct, a named tuple, a Decimal or bytes, as typed rows and columns write them."""
    if isinstance(value, tuple):  # as a key, a named tuple is a tuple, too
        return tuple(cast("tuple[Any, ...]", value))
    if isinstance(value, Decimal | bytes):
        return orjson.Fragment(importlib.import_module("msgspec").json.encode(value))
    encode = _encoder_of(type(value))
    if encode is None:
        raise TypeError(f"Type is not JSON serializable: {type(value).__name__}")
    return orjson.Fragment(encode(value))


def _json_column(values: Sequence[Any], kinds: set[type]) -> list[bytes]:
    """A column of values in JSON; raises if one cannot be encoded, or contains a Struct."""
    own = [_encoder_of(kind) for kind in kinds]
    if not any(own):
        return _cut_to_size([orjson.dumps(value) for value in values])
    encode = own[0] if len(own) == 1 else None
    return list(map(encode or _json_of, values))


def _cut_to_size(column: list[bytes]) -> list[bytes]:
    """The same bytes without the room behind them: orjson leaves each in the buffer of 1 to 4 KiB that it wrote to, and rows of joins,
    batches and tables are kept. JSON has no line breaks of its own; those of a user's `orjson.Fragment` are noticed."""
    found = b"\n".join(column).split(b"\n")
    return found if len(found) == len(column) else [bytes(memoryview(one)) for one in column]


def _typed_name(base: str, kind: Any) -> str:
    return f"{base}({getattr(kind, '__qualname__', kind)})"


class ArrowSchema(Protocol):
    """A `pyarrow.Schema`."""

    @property
    def names(self) -> list[str]: ...
    @property
    def types(self) -> list[Any]: ...


@overload
def json() -> Serde[Any]: ...
@overload
def json(kind: type[T]) -> Serde[T]: ...
@overload
def json(kind: ArrowSchema) -> Serde[dict[str, Any]]: ...
def json(kind: Any = None) -> Serde[Any]:
    """JSON through orjson. With a dataclass, TypedDict, msgspec Struct or `pyarrow.Schema`, values are decoded into that type and checked.

    Fields that the type does not have are skipped. A field that may be None may be missing; any other field without a default must be
    there and of its type: text is no number, and 1.5 is no whole number. Whole numbers have at most 64 bits.

    Without a type, dataclasses and Structs are written, too. A Struct is the fastest type to read and to write; declared with `gc=False`,
    its values cost the cycle collector nothing.

    >>> json().dumps({"a": 1})
    b'{"a":1}'
    """
    if kind is None:
        return Serde("json", _json_of, orjson.loads, None, _json_values, _json_column)
    if is_arrow_schema(kind):
        kind = type_of_arrow(kind)
    if not isinstance(kind, type) and not is_typeddict(kind):
        raise DeclarationError(
            f"json() takes a class, not {kind!r}", remedy="a dataclass, TypedDict, msgspec Struct or pyarrow.Schema"
        )
    library: Any = importlib.import_module("msgspec")
    typed = TypedJson(library, kind)
    return Serde(_typed_name("json", kind), _json_of, typed.one, kind, typed.many, _json_column)


def named_only(serde: Serde[Any], names: frozenset[str]) -> Serde[Any] | None:
    """A serde of the same JSON that decodes only these fields of its type; None if the type has rules of its own, or no such field.

    Its values are Structs that the cycle collector does not see, whatever the type is.
    """
    if serde.type is None or not is_json(serde):
        return None
    library: Any = importlib.import_module("msgspec")
    kind = struct_of(library, serde.type, names)
    if kind is None:
        return None
    typed = TypedJson(library, kind)
    return Serde(serde.name, _json_of, typed.one, kind, typed.many, _json_column)


def for_outputs(serde: Serde[Any]) -> Serde[Any]:
    """The serde as an output topic is written with it: in JSON, whole numbers have any size.

    What the job itself reads again is not written so, because whole numbers of more than 64 bits are read as floats.

    >>> for_outputs(json()).dumps({"total": 2**70})
    b'{"total":1180591620717411303424}'
    """
    if not is_json(serde):
        return serde
    return Serde(serde.name, _exact_json_of, serde.loads, serde.type, None, _json_column)


def _exact_json_of(value: Any) -> bytes:
    try:
        return _json_of(value)
    except TypeError:
        return _json_of(_spelled(value))


def _is_wide(value: Any) -> bool:
    """Whether it is, or a field of it is, a whole number that 64 bits cannot hold."""
    if type(value) is dict:
        fields: dict[Any, Any] = value
        return any(map(_is_wide, fields.values()))
    return type(value) is int and not -(2**63) <= value < 2**64


def _spelled(value: Any) -> Any:
    """The same with the digits of whole numbers that orjson refuses."""
    if type(value) is int and _is_wide(value):
        return orjson.Fragment(str(value))
    if type(value) is dict:
        fields: dict[Any, Any] = value
        return {name: _spelled(one) for name, one in fields.items()}
    if type(value) in (list, tuple):
        parts: Any = value
        return [_spelled(one) for one in parts]
    return value


def is_whole(serde: Serde[Any]) -> bool:
    """Whether a value is one text, or one run of bytes: as columns, such records have a single one."""
    return (serde.name.partition("(")[0], serde.type) in (("text", str), ("bytes", bytes))


def is_json(serde: Serde[Any]) -> bool:
    """Whether the serde writes JSON, of any type."""
    return serde.name.partition("(")[0] == "json"


@overload
def msgpack() -> Serde[Any]: ...
@overload
def msgpack(kind: type[T]) -> Serde[T]: ...
def msgpack(kind: Any = None) -> Serde[Any]:
    """msgpack; a type works as in `json`: a field that may be None may be missing.

    >>> msgpack().loads(msgpack().dumps([1, "a"]))
    [1, 'a']
    """
    if kind is None:
        library: Any = _msgpack
        return Serde("msgpack", library.Packer(buf_size=PACKED).pack, partial(library.unpackb, strict_map_key=False))
    library: Any = importlib.import_module("msgspec")
    typed, encode = TypedMsgpack(library, kind), library.msgpack.Encoder().encode
    return Serde(_typed_name("msgpack", kind), encode, typed.one, kind, typed.many)


PACKED = 4 << 10
"""With how many bytes the buffer of a packer begins, which grows with what is packed. Each task has several packers, and msgpack gives each
256 KiB."""
WIDE = 1
"""The msgpack extension type of a whole number that 64 bits cannot hold: its bytes, big-endian, in two's complement."""


def stored() -> Serde[Any]:
    """msgpack as headgate keeps states, in tables and on their way to them: whole numbers of every size that a float can have.

    >>> stored().loads(stored().dumps([2**70, -(2**63)]))
    [1180591620717411303424, -9223372036854775808]
    """
    library: Any = _msgpack
    decode = partial(library.unpackb, strict_map_key=False, ext_hook=_extended)
    return Serde("msgpack", library.Packer(default=_wide, buf_size=PACKED).pack, decode)


def _wide(value: Any) -> Any:
    """What msgpack has no bytes for."""
    if isinstance(value, int):
        float(value)  # what is beyond all floats could never be added to one
        library: Any = _msgpack
        return library.ExtType(WIDE, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    raise TypeError(f"can not serialize {type(value).__name__!r} object")


def _extended(code: int, data: bytes) -> Any:
    library: Any = _msgpack
    return int.from_bytes(data, "big", signed=True) if code == WIDE else library.ExtType(code, data)


def text(encoding: str = "utf-8") -> Serde[str]:
    """Text.

    >>> text().dumps("Zürich")
    b'Z\\xc3\\xbcrich'
    """

    if encoding == "utf-8":
        return Serde("text", str.encode, bytes.decode, str)

    def encode(value: str) -> bytes:
        return str.encode(value, encoding)

    def decode(data: bytes) -> str:
        return data.decode(encoding)

    return Serde(f"text({encoding})", encode, decode, str)


def raw() -> Serde[bytes]:
    """The bytes as they are."""

    def same(data: bytes) -> bytes:
        if type(data) is not bytes:
            raise TypeError(f"bytes are required, not {type(data).__name__}")
        return data

    return Serde("bytes", same, same, bytes)


@overload
def key() -> Serde[Any]: ...
@overload
def key(kind: type[T]) -> Serde[T]: ...
def key(kind: Any = None) -> Serde[Any]:
    """Text, 64-bit integers, bytes, booleans, UUIDs and tuples of them, encoded as in headgate's own topics and tables.

    With a type (`key(int)`, `key(tuple[str, int])`), keys of another type are refused; the bytes are the same.

    >>> key().dumps("DE"), key(int).dumps(7)
    (b'DE', b'\\xff\\x15\\x07')
    """
    if kind is None:
        return Serde(KEY, keys.encode, keys.decode, None, keys.decode_column, keys.encode_column)
    plain = get_origin(kind) or kind
    if plain not in keys.TYPES:
        names = ", ".join(one.__name__ for one in keys.TYPES)
        raise DeclarationError(f"key({kind!r}) is no type of key", remedy=f"one of {names}, or a tuple of them")

    def encode(value: Any) -> bytes:
        return keys.encode(keys.checked(value, plain))

    def decode(data: bytes) -> Any:
        return keys.checked(keys.decode(data), plain)

    return Serde(KEY, encode, decode, kind)


def writes_utf8(serde: Serde[Any]) -> bool:
    """Whether the serde encodes text as UTF-8."""
    return serde.name in (KEY, "text") and serde.type in (None, str)


KEY, OUTPUT_KEY = "key", "output key"


def output_key() -> Serde[Any]:
    """The default serde for keys of outputs: see `keys.encode_output`."""
    return Serde(OUTPUT_KEY, keys.encode_output, keys.decode_output)


def arrow() -> Serde[Any]:
    """Arrow tables: each record holds one table as an IPC stream."""

    def encode(table: Any) -> bytes:
        pa: Any = importlib.import_module("pyarrow")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
        return sink.getvalue().to_pybytes()

    def decode(data: bytes) -> Any:
        pa: Any = importlib.import_module("pyarrow")
        return pa.ipc.open_stream(data).read_all()

    return Serde("arrow", encode, decode)


def custom(loads: Callable[[bytes], T], dumps: Callable[[T], bytes], *, name: str) -> Serde[T]:
    """A custom serde. `name` identifies the format: change it when the bytes change.

    >>> custom(int, lambda n: b"%d" % n, name="decimal").dumps(7)
    b'7'
    """

    def encode(value: T) -> bytes:
        data: Any = dumps(value)
        if type(data) is bytes:
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        hint = ": encode it" if isinstance(data, str) else ""
        raise TypeError(f"dumps() gave {type(data).__name__}, not bytes{hint}")

    return Serde(name, encode, loads)
