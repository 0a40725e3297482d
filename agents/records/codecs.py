"""What record batches are compressed with, and that nobody is made to reserve memory by a few bytes.

A raw snappy block says first how long it will be, and cramjam reserves that at once: nine bytes that announce four gigabytes abort the
process where memory is limited. No element of snappy gives more than 64 bytes for three, so what announces more is damaged, and is
refused before anything is reserved. gzip, lz4 and zstd give what they have as they come to it.

The check is put in the place of aiokafka's own function for every reader of this process: its parsers know no other way in.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from typing import Any

from aiokafka import codec
from aiokafka.codec import snappy_decode as _trusting

MOST_FOR_A_BYTE = 22
_XERIAL = b"\x82SNAPPY\x00"
_HEAD = 16


def _announced(block: memoryview) -> int:
    """How long a raw block says that it will be."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
    raise ValueError("a snappy block does not state its length")


def _check(block: memoryview) -> None:
    announced = _announced(block)
    if announced > MOST_FOR_A_BYTE * len(block):
        raise ValueError(f"{len(block)} bytes of snappy cannot decompress to the {announced} bytes that they claim")


def snappy_decode(payload: Any) -> bytes:
    """As aiokafka's; a `ValueError` for what announces more than it can hold.

    >>> snappy_decode(codec.snappy_encode(b"a" * 100)) == b"a" * 100
    True
    """
    view = memoryview(payload).cast("B")
    if len(view) <= _HEAD or bytes(view[: len(_XERIAL)]) != _XERIAL:
        _check(view)
        return _trusting(payload)
    at = _HEAD
    while at < len(view):
        size = struct.unpack_from(">i", view, at)[0] if at + 4 <= len(view) else -1
        if not 0 < size <= len(view) - at - 4:
            raise ValueError(f"a block of snappy of {size} bytes stands where {len(view) - at - 4} are left")
        _check(view[at + 4 : at + 4 + size])
        at += 4 + size
    return _trusting(payload)


def _install() -> None:
    made: Any = snappy_decode
    for name in (
        "aiokafka.codec",
        "aiokafka.record.default_records",
        "aiokafka.record.legacy_records",
        "aiokafka.record._crecords.default_records",
        "aiokafka.record._crecords.legacy_records",
    ):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:  # without the compiled part of aiokafka
            continue
        module.snappy_decode = made


_install()
DECODERS: dict[int, Callable[[bytes], bytes]] = {
    1: codec.gzip_decode, 2: snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode
}  # fmt: skip
ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: codec.gzip_encode, 2: codec.snappy_encode, 3: codec.lz4_encode, 4: codec.zstd_encode
}  # fmt: skip
