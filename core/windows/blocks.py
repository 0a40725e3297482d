"""How open windows are stored: up to 64 keys in one row, so that closing a window writes one tombstone per row instead of one per key.

The key of a block is the end of its window (8 bytes, big-endian, sign bit flipped) and the block's number in the window (4 bytes), so that
blocks are sorted by time. Other rows of a window table (its floor, the progress of a closing) are keyed by a name of another length.

If the window keeps rows for an actor, a block holds rows in the order of their arrival. Only the last block of a window is rewritten.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

BLOCK_KEYS = 64
"""The most keys in one block."""
BLOCK_ROWS = 256
"""The most rows in one block."""
BLOCK_BYTES = 64 * 1024
"""The most bytes of the rows in one block; a larger row has a block of its own."""

_KEY = struct.Struct(">QI")
_SIGN = 1 << 63

BlockKey = tuple[int, int] | str
"""A block is identified by the end of its window and its number in the window; any other row by its name."""


def pack_key(key: BlockKey) -> bytes:
    """The bytes of a row's key.

    >>> pack_key((-1, 2)).hex(), pack_key((0, 0)).hex()
    ('7fffffffffffffff00000002', '800000000000000000000000')
    """
    if isinstance(key, str):
        return key.encode()
    end, number = key
    return _KEY.pack(end + _SIGN, number)


def unpack_key(data: bytes) -> BlockKey:
    """The row's key from its bytes.

    >>> unpack_key(pack_key((-10, 3))), unpack_key(pack_key("floor"))
    ((-10, 3), 'floor')
    """
    if len(data) != _KEY.size:
        return data.decode()
    end, number = _KEY.unpack(data)
    return end - _SIGN, number


def row_cuts(sizes: Sequence[int], rows: int = 0, size: int = 0) -> list[int]:
    """Where blocks end when rows of these sizes come to a last block that has `rows` of `size` bytes. The first part belongs to that block,
    and is empty where nothing more fits.

    >>> row_cuts([9, 9, 9], rows=255, size=900), row_cuts([70_000, 9], rows=1, size=9), row_cuts([9] * 300)
    ([1, 3], [0, 1, 2], [256, 300])
    """
    totals = list(accumulate(sizes, initial=0))
    cuts: list[int] = []
    start = 0
    while not cuts or start < len(sizes):
        fitting = bisect_right(totals, totals[start] + BLOCK_BYTES - size, start) - 1
        start = min(start + BLOCK_ROWS - rows, max(fitting, start, 0 if rows else start + 1), len(sizes))
        cuts.append(start)
        rows = size = 0
    return cuts


_START = struct.Struct(">Q")

SessionKey = tuple[bytes, int] | str
"""A session is identified by its key and its first row's time; any other row by its name."""


def pack_session(key: SessionKey) -> bytes:
    """The bytes of a session's row key: the sessions of a key are sorted by time.

    >>> pack_session((b"k", -1)).hex(), pack_session("floor")
    ('6b7fffffffffffffff', b'floor')
    """
    if isinstance(key, str):
        return key.encode()
    return key[0] + _START.pack(key[1] + _SIGN)


def unpack_session(data: bytes) -> SessionKey:
    """The session's row key from its bytes; names are shorter than a start.

    >>> unpack_session(pack_session((b"", 7))), unpack_session(b"floor")
    ((b'', 7), 'floor')
    """
    if len(data) < _START.size:
        return data.decode()
    (start,) = _START.unpack(data[-_START.size :])
    return data[: -_START.size], start - _SIGN


def holds_window(key: bytes) -> bool:
    """Whether a row of a window table belongs to a window; names of other rows are shorter.

    >>> holds_window(pack_key((0, 0))), holds_window(pack_session((b"", 0))), holds_window(b"closing")
    (True, True, False)
    """
    return len(key) >= _START.size
