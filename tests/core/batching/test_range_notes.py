"""What executors report: golden bytes, and any other bytes are an error that says so."""

from __future__ import annotations

import contextlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.batching.range_notes import attempt_of, decode, encode, key_of
from headgate.core.batching.ranges import Range, RangeRead, UndecodedRecord
from headgate.core.errors import DataError

PART = Range("orders", 3, 10, 300, "0f6c")
BAD = UndecodedRecord("orders", 3, 12, -5, None, b"\xff", (("h", b"1"), ("n", None)), "torn")
NOTE = RangeRead(PART, 288, 1, -62135596800000, (BAD,))
GOLDEN = (
    "960195a66f7264657273030acd012ca430663663cd012001d3ffffc77cedd3280091"
    "98a66f7264657273030cfbc0c401ff9292a168c4013192a16ec0a4746f726e"
)


def test_a_note_has_these_bytes_for_ever() -> None:
    assert encode(NOTE).hex() == GOLDEN
    assert decode(bytes.fromhex(GOLDEN)) == NOTE
    assert key_of("a", PART).hex() == "92a16195a66f7264657273030acd012ca430663663"
    assert attempt_of(key_of("a", PART)) == "a"


def test_a_newer_version_is_named() -> None:
    with pytest.raises(DataError, match="has version 2; this headgate reads 1"):
        decode(msgpack.packb([2, *msgpack.unpackb(encode(NOTE))[1:]]))


def changed(at: int, value: Any) -> bytes:
    fields = msgpack.unpackb(encode(NOTE))
    fields[at] = value
    return msgpack.packb(fields)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgpack.packb(1),
        msgpack.packb([1, []]),
        changed(1, ["t", 0, 1, 2]),
        changed(1, ["t", True, 1, 2, ""]),
        changed(2, "many"),
        changed(4, 1.5),
        changed(5, [[1]]),
        changed(5, [["t", 0, 0, 0, None, None, [["h", "text"]], "why"]]),
        changed(5, [["t", 0, 0, 0, None, None, [[1, b""]], "why"]]),
        changed(5, [["t", 0, 0, 0, "text", None, [], "why"]]),
    ],
)
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="executor's report"):
        decode(data)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_note_or_an_error(data: bytes) -> None:
    """They were unpickled: whoever could write them could run what he liked."""
    for read in (decode, attempt_of):
        with contextlib.suppress(DataError):
            read(data)
