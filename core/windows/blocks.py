"""How open windows are stored: up to 64 keys in one row, so that closing writes one tombstone a row and not one a key.

The key of a block is the end of its window (8 bytes, big-endian, the sign bit flipped) and the number of the block in it (4 bytes), so
blocks stand in the order of time. Other rows of a window's table (its floor, how far a closing is) have a name for a key, of
another length.
"""

from __future__ import annotations

import struct

BLOCK_KEYS = 64
"""Keys of one block."""

_KEY = struct.Struct(">QI")
_SIGN = 1 << 63

BlockKey = tuple[int, int] | str
"""A block by the end of its window and its number in it; any other row by its name."""


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
    """Back from its bytes.

    >>> unpack_key(pack_key((-10, 3))), unpack_key(pack_key("floor"))
    ((-10, 3), 'floor')
    """
    if len(data) != _KEY.size:
        return data.decode()
    end, number = _KEY.unpack(data)
    return end - _SIGN, number


_START = struct.Struct(">Q")

SessionKey = tuple[bytes, int] | str
"""A session by its key and its first row's time; any other row by its name."""


def pack_session(key: SessionKey) -> bytes:
    """The bytes of a session's key: sessions of a key stand in the order of time.

    >>> pack_session((b"k", -1)).hex(), pack_session("floor")
    ('6b7fffffffffffffff', b'floor')
    """
    if isinstance(key, str):
        return key.encode()
    return key[0] + _START.pack(key[1] + _SIGN)


def unpack_session(data: bytes) -> SessionKey:
    """Back from its bytes; names are shorter than a start.

    >>> unpack_session(pack_session((b"", 7))), unpack_session(b"floor")
    ((b'', 7), 'floor')
    """
    if len(data) < _START.size:
        return data.decode()
    (start,) = _START.unpack(data[-_START.size :])
    return data[: -_START.size], start - _SIGN


def holds_window(key: bytes) -> bool:
    """Whether a row of a window's table belongs to a window: names are shorter.

    >>> holds_window(pack_key((0, 0))), holds_window(pack_session((b"", 0))), holds_window(b"closing")
    (True, True, False)
    """
    return len(key) >= _START.size
