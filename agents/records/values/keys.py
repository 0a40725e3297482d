"""Keys as bytes, in headgate's own topics and stores: the same bytes in every process and every version.

A key is text, an integer, bytes, a boolean, a UUID, or a tuple of these. Text is encoded as UTF-8. Everything else is the byte 0xFF, which
never occurs in UTF-8, followed by the key in FoundationDB's tuple encoding:

    "DE"         44 45                     b"DE"        ff 01 44 45 00          True         ff 27
    1            ff 15 01                  -1           ff 13 fe                (1, "a")     ff 05 15 01 02 61 00 00

Promises:

- `decode(encode(key))` is the same key, of the same type; no two keys share bytes (`1`, `True`, `"1"`, `b"1"` and `(1,)` are five keys).
- Within a type, the order of the bytes is the order of the keys; tuples are compared element by element.
- Each key has one encoding. Bytes that are not a key raise `KeyUnreadable`; a value that cannot be a key raises `KeyRefused`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from ....core.errors import DataError

MARK = b"\xff"
DEEPEST = 16
"""How deeply tuples may be nested."""
OF_RECORDS = (
    "a record is one as a named tuple, key_serde=hg.avro(MyNamedTuple), or .map(fn, with_record=True) sets another key"
)
LEAST, MOST = -(1 << 63), (1 << 64) - 1
"""The range of integers: 64 bits, signed or unsigned."""
_BYTES, _TEXT, _TUPLE, _ZERO, _FALSE, _TRUE, _UUID = 0x01, 0x02, 0x05, 0x14, 0x26, 0x27, 0x30
_CODES = [bytes([code]) for code in range(256)]
_NUMBERS = [MARK + _CODES[_ZERO + size] for size in range(9)]
"""By size: what precedes the bytes of a non-negative number that takes so many bytes."""


class KeyRefused(DataError):
    """A value that cannot be a key."""


class KeyUnreadable(DataError):
    """Bytes that are not a key."""


# ------------------------------------------------------------------------------------------------------------- to bytes


def encode(key: Any) -> bytes:
    """The bytes of one key; raises `KeyRefused`.

    >>> encode("DE"), encode(1), encode((1, "a"))
    (b'DE', b'\\xff\\x15\\x01', b'\\xff\\x05\\x15\\x01\\x02a\\x00\\x00')
    """
    if isinstance(key, str):
        return _utf8(key)
    return MARK + _packed(key, 0)


def encode_column(keys: Sequence[Any], kinds: set[type]) -> list[bytes]:
    """The bytes of a column of keys; `kinds` are their types. Raises for the first value that cannot be a key."""
    if len(kinds) == 1:
        if str in kinds:
            return list(map(str.encode, keys))
        if int in kinds and min(keys) >= 0 and max(keys) <= MOST:
            heads = _NUMBERS
            return [heads[size := (key.bit_length() + 7) >> 3] + key.to_bytes(size, "big") for key in keys]
    return [encode(key) for key in keys]


def _packed(key: Any, depth: int) -> bytes:
    kind = type(key)
    if kind is str:
        return b"\x02" + _utf8(key).replace(b"\x00", b"\x00\xff") + b"\x00"
    if kind is int:
        return _number(key)
    if kind is tuple:
        if depth == DEEPEST:
            raise KeyRefused(f"has tuples in more than {DEEPEST} tuples", remedy="use a flat tuple")
        return b"\x05" + b"".join([_packed(part, depth + 1) for part in key]) + b"\x00"
    if kind is bytes:
        return b"\x01" + key.replace(b"\x00", b"\x00\xff") + b"\x00"
    if kind is bool:
        return _CODES[_TRUE if key else _FALSE]
    if kind is UUID:
        return b"\x30" + key.bytes
    for base, plain in _PLAIN:  # an IntEnum, a NamedTuple …
        if isinstance(key, base):
            return _packed(plain(key), depth)
    remedy = "keys are text, whole numbers of 64 bits, bytes, booleans, UUIDs, and tuples of them"
    if kind is dict or any(hasattr(kind, one) for one in ("__dataclass_fields__", "__struct_fields__", "DESCRIPTOR")):
        remedy = f"{remedy}; {OF_RECORDS}"
    raise KeyRefused(
        f"{'contains' if depth else 'is'} {'None' if key is None else kind.__name__}, which cannot be a key ({key!r:.60})",
        remedy=remedy,
    )


_PLAIN: list[tuple[type, Callable[[Any], Any]]] = [
    (str, str.__str__),
    (int, int.__int__),
    (tuple, tuple),
    (bytes, bytes),
    (UUID, lambda key: UUID(int=key.int)),
]
"""A key of a type derived from one of these is encoded as the plain value."""


TYPES: tuple[type, ...] = (str, int, bytes, bool, UUID, tuple)


def checked(key: Any, kind: type) -> Any:
    """The key if it has this type, one of `TYPES`; otherwise raises `KeyRefused`. A boolean does not count as an integer."""
    if isinstance(key, kind) and (kind is bool or not isinstance(key, bool)):
        return key
    raise KeyRefused(
        f"is {type(key).__name__} and not {kind.__name__} ({key!r:.60})", remedy="declare another key type"
    )


def _number(key: int) -> bytes:
    if not LEAST <= key <= MOST:
        raise KeyRefused(f"is a number of more than 64 bits ({key!r:.60})", remedy="use its text or its bytes")
    size = (key.bit_length() + 7) >> 3
    if key >= 0:
        return _CODES[_ZERO + size] + key.to_bytes(size, "big")
    return _CODES[_ZERO - size] + (key + (1 << 8 * size) - 1).to_bytes(size, "big")


def _utf8(key: str) -> bytes:
    try:
        return str.encode(key)
    except UnicodeEncodeError as error:
        raise KeyRefused(f"is text that has no UTF-8 ({key!a:.60})", remedy="remove the lone surrogates") from error


# ----------------------------------------------------------------------------------------------------------- from bytes


def decode(data: bytes) -> Any:
    """The key with these bytes; raises `KeyUnreadable`.

    >>> decode(b"DE"), decode(b"\\xff\\x15\\x01")
    ('DE', 1)
    """
    if data[:1] != MARK:
        return _text(data)
    size = len(data) - 2
    if 0 < size <= 8 and data[1] == _ZERO + size and data[2]:  # the usual case: a positive integer
        return int.from_bytes(data[2:], "big")
    if data[1:2] == b"\x02":
        raise _unreadable(data, "text stands there as its UTF-8 alone")
    key, end = _unpacked(data, 1, 0)
    if end != len(data):
        raise _unreadable(data, f"{len(data) - end} bytes follow the key")
    return key


def decode_column(data: Sequence[bytes | None]) -> list[Any]:
    """The keys with these bytes; raises if any of them is not a key."""
    if MARK not in b"".join(data):  # pyright: ignore[reportArgumentType] - None raises
        return list(map(bytes.decode, data))  # pyright: ignore[reportArgumentType]
    return [decode(one) for one in data]  # pyright: ignore[reportArgumentType]


def _unpacked(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """The key that begins at `at`, and where it ends."""
    if at >= len(data):
        raise _unreadable(data, "it ends too early")
    code = data[at]
    at += 1
    if _ZERO - 8 <= code <= _ZERO + 8:
        return _number_at(data, at, code - _ZERO)
    if code in (_BYTES, _TEXT):
        body, end = _escaped(data, at)
        return (body if code == _BYTES else _text(body)), end
    if code in (_FALSE, _TRUE):
        return code == _TRUE, at
    if code == _UUID:
        if at + 16 > len(data):
            raise _unreadable(data, "it ends too early")
        return UUID(bytes=data[at : at + 16]), at + 16
    if code != _TUPLE:
        raise _unreadable(data, f"no type of key has the code {code:#04x}")
    if depth == DEEPEST:
        raise _unreadable(data, f"tuples in more than {DEEPEST} tuples")
    parts: list[Any] = []
    while data[at : at + 1] != b"\x00":
        part, at = _unpacked(data, at, depth + 1)
        parts.append(part)
    return tuple(parts), at + 1


def _number_at(data: bytes, at: int, size: int) -> tuple[int, int]:
    end = at + abs(size)
    if end > len(data):
        raise _unreadable(data, "it ends too early")
    number = int.from_bytes(data[at:end], "big")
    if size < 0:
        number -= (1 << -8 * size) - 1
    if (number.bit_length() + 7) >> 3 != abs(size) or number < LEAST:
        raise _unreadable(data, "a number is longer than it needs to be")
    return number, end


def _escaped(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes up to a zero byte that is not followed by 0xFF, and the index behind that byte."""
    end = data.find(b"\x00", at)
    while end >= 0 and data[end + 1 : end + 2] == MARK:
        end = data.find(b"\x00", end + 2)
    if end < 0:
        raise _unreadable(data, "it ends too early")
    return data[at:end].replace(b"\x00\xff", b"\x00"), end + 1


def _text(data: bytes) -> str:
    try:
        return bytes.decode(data)
    except UnicodeDecodeError as error:
        raise _unreadable(data, f"it is neither UTF-8 nor begins with 0xff: {error.reason}") from error


def _unreadable(data: bytes, why: str) -> KeyUnreadable:
    return KeyUnreadable(
        f"cannot be read ({data[:24].hex(' ')}{' …' if len(data) > 24 else ''}): {why}",
        remedy="where another client wrote it, declare its key_serde= at app.input(…); hg.raw() gives the bytes",
    )


# ---------------------------------------------------------------------------------------------------- in other's topics


def encode_output(key: Any) -> bytes:
    """A key as other programs expect it: text as UTF-8, integers and UUIDs as text, bytes as they are.

    >>> encode_output("DE"), encode_output(7), encode_output(b"7")
    (b'DE', b'7', b'7')
    """
    if isinstance(key, str):
        return _utf8(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, UUID) or (isinstance(key, int) and not isinstance(key, bool)):
        return b"%d" % key if isinstance(key, int) else str(key).encode()
    if isinstance(key, bool | tuple):
        raise KeyRefused(
            f"is {type(key).__name__}, and it is not known how an output topic holds that ({key!r:.60})",
            remedy="say it with key_serde=: hg.json(), or hg.key() as headgate's own topics have it",
        )
    encode(key)  # raises with the reason
    raise AssertionError(f"{key!r} is a key that outputs do not know")


def decode_output(data: bytes) -> str | bytes:
    """What a plain consumer sees: text, or the bytes if they are not UTF-8.

    >>> decode_output(b"7"), decode_output(b"\\xff")
    ('7', b'\\xff')
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def output_column(data: list[Any]) -> list[Any]:
    """Convert keys from the encoding of headgate's own topics to that of outputs. Bytes that are not a key stay as they are."""
    if MARK not in b"".join(filter(None, data)):
        return data
    return [_output_of(one) if one is not None and one[:1] == MARK else one for one in data]


def _output_of(data: bytes) -> bytes:
    try:
        key = decode(data)
    except KeyUnreadable:
        return data
    return encode_output(key)


# ----------------------------------------------------------------------------------------------------------- for people


def shown(key: Any) -> Any:
    """A key as a JSON value; a UUID is its text, bytes are `0x…`.

    >>> shown(("DE", 7, b"\\x01\\xff"))
    ['DE', 7, '0x01ff']
    """
    match key:
        case bytes():
            return f"0x{key.hex()}"
        case UUID():
            return str(key)
        case tuple():
            return [shown(part) for part in key]
        case _:
            return key


def named(text: str) -> list[Any]:
    """The keys that a person may mean by this text, the most likely first: keys that `shown` shows so, or the text read as JSON.

    >>> named("DE"), named("7"), named('"7"'), named('["DE", 7]')
    (['DE'], ['7', 7], ['"7"', '7'], ['["DE", 7]', ('DE', 7)])
    """
    found: list[Any] = [text, *_special(text)]
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return found
    if isinstance(plain, list):
        found += dict.fromkeys([_tuple(plain, special=True), _tuple(plain, special=False)])
    elif isinstance(plain, str | int):
        found.append(plain)
    return found


def _special(text: str) -> list[Any]:
    """The UUID or the bytes that the text stands for, if any."""
    try:
        if text.startswith("0x"):
            return [bytes.fromhex(text[2:])]
        return [UUID(text)] if len(text) == 36 else []
    except ValueError:
        return []


def _tuple(parts: Any, *, special: bool) -> Any:
    if isinstance(parts, list):
        return tuple(_tuple(part, special=special) for part in parts)
    return (_special(parts) or [parts])[0] if special and isinstance(parts, str) else parts
