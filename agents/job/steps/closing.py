"""Steps that hold rows until a time has passed: windows, joins of two streams, batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..types.windows import said
from .step import Step


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ClosingStep(Step):
    """Is told the event time, and closes what is older."""

    hears_time = True
    stateful = True
    tabled = True
    closes = True

    late: str | None = None
    """The topic for late rows."""
    late_serde: Any = None
    keeps_open: bool = False
    """An end of stream or a drain closes nothing: no window, and no wait for a partner."""

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.late,) if self.late else ()

    def closing(self, grace_ms: int) -> tuple[tuple[str, str], ...]:
        """What workers of one run must agree about: when something is closed, and whether an end closes it."""
        grace = ("grace", said(grace_ms))
        return (grace, ("at_end", "keep")) if self.keeps_open else (grace,)
