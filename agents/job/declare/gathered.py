"""Batches of windows, and `.gather()`: what stands before `.spark(…)` besides `.batch(…)`.

Behind a window, each batch holds the rows of one window. The window is the task's, not a key's: without `.gather()`, each task has its own
batch of each window; behind it, one task has all rows.

Promise: what cannot be a batch (a session, an early result) is refused at the line that declares it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from ....core.errors import DeclarationError, UnknownName
from ..steps.batches import BatchStep
from ..steps.sources import ShuffleStep
from ..steps.step import Step
from ..types.arguments import called_from
from ..types.windows import Window
from .checks import check_topic, name_of
from .refused_verbs import RefusesVerbs
from .stream_ends import BatchedStream, batch_step

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ...records.values.serdes import Serde
    from .app import App

K = TypeVar("K")
V = TypeVar("V")


def window_batches(
    app: App,
    parent: Step,
    window: Any,
    late: str | None,
    at_end: str,
    name: str | None,
    schema: ColumnSchema | None,
    *,
    gathered: bool = False,
) -> BatchedStream[Any, Any]:
    """The batches of windows. The arguments are those of `.window(…)`."""
    if not isinstance(window, Window):
        raise DeclarationError(
            f"window() takes a window, not {window!r}", remedy='for example .window(hg.tumbling("10s", grace="2s"))'
        )
    if window.spans is None:
        raise DeclarationError(
            f"window({window}).spark(…): a session belongs to a key, and a batch has the rows of all keys of its task",
            remedy="a tumbling or hopping window; or .window(hg.session(…)).agg(…), whose results .batch(…).spark(…) passes to Spark",
        )
    if at_end not in ("close", "keep"):
        raise DeclarationError(f"window(at_end={at_end!r})", remedy="'close' or 'keep'")
    if window.by_clock and late is not None:
        raise DeclarationError(
            f"window(late={late!r}): no row comes late by the clock", remedy='omit late=, or time="processing"'
        )
    step = BatchStep(
        parents=(parent,),
        name=name_of("window", None, name or str(window)),
        window=window,
        late=None if late is None else check_topic(late, "window(late=…)"),
        late_serde=app.serde,
        keeps_open=at_end == "keep",
        schema=schema,
        gathered=gathered,
        where=called_from(),
    )
    return BatchedStream(app, app.add(step))


def gather_step(
    app: App, parent: Step, name: str | None, serde: Serde[Any], schema: ColumnSchema | None
) -> ShuffleStep:
    """The step of `.gather()`, of rows or of columns."""
    made = name_of("gather", None, name or "gather")
    app.topics.intermediate(made)
    return app.add(
        ShuffleStep(
            parents=(parent,),
            name=made,
            by=None,
            serde=serde,
            key_serde=app.key_serde,
            gathers=True,
            schema=schema,
            where=called_from(),
        )
    )


class GatheredStream(RefusesVerbs, Generic[K, V]):
    """All rows of a stream in one task, before `.window(…)` or `.batch(…)` says what a batch is."""

    def __init__(self, app: App, step: ShuffleStep) -> None:
        self.app = app
        self.step = step

    def _refused(self, verb: str) -> UnknownName:
        return UnknownName(
            f".gather().{verb}(): one task gets all rows, and only batches for Spark are made of them",
            remedy=f".gather().window(…).spark(…).{verb}(…); to bring equal keys together, .repartition(…).{verb}(…)",
        )

    def __repr__(self) -> str:
        return f"<rows of all tasks in {self.step.name} of {self.app.name}>"

    def window(
        self,
        window: Window,
        *,
        late: str | None = None,
        at_end: Literal["close", "keep"] = "close",
        name: str | None = None,
    ) -> BatchedStream[K, V]:
        """One batch for each window, with the rows of all tasks. The arguments are those of `Stream.window`."""
        return window_batches(self.app, self.step, window, late, at_end, name, self.step.schema, gathered=True)

    def batch(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
    ) -> BatchedStream[K, V]:
        """Bounded batches of the rows of all tasks, as `Stream.batch` makes them of one task's rows."""
        step = batch_step(self.step, max_rows, max_bytes, max_age, name, self.step.schema, gathered=True)
        return BatchedStream(self.app, self.app.add(step))
