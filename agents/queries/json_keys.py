"""Keys of tables in JSON, both ways, and as text in the path of a request.

A key's JSON form depends on the table's key serde:

    text, hg.key()      a text is itself, a whole number and a boolean too; bytes {"bytes": "01ff"}, a UUID {"uuid": "…"}, a tuple a list
    hg.raw()            {"bytes": "01ff"}
    any other           the JSON value as it is, which the serde encodes

Promises: a form stands for one key, so the text "7" and the number 7 are two. In a path there is only text: it means the first of what
`records.values.keys.named` reads in it that the serde accepts, so a key that can be text is text. A key that the serde does not take
raises a `DataError` that names the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from ...core.errors import DataError
from ..records.values import keys
from ..records.values.serdes import KEY, Serde, writes_utf8


def is_plain(serde: str) -> bool:
    """Whether keys of the serde with this name are JSON values as they are."""
    return not (serde in (KEY, "bytes") or serde.startswith("text"))


def key_of(form: Any) -> Any:
    """The key that a form stands for.

    >>> key_of(["DE", {"bytes": "01ff"}]), key_of(7)
    (('DE', b'\\x01\\xff'), 7)
    """
    match form:
        case list():
            return tuple(map(key_of, cast("list[Any]", form)))
        case {"bytes": str(digits), **others} if not others:
            try:
                return bytes.fromhex(digits)
            except ValueError as error:
                raise DataError(f"is no bytes in hex ({digits!r:.60})", remedy='bytes are {"bytes": "01ff"}') from error
        case {"uuid": str(text), **others} if not others:
            try:
                return UUID(text)
            except ValueError as error:
                raise DataError(
                    f"is no UUID ({text!r:.60})", remedy='a UUID is {"uuid": "…"} with its 36 letters'
                ) from error
        case _:
            return form


def form_of(key: Any) -> Any:
    """The form of a key.

    >>> form_of(("DE", 7, b"\\x01\\xff"))
    ['DE', 7, {'bytes': '01ff'}]
    """
    match key:
        case bytes() | bytearray() | memoryview():
            return {"bytes": key.hex()}
        case UUID():
            return {"uuid": str(key)}
        case tuple():
            return [form_of(part) for part in cast("tuple[Any, ...]", key)]
        case _:
            return key


def encoded(table: str, serde: Serde[Any], forms: Sequence[Any]) -> list[bytes]:
    """The bytes of keys in a table. Raises `DataError` for the first that is none."""
    if writes_utf8(serde) and set(map(type, forms)) <= {str}:
        return list(map(str.encode, forms))
    plain = is_plain(serde.name)
    found: list[bytes] = []
    for form in forms:
        if form is None:
            raise DataError(f"table {table}: null is no key", remedy="leave it out")
        try:
            found.append(serde.dumps(form if plain else key_of(form)))
        except DataError as error:
            raise _refused(table, serde, form, error) from error
    return found


def encoded_text(table: str, serde: Serde[Any], text: str) -> bytes:
    """The bytes of the key that stands as text in a path."""
    if writes_utf8(serde):
        return text.encode("utf-8", "surrogateescape")
    refused: DataError | None = None
    for meant in keys.named(text):
        try:
            return serde.dumps(meant)
        except DataError as error:
            refused = error
    assert refused is not None, "a text means at least itself"
    raise _refused(table, serde, text, refused)


def decoded(serde: Serde[Any], data: bytes) -> Any:
    """The form of a stored key."""
    key = serde.loads(data)
    return key if is_plain(serde.name) else form_of(key)


def prefix_bytes(table: str, serde: Serde[Any], form: Any) -> bytes:
    """The bytes with which all keys begin that begin with this text, or with these parts of a tuple.

    >>> from ..records.values.serdes import key
    >>> prefix_bytes("t", key(), "D"), prefix_bytes("t", key(), ["DE"])
    (b'D', b'\\xff\\x05\\x02DE\\x00')
    """
    if is_plain(serde.name):
        raise DataError(
            f"table {table}: its keys are {serde.name}, which has no prefixes",
            remedy="scan all of it, or declare the table with key=hg.text() or key=hg.key()",
        )
    if isinstance(form, str):
        return encoded(table, serde, [form])[0]
    if isinstance(form, list):
        return keys.encode(key_of(form))[:-1]  # without the end of the tuple
    raise DataError(
        f"table {table}: {form!r:.60} is no prefix", remedy='a prefix is a text, or the first parts of a tuple: ["DE"]'
    )


def after_prefix(prefix: bytes) -> bytes | None:
    """The first bytes behind all that begin with these; None if there are none.

    >>> after_prefix(b"ab"), after_prefix(b"a\\xff"), after_prefix(b"\\xff")
    (b'ac', b'b', None)
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def _refused(table: str, serde: Serde[Any], form: Any, error: DataError) -> DataError:
    """The serde's own remedy is for those who write the job; who asks can only give another key."""
    return DataError(
        f"table {table}: {form!r:.60} is no key of it: {error.what}",
        remedy=f"its keys are those of hg.{serde.name}(): give one of that kind",
    )
