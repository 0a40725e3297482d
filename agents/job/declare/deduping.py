"""What `dedupe` declares, of rows and of columns."""

from __future__ import annotations

from ..steps.keyed import DedupeStep
from ..steps.step import Policy
from ..types.arguments import duration
from .checks import check_policy, name_of
from .declaring import Declaring, added


def dedupe_step(of: Declaring, ttl: str | float | None, name: str | None, on_error: Policy) -> DedupeStep:
    """The step that keeps the first row of each key."""
    return added(
        of,
        DedupeStep,
        name=name_of("dedupe", None, name or "dedupe"),
        key_serde=of.app.key_serde,
        ttl_ms=None if ttl is None else duration(ttl, "dedupe(ttl)"),
        on_error=check_policy(on_error, "dedupe(on_error)"),
    )
