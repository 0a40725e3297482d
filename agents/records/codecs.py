"""The compression codecs of record batches, and a check that a few bytes cannot make this process allocate gigabytes.

A raw snappy block begins with its uncompressed length, and cramjam allocates that at once: nine bytes that claim four gigabytes abort the
process if memory is limited. No element of snappy turns three bytes into more than 64, so a block that claims more is damaged, and is
refused before anything is allocated. gzip, lz4 and zstd allocate as they decompress.

The check replaces aiokafka's own function for every reader in this process: aiokafka's parsers offer no other way to add it.
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
    """The uncompressed length that a raw block claims."""
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
    """Like aiokafka's function, but raises `ValueError` for a block that claims more than it can hold.

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
        except ImportError:  # aiokafka without its compiled part
            continue
        module.snappy_decode = made


_install()
DECODERS: dict[int, Callable[[bytes | memoryview], bytes]] = {
    1: codec.gzip_decode, 2: snappy_decode, 3: codec.lz4_decode, 4: codec.zstd_decode
}  # fmt: skip
ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: codec.gzip_encode, 2: codec.snappy_encode, 3: codec.lz4_encode, 4: codec.zstd_encode
}  # fmt: skip
