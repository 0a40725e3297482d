"""Dead letters as they are written: a letter always fits into its topic, because a record that cannot be buried would stop the job.

What it decides: what is cut from a letter that is too large. First the value, to as many of its first bytes as fit; then the headers of the
record, its key, and the traceback. Where the record came from always stays. Such a letter says so:

- `hg-cut` names what was cut: `value`, `headers`, `key`, `traceback`;
- `hg-size` is the size of the record's value, and `hg-key-size` that of its key if this was cut.

It is counted, and `headgate dead-letters replay` reads the record from its topic instead.
"""

from __future__ import annotations

import base64
from typing import Any

import orjson

from ..records.record import Headers
from ..records.target_rules import TooLarge
from ..records.writable import record_size

OWN = "hg-"
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

    >>> row_bytes(b"\xff"), row_bytes({"a": b"\xff"})
    (b'\xff', b'{"a":"/w=="}')
    """
    if isinstance(value, bytes):
        return value
    try:
        return orjson.dumps(value, default=_plain)
    except orjson.JSONEncodeError:
        return repr(value).encode(errors="backslashreplace")


def _plain(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)


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
