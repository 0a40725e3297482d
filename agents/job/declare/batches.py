"""Batches for Spark as users declare them: by `.batch(…)`, of the windows of a task, and of the rows of all tasks behind `.gather()`.

Behind a window, each batch holds the rows of one window. The window is the task's, not a key's: without `.gather()`, each task has its own
batch of each window; behind it, one task has all rows.

Promise: what cannot be a batch (a session, an early result) is refused at the line that declares it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....core.batching.spark_schema import result_columns
from ....core.errors import DeclarationError
from ..derive.batch_columns import columns_of_batch
from ..steps.batches import BatchStep, ByReference, SparkStep
from ..steps.sources import ShuffleStep
from ..types.arguments import check_function, duration
from .checks import check_policy, name_of
from .declaring import Declaring, added
from .windows import checked_window

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema, ColumnSpec
    from ...records.values.serdes import Serde
    from ..steps.step import Policy


def batch(
    of: Declaring,
    max_rows: int | None,
    max_bytes: int | None,
    max_age: str | float | None,
    name: str | None,
    schema: ColumnSchema | None,
    *,
    gathered: bool = False,
    reference: ByReference | None = None,
    limited_by: str = "",
    key_column: ColumnSpec | None = None,
    takes_updates: bool = False,
) -> BatchStep:
    """The step of `.batch(…)`, of rows or of columns. Its arguments are those of the verb; `gathered`: behind `.gather()`;
    `limited_by`: a sink gets them, and what holds its limits; `key_column` and `takes_updates`: what it wants of its rows."""
    if max_rows is None and max_bytes is None and max_age is None and not limited_by:
        raise DeclarationError(
            "batch() without a limit would end only with the stream", remedy="batch(max_rows=100_000)"
        )
    for what, bound in (("max_rows", max_rows), ("max_bytes", max_bytes)):
        if bound is not None and (type(bound) is not int or bound < 1):
            raise DeclarationError(f"batch({what}={bound!r})", remedy="an integer, at least 1")
    return added(
        of,
        BatchStep,
        name=name_of("batch", None, name or "batch"),
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_age_ms=duration(max_age, "batch(max_age)") if max_age is not None else None,
        schema=schema,
        gathered=gathered,
        reference=reference,
        for_sink=limited_by != "",
        limited_by=limited_by,
        key_column=key_column,
        takes_updates=takes_updates,
    )


def window_batches(
    of: Declaring,
    window: Any,
    late: str | None,
    at_end: str | None,
    name: str | None,
    schema: ColumnSchema | None,
    *,
    gathered: bool = False,
) -> BatchStep:
    """The step of the batches of windows. The arguments are those of `.window(…)`."""
    window = checked_window(window, late, at_end)
    if window.sliding:
        raise DeclarationError(
            f"window({window}).spark(…): each row has a window of its own, so Spark would get each row many times",
            remedy="a tumbling or hopping window; or .window(hg.sliding(…)).agg(…), whose results .batch(…).spark(…) passes to Spark",
        )
    if window.spans is None:
        raise DeclarationError(
            f"window({window}).spark(…): a session belongs to a key, and a batch has the rows of all keys of its task",
            remedy="a tumbling or hopping window; or .window(hg.session(…)).agg(…), whose results .batch(…).spark(…) passes to Spark",
        )
    return added(
        of,
        BatchStep,
        name=name_of("window", None, name or str(window)),
        window=window,
        late=late,
        late_serde=of.app.serde,
        keeps_open=at_end == "keep",
        schema=schema,
        gathered=gathered,
    )


def gather(of: Declaring, name: str | None, serde: Serde[Any], schema: ColumnSchema | None) -> ShuffleStep:
    """The step of `.gather()`, of rows or of columns."""
    made = name_of("gather", None, name or "gather")
    of.app.topics.intermediate(made)
    return added(
        of, ShuffleStep, name=made, by=None, serde=serde, key_serde=of.app.key_serde, gathers=True, schema=schema
    )


def spark(
    of: Declaring, fn: Callable[..., Any], schema: Any, rows: Any, name: str | None, on_error: Policy
) -> SparkStep:
    """The step of `.spark(…)` behind a batch. Its arguments are those of the verb."""
    check_function(fn, "spark", number=2, signature="(df, batch)")
    columns = result_columns(schema)
    called = name_of("spark", fn, name)
    own = columns_of_batch(of.step, rows, f"spark('{called}')")
    earlier = next((one.rows for one in of.app.steps if isinstance(one, SparkStep) and of.step in one.parents), own)
    if own != earlier:
        raise DeclarationError(
            f"spark('{called}'): all stages of batch '{of.step.name}' get the same rows, and an earlier one declares {earlier}",
            remedy="pass the same rows=, or make a batch of its own for this stage",
        )
    policy = check_policy(on_error, "spark(on_error)")
    return added(of, SparkStep, name=called, rows=own, fn=fn, schema=schema, columns=columns, on_error=policy)
