"""Columns of bytes, as they are stored and as they are. As `base64.c`."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence

from ...layout import Buffer, Made, column_made
from ...limits import MOST_TEXT
from .spans import pieces


def to_base64(buffer: Buffer, offsets: Buffer, lengths: Buffer) -> Made:
    """Bytes as they are stored."""
    return _texts([None if one is None else b64encode(one) for one in pieces(buffer, offsets, lengths)])


def of_base64(buffer: Buffer, offsets: Buffer, lengths: Buffer) -> Made:
    """What is stored as bytes."""
    parts = pieces(buffer, offsets, lengths)
    try:
        return _texts([None if one is None else b64decode(one, validate=True) for one in parts])
    except ValueError:
        raise ValueError("this is no base64") from None


def _texts(parts: Sequence[bytes | None]) -> Made:
    if sum(len(one or b"") for one in parts) > MOST_TEXT:
        raise ValueError("more text than a column can hold")
    return column_made("text", parts)
