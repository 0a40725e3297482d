"""Dead letters as they are written: a letter always fits into its topic, because a record that cannot be buried would stop the job.

What it decides: what is cut from a letter that is too large. First the value, to as many of its first bytes as fit; then the headers of the
record, its key, and the traceback. Where the record came from always stays. Such a letter says so:

- `hg-cut` names what was cut: `value`, `headers`, `key`, `traceback`;
- `hg-size` is the size of the record's value, and `hg-key-size` that of its key if this was cut.

It is counted, and `headgate dead-letters replay` reads the record from its topic instead.
"""

from __future__ import annotations

import base64
import json
from math import isfinite
from typing import Any

import orjson

from ...records.kafka.target_rules import TooLarge
from ...records.kafka.writable import record_size
from ...records.values.record import Headers

OWN = "hg-"
MOST_BITS = 8192
"""A number with more bits is written in hexadecimal digits, as text: Python makes no decimal digits of very large numbers."""
MOST_DEPTH = 200
_MARKS = 160
"""An upper bound of the bytes of the headers that say what was cut."""
_TRACEBACK = "hg-traceback"


def bury(env: Any, key: bytes | None, value: bytes | None, headers: Headers) -> None:
    """Write a dead letter, as part of the running letter. `env`: the pipeline."""
    topic, now_ms = env.declared.topics.dead_letters, env.now_ms()  # the current time, because retention goes by it
    try:
        env.emit(topic, 0, [key], [value], [now_ms], [headers])
    except TooLarge as error:
        key, value, headers = fitted(key, value, headers, error.limit)
        env.emit(topic, 0, [key], [value], [now_ms], [headers])
        env.count("dead_letters_cut")


def row_bytes(value: Any) -> bytes:
    """The value of a letter about a row that is no record: bytes as they are, else JSON, in which bytes are base64.

    >>> row_bytes(b"\xff"), row_bytes({"a": b"\xff"}), row_bytes({"n": 2**70, 1: None})
    (b'\xff', b'{"a":"/w=="}', b'{"n":1180591620717411303424,"1":null}')
    """
    if isinstance(value, bytes):
        return value
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:  # a number of more than 64 bits, a key that is no text, text that is none …
        return json.dumps(_tree(value, ()), ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return _text(value)


def _tree(value: Any, above: tuple[int, ...]) -> Any:
    """The value in types that JSON has. `above`: the containers that it lies in, by their ids."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MOST_BITS else hex(value)
    if isinstance(value, float):
        return float(value) if isfinite(value) else None
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict | list | tuple):
        if id(value) in above or len(above) > MOST_DEPTH:
            return "…"
        inside = (*above, id(value))
        if isinstance(value, dict):
            return {_text(key): _tree(one, inside) for key, one in value.items()}
        return [_tree(one, inside) for one in value]
    try:
        return orjson.loads(orjson.dumps(value, default=_plain))
    except orjson.JSONEncodeError:
        return _text(value)


def _text(value: Any) -> str:
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - code of the user's; the letter must be written all the same
        text = object.__repr__(value)
    return text.encode(errors="backslashreplace").decode()


def fitted(
    key: bytes | None, value: bytes | None, headers: Headers, limit: int
) -> tuple[bytes | None, bytes | None, Headers]:
    """A letter that is larger than the limit, cut to it.

    >>> key, value, headers = fitted(b"k", b"v" * 9000, [("hg-topic", b"t")], 1000)
    >>> len(value) < 1000, headers
    (True, [('hg-topic', b't'), ('hg-cut', b'value'), ('hg-size', b'9000')])
    """
    cut, marks = ["value"], [("hg-size", b"%d" % len(value or b""))]
    if (room := limit - _MARKS - record_size(key, None, headers)) < 0:
        cut.append("headers")
        headers = [one for one in headers if one[0].startswith(OWN)]
        room = limit - _MARKS - record_size(key, None, headers)
    if room < 0:
        if any(name == _TRACEBACK for name, _ in headers) and limit < _MARKS + record_size(None, None, headers):
            cut.append("traceback")
            headers = [one for one in headers if one[0] != _TRACEBACK]
        cut.append("key")
        marks.append(("hg-key-size", b"%d" % len(key or b"")))
        key = (key or b"")[: max(0, limit - _MARKS - record_size(None, None, headers))]
        room = 0
    value = None if value is None else value[:room]
    return key, value, [*headers, ("hg-cut", ",".join(cut).encode()), *marks]
