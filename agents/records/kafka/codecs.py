"""The compression codecs of record batches, and a bound on what a batch may be once it is decompressed.

Who sends a batch decides how large it becomes: 33 kB of zstd can be a gigabyte. Every reader of this process decompresses through this
file, with a bound, and never allocates much more than the bound. What is larger raises `BeyondBound`, what is
damaged something else.

- A raw snappy block begins with its uncompressed length, and cramjam allocates that at once: nine bytes that claim four gigabytes abort the
  process if memory is limited. The lengths are added up before anything is allocated. No element of snappy turns three bytes into more than
  64, so a block that claims more is damaged.
- gzip is read in pieces, up to the bound.
- lz4 and zstd are decompressed into a buffer, which grows up to the bound.

The functions replace aiokafka's own for every reader in this process: its parsers offer no other way to add a bound.
"""

from __future__ import annotations

import gzip
import importlib
import io
import struct
from collections.abc import Callable
from typing import Any

import cramjam
from aiokafka import codec
from aiokafka.codec import snappy_decode as _trusting

from ..limits import MOST_BYTES
from ..memory.memory import fresh

MOST_FOR_A_BYTE = 22
_XERIAL = b"\x82SNAPPY\x00"
_HEAD = 16
_PIECE = 1 << 20
_FULL = "failed to write whole buffer"
"""What cramjam raises when the output does not fit."""


class BeyondBound(ValueError):
    """The bytes are larger than the bound once they are decompressed."""


def _announced(block: memoryview) -> int:
    """The uncompressed length that a raw block claims."""
    length = shift = 0
    for byte in block[:5]:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length
        shift += 7
    raise ValueError("a snappy block does not state its length")


def _checked(block: memoryview) -> int:
    announced = _announced(block)
    if announced > MOST_FOR_A_BYTE * len(block):
        raise ValueError(f"{len(block)} bytes of snappy cannot decompress to the {announced} bytes that they claim")
    return announced


def snappy_decode(payload: Any, most: int = MOST_BYTES) -> bytes:
    """Like aiokafka's function, but raises `ValueError` for a block that claims more than it can hold.

    >>> snappy_decode(codec.snappy_encode(b"a" * 100)) == b"a" * 100
    True
    """
    view = memoryview(payload).cast("B")
    if len(view) <= _HEAD or bytes(view[: len(_XERIAL)]) != _XERIAL:
        _bounded(_checked(view), most)
        return _trusting(payload)
    at, total = _HEAD, 0
    while at < len(view):
        size = struct.unpack_from(">i", view, at)[0] if at + 4 <= len(view) else -1
        if not 0 < size <= len(view) - at - 4:
            raise ValueError(f"a block of snappy of {size} bytes stands where {len(view) - at - 4} are left")
        total += _checked(view[at + 4 : at + 4 + size])
        at += 4 + size
    _bounded(total, most)
    return _trusting(payload)


def _bounded(size: int, most: int) -> None:
    if size > most:
        raise BeyondBound(f"more than {most} bytes")


def gzip_decode(payload: Any, most: int = MOST_BYTES) -> bytes:
    """Like aiokafka's function, within a bound."""
    parts: list[bytes] = []
    left = most
    with gzip.GzipFile(fileobj=io.BytesIO(payload), mode="r") as file:
        while part := file.read(min(_PIECE, left + 1)):
            left -= len(part)
            _bounded(most - left, most)
            parts.append(part)
    return b"".join(parts)


def _into(decompress: Callable[[Any, Any], int], payload: Any, most: int) -> bytes:
    """What is decompressed into a buffer that grows until it is large enough. A byte beyond the bound tells what is larger than it."""
    size = min(most + 1, max(1 << 16, 4 * len(payload)))
    while True:
        room = fresh(size)
        try:
            made = decompress(payload, room)
        except Exception as error:
            if _FULL not in str(error):
                raise
            if size > most:
                raise BeyondBound(f"more than {most} bytes") from None
        else:
            _bounded(made, most)
            return bytes(room[:made])
        size = min(most + 1, 8 * size)


def lz4_decode(payload: Any, most: int = MOST_BYTES) -> bytes:
    """Like aiokafka's function, within a bound."""
    return _into(cramjam.lz4.decompress_into, payload, most)


def zstd_decode(payload: Any, most: int = MOST_BYTES) -> bytes:
    """Like aiokafka's function, within a bound."""
    return _into(cramjam.zstd.decompress_into, payload, most)


DECODERS: dict[int, Callable[[Any, int], bytes]] = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
ENCODERS: dict[int, Callable[[bytes], bytes]] = {
    1: codec.gzip_encode, 2: codec.snappy_encode, 3: codec.lz4_encode, 4: codec.zstd_encode
}  # fmt: skip


def _install() -> None:
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
        for made in DECODERS.values():
            if hasattr(module, made.__name__):
                setattr(module, made.__name__, made)


_install()
