"""The forms in which one pipeline may be declared. A test that takes the fixture `form` runs in each of them, and wants equal results."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import headgate as hg


class Form(StrEnum):
    """Rows of plain JSON, rows of a declared type (which run as columns where their steps only name fields), and columns."""

    ROWS = "rows"
    TYPED = "typed"
    COLUMNS = "columns"

    def input(self, app: hg.App, topic: str, kind: type, **options: Any) -> Any:
        """The stream of an input whose records have the fields of `kind`."""
        if self is Form.ROWS:
            return app.input(topic, serde=hg.json(), **options)
        stream = app.input(topic, serde=hg.json(kind), **options)
        return stream.columns() if self is Form.COLUMNS else stream

    def filter(self, stream: Any, keep: hg.Expression, fn: Callable[[Any], bool], **options: Any) -> Any:
        """`fn` says of a row what the expression says of a record."""
        return stream.filter(fn if self is Form.ROWS else keep, **options)

    def with_columns(self, stream: Any, fn: Callable[[Any], Any], made: dict[str, Any], **options: Any) -> Any:
        """`fn` makes of a row what it is with the columns that are `made`."""
        return stream.with_columns(**made, **options) if self is Form.COLUMNS else stream.map(fn, **options)
