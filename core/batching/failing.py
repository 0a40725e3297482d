"""What a muscle says of a batch that it cannot finish because of the batch's own rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import HeadgateError


class RowError(HeadgateError):
    """Rows of the batch made it fail. `inside`: of a batch of frames, the row that did, with its number in its frame."""

    inside: tuple[int, Mapping[str, Any]] | None = None
