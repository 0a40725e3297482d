"""What `merge` declares, of rows and of columns."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.errors import DeclarationError
from ..steps.rows import MergeStep
from .declaring import Declaring, added


def merge_step(of: Declaring, others: Sequence[object], kind: type[Declaring]) -> MergeStep:
    """The step that makes one stream of these. `kind`: what all of them must be."""
    if not others:
        raise DeclarationError("merge() needs at least one other stream", remedy="orders.merge(more_orders)")
    parents = [of.step]
    for other in others:
        if not isinstance(other, kind):
            raise DeclarationError(
                f"merge() of a {kind.__name__} takes others, not {other!r}",
                remedy="make rows of columns by .rows(), or columns of rows by .columns()",
            )
        if other.app is not of.app:
            raise DeclarationError(f"merge(): {other!r} belongs to another app", remedy="declare both in one app")
        if other.step in parents:
            raise DeclarationError(
                "merge(): a stream merged with itself would count every record twice", remedy="leave it out"
            )
        parents.append(other.step)
    return added(of, MergeStep, parents=tuple(parents))
