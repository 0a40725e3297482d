"""How long the batches stay that a stage writes to files, as it is declared."""

from __future__ import annotations

from ....core.batching.publishing import Keep
from ....core.errors import DeclarationError
from ..steps.batches import BatchStep
from ..steps.step import Step
from ..types.arguments import duration

DELETE_AFTER = "1d"
"""How long the files of a forgotten batch stay, unless the verb says so."""


def kept(
    verb: str, keep: str | float | None, delete_after: str | float | None, stage: Step | None = None
) -> Keep | None:
    """The arguments `keep` and `delete_after` of a verb. `stage`: what is written is its result."""
    if keep is None:
        if delete_after is not None:
            raise DeclarationError(
                f"{verb}(delete_after={delete_after!r}) without keep",
                remedy='keep="30d" says which batches are forgotten',
            )
        return None
    batches = [one for one in (stage.parents if stage else ()) if isinstance(one, BatchStep)]
    if any(one.reference is not None and not one.reference.framed for one in batches):
        raise DeclarationError(
            f"{verb}(keep={keep!r}) behind batches of offsets: how old their rows are is not known",
            remedy='leave by="reference" out, or keep out',
        )
    rows_ms = duration(keep, f"{verb}(keep)")
    if rows_ms == 0:
        raise DeclarationError(f"{verb}(keep={keep!r}) keeps nothing", remedy='keep="30d"')
    return Keep(rows_ms, duration(DELETE_AFTER if delete_after is None else delete_after, f"{verb}(delete_after)"))
