"""What a chain of verbs can end in: an output, a table, or batches that a further verb processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ....core.batching.spark_schema import result_columns
from ....core.errors import DeclarationError, UnknownName
from ....core.words import VIEW
from ..derive.batch_columns import columns_of_batch
from ..derive.result_fields import check_field, check_written
from ..steps.batches import BatchStep, ByReference, SparkStep
from ..steps.ends import ShareStep
from ..steps.keyed import TableStep
from ..steps.step import Policy, Step
from ..types.arguments import called_from, check_function, check_selector, duration
from .checks import Selector, check_policy, check_topic, name_of
from .refused_verbs import RefusesVerbs

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ...records.values.serdes import Serde
    from .app import App
    from .spark_stream import SparkStream

K = TypeVar("K")
V = TypeVar("V")
MIN_RETENTION_MS = 3_600_000


class Ended(RefusesVerbs):
    """What `to`, `share`, `sink` and `write` return: nothing can follow it. To write *and* continue, use the stream before it twice."""

    def __init__(self, verb: str) -> None:
        self._verb = verb

    def _refused(self, verb: str) -> UnknownName:
        return UnknownName(
            f".{verb}() cannot follow {self._verb}, which has no output",
            remedy="keep the stream before it in a variable, and use it twice",
        )


class TableView(RefusesVerbs, Generic[K, V]):
    """A table that follows a stream. Join with it, or read it in an actor."""

    KIND = VIEW

    def __init__(self, app: App, step: TableStep) -> None:
        self.app = app
        self.step = step

    @property
    def name(self) -> str:
        """The table's name."""
        return self.step.name

    def __repr__(self) -> str:
        return f"<table {self.step.name} of {self.app.name}>"


def batch_step(
    parent: Step,
    max_rows: int | None,
    max_bytes: int | None,
    max_age: str | float | None,
    name: str | None,
    schema: ColumnSchema | None = None,
    *,
    gathered: bool = False,
    reference: ByReference | None = None,
) -> BatchStep:
    """The step of `.batch(…)`, of rows or of columns. Its arguments are those of the verb; `gathered`: behind `.gather()`."""
    if max_rows is None and max_bytes is None and max_age is None:
        raise DeclarationError(
            "batch() without a limit would end only with the stream", remedy="batch(max_rows=100_000)"
        )
    for what, bound in (("max_rows", max_rows), ("max_bytes", max_bytes)):
        if bound is not None and (type(bound) is not int or bound < 1):
            raise DeclarationError(f"batch({what}={bound!r})", remedy="an integer, at least 1")
    return BatchStep(
        parents=(parent,),
        name=name_of("batch", None, name or "batch"),
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_age_ms=duration(max_age, "batch(max_age)") if max_age is not None else None,
        schema=schema,
        gathered=gathered,
        reference=reference,
        where=called_from(),
    )


def share_step(
    parent: Step,
    topic: str,
    retention: str | float,
    key: Selector | None,
    partitions: int | None,
    serde: Serde[Any],
    key_serde: Serde[Any],
    on_error: Policy,
    schema: ColumnSchema | None = None,
) -> ShareStep:
    """The step of `.share(…)`, of rows or of columns. Its arguments are those of the verb."""
    check_topic(topic, "share")
    if key is not None:
        check_selector(key, f"share('{topic}', key=…)")
        check_field(parent, key, f"share('{topic}', key={key!r})")
    check_written(parent, serde, f"share('{topic}')")
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise DeclarationError(f"share('{topic}', partitions={partitions!r}): a stream has at least one partition")
    kept_ms = duration(retention, f"share('{topic}'): retention")
    if kept_ms < MIN_RETENTION_MS:
        raise DeclarationError(
            f"share('{topic}', retention={retention!r}) would delete records before other jobs can read them",
            remedy='at least an hour, and longer than a reading job may be stopped: retention="7d"',
        )
    return ShareStep(
        parents=(parent,),
        topic=topic,
        key=key,
        serde=serde,
        key_serde=key_serde,
        retention_ms=kept_ms,
        partitions=partitions,
        schema=schema,
        on_error=check_policy(on_error, f"share('{topic}', on_error)"),
        where=called_from(),
    )


class BatchedStream(RefusesVerbs, Generic[K, V]):
    """Bounded batches, before a verb such as `spark` says what to do with them."""

    def __init__(self, app: App, step: BatchStep) -> None:
        self.app = app
        self.step = step
        self._rows: ColumnSchema | None = None
        """The columns of its rows, as the first `.spark(…)` declares them."""

    def _refused(self, verb: str) -> UnknownName:
        made = ".batch" if self.step.window is None else ".window"
        return UnknownName(
            f"{made}().{verb}(): a batch is not a record; batch '{self.step.name}' ({self.step.where}) waits for Spark",
            remedy=f'{made}(…).spark(fn, schema="…").{verb}(…), or .{verb}(…) without {made}(…)',
        )

    def __repr__(self) -> str:
        return f"<batches {self.step.name} of {self.app.name}>"

    def spark(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        schema: Any,
        rows: Any = None,
        name: str | None = None,
        on_error: Policy = None,
    ) -> SparkStream[Any, Any]:
        """Pass each batch to `fn(df, batch)`: ordinary PySpark on a DataFrame of the batch's rows. The rows that it returns are passed on.

        `schema` describes the output columns, as PySpark writes them: `"country string, revenue double"`. `rows` is the class (or
        `pyarrow.Schema`) of the fields that the DataFrame has; it may be omitted where they are known: of an input with a type, of columns,
        of a function that is annotated with what it returns. `on_error` decides about rows that do not fit, or that make Spark fail.
        """
        from .spark_stream import SparkStream

        check_function(fn, "spark", number=2, signature="(df, batch)")
        columns = result_columns(schema)
        called = name_of("spark", fn, name)
        own = columns_of_batch(self.step, rows, f"spark('{called}')")
        if self._rows is not None and own != self._rows:
            raise DeclarationError(
                f"spark('{called}'): all stages of batch '{self.step.name}' get the same rows, and an earlier one declares {self._rows}",
                remedy="pass the same rows=, or make a batch of its own for this stage",
            )
        self._rows = own
        step = SparkStep(
            parents=(self.step,),
            name=called,
            rows=own,
            fn=fn,
            schema=schema,
            columns=columns,
            on_error=check_policy(on_error, "spark(on_error)"),
            where=called_from(),
        )
        return SparkStream(self.app, self.app.add(step))
