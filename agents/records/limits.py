"""Limits of records that more than one room knows."""

from __future__ import annotations

from ...core.settings import SETTINGS, size_bytes

LIMIT = "fetch.max-batch-bytes"
MOST_BYTES = size_bytes(SETTINGS[LIMIT].default)
"""How large a batch may be once it is decompressed, if nothing else is set."""
MOST_TEXT = (1 << 31) - 1
"""Bytes of text in one column: what the 32-bit offsets of Arrow can address."""
TIME_LIMIT = 1 << 62
"""Event times lie strictly between minus this and this, so that a lag can be subtracted and no time is mistaken for "no more time"."""
NO_TIMESTAMP = -1
"""Kafka's value for a record without a timestamp: such a record may be read and written."""
