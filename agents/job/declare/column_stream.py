"""`ColumnStream`: verbs over columns. Their steps are expressions, which are data, so that no Python object stands for a record.

    orders = app.input("orders", serde=hg.json(Order), timestamp="ts").columns()
    big = orders.filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 1.2)
    big.to("big-orders")
    big.repartition("user").agg(n=hg.count(), total=hg.sum("total")).to("per-user")

What it decides: which columns there are behind each verb, and of which type. A column that does not exist, or that is of the wrong type, is
refused at the line that has it. Functions of a value need rows: `.rows()` makes them, and `.columns(Order)` makes columns of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ....core.columns.expressions import ColumnRef, Expression, Node, node_of, substituted
from ....core.columns.schema import BOOL, FLOAT, ColumnSchema, ColumnSpec
from ....core.columns.typing import NUMBERS, column_of, kind_of
from ....core.errors import DeclarationError, UnknownName
from ....core.words import COLUMNS, WINDOW
from ...records.columns.frame_libraries import check_library
from ...records.columns.framed_columns import HIDDEN
from ...records.values.column_types import columns_of_type, is_arrow_schema, type_of_arrow
from ...records.values.serdes import OUTPUT_KEY, is_json, json, raw
from ..derive.references import by_reference, check_columns_of
from ..steps.columns import ColumnsStep, FilterColumnsStep, FrameStep, RowsStep, WithColumnsStep
from ..steps.ends import SinkStep, ToStep
from ..steps.keyed import AggregateStep
from ..steps.sources import InputStep, ShuffleStep
from ..steps.step import Policy, Step
from ..types.aggregates import Aggregate, AggregatePlan, plan
from ..types.arguments import called_from, check_function
from ..types.windows import Window
from .branches import branches
from .checks import check_migrate, check_policy, check_serde, check_topic, name_of
from .gathered import GatheredStream, gather_step
from .refused_verbs import RefusesVerbs, no_verb, unbounded
from .stream_ends import BatchedStream, Ended, batch_step, share_step
from .windowed_stream import WindowedStream

if TYPE_CHECKING:
    import pandas
    import polars

    from ....core.columns.schema import Scalar
    from ...records.columns.column_batch import ColumnBatch
    from ...records.columns.frame_libraries import Library
    from ...records.values.serdes import ArrowSchema, Serde
    from ..types.schemas import Migrate
    from .spark_stream import SparkStream
    from .stream import Stream

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
OF_NUMBERS = ("sum", "mean")
KEEP, SHUFFLED = "keep", "shuffled"
_LONG = 4_000
"""More letters than a person reads of how a key is made."""
_WITHOUT = "write them before, or take .columns() without extra='keep' for this branch"
OF_ROWS = ("aggregate",)
"""Aggregates whose functions get the whole value."""


class ColumnStream(RefusesVerbs, Generic[K, V]):
    """A stream of columns, with keys of type `K`. `.rows()` makes values of type `V` of it.

    >>> orders.columns().filter(hg.col("amount") >= 10).to("big-orders")
    """

    KIND = COLUMNS

    def __init__(
        self,
        stream: Stream[Any, Any],
        schema: ColumnSchema,
        kind: Any = None,
        made: Mapping[str, ColumnRef] | None = None,
        extra: str | None = None,
    ) -> None:
        """`kind`: the type of the rows; None for dicts. `made`: the columns that expressions have made, each with what it is made of.
        `extra`: whether the other fields of each record are kept, or were before a repartition."""
        self._stream = stream
        self.schema = schema
        self._kind = kind
        self._made: Mapping[str, ColumnRef] = made or {}
        self._extra = extra

    def __repr__(self) -> str:
        return f"<ColumnStream of {self._stream.app.name}: {self.schema}>"

    def _refused(self, verb: str) -> UnknownName:
        from .stream import Stream

        if verb in vars(Stream):
            return UnknownName(f".{verb}() needs rows, and this is a stream of columns", remedy=f".rows().{verb}(…)")
        more = "; what they cannot say, a function of a frame can: .frame(…)"
        return unbounded(verb) or no_verb(verb, ColumnStream, COLUMNS, more)

    def _then(self, step: Step) -> Stream[Any, Any]:
        return self._stream._then(step)

    # ------------------------------------------------------------------------------------------------------- expressions

    def filter(self, keep: Expression, *, on_error: Policy = None) -> ColumnStream[K, V]:
        """Keep only the records for which the expression is true; false and null are dropped.

        >>> orders.filter((hg.col("amount") >= 10) & ~hg.col("country").is_in(["DE", "FR"]))
        """
        node = condition(keep, self.schema, "filter")
        step = FilterColumnsStep(
            parents=(self._stream.step,),
            keep=node,
            schema=self.schema,
            on_error=check_policy(on_error, "filter(on_error)"),
            where=called_from(),
        )
        return ColumnStream(self._then(step), self.schema, self._kind, self._made, self._extra)

    def branch(self, *conditions: Expression, on_error: Policy = None) -> tuple[ColumnStream[K, V], ...]:
        """Make one stream for each condition: a record goes to the first one that is true, and nowhere if none is.

        >>> large, others = orders.branch(hg.col("amount") >= 100, hg.col("amount").is_null() | (hg.col("amount") < 100))
        """
        return tuple(
            self.filter(keep, on_error=on_error)  # type: ignore[arg-type]
            for keep in branches(conditions, columns=True)
        )

    def with_columns(
        self, *, on_error: Policy = None, **columns: Expression | Scalar
    ) -> ColumnStream[K, dict[str, Any]]:
        """Add columns, or replace them. All expressions read the columns as they were before this step.

        A whole number of more than 64 bits, a division by zero and a cast that has no result are errors of their record.

        >>> orders.with_columns(total=hg.col("amount") * 1.2, minute=hg.col("ts").floor("1m"))
        """
        if not columns:
            raise DeclarationError(
                "with_columns() needs at least one column", remedy='with_columns(total=hg.col("a") * 2)'
            )
        nodes = {name: node_of(value, f"with_columns({name}=…) is") for name, value in columns.items()}
        specs = [column_of(name, node, self.schema) for name, node in nodes.items()]
        step = WithColumnsStep(
            parents=(self._stream.step,),
            made=nodes,
            schema=self.schema,
            on_error=check_policy(on_error, "with_columns(on_error)"),
            where=called_from(),
        )
        made = {**self._made, **{name: _made_of(node, self._made) for name, node in nodes.items()}}
        return ColumnStream(self._then(step), self.schema.extended(specs), None, made, self._extra)

    # ---------------------------------------------------------------------------------------------------- keys and state

    def repartition(
        self,
        by: str,
        *,
        name: str | None = None,
        partitions: int | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> ColumnStream[Any, V]:
        """Send the records through an intermediate stream, so that all records with the same value of this column reach the same task."""
        self._key_column(by, "repartition", or_boolean=True)
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise DeclarationError(f"repartition(partitions={partitions!r}): a stream has at least one partition")
        if key_serde is not None:
            check_serde(key_serde, "repartition(key_serde")
        app = self._stream.app
        title = name_of("by", by, name)
        app.topics.intermediate(title)
        step = ShuffleStep(
            parents=(self._stream.step,),
            name=title,
            by=by,
            serde=json(),
            key_serde=key_serde if key_serde is not None else app.key_serde,
            partitions=partitions,
            schema=self.schema,
            key_text=self._made[by].name if by in self._made else "",
            on_error=check_policy(on_error, "repartition(on_error)"),
            where=called_from(),
        )
        return ColumnStream(self._then(step), self.schema, self._kind, self._made, self._extra and SHUFFLED)

    def agg(
        self,
        *,
        name: str | None = None,
        on_error: Policy = None,
        migrate: Migrate | None = None,
        **aggregates: Aggregate,
    ) -> Stream[K, dict[str, Any]]:
        """Running aggregates for each key, as of rows. The updates that they emit at each commit are rows.

        A null in a sum, mean, minimum or maximum is an error of its record: filter it out before.

        >>> orders.repartition("country").agg(n=hg.count(), total=hg.sum("amount")).to("totals")
        """
        made = self._check_aggregates(aggregates)
        return self._then(
            AggregateStep(
                parents=(self._stream.step,),
                plan=made,
                name=name_of("agg", None, name or "agg-" + "-".join(aggregates)),
                key_serde=self._stream.app.key_serde,
                migrate=check_migrate(migrate, "agg"),
                on_error=check_policy(on_error, "agg"),
                where=called_from(),
            )
        )

    def window(
        self,
        window: Window,
        *,
        emit: str | int = "final",
        late: str | None = None,
        at_end: Literal["close", "keep"] | None = None,
        name: str | None = None,
    ) -> WindowedColumns[K]:
        """Group the records by key and time window, as rows are. The results of `.agg(…)` are rows.

        The topic `late` gets the columns of late records.

        >>> orders.columns().repartition("user").window(hg.tumbling("1m", grace="5s")).agg(n=hg.count()).to("minutes")
        """
        if late is not None:
            self._only_columns("window(late=…)")
        return WindowedColumns(self, WindowedStream(self._stream, window, emit, late, at_end, name, self.schema))

    def _check_aggregates(self, aggregates: Mapping[str, Aggregate]) -> AggregatePlan:
        """The plan of these aggregates, which need no rows."""
        made = plan(aggregates)
        for title, part in aggregates.items():
            self._check_aggregate(title, part)
        return made

    def _check_aggregate(self, title: str, part: Aggregate) -> None:
        if part.name in OF_ROWS or callable(part.of):
            raise DeclarationError(
                f"agg({title}=hg.{part.name}(…)) has a function of a value, which needs rows",
                remedy="name a column, which .with_columns(…) may compute, or put .rows() before .repartition(…)",
            )
        if part.of is not None:
            column = self.schema[part.of]
            if part.name in OF_NUMBERS and column.type not in NUMBERS:
                raise DeclarationError(
                    f"agg({title}=hg.{part.name}('{column.name}')) needs numbers, and '{column.name}' is {column.type}",
                    remedy=f'cast it: .with_columns({column.name}=hg.col("{column.name}").cast(float))',
                )

    def _key_column(self, by: Any, verb: str, *, or_boolean: bool) -> ColumnSpec:
        if not isinstance(by, str):
            raise DeclarationError(
                f"{verb}({by!r:.60}) does not name a column",
                remedy='compute it before: .with_columns(key=…), and name it: "key"',
            )
        column = self.schema[by]
        if column.type == FLOAT or (column.type == BOOL and not or_boolean):
            raise DeclarationError(
                f"{verb}('{by}'): {column.type} makes no key",
                remedy=f'cast it: hg.col("{by}").cast(str), or .cast(int)',
            )
        return column

    def batch(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
        by: Literal["inline", "reference", "size"] = "inline",
    ) -> BatchedStream[K, V]:
        """Bounded batches of the columns, as of rows. From the fetch to Spark they stay in Arrow's memory layout.

        With `by="reference"` directly behind `app.input(…).columns()`, no record is fetched here; see `Stream.batch`. Directly behind
        `.repartition(…)`, a batch is ranges of offsets of the intermediate stream: executors read its frames, the task log holds the
        offsets alone, and no record is trimmed before its batch is done. A batch has whole frames: it ends before the frame with which it
        would exceed `max_rows`.

        >>> orders.columns().filter(hg.col("amount") > 0).batch(max_age="10s").spark(revenue, schema="country string, revenue double")
        """
        self._only_columns("batch()")
        parent = self._stream.step
        reference = by_reference(parent, self._stream.app.on_bad_data, by, max_rows, max_bytes, self.schema)
        step = batch_step(parent, max_rows, max_bytes, max_age, name, self.schema, reference=reference)
        return BatchedStream(self._stream.app, self._stream.app.add(step))

    def gather(self, *, name: str | None = None) -> GatheredStream[K, V]:
        """Send the records of all tasks to one task, as of rows.

        >>> orders.columns().gather().window(hg.tumbling("1m")).spark(ranking, schema="country string, place int").to("ranking")
        """
        self._only_columns("gather()")
        app = self._stream.app
        return GatheredStream(app, gather_step(app, self._stream.step, name, json(), self.schema))

    # ------------------------------------------------------------------------------------------------------------- borders

    def _only_columns(self, verb: str) -> None:
        """Refuse to lose the fields that are kept."""
        if self._extra is not None:
            raise DeclarationError(
                f"{verb} gets the declared columns alone, and extra='keep' keeps all fields of a record",
                remedy=_WITHOUT,
            )

    @overload
    def frame(
        self,
        fn: Callable[[polars.DataFrame], object],
        *,
        like: Literal["polars"],
        schema: type[W],
        on_error: Policy = ...,
    ) -> ColumnStream[K, W]: ...
    @overload
    def frame(
        self,
        fn: Callable[[pandas.DataFrame], object],
        *,
        like: Literal["pandas"],
        schema: type[W],
        on_error: Policy = ...,
    ) -> ColumnStream[K, W]: ...
    @overload
    def frame(
        self,
        fn: Callable[[Any], object],
        *,
        like: Literal["pyarrow", "narwhals"] | None = ...,
        schema: type[W],
        on_error: Policy = ...,
    ) -> ColumnStream[K, W]: ...
    @overload
    def frame(
        self, fn: Callable[[Any], object], *, like: Library | None = ..., schema: ArrowSchema, on_error: Policy = ...
    ) -> ColumnStream[K, dict[str, Any]]: ...
    def frame(
        self, fn: Callable[[Any], object], *, like: Library | None = None, schema: Any, on_error: Policy = None
    ) -> ColumnStream[K, Any]:
        """Call a function with the columns of each chunk as a frame of a library. It returns a frame, which has the columns of `schema`.

        Without `like` it gets an object that speaks the Arrow capsule interface (`__arrow_c_array__`). It may return whatever speaks that
        interface. Rows keep their timestamp, key and headers by the column `__row`, which the function should keep. It must not keep the
        frame: a copy is its own.

        >>> def enrich(frame: pl.DataFrame) -> pl.DataFrame:
        ...     return frame.join(rates, on="country").with_columns(total=pl.col("amount") * pl.col("rate"))
        >>> orders.columns().frame(enrich, like="polars", schema=Enriched).to("enriched")
        """
        check_function(fn, "frame", signature="(frame)")
        self._only_columns("frame()")
        if like is not None:
            check_library(like)
        hidden = next((one.name for one in HIDDEN if one.name in self.schema.names), None)
        if hidden is not None:
            raise DeclarationError(f"frame(): the column '{hidden}' has a name that frames use", remedy="rename it")
        kind = type_of_arrow(schema) if is_arrow_schema(schema) else schema
        step = FrameStep(
            parents=(self._stream.step,),
            fn=fn,
            like=like,
            schema=self.schema,
            gives=columns_of_type(kind),
            on_error=check_policy(on_error, "frame(on_error)"),
            where=called_from(),
        )
        return ColumnStream(self._then(step), step.gives, kind)

    def rows(self) -> Stream[K, V]:
        """Make rows of the columns: values of the declared type or, once a column was added, dicts.

        One such border in a pipeline is enough: each costs an object for each record.
        """
        self._only_columns("rows()")
        step = RowsStep(parents=(self._stream.step,), schema=self.schema, kind=self._kind, where=called_from())
        return self._then(step)

    def to(
        self,
        topic: str,
        *,
        key: str | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write the columns to an output topic, exactly once: each record as an object with a field for each column.

        Without `key`, the record's own key is written.
        """
        check_topic(topic, "to")
        if self._extra == SHUFFLED:
            raise DeclarationError(
                f"to('{topic}'): the fields that extra='keep' keeps do not pass a repartition", remedy=_WITHOUT
            )
        app = self._stream.app
        for what, given in (("serde", serde), ("key_serde", key_serde)):
            if given is not None:
                check_serde(given, f"to('{topic}', {what}")
        if self._extra is not None and not is_json(serde if serde is not None else app.serde):
            raise DeclarationError(f"to('{topic}'): extra='keep' keeps fields in JSON", remedy="to(…, serde=hg.json())")
        own = key_serde if key_serde is not None else app.output_key_serde
        if key is not None:
            self._key_column(key, f"to('{topic}', key=…)", or_boolean=own.name != OUTPUT_KEY)
        self._then(
            ToStep(
                parents=(self._stream.step,),
                topic=topic,
                key=key,
                serde=serde if serde is not None else app.serde,
                key_serde=own,
                schema=self.schema,
                on_error=check_policy(on_error, f"to('{topic}', on_error)"),
                where=called_from(),
            )
        )
        return Ended(f"to('{topic}')")

    def share(
        self,
        topic: str,
        *,
        retention: str | float = "7d",
        key: str | None = None,
        partitions: int | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write a stream for other headgate jobs; see `Stream.share`. If the app's `serde` is JSON, they travel as columns, which the other
        job may read as columns or as rows.
        """
        self._only_columns("share()")
        if key is not None:
            self._key_column(key, f"share('{topic}', key=…)", or_boolean=True)
        if not is_json(self._stream.app.serde):
            return self.rows().share(
                topic, retention=retention, key=key, partitions=partitions, key_serde=key_serde, on_error=on_error
            )
        own = key_serde if key_serde is not None else self._stream.app.key_serde
        check_serde(own, f"share('{topic}', key_serde")
        step = share_step(self._stream.step, topic, retention, key, partitions, json(), own, on_error, self.schema)
        self._then(step)
        return Ended(f"share('{topic}')")

    def sink(self, fn: Callable[[ColumnBatch], Any], *, on_error: Policy = None) -> Ended:
        """Call `fn(batch)` with each chunk, at least once. `batch.meta["id"]` is the same when a chunk is tried again; after a crash the
        records may be cut into other chunks, so write by a key of the rows.

        The batch speaks the Arrow PyCapsule interface, so that nothing is copied and no object is made of a record.

        >>> orders.filter(hg.col("amount") >= 10).sink(lambda batch: print(polars.DataFrame(batch)))
        """
        self._only_columns("sink()")
        check_function(fn, "sink", signature="(batch)", awaits=True)
        self._then(
            SinkStep(
                parents=(self._stream.step,),
                fn=fn,
                schema=self.schema,
                on_error=check_policy(on_error, "sink"),
                where=called_from(),
            )
        )
        return Ended("sink()")


class WindowedColumns(RefusesVerbs, Generic[K]):
    """Columns in windows, before `.agg(…)` or `.spark(…)` says what to make of them."""

    KIND = WINDOW

    def __init__(self, columns: ColumnStream[K, Any], windowed: WindowedStream[K, Any]) -> None:
        self._columns = columns
        self._windowed = windowed

    def _refused(self, verb: str) -> UnknownName:
        return UnknownName(
            f".window().{verb}() needs rows, and this is a stream of columns",
            remedy=f".rows().window(…).{verb}(…), or .window(…).agg(n=hg.count())",
        )

    def __repr__(self) -> str:
        return repr(self._windowed)

    def agg(
        self, *, on_error: Policy = None, migrate: Migrate | None = None, **aggregates: Aggregate
    ) -> Stream[K, dict[str, Any]]:
        """Aggregates for each key and window, as of rows. A null in a sum, mean, minimum or maximum is an error of its record."""
        self._columns._check_aggregates(aggregates)
        return self._windowed.agg(on_error=on_error, migrate=migrate, **aggregates)

    def spark(
        self, fn: Callable[[Any, Any], Any], *, schema: Any, name: str | None = None, on_error: Policy = None
    ) -> SparkStream[Any, Any]:
        """Pass the columns of each window to `fn(df, batch)` in Spark, as rows are."""
        self._columns._only_columns("window().spark()")
        return self._windowed.spark(fn, schema=schema, name=name, on_error=on_error)


def _made_of(node: Node, made: Mapping[str, ColumnRef]) -> ColumnRef:
    """What an expression is made of as text, in decoded columns alone; a digest of long text, which may double with each step."""
    text = str(substituted(node, made))
    return ColumnRef(text if len(text) <= _LONG else hashlib.sha256(text.encode()).hexdigest())


def condition(given: Any, schema: ColumnSchema, verb: str) -> Node:
    """The node of an expression that is true or false for each record of this schema; a `DeclarationError` for anything else."""
    if not isinstance(given, Expression):
        remedy = 'an expression: hg.col("amount") >= 10; a function of a value needs rows: .rows()'
        raise DeclarationError(f"{verb}({given!r:.60}) is not an expression", remedy=remedy)
    found = kind_of(given.node, schema)
    if found.type != BOOL:
        raise DeclarationError(
            f"{verb}({given.node}) is {found.type}, not a condition", remedy="compare it with something"
        )
    return given.node


# -------------------------------------------------------------------------------------------------- from rows to columns


def columns_behind(stream: Stream[Any, Any], kind: Any, extra: Any, on_error: Policy) -> ColumnStream[Any, Any]:
    """The columns of a stream of rows: of the type that its input declares or, with `kind`, of that type.

    Behind an input of JSON, the bytes are decoded into columns directly.
    """
    if kind is not None and is_arrow_schema(kind):
        kind = type_of_arrow(kind)
    parent = stream.step
    serde: Serde[Any] = parent.serde if isinstance(parent, InputStep) else raw()
    known = serde.type if isinstance(parent, InputStep) else None
    if kind is None and known is None:
        raise DeclarationError(
            "columns() does not know the columns",
            remedy="declare them: app.input(…, serde=hg.json(Order)), or .columns(Order)",
        )
    if extra not in (None, KEEP):
        raise DeclarationError(f"columns(extra={extra!r:.60})", remedy="extra='keep', or nothing")
    direct = serde.name.partition("(")[0] == "json" and known in (None, kind or known)
    direct = direct and not (isinstance(parent, InputStep) and parent.producers)  # frames, not the bytes of a record
    if extra is not None and not (direct and isinstance(parent, InputStep)):
        raise DeclarationError(
            "columns(extra='keep') needs the bytes of an input in JSON",
            remedy="put it directly behind the input: app.input(…, serde=hg.json(Order)).columns(extra='keep')",
        )
    kind = kind or known
    schema = columns_of_type(kind)
    if direct and isinstance(parent, InputStep):
        check_columns_of(parent, schema)
    step = ColumnsStep(
        parents=(parent,),
        schema=schema,
        direct=direct,
        keeps=extra is not None,
        on_error=check_policy(on_error, "columns(on_error)"),
        where=called_from(),
    )
    return ColumnStream(stream._then(step), schema, kind, extra=extra)
