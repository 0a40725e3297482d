"""The hash of a value: xxHash64 with seed 0, which other programs have, too.

Promise: the hash of a value never changes, whatever the process, the machine and the version; jobs sample and shard by it.
"""

from __future__ import annotations

import struct

from .schema import Scalar

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_ALL = (1 << 64) - 1


def hash_of(value: Scalar) -> int:
    """The hash of a value of a column, as a signed number of 64 bits.

    >>> hash_of("abc"), hash_of(0.0) == hash_of(-0.0)
    (4952883123889572249, True)
    """
    if isinstance(value, bool):
        found = xxhash64(bytes([value]))
    elif isinstance(value, int):
        found = xxhash64(struct.pack("<q", value))
    elif isinstance(value, float):
        found = xxhash64(struct.pack("<d", value if value else 0.0))
    else:
        found = xxhash64(value.encode())
    return found - (1 << 64) if found >> 63 else found


def xxhash64(data: bytes) -> int:
    """xxHash64 of these bytes with seed 0.

    >>> hex(xxhash64(b""))
    '0xef46db3751d8e999'
    """
    found, at, size = _P5, 0, len(data)
    if size >= 32:
        lanes = [(_P1 + _P2) & _ALL, _P2, 0, -_P1 & _ALL]
        for start in range(0, size - 31, 32):
            lanes = [_mixed(lane, one) for lane, one in zip(lanes, struct.unpack_from("<4Q", data, start), strict=True)]
        at = size - size % 32
        found = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            found = ((found ^ _mixed(0, lane)) * _P1 + _P4) & _ALL
    found = (found + size) & _ALL
    for start in range(at, size - 7, 8):
        found = (_turned(found ^ _mixed(0, int.from_bytes(data[start : start + 8], "little")), 27) * _P1 + _P4) & _ALL
    at = size - size % 8
    if size - at >= 4:
        found = (_turned(found ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _ALL, 23) * _P2 + _P3) & _ALL
        at += 4
    for byte in data[at:]:
        found = _turned(found ^ byte * _P5 & _ALL, 11) * _P1 & _ALL
    found = (found ^ found >> 33) * _P2 & _ALL
    found = (found ^ found >> 29) * _P3 & _ALL
    return found ^ found >> 32


def _mixed(into: int, lane: int) -> int:
    return _turned((into + lane * _P2) & _ALL, 31) * _P1 & _ALL


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _ALL
