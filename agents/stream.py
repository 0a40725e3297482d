"""`Stream`: what users chain verbs on. A verb checks its arguments at once and adds one step; nothing runs.

Streams are values: a verb never changes the stream that it is called on, so a stream may be used several times.
A verb that keeps state or shuffles takes its name from `name=` or from its own arguments (`repartition("country")` is
`by-country`), never from its position: adding a verb upstream renames nothing.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ..core.errors import DeclarationError
from . import steps as s
from .aggregates import Aggregate, plan
from .record import Batch, Record

if TYPE_CHECKING:
    from .app import App
    from .serde import Serde

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
T = TypeVar("T")
K2 = TypeVar("K2")

Selector = str | Callable[[Any], Any]
POLICIES = ("fail", "skip", "dead_letter")


def called_from() -> str:
    """File and line of the first frame outside this package: where the user declared it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("headgate."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def check_policy(policy: s.Policy, where: str) -> s.Policy:
    """An error policy, or a `DeclarationError` that lists them."""
    if policy is None or callable(policy) or policy in POLICIES:
        return policy
    raise DeclarationError(
        f"{where}: {policy!r} is no error policy", remedy=f"one of {', '.join(POLICIES)}, or a function (record, exception)"
    )


def name_of(verb: str, selector: Selector | None, name: str | None) -> str:
    """The name of a step that has one: given, or made from its own arguments."""
    made = name
    if made is None and isinstance(selector, str):
        made = f"{verb}-{selector}"
    if made is None and selector is not None and not isinstance(selector, str):
        function = getattr(selector, "__name__", "<lambda>")
        made = None if function == "<lambda>" else f"{verb}-{function}"
    if made is None:
        raise DeclarationError(f"this {verb} step has no name", remedy="give it one: name=\"…\" (a lambda has none to lend)")
    made = made.replace("_", "-")
    if not re.fullmatch(r"[A-Za-z0-9.-]{1,100}", made):
        raise DeclarationError(f"'{made}' cannot be the name of a step", remedy="use letters, digits, '.', '-' and '_'")
    return made


def check_function(fn: Any, verb: str) -> None:
    """A callable that can take one argument; a coroutine function is refused where it would never be awaited."""
    if not callable(fn):
        raise DeclarationError(f"{verb}() needs a function, not {fn!r}")
    if inspect.iscoroutinefunction(fn) and verb not in ("map_async", "sink"):
        raise DeclarationError(f"{verb}({getattr(fn, '__name__', fn)}) is a coroutine function", remedy="use map_async()")


class Stream(Generic[K, V]):
    """A stream of records with keys of type `K` and values of type `V`.

    >>> (app.input("orders")
    ...     .filter(lambda order: order["amount"] > 0)
    ...     .to("paid"))
    """

    def __init__(self, app: App, step: s.Step) -> None:
        self.app = app
        self.step = step

    def __repr__(self) -> str:
        return f"<Stream of {self.app.name}: {type(self.step).__name__} {self.step.name}>"

    def _then(self, step: s.Step) -> Stream[Any, Any]:
        return Stream(self.app, self.app.add(step))

    # ------------------------------------------------------------------------------------------------ one row at a time

    @overload
    def map(self, fn: Callable[[V], W], *, with_record: Literal[False] = ..., on_error: s.Policy = ...) -> Stream[K, W]: ...
    @overload
    def map(
        self, fn: Callable[[Record[K, V]], Record[K2, W]], *, with_record: Literal[True], on_error: s.Policy = ...
    ) -> Stream[K2, W]: ...
    @overload
    def map(
        self, fn: Callable[[Record[K, V]], W], *, with_record: Literal[True], on_error: s.Policy = ...
    ) -> Stream[K, W]: ...
    def map(self, fn: Callable[[Any], Any], *, with_record: bool = False, on_error: s.Policy = None) -> Stream[Any, Any]:
        """Another value for each value. With `with_record=True` the function gets a `Record`, and may return one."""
        check_function(fn, "map")
        check_policy(on_error, "map")
        return self._then(
            s.MapStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

    @overload
    def flat_map(
        self, fn: Callable[[V], Iterable[W]], *, with_record: Literal[False] = ..., on_error: s.Policy = ...
    ) -> Stream[K, W]: ...
    @overload
    def flat_map(
        self, fn: Callable[[Record[K, V]], Iterable[W]], *, with_record: Literal[True], on_error: s.Policy = ...
    ) -> Stream[K, W]: ...
    def flat_map(
        self, fn: Callable[[Any], Iterable[Any]], *, with_record: bool = False, on_error: s.Policy = None
    ) -> Stream[Any, Any]:
        """Any number of values for each value, in order. They keep its key and timestamp."""
        check_function(fn, "flat_map")
        check_policy(on_error, "flat_map")
        return self._then(
            s.FlatMapStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

    @overload
    def filter(
        self, fn: Callable[[V], object], *, with_record: Literal[False] = ..., on_error: s.Policy = ...
    ) -> Stream[K, V]: ...
    @overload
    def filter(
        self, fn: Callable[[Record[K, V]], object], *, with_record: Literal[True], on_error: s.Policy = ...
    ) -> Stream[K, V]: ...
    def filter(self, fn: Callable[[Any], Any], *, with_record: bool = False, on_error: s.Policy = None) -> Stream[K, V]:
        """Only the records for which the function is true."""
        check_function(fn, "filter")
        check_policy(on_error, "filter")
        return self._then(
            s.FilterStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

    @overload
    def map_async(
        self,
        fn: Callable[[V], Awaitable[W]],
        *,
        concurrency: int = ...,
        with_record: Literal[False] = ...,
        on_error: s.Policy = ...,
    ) -> Stream[K, W]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[Record[K, V]], Awaitable[W]],
        *,
        concurrency: int = ...,
        with_record: Literal[True],
        on_error: s.Policy = ...,
    ) -> Stream[K, W]: ...
    def map_async(
        self,
        fn: Callable[[Any], Awaitable[Any]],
        *,
        concurrency: int = 16,
        with_record: bool = False,
        on_error: s.Policy = None,
    ) -> Stream[Any, Any]:
        """Awaits `fn` for each value, at most `concurrency` at a time in a task; results come in the order of their input."""
        check_function(fn, "map_async")
        check_policy(on_error, "map_async")
        if concurrency < 1:
            raise DeclarationError(f"map_async(concurrency={concurrency}) would never run anything", remedy="at least 1")
        return self._then(
            s.MapAsyncStep(
                parents=(self.step,),
                fn=fn,
                concurrency=concurrency,
                with_record=with_record,
                on_error=on_error,
                where=called_from(),
            )
        )

    # ---------------------------------------------------------------------------------------------- keys and partitions

    def merge(self, *others: Stream[K, V]) -> Stream[K, V]:
        """This stream and others as one; there is no order between them."""
        if not others:
            raise DeclarationError("merge() needs at least one other stream")
        for other in others:
            if other.app is not self.app:
                raise DeclarationError(f"merge(): {other!r} belongs to another app")
            if other.step is self.step:
                raise DeclarationError("merge(): a stream merged with itself would count everything twice")
        parents = (self.step, *(other.step for other in others))
        return self._then(s.MergeStep(parents=parents, where=called_from()))

    def rekey(self, by: Selector) -> Stream[Any, V]:
        """Another key without moving the records. It serves `to`; to bring equal keys together use `repartition`."""
        return self._then(s.RekeyStep(parents=(self.step,), by=by, where=called_from()))

    def repartition(
        self,
        by: Selector | None = None,
        *,
        name: str | None = None,
        partitions: int | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
    ) -> Stream[Any, V]:
        """Through an intermediate stream, so that all records of a key meet in one task.

        `by` is a field of the value or a function of it; without it the record's own key is used, and `name=` is needed.
        """
        if partitions is not None and partitions < 1:
            raise DeclarationError(f"repartition(partitions={partitions}): a stream has at least one partition")
        return self._then(
            s.ShuffleStep(
                parents=(self.step,),
                name=name_of("by", by, name),
                by=by,
                serde=serde or self.app.serde,
                key_serde=key_serde or self.app.key_serde,
                partitions=partitions,
                where=called_from(),
            )
        )

    def broadcast(self, name: str, *, serde: Serde[Any] | None = None) -> Stream[K, V]:
        """Through an intermediate stream of which every task gets every record."""
        return self._then(
            s.ShuffleStep(
                parents=(self.step,),
                name=name_of("all", None, name),
                by=None,
                serde=serde or self.app.serde,
                key_serde=self.app.key_serde,
                everyone=True,
                where=called_from(),
            )
        )

    # ------------------------------------------------------------------------------------------------------------ state

    def agg(self, *, name: str | None = None, on_error: s.Policy = None, **aggregates: Aggregate) -> Stream[K, dict[str, Any]]:
        """Running aggregates for each key. Updates go on at each commit, one for each key that changed.

        >>> orders.repartition("country").agg(n=hg.count(), total=hg.sum("amount")).to("totals")
        """
        made = name or "agg-" + "-".join(aggregates)
        step = s.AggregateStep(
            parents=(self.step,),
            name=name_of("agg", None, made),
            plan=plan(aggregates),
            key_serde=self.app.key_serde,
            on_error=check_policy(on_error, "agg"),
            where=called_from(),
        )
        return self._then(step)

    def table(
        self,
        name: str,
        *,
        broadcast: bool = False,
        key_serde: Serde[Any] | None = None,
        serde: Serde[Any] | None = None,
        ttl: str | int | None = None,
    ) -> TableView[K, V]:
        """The last value of each key; a null value deletes. `broadcast=True` keeps a copy of all of it on every worker."""
        step = s.TableStep(
            parents=(self.step,),
            name=name_of("table", None, name),
            key_serde=key_serde or self.app.key_serde,
            serde=serde or self.app.serde,
            broadcast=broadcast,
            ttl_ms=self.app.duration_ms(ttl) if ttl is not None else None,
            where=called_from(),
        )
        return TableView(self.app, self.app.add(step))

    def join(
        self,
        table: TableView[Any, T],
        *,
        on: Selector | None = None,
        into: Callable[[V, T], W],
        how: Literal["inner", "left"] = "inner",
        on_error: s.Policy = None,
    ) -> Stream[K, W]:
        """Each record with its row of the table. `on` is a field or a function; without it the record's key looks up.

        `inner` drops a record that has no row (counted); `left` calls `into(value, None)`.
        """
        if not isinstance(table, TableView):
            raise DeclarationError(f"join() takes a table, not {table!r}", remedy="make one with stream.table(name)")
        if table.app is not self.app:
            raise DeclarationError(f"join(): the table '{table.step.name}' belongs to another app")
        if how not in ("inner", "left"):
            raise DeclarationError(f"join(how={how!r})", remedy="'inner' or 'left'")
        check_function(into, "join")
        step = s.JoinTableStep(
            parents=(self.step,),
            table=table.step,
            on=on,
            into=into,
            how=how,
            on_error=check_policy(on_error, "join"),
            where=called_from(),
        )
        return self._then(step)

    # ------------------------------------------------------------------------------------------------------------ Spark

    def batch(
        self,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        max_age: str | int | None = None,
        name: str | None = None,
    ) -> BatchedStream[K, V]:
        """Bounded batches of rows: closed by number, by size, by age, by the end of the stream or by a drain."""
        if max_rows is None and max_bytes is None and max_age is None:
            raise DeclarationError("batch() without a bound would only end with the stream", remedy="batch(max_rows=100_000)")
        if max_rows is not None and max_rows < 1:
            raise DeclarationError(f"batch(max_rows={max_rows})", remedy="at least 1")
        step = s.BatchStep(
            parents=(self.step,),
            name=name_of("batch", None, name or "batch"),
            max_rows=max_rows,
            max_bytes=max_bytes,
            max_age_ms=self.app.duration_ms(max_age) if max_age is not None else None,
            where=called_from(),
        )
        return BatchedStream(self.app, self.app.add(step))

    # ------------------------------------------------------------------------------------------------------------- ends

    def to(
        self,
        topic: str,
        *,
        key: Selector | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        partition: Callable[[Record[K, V]], int] | None = None,
    ) -> None:
        """Write to an output topic, exactly once. Without `key` the record's own key is written.

        The partition is the one that Kafka's Java client would choose, unless `partition(record)` says otherwise.
        """
        if not topic or not isinstance(topic, str):
            raise DeclarationError(f"to({topic!r}) names no topic")
        step = s.ToStep(
            parents=(self.step,),
            topic=topic,
            key=key,
            serde=serde or self.app.serde,
            key_serde=key_serde or self.app.key_serde,
            partition=partition,
            where=called_from(),
        )
        self.app.add(step)

    def sink(self, fn: Callable[[Batch[K, V]], Any], *, on_error: s.Policy = None) -> None:
        """Call `fn(batch)` with each chunk, at least once. `batch.meta["id"]` is the same when a chunk comes again."""
        check_function(fn, "sink")
        self.app.add(s.SinkStep(parents=(self.step,), fn=fn, on_error=check_policy(on_error, "sink"), where=called_from()))

    def process(self, actor: type[Any], /, **args: Any) -> Stream[Any, Any]:
        """Through an actor of your own; what it gives to `ctx.forward(…)` goes on."""
        from .actors import Actor

        if not (isinstance(actor, type) and issubclass(actor, Actor)):
            raise DeclarationError(f"process() takes a class derived from hg.Actor, not {actor!r}")
        return self._then(
            s.ActorStep(parents=(self.step,), name=name_of("actor", None, actor.__name__), cls=actor, args=args, where=called_from())
        )


class BatchedStream(Generic[K, V]):
    """Bounded batches, waiting for what shall be done with them."""

    def __init__(self, app: App, step: s.BatchStep) -> None:
        self.app = app
        self.step = step

    def spark(self, fn: Callable[..., Any], *, schema: Any, name: str | None = None) -> Stream[Any, dict[str, Any]]:
        """Give each batch to `fn(df, batch)`, ordinary PySpark on a DataFrame of the batch's rows; its rows go on.

        `schema` is the schema of the rows that go in comes from the values; `schema` says what comes out.
        """
        check_function(fn, "spark")
        step = s.SparkStep(
            parents=(self.step,), name=name_of("spark", fn, name), fn=fn, schema=schema, where=called_from()
        )
        return Stream(self.app, self.app.add(step))


class TableView(Generic[K, V]):
    """A table that follows a stream: to join with, or to read in an actor."""

    def __init__(self, app: App, step: s.TableStep) -> None:
        self.app = app
        self.step = step

    @property
    def name(self) -> str:
        """The table's name."""
        return self.step.name


def select(by: Selector | None) -> Callable[[Any], Any] | None:
    """A selector as a function: a field's name becomes an item lookup."""
    if isinstance(by, str):
        from operator import itemgetter

        return itemgetter(by)
    return by


def reads(step: s.Step) -> Mapping[str, s.InputStep]:
    """The inputs that lead to a step, by topic."""
    return {found.topic: found for found in s.lineage((step,)) if isinstance(found, s.InputStep)}
