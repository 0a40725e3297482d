"""The streams, windows and batches of a job: users chain verbs on them. A verb checks what it is given and adds one step.

    orders = app.input("orders", serde=hg.json(Order), timestamp="ts").columns()
    big = orders.filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 1.2)
    big.repartition("user").agg(n=hg.count(), total=hg.sum("total")).to("per-user")

Streams are values: a verb never changes the stream that it is called on, so a stream can be used several times.
A verb that keeps state or shuffles takes its name from `name=` or from its own arguments (`repartition("country")` is
`by-country`), never from its position: adding a verb upstream renames nothing.

What is here returns each other, so it stands in one file: what verbs are called with, and what they return. What they check and declare is
in the other files of this room.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ....core.batching.publishing import declared_write
from ....core.columns.expressions import Expression
from ....core.errors import DeclarationError, UnknownName
from ....core.words import COLUMNS, ROWS, WINDOW
from ...records.values.record import Record
from ...records.values.serdes import json
from ..derive.references import by_reference
from ..derive.result_fields import check_aggregated, check_field, check_written
from ..steps import rows as r
from ..steps.batches import BatchStep, SparkStep, WriteStep
from ..steps.ends import ActorStep
from ..steps.keyed import AggregateStep
from ..steps.sources import ShuffleStep
from ..steps.step import Policy
from ..types.aggregates import Aggregate, check_are_aggregates, check_before, check_combine, plan
from ..types.arguments import check_function, check_selector
from ..types.windows import Window
from .actors import check_actor
from .batches import batch, gather, spark, window_batches
from .branches import branches
from .checks import Selector, check_migrate, check_partitions, check_policy, name_of
from .columns import EndsOfColumns, KnownColumns, columns_behind, filter_rows, schema_of_conditions
from .declaring import Declaring, added, serde_for
from .deduping import dedupe_step
from .ends import Ended, EndsOfRows, TableView
from .joins import JoinDistance, join_columns_step, join_step, join_table_columns_step, join_table_step
from .keeping import kept
from .lookups import AwayErrors, lookup_step
from .merging import merge_step
from .refused_verbs import RefusesVerbs, no_verb, unbounded
from .sink_ends import EndsInSinks
from .windows import DeclaredWindow

if TYPE_CHECKING:
    import pandas
    import polars

    from ....core.columns.schema import Scalar
    from ...records.columns.frame_libraries import Library
    from ...records.values.serdes import ArrowSchema, Serde
    from ..types.schemas import Migrate
    from .actors import Actor

    Fields = str | tuple[str, str] | None
    Take = Sequence[str] | Mapping[str, str] | None
    Serdes = Serde[Any] | tuple[Serde[Any], Serde[Any]] | None

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
T = TypeVar("T")
K2 = TypeVar("K2")


class RowsOrColumns(EndsInSinks, Generic[K, V]):
    """What streams of rows and streams of columns have in common."""

    _columns: Any = None
    """Its columns, as `KnownColumns`; None for rows."""

    def agg(
        self,
        *,
        name: str | None = None,
        on_error: Policy = None,
        migrate: Migrate | None = None,
        combine: bool | None = None,
        before: bool = False,
        **aggregates: Aggregate,
    ) -> Stream[K, dict[str, Any]]:
        """Running aggregates for each key. At each commit they emit an update for each key that has changed. With `before=True` it also
        says what it replaces: `n_before` for a result `n`.

        >>> orders.repartition("country").agg(n=hg.count(), total=hg.sum("amount")).to("totals")

        Of columns, a null in a sum, mean, minimum or maximum is an error of its record: filter it out before.

        The step finds its state by its name after the code has changed; fields are compared by name. `migrate(names, states)` converts old
        states that do not fit into new ones; both are mappings of name to state.

        Behind a `repartition`, `combine` says whether each task aggregates its rows before they are sent, so that a commit sends one state
        for each key instead of every row. By default it does, but for columns with aggregates of other things than numbers: there rows
        cost less than states, unless a commit has many rows of each key.
        """
        check_are_aggregates(aggregates)
        if self._columns is not None:
            aggregates = self._columns.checked_aggregates(aggregates)
            made = plan(aggregates, self._columns.schema)
        else:
            made = plan(aggregates, schema_of_conditions(self, aggregates))
            check_aggregated(self.step, made)
        step = added(
            self,
            AggregateStep,
            plan=made,
            name=name_of("agg", None, name or "agg-" + "-".join(aggregates)),
            key_serde=self.app.key_serde,
            migrate=check_migrate(migrate, "agg"),
            combine=check_combine(combine, made),
            before=check_before(before, made),
            on_error=check_policy(on_error, "agg"),
        )
        return Stream(self.app, step)

    def batch(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
        by: Literal["inline", "reference", "size"] = "inline",
    ) -> BatchedStream[K, V]:
        """Bounded batches of rows. Their number of rows, their size, their age, the end of the stream or a drain closes them.

        With `by="reference"`, directly behind an input with declared columns, a batch is ranges of offsets: no record is fetched here, and
        Spark's executors read Kafka themselves. `max_rows` then bounds the number of offsets. With `by="size"`, batches of more than a
        million rows are by reference.

        Columns stay in Arrow's memory layout from the fetch to Spark. With `by="reference"` directly behind their `.repartition(…)`, a
        batch is ranges of offsets of the intermediate stream: executors read its frames, the task log holds the offsets alone, and no
        record is trimmed before its batch is done. A batch has whole frames: it ends before the frame with which it would exceed
        `max_rows`.

        >>> orders.columns().filter(hg.col("amount") > 0).batch(max_age="10s").spark(revenue, schema="country string, revenue double")
        """
        if self._columns is not None:
            self._columns.alone("batch()")
        schema = None if self._columns is None else self._columns.schema
        reference = by_reference(self.step, self.app.on_bad_data, by, max_rows, max_bytes, schema)
        step = batch(self, max_rows, max_bytes, max_age, name, schema, reference=reference)
        return BatchedStream(self.app, step)


class Stream(RowsOrColumns[K, V], EndsOfRows[K, V]):
    """A stream of records with keys of type `K` and values of type `V`.

    >>> (app.input("orders")
    ...     .filter(lambda order: order["amount"] > 0)
    ...     .to("paid"))
    """

    KIND = ROWS

    def __repr__(self) -> str:
        return f"<Stream of {self.app.name}: {type(self.step).__name__} {self.step.name}>"

    def _refused(self, verb: str) -> UnknownName:
        if hasattr(ColumnStream, verb):
            return UnknownName(f".{verb}() needs columns, and this is a stream of rows", remedy=f".columns().{verb}(…)")
        return unbounded(verb) or no_verb(verb, Stream, ROWS)

    def _then(self, kind: Callable[..., Any], **given: Any) -> Stream[Any, Any]:
        return Stream(self.app, added(self, kind, **given))

    # ------------------------------------------------------------------------------------------------ one row at a time

    @overload
    def map(
        self, fn: Callable[[V], W], *, with_record: Literal[False] = ..., on_error: Policy = ...
    ) -> Stream[K, W]: ...
    @overload
    def map(
        self, fn: Callable[[Record[K, V]], Record[K2, W]], *, with_record: Literal[True], on_error: Policy = ...
    ) -> Stream[K2, W]: ...
    @overload
    def map(
        self, fn: Callable[[Record[K, V]], W], *, with_record: Literal[True], on_error: Policy = ...
    ) -> Stream[K, W]: ...
    def map(self, fn: Callable[[Any], Any], *, with_record: bool = False, on_error: Policy = None) -> Stream[Any, Any]:
        """Replace each value by `fn(value)`. With `with_record=True`, the function gets a `Record`, and may return one."""
        check_function(fn, "map")
        return self._then(r.MapStep, fn=fn, with_record=with_record, on_error=check_policy(on_error, "map(on_error)"))

    @overload
    def flat_map(
        self, fn: Callable[[V], Iterable[W]], *, with_record: Literal[False] = ..., on_error: Policy = ...
    ) -> Stream[K, W]: ...
    @overload
    def flat_map(
        self, fn: Callable[[Record[K, V]], Iterable[W]], *, with_record: Literal[True], on_error: Policy = ...
    ) -> Stream[K, W]: ...
    def flat_map(
        self, fn: Callable[[Any], Iterable[Any]], *, with_record: bool = False, on_error: Policy = None
    ) -> Stream[Any, Any]:
        """Replace each value by any number of values, in order. They keep its key and timestamp."""
        check_function(fn, "flat_map", yields=True)
        policy = check_policy(on_error, "flat_map(on_error)")
        return self._then(r.FlatMapStep, fn=fn, with_record=with_record, on_error=policy)

    @overload
    def filter(self, fn: Expression, *, with_record: Literal[False] = ..., on_error: Policy = ...) -> Stream[K, V]: ...
    @overload
    def filter(
        self, fn: Callable[[V], object], *, with_record: Literal[False] = ..., on_error: Policy = ...
    ) -> Stream[K, V]: ...
    @overload
    def filter(
        self, fn: Callable[[Record[K, V]], object], *, with_record: Literal[True], on_error: Policy = ...
    ) -> Stream[K, V]: ...
    def filter(
        self, fn: Callable[[Any], Any] | Expression, *, with_record: bool = False, on_error: Policy = None
    ) -> Stream[K, V]:
        """Keep only the records for which the function returns a true value, or the expression is true.

        An expression needs values of a declared type. It is data: if all steps behind an input only name fields, no function needs a value,
        and headgate reads the input as columns.

        >>> app.input("orders", serde=hg.json(Order)).filter(hg.col("amount") >= 10)
        """
        policy = check_policy(on_error, "filter(on_error)")
        if isinstance(fn, Expression):
            return Stream(self.app, filter_rows(self, fn, with_record, on_error))
        check_function(fn, "filter")
        return self._then(r.FilterStep, fn=fn, with_record=with_record, on_error=policy)

    def branch(
        self, *conditions: Callable[[Any], object] | Expression, with_record: bool = False, on_error: Policy = None
    ) -> tuple[Stream[K, V], ...]:
        """Make one stream for each condition: a record goes to the first one that holds, and nowhere if none does.

        Conditions are functions or expressions, as in `filter`. All streams are in one transaction. A function is asked again for each
        stream that stands behind its own.

        >>> large, others = app.input("orders").branch(lambda order: order["amount"] >= 100, lambda order: True)
        """
        return tuple(
            self.filter(keep, with_record=with_record, on_error=on_error)  # type: ignore[call-overload]
            for keep in branches(conditions)
        )

    @overload
    def peek(
        self, fn: Callable[[V], object], *, with_record: Literal[False] = ..., on_error: Policy = ...
    ) -> Stream[K, V]: ...
    @overload
    def peek(
        self, fn: Callable[[Record[K, V]], object], *, with_record: Literal[True], on_error: Policy = ...
    ) -> Stream[K, V]: ...
    def peek(self, fn: Callable[[Any], object], *, with_record: bool = False, on_error: Policy = None) -> Stream[K, V]:
        """Call `fn(value)` for each record, and pass the record on. It is called again when a chunk is repeated.

        >>> app.input("orders").peek(print)
        """
        check_function(fn, "peek")
        return self._then(r.PeekStep, fn=fn, with_record=with_record, on_error=check_policy(on_error, "peek(on_error)"))

    @overload
    def columns(self, kind: None = ..., *, extra: Literal["keep"] | None = ...,
                on_error: Policy = ...) -> ColumnStream[K, V]: ...  # fmt: skip
    @overload
    def columns(self, kind: type[W], *, extra: Literal["keep"] | None = ...,
                on_error: Policy = ...) -> ColumnStream[K, W]: ...  # fmt: skip
    @overload
    def columns(self, kind: ArrowSchema, *, extra: Literal["keep"] | None = ...,
                on_error: Policy = ...) -> ColumnStream[K, dict[str, Any]]: ...  # fmt: skip
    def columns(
        self, kind: Any = None, *, extra: Literal["keep"] | None = None, on_error: Policy = None
    ) -> ColumnStream[K, Any]:
        """Turn to columns: of the type that the input declares (`serde=hg.json(Order)`), or of `kind`.

        Directly behind such an input, only the columns that the job uses are decoded, and no value is made of a record. Behind
        `.agg(…)`, the results are the columns. Behind other steps, a value that does not fit the type is an error of its record. Null
        values are no rows: they are counted and dropped.

        With `extra="keep"`, `.to(…)` also writes the fields that the type does not have, byte for byte. They pass `filter` and
        `with_columns`, and nothing else: a step that would lose them is refused.

        >>> app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") >= 10)
        """
        return ColumnStream(self.app, *columns_behind(self, kind, extra, on_error))

    @overload
    def map_async(self, fn: Callable[[V], Awaitable[W]], *, concurrency: int = ..., with_record: Literal[False] = ...,
                  on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def map_async(self, fn: Callable[[Record[K, V]], Awaitable[W]], *, concurrency: int = ..., with_record: Literal[True],
                  on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    def map_async(
        self,
        fn: Callable[[Any], Awaitable[Any]],
        *,
        concurrency: int = 16,
        with_record: bool = False,
        on_error: Policy = None,
    ) -> Stream[Any, Any]:
        """Await `fn` for each value, at most `concurrency` at a time in a task. The results keep the order of the input."""
        check_function(fn, "map_async", awaits=True)
        policy = check_policy(on_error, "map_async(on_error)")
        if type(concurrency) is not int or concurrency < 1:
            raise DeclarationError(
                f"map_async(concurrency={concurrency!r}) would never run anything", remedy="at least 1"
            )
        return self._then(r.MapAsyncStep, fn=fn, concurrency=concurrency, with_record=with_record, on_error=policy)

    @overload
    def lookup(self, fn: Callable[[Any], Awaitable[T]], *, into: Callable[[V, T], W], on: Selector | None = ..., batch: Literal[1] = ...,
               cache: str | float | None = ..., max_cached: int | None = ..., rate: str | float | None = ..., concurrency: int = ...,
               timeout: str | float = ..., retry: int = ..., breaker: int = ..., away: AwayErrors = ...,
               on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def lookup(self, fn: Callable[[Any], Awaitable[W]], *, into: None = ..., on: Selector | None = ..., batch: Literal[1] = ...,
               cache: str | float | None = ..., max_cached: int | None = ..., rate: str | float | None = ..., concurrency: int = ...,
               timeout: str | float = ..., retry: int = ..., breaker: int = ..., away: AwayErrors = ...,
               on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def lookup(self, fn: Callable[[list[Any]], Awaitable[Sequence[T]]], *, into: Callable[[V, T], W], on: Selector | None = ...,
               batch: int, cache: str | float | None = ..., max_cached: int | None = ..., rate: str | float | None = ...,
               concurrency: int = ..., timeout: str | float = ..., retry: int = ..., breaker: int = ..., away: AwayErrors = ...,
               on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def lookup(self, fn: Callable[[list[Any]], Awaitable[Sequence[W]]], *, into: None = ..., on: Selector | None = ...,
               batch: int, cache: str | float | None = ..., max_cached: int | None = ..., rate: str | float | None = ...,
               concurrency: int = ..., timeout: str | float = ..., retry: int = ..., breaker: int = ..., away: AwayErrors = ...,
               on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    def lookup(
        self,
        fn: Callable[[Any], Awaitable[Any]],
        *,
        into: Callable[[Any, Any], Any] | None = None,
        on: Selector | None = None,
        batch: int = 1,
        cache: str | float | None = None,
        max_cached: int | None = None,
        rate: str | float | None = None,
        concurrency: int = 100,
        timeout: str | float = "10s",
        retry: int = 2,
        breaker: int = 5,
        away: AwayErrors = OSError,
        on_error: Policy = None,
    ) -> Stream[Any, Any]:
        """Ask a service about each record: `into(value, answer)` is the new value; without `into`, the answer is.

        >>> orders.lookup(price_of, on="item", cache="5m", rate="500/s", into=lambda order, price: {**order, "price": price})

        `fn` is asked for `on`, a field or a function, or for the value. With `batch=50` it gets a list of up to 50, and returns as many
        answers. Equal questions of a letter are asked once; with `cache`, an answer is good for that long, `max_cached` of them
        (10,000). Each record has its answer for itself.

        A task makes at most `concurrency` calls at a time, and at most `rate` (`"500/s"`, `"30/m"`). The records keep their order.

        A call that raises, or takes longer than `timeout`, is made again `retry` times; then `on_error` decides about its record. After
        `breaker` calls in a row that failed with an error of `away`, the service is asked only once in a while until it answers, and the
        records wait (0: never).
        """
        asked = {
            "batch": batch,
            "concurrency": concurrency,
            "retry": retry,
            "breaker": breaker,
        }
        times = {"cache": cache, "timeout": timeout, "rate": rate}
        return Stream(self.app, lookup_step(self, fn, into, on, away, on_error, max_cached, asked, times))

    # ---------------------------------------------------------------------------------------------- keys and partitions

    def merge(self, *others: Stream[K, V]) -> Stream[K, V]:
        """Merge this stream with others. Their records have no order among each other."""
        return Stream(self.app, merge_step(self, others, Stream))

    def dedupe(
        self, *, ttl: str | float | None = None, name: str | None = None, on_error: Policy = None
    ) -> Stream[K, V]:
        """Keep only the first record of each key. With `ttl`, a key is forgotten so long after its first record, by the clock.

        >>> payments.repartition("id").dedupe(ttl="1d").to("payments-once")
        """
        return Stream(self.app, dedupe_step(self, ttl, name, on_error))

    def as_events(self) -> Stream[K, V]:
        """From here on, each update counts as an event of its own.

        A running `.agg(…)` emits *updates*: each is the newest value of its key. `agg`, `window` and `batch` behind updates are refused,
        and so is a merge with events, because a count of 1, 2, 3 would add up to 6. `as_events()` says that this is intended.

        >>> totals.as_events().window(hg.tumbling("1m")).agg(changes=hg.count())
        """
        return self._then(r.EventsStep)

    @overload
    def rekey(self, by: str, *, on_error: Policy = ...) -> Stream[Any, V]: ...
    @overload
    def rekey(self, by: Callable[[V], K2], *, on_error: Policy = ...) -> Stream[K2, V]: ...
    def rekey(self, by: Selector, *, on_error: Policy = None) -> Stream[Any, V]:
        """Set another key without moving the records. The key is for `to`; to bring equal keys together, use `repartition`."""
        check_selector(by, "rekey")
        check_field(self.step, by, f"rekey({by!r})")
        return self._then(r.RekeyStep, by=by, on_error=check_policy(on_error, "rekey(on_error)"))

    @overload
    def repartition(self, by: None = ..., *, name: str, partitions: int | None = ..., serde: Serde[Any] | None = ...,
                    key_serde: Serde[Any] | None = ..., on_error: Policy = ...) -> Stream[K, V]: ...  # fmt: skip
    @overload
    def repartition(self, by: str, *, name: str | None = ..., partitions: int | None = ..., serde: Serde[Any] | None = ...,
                    key_serde: None = ..., on_error: Policy = ...) -> Stream[Any, V]: ...  # fmt: skip
    @overload
    def repartition(self, by: Selector, *, name: str | None = ..., partitions: int | None = ...,
                    serde: Serde[Any] | None = ..., key_serde: Serde[K2], on_error: Policy = ...) -> Stream[K2, V]: ...  # fmt: skip
    @overload
    def repartition(self, by: Callable[[V], K2], *, name: str | None = ..., partitions: int | None = ...,
                    serde: Serde[Any] | None = ..., key_serde: None = ..., on_error: Policy = ...) -> Stream[K2, V]: ...  # fmt: skip
    def repartition(
        self,
        by: Selector | None = None,
        *,
        name: str | None = None,
        partitions: int | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Stream[Any, V]:
        """Send the records through an intermediate stream, so that all records of a key reach the same task.

        `by` is a field of the value or a function of it. Without `by`, the record's own key is used, and `name=` is required. `serde`
        writes the values on their way: by default that of the app or, for values of a declared dataclass or Struct, that of their type.
        """
        if by is not None:
            check_selector(by, "repartition")
            check_field(self.step, by, f"repartition({by!r})")
        check_partitions(partitions, "repartition(")
        serde = serde_for(self, serde, "repartition(serde")
        check_written(self.step, serde, "repartition()")
        made = name_of("by", by, name)
        self.app.topics.intermediate(made)
        key_serde = serde_for(self, key_serde, "repartition(key_serde", self.app.key_serde)
        policy = check_policy(on_error, "repartition(on_error)")
        given = {"name": made, "serde": serde, "key_serde": key_serde, "partitions": partitions}
        return self._then(ShuffleStep, by=by, on_error=policy, **given)

    def broadcast(self, name: str, *, serde: Serde[Any] | None = None) -> Stream[K, V]:
        """Send the records through an intermediate stream from which every task receives every record."""
        made = name_of("all", None, name)
        self.app.topics.intermediate(made)
        own = serde_for(self, serde, "broadcast(serde")
        return self._then(ShuffleStep, name=made, by=None, serde=own, key_serde=self.app.key_serde, everyone=True)

    def gather(self, *, name: str | None = None, serde: Serde[Any] | None = None) -> GatheredStream[K, V]:
        """Send the records of all tasks to one task, through an intermediate stream with one partition, so that `.window(…)` or `.batch(…)`
        makes batches of all of them for Spark.

        >>> orders.gather().window(hg.tumbling("1m")).spark(ranking, schema="country string, place int").to("ranking")

        What waits there for Spark is at most `gather.max-bytes`. `serde` writes the values on their way, as in `repartition`.
        """
        return GatheredStream(self.app, gather(self, name, serde_for(self, serde, "gather(serde"), None))

    # ------------------------------------------------------------------------------------------------------------ state

    def window(
        self,
        window: Window,
        *,
        emit: str | int = "final",
        late: str | None = None,
        at_end: Literal["close", "keep"] | None = None,
        name: str | None = None,
    ) -> WindowedStream[K, V]:
        """Group rows by key and time window; `.agg(…)` says how to aggregate them, `.process(…)` and `.spark(…)` pass them on.

        `emit`: also emit early results of the windows that have changed, every `"10s"` of the worker's clock or when at least `1000` rows
        have arrived. They are updates: the newest one counts.

        `late`: the topic to which rows of closed windows are written unchanged; without it they are only counted. The end of the stream
        and a drain close all windows (`at_end="close"`, the default), and the next run starts with none; with `at_end="keep"` it continues
        with the open ones. In front of `to(key=hg.window_key)` one of the two must be written out.
        """
        return WindowedStream(DeclaredWindow(self, window, emit, late, at_end, name))

    @overload
    def join(self, other: TableView[Any, T], *, on: Selector | None = ..., into: Callable[[V, T], W],
             how: Literal["inner"] = ..., on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def join(self, other: TableView[Any, T], *, on: Selector | None = ..., into: Callable[[V, T | None], W],
             how: Literal["left"], on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def join(self, other: Stream[K, T], *, within: JoinDistance, on: Fields = ..., into: Callable[[V, T], W], how: Literal["inner"] = ...,
             grace: str | float = ..., late: str | None = ..., at_end: Literal["close", "keep"] = ..., name: str | None = ...,
             serde: Serdes = ..., on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def join(self, other: Stream[K, T], *, within: JoinDistance, on: Fields = ..., into: Callable[[V, T | None], W],
             how: Literal["left"], grace: str | float = ..., late: str | None = ..., at_end: Literal["close", "keep"] = ...,
             name: str | None = ..., serde: Serdes = ..., on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    @overload
    def join(self, other: Stream[K, T], *, within: JoinDistance, on: Fields = ..., into: Callable[[V | None, T | None], W],
             how: Literal["outer"], grace: str | float = ..., late: str | None = ..., at_end: Literal["close", "keep"] = ...,
             name: str | None = ..., serde: Serdes = ..., on_error: Policy = ...) -> Stream[K, W]: ...  # fmt: skip
    def join(
        self,
        other: TableView[Any, Any] | Stream[Any, Any],
        *,
        on: Selector | tuple[str, str] | None = None,
        within: JoinDistance | None = None,
        into: Callable[[Any, Any], Any],
        how: str = "inner",
        grace: str | float = 0,
        late: str | None = None,
        at_end: Literal["close", "keep"] = "close",
        name: str | None = None,
        serde: Serdes = None,
        on_error: Policy = None,
    ) -> Stream[Any, Any]:
        """Join each record with its row of a table, or with the records of another stream.

        *With a table*: `into(value, row)`. `on` is a field or a function; without it, the record's key is looked up. `inner` drops and
        counts a record without a row; `left` calls `into(value, None)`.

        *With a stream*: `into(left, right)` for each two records that have the same key and whose times are at most `within` apart.

        >>> orders.join(payments, within="10s", into=lambda order, payment: {**order, **payment}).to("paid")

        `on` names the field by which both streams are keyed, or one for each if they differ: `on=("id", "order")`.
        `within=("1s", "10s")`: the right record is at most 1 s older and at most 10 s younger than the left. A pair has the greater
        timestamp, and the headers of both records. With `left`, a left record that finds no partner becomes `into(left, None)`, once event
        time has passed its last possible one; with `outer`, also a right one `into(None, right)`. Records are accepted until event time is
        `grace` ahead of them; later ones are counted and, with `late=`, written to that topic. `serde` writes the values that wait for
        partners: one for both sides, or a pair. An end of stream and a drain end the wait of all records; with `at_end="keep"` they go on
        waiting in the next run.
        """
        if isinstance(other, Stream):
            more = {"how": how, "late": late, "at_end": at_end, "name": name, "serde": serde, "on_error": on_error}
            return Stream(self.app, join_step(self, other, within=within, on=on, into=into, grace=grace, **more))
        keeps = None if at_end == "close" else at_end
        unused = {"within": within, "grace": grace or None, "late": late, "at_end": keeps, "name": name, "serde": serde}
        return Stream(self.app, join_table_step(self, other, on, into, how, on_error, **unused))

    def process(
        self, actor: type[Actor], /, *, name: str | None = None, on_error: Policy = None, **args: Any
    ) -> Stream[Any, Any]:
        """Process the records in your own actor, constructed with `args`. What it passes to `ctx.forward(…)` goes to the next step."""
        check_actor(actor, "process", args)
        title = name_of("actor", None, name or actor.__name__)
        return self._then(ActorStep, name=title, cls=actor, args=args, on_error=check_policy(on_error, "process"))


class SparkStream(Stream[K, V]):
    """The rows that a PySpark function returns for each batch."""

    step: SparkStep

    def write(
        self,
        target: str | PathLike[str] | Callable[[Any, Any], Any],
        /,
        *,
        format: str | None = None,
        partition_by: str | Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        keep: str | float | None = None,
        delete_after: str | float | None = None,
    ) -> Ended:
        """Let Spark write the result of each batch, instead of passing it on.

        >>> lots.spark(revenue, schema=schema).write("s3a://lake/revenue", partition_by=["country"])

        `target` is a directory: an absolute path or a URI of any file system of Spark. `format` is `parquet` (default), `orc` or
        `json`: each batch is there exactly once, and `hg.published(path)` gives the files of the batches that are whole. With
        `format="delta"` each batch is a transaction of a Delta table, exactly once, too. `options` go to Spark's writer.

        With `keep="30d"`, batches whose newest row is older are forgotten: `hg.published` does not give their files any more, which are
        deleted `delete_after` later (`1d`).

        `target` may also be a function `(df, batch)` that writes in any other way, at least once: `batch.id` stays the same when a batch is
        written again.
        """
        if callable(target):
            check_function(target, "write", number=2, signature="(df, batch)")
        stay = kept("write", keep, delete_after, self.step)
        added(self, WriteStep, write=declared_write(target, format, partition_by, options, self.step.columns, stay))
        return Ended("write()")


class ColumnStream(RowsOrColumns[K, V], EndsOfColumns):
    """A stream of columns, with keys of type `K`. `.rows()` makes values of type `V` of it.

    >>> orders.columns().filter(hg.col("amount") >= 10).to("big-orders")
    """

    KIND = COLUMNS

    def __repr__(self) -> str:
        return f"<ColumnStream of {self.app.name}: {self.schema}>"

    def _refused(self, verb: str) -> UnknownName:
        if hasattr(Stream, verb):
            return UnknownName(f".{verb}() needs rows, and this is a stream of columns", remedy=f".rows().{verb}(…)")
        more = "; what they cannot say, a function of a frame can: .frame(…)"
        return unbounded(verb) or no_verb(verb, ColumnStream, COLUMNS, more)

    def filter(self, keep: Expression, *, on_error: Policy = None) -> ColumnStream[K, V]:
        """Keep only the records for which the expression is true; false and null are dropped.

        >>> orders.filter((hg.col("amount") >= 10) & ~hg.col("country").is_in(["DE", "FR"]))
        """
        return ColumnStream(self.app, self._columns.filter(self, keep, on_error), self._columns)

    def dedupe(
        self, *, ttl: str | float | None = None, name: str | None = None, on_error: Policy = None
    ) -> ColumnStream[K, V]:
        """Keep only the first record of each key, as of rows."""
        return ColumnStream(self.app, dedupe_step(self, ttl, name, on_error), self._columns)

    def merge(self, *others: ColumnStream[K, V]) -> ColumnStream[K, V]:
        """Merge this stream with others that have the same columns. Their records have no order among each other."""
        step = merge_step(self, others, ColumnStream)
        return ColumnStream(self.app, step, self._columns.merged([one._columns for one in others]))

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
        return ColumnStream(self.app, *self._columns.with_columns(self, columns, on_error))

    def select(
        self, *names: str, on_error: Policy = None, **columns: Expression | Scalar
    ) -> ColumnStream[K, dict[str, Any]]:
        """Keep these columns, in this order, and leave out all others. Expressions make new ones, or give a column another name.

        >>> orders.select("user", total=hg.col("amount") * 1.2, placed=hg.col("ts"))
        """
        return ColumnStream(self.app, *self._columns.select(self, names, columns, on_error))

    def key_as(
        self, name: str, kind: type[str] | type[int] = str, *, on_error: Policy = None
    ) -> ColumnStream[K, dict[str, Any]]:
        """Add the key of each record as a column, which is null where a record has none. A key of another type is an error of its record.

        >>> per_country.as_events().columns().key_as("country")
        """
        return ColumnStream(self.app, *self._columns.key_as(self, name, kind, on_error))

    def explode(
        self, column: str, *, name: str | None = None, keep_empty: bool = False, on_error: Policy = None
    ) -> ColumnStream[K, dict[str, Any]]:
        """Make a row of each element of a list, in order. It keeps the other columns, the key, the headers and the timestamp.

        The element stands in the place of the list, under its name or under `name`; the fields of an object are columns. An empty list, or
        null, makes no row or, with `keep_empty=True`, one whose element is null.

        >>> orders.explode("items", name="item").select("user", sku=hg.col("item.sku"))
        """
        return ColumnStream(self.app, *self._columns.explode(self, column, name, keep_empty, on_error))

    @overload
    def join(self, other: TableView[Any, Any], *, on: str | None = ..., take: Take = ..., how: Literal["inner", "left"] = ...,
             on_error: Policy = ...) -> ColumnStream[K, dict[str, Any]]: ...  # fmt: skip
    @overload
    def join(self, other: ColumnStream[K, Any], *, within: JoinDistance, on: Fields = ..., take: Take = ...,
             how: Literal["inner", "left", "outer"] = ..., grace: str | float = ..., late: str | None = ...,
             at_end: Literal["close", "keep"] = ..., name: str | None = ...,
             on_error: Policy = ...) -> ColumnStream[K, dict[str, Any]]: ...  # fmt: skip
    def join(
        self,
        other: TableView[Any, Any] | ColumnStream[Any, Any],
        *,
        on: str | tuple[str, str] | None = None,
        within: JoinDistance | None = None,
        take: Take = None,
        how: str = "inner",
        grace: str | float = 0,
        late: str | None = None,
        at_end: Literal["close", "keep"] = "close",
        name: str | None = None,
        on_error: Policy = None,
    ) -> ColumnStream[K, dict[str, Any]]:
        """Join each record with its row of a table, or with the records of another stream of columns: fields of the other become columns.

        `take` names these fields, as a list, or as a dict from the names of the columns; without it, all that can be columns are taken.

        *With a table*: `on` is the column that is looked up; without it, the record's key is. `inner` drops and counts a record without a
        row; with `left` its new columns are null.

        >>> ads = app.input("ads", serde=hg.json(Ad), key="ad").table("ads", broadcast=True)
        >>> clicks.columns().join(ads, on="ad", take=["campaign"]).repartition("campaign")

        *With a stream*: each two records that have the same key, and whose times are at most `within` apart, become one. Where a record
        found no partner, the columns of the other are null: with `left` of the right, with `outer` of either. All else is as for rows: see
        `Stream.join`.

        >>> orders.columns(Order).join(payments.columns(Payment), within="10s", take=["paid"]).to("paid")
        """
        known, keeps = self._columns, None if at_end == "close" else at_end
        if isinstance(other, ColumnStream):
            more = {
                "within": within,
                "on": on,
                "how": how,
                "grace": grace,
                "late": late,
                "at_end": at_end,
                "name": name,
            }
            both = known, other._columns
            return ColumnStream(self.app, *join_columns_step(self, other, both, take, on_error=on_error, **more))
        unused = {"within": within, "grace": grace or None, "late": late, "at_end": keeps, "name": name}
        return ColumnStream(self.app, *join_table_columns_step(self, known, other, on, take, how, on_error, **unused))

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
        return ColumnStream(self.app, *self._columns.repartition(self, by, name, partitions, key_serde, on_error))

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
            self._columns.alone("window(late=…)")
            self.schema.flat("window(late=…)")
            self.schema.only_stored("window(late=…)")
        made = DeclaredWindow(self, window, emit, late, at_end, name, self.schema)
        return WindowedColumns(made, self._columns)

    def gather(self, *, name: str | None = None) -> GatheredStream[K, V]:
        """Send the records of all tasks to one task, as of rows.

        >>> orders.columns().gather().window(hg.tumbling("1m")).spark(ranking, schema="country string, place int").to("ranking")
        """
        self._columns.alone("gather()")
        return GatheredStream(self.app, gather(self, name, json(), self.schema))

    @overload
    def frame(self, fn: Callable[[polars.DataFrame], object], *, like: Literal["polars"], schema: type[W],
              on_error: Policy = ...) -> ColumnStream[K, W]: ...  # fmt: skip
    @overload
    def frame(self, fn: Callable[[pandas.DataFrame], object], *, like: Literal["pandas"], schema: type[W],
              on_error: Policy = ...) -> ColumnStream[K, W]: ...  # fmt: skip
    @overload
    def frame(self, fn: Callable[[Any], object], *, like: Literal["pyarrow", "narwhals"] | None = ..., schema: type[W],
              on_error: Policy = ...) -> ColumnStream[K, W]: ...  # fmt: skip
    @overload
    def frame(self, fn: Callable[[Any], object], *, like: Library | None = ..., schema: ArrowSchema,
              on_error: Policy = ...) -> ColumnStream[K, dict[str, Any]]: ...  # fmt: skip
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
        return ColumnStream(self.app, *self._columns.frame(self, fn, like, schema, on_error))

    def rows(self) -> Stream[K, V]:
        """Make rows of the columns: values of the declared type or, once a column was added, dicts.

        One such border in a pipeline is enough: each costs an object for each record.
        """
        self._columns.alone("rows()")
        return Stream(self.app, self._columns.rows(self))


class WindowedStream(RefusesVerbs, Generic[K, V]):
    """Rows in windows, before `.agg(…)` says how to aggregate them."""

    KIND = WINDOW

    def __init__(self, window: DeclaredWindow) -> None:
        self._window = window
        self._batches: BatchedStream[Any, Any] | None = None

    def _refused(self, verb: str) -> UnknownName:
        if verb in ("batch", "gather"):
            return UnknownName(
                f".window().{verb}(): a window is a batch of its own",
                remedy=".window(…).spark(…) passes the rows of each window to Spark; .gather() stands before .window(…)",
            )
        return UnknownName(
            f".window().{verb}(): a window is not a record",
            remedy=f".window(…).agg(n=hg.count()).{verb}(…), .window(…).process(MyActor).{verb}(…), or .{verb}(…) without .window(…)",
        )

    def __repr__(self) -> str:
        return repr(self._window)

    def agg(
        self, *, on_error: Policy = None, migrate: Migrate | None = None, **aggregates: Aggregate
    ) -> Stream[K, dict[str, Any]]:
        """Aggregates for each key and window. Each gives a result when its window closes.

        >>> orders.repartition("country").window(hg.tumbling("1m", grace="5s")).agg(n=hg.count()).to("minutes")

        A result has these fields, `window_start` and `window_end` (in ms) and `closed_by`. Its timestamp is the last ms of its window.
        """
        return Stream(self._window.of.app, self._window.agg(aggregates, migrate, on_error))

    def process(
        self,
        actor: type[Actor],
        /,
        *,
        name: str | None = None,
        serde: Serde[Any] | None = None,
        on_error: Policy = None,
        **args: Any,
    ) -> Stream[K, Any]:
        """Pass the rows of each key and window to `on_batch` of an actor of your own, made with `args`, when the window closes.

        >>> orders.repartition("country").window(hg.tumbling("1m")).process(Median).to("medians")

        `batch.meta` has `window_start`, `window_end` (ms) and `closed_by`; the rows are sorted by timestamp. What the hook forwards gets
        the key of the rows and the last ms of the window as its timestamp, unless the call gives others. A mapping gets the three fields,
        unless it has fields of these names; any other value gets them as JSON in the header `hg-window`.

        `serde` encodes the values until the window closes; by default that of the app or, for values of a declared dataclass or Struct,
        that of their type. `on_error` decides about rows that it cannot encode.
        If the hook fails, the task fails: a window is no single record that could be left out.
        """
        return Stream(self._window.of.app, self._window.process(actor, name, serde, on_error, args))

    def spark(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        schema: Any,
        rows: Any = None,
        name: str | None = None,
        on_error: Policy = None,
    ) -> SparkStream[Any, Any]:
        """Pass the rows of each window to `fn(df, batch)` in Spark when the window closes: the rows of all keys of a task together.

        >>> orders.window(hg.tumbling("1m", grace="10s")).spark(revenue, schema="country string, revenue double").to("revenue")

        `batch` has `window_start` and `window_end`. The rows that the function returns are passed on, with the last ms of the window as
        their timestamp. `rows` declares the fields of the DataFrame where they are not known, as for `.batch(…)`. `.gather()` before the
        window brings the rows of all tasks together.
        """
        made = self._window
        made.check_final("spark", "Spark gets")
        if self._batches is None:
            step = window_batches(made.of, made.window, made.late, made.at_end, made.name, made.schema)
            self._batches = BatchedStream(made.of.app, step)
        stream = self._batches.spark(fn, schema=schema, rows=rows, name=name, on_error=on_error)
        made.used = True
        return stream


class WindowedColumns(RefusesVerbs, Generic[K]):
    """Columns in windows, before `.agg(…)` or `.spark(…)` says what to make of them."""

    KIND = WINDOW

    def __init__(self, window: DeclaredWindow, columns: KnownColumns) -> None:
        self._columns = columns
        self._windowed: WindowedStream[K, Any] = WindowedStream(window)

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
        aggregates = self._columns.checked_aggregates(aggregates)
        return self._windowed.agg(on_error=on_error, migrate=migrate, **aggregates)

    def spark(
        self, fn: Callable[[Any, Any], Any], *, schema: Any, name: str | None = None, on_error: Policy = None
    ) -> SparkStream[Any, Any]:
        """Pass the columns of each window to `fn(df, batch)` in Spark, as rows are."""
        self._columns.alone("window().spark()")
        return self._windowed.spark(fn, schema=schema, name=name, on_error=on_error)


class BatchedStream(Declaring, Generic[K, V]):
    """Bounded batches, before a verb such as `spark` says what to do with them."""

    step: BatchStep

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
        return SparkStream(self.app, spark(self, fn, schema, rows, name, on_error))


class GatheredStream(Declaring, Generic[K, V]):
    """All rows of a stream in one task, before `.window(…)` or `.batch(…)` says what a batch is."""

    step: ShuffleStep

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
        step = window_batches(self, window, late, at_end, name, self.step.schema, gathered=True)
        return BatchedStream(self.app, step)

    def batch(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_age: str | float | None = None,
        name: str | None = None,
    ) -> BatchedStream[K, V]:
        """Bounded batches of the rows of all tasks, as `Stream.batch` makes them of one task's rows."""
        step = batch(self, max_rows, max_bytes, max_age, name, self.step.schema, gathered=True)
        return BatchedStream(self.app, step)
