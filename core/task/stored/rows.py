"""Rows of the control table: their permitted forms, and their encoding.

A row of a newer headgate raises an error that names its version, and a damaged row raises an error, too, before either is used. So a
restored row is exactly what was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from ...errors import CheckpointError

VERSION = 1
"""The version of all rows; each begins with it."""

_library = cast("Any", msgpack)
_packb: Callable[..., bytes] = _library.packb
_unpackb: Callable[..., Any] = _library.unpackb

Row = tuple[Any, ...]
Shape = Callable[[Any], bool]


def _is(kind: type) -> Shape:
    return lambda value: type(value) is kind


_TEXT, _WHOLE, _YES_NO = _is(str), _is(int), _is(bool)


def _row(*shapes: Shape) -> Shape:
    def fits(value: Any) -> bool:
        if type(value) is not tuple:
            return False
        items = cast("Row", value)
        return len(items) == len(shapes) and all(shape(item) for shape, item in zip(shapes, items, strict=True))

    return fits


def _or_none(shape: Shape) -> Shape:
    return lambda value: value is None or shape(value)


def _texts(value: Any) -> bool:
    return type(value) is tuple and all(type(item) is str for item in cast("Row", value))


_STANDING = (_WHOLE, _WHOLE, _YES_NO, _TEXT)
_SAID = (_WHOLE, _WHOLE, _YES_NO, _WHOLE, _TEXT)
_ANNOUNCEMENT = (_WHOLE, _WHOLE, _YES_NO, _YES_NO, _or_none(_TEXT))


def _or_more(*shapes: Shape) -> Shape:
    """What a producer has said; behind it stands whether it is away, if it is, and how far it was lifted, if it was."""
    here, away, lifted = _row(*shapes), _row(*shapes, _YES_NO), _row(*shapes, _YES_NO, _WHOLE, _WHOLE)
    return lambda value: here(value) or away(value) or lifted(value)


def _announced(value: Any) -> bool:
    """What was announced (`Announcement.row`): behind it stand whether the jobs behind it are away and whether its end leaves time to
    others, if one of the two is so.
    """
    return any(_row(_TEXT, *_ANNOUNCEMENT, *(_YES_NO,) * more)(value) for more in range(3))


_OWN: Mapping[str, Shape] = {
    ":heard": _row(_TEXT, _WHOLE, _WHOLE),
    ":time": _row(_TEXT, _WHOLE),
    ":said": _announced,
    ":relayed": _announced,
}
"""The task's own rows, by kind. The second part of the key is a stream (for `:time` a step), the first of the row is the run."""
_HEARD: Mapping[str, tuple[int, Shape]] = {
    "told": (3, _or_more(_TEXT, *_STANDING)),
    "own": (3, _row(_TEXT, *_STANDING)),
    "job": (4, _row(_TEXT, _TEXT, _WHOLE, _WHOLE, _texts, _or_none(_or_more(*_SAID)))),
    "said": (5, _or_more(_TEXT, *_SAID)),
}
"""The rows of `Progress`. The key is a stream, a partition, the kind and an owner; here are the key's length and the form of the row."""


def pack_rows(changes: Mapping[Row, Row | None]) -> dict[bytes, bytes | None]:
    """Changed rows as keys and values of the control table; None deletes."""
    return {_packb(key): None if row is None else _packb((VERSION, *row)) for key, row in changes.items()}


def unpack_rows(rows: Iterable[tuple[bytes, bytes]]) -> list[tuple[Row, Row]]:
    """The rows of the control table. Raises a `CheckpointError` that names a newer version, or the damaged row."""
    return [_unpacked(key, value) for key, value in rows]


def _unpacked(key_bytes: bytes, value: bytes) -> tuple[Row, Row]:
    try:
        key: Any = _unpackb(key_bytes, use_list=False)
        found: Any = _unpackb(value, use_list=False)
    except (ValueError, RecursionError, TypeError) as error:
        raise _damaged(key_bytes, "it is not msgpack") from error
    if type(key) is not tuple or type(found) is not tuple or not found:
        raise _damaged(key_bytes, "it is not a row")
    version, row = cast("Row", found)[0], cast("Row", found)[1:]
    if type(version) is not int or version < 1:
        raise _damaged(key_bytes, "it has no format version")
    if version > VERSION:
        raise CheckpointError(
            f"a row of the control table has format version {version}; this headgate reads up to {VERSION}",
            remedy="run the version of headgate that wrote it, or a newer one",
        )
    if not _fits(cast("Row", key), row):
        raise _damaged(key_bytes, f"{key!r} does not hold what it should")
    return cast("Row", key), row


def _fits(key: Row, row: Row) -> bool:
    if len(key) == 2 and type(key[0]) is str and key[0] in _OWN:
        return type(key[1]) is str and _OWN[key[0]](row)
    if len(key) < 3 or not (type(key[0]) is str and type(key[1]) is int and type(key[2]) is str):
        return False
    length, shape = _HEARD.get(key[2], (0, _texts))
    return len(key) == length and _texts(key[3:]) and shape(row)


def _damaged(key: bytes, why: str) -> CheckpointError:
    return CheckpointError(
        f"the row {key[:60]!r} of the control table cannot be read by format version {VERSION}: {why}",
        remedy="the task log is damaged or is not headgate's; restore it, or `headgate reset` the job",
    )
