"""`Stream`: users chain verbs on it. A verb checks its arguments at once and adds one step; nothing runs.

Streams are values: a verb never changes the stream that it is called on, so a stream can be used several times.
A verb that keeps state or shuffles takes its name from `name=` or from its own arguments (`repartition("country")` is
`by-country`), never from its position: adding a verb upstream renames nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ....core.columns.expressions import Expression, columns_in
from ....core.errors import DeclarationError, UnknownName
from ....core.words import ROWS
from ...records.values.record import Batch, Record
from ...records.values.serdes import OUTPUT_KEY
from ...records.values.serdes import key as own_key
from ..derive.named_fields import fields_behind, serde_behind
from ..derive.references import by_reference
from ..derive.result_fields import check_aggregated, check_field, check_written
from ..steps.columns import FilterColumnsStep
from ..steps.ends import ActorStep, SinkStep, ToStep
from ..steps.keyed import AggregateStep, JoinTableStep, TableStep
from ..steps.rows import EventsStep, FilterStep, FlatMapStep, MapAsyncStep, MapStep, MergeStep, PeekStep, RekeyStep
from ..steps.sources import ShuffleStep, shuffles_before
from ..steps.step import Policy, Step
from ..types.aggregates import Aggregate, plan
from ..types.arguments import called_from, check_function, check_selector, duration
from ..types.windows import Window, window_key
from .actors import check_actor
from .branches import branches
from .checks import (
    Selector,
    check_migrate,
    check_output_key,
    check_policy,
    check_serde,
    check_topic,
    name_of,
    table_name_of,
)
from .column_stream import ColumnStream, columns_behind, condition
from .gathered import GatheredStream, gather_step
from .joins import JoinDistance, join_step, refuse_other
from .refused_verbs import RefusesVerbs, no_verb, unbounded
from .stream_ends import BatchedStream, Ended, TableView, batch_step, share_step
from .windowed_stream import WindowedStream, check_behind_window, check_keyed_by_window

if TYPE_CHECKING:
    from ...records.values.serdes import ArrowSchema, Serde
    from ..types.schemas import Migrate
    from .actors import Actor
    from .app import App

    Fields = str | tuple[str, str] | None
    Serdes = Serde[Any] | tuple[Serde[Any], Serde[Any]] | None


K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
T = TypeVar("T")
K2 = TypeVar("K2")


class Stream(RefusesVerbs, Generic[K, V]):
    """A stream of records with keys of type `K` and values of type `V`.

    >>> (app.input("orders")
    ...     .filter(lambda order: order["amount"] > 0)
    ...     .to("paid"))
    """

    KIND = ROWS

    def __init__(self, app: App, step: Step) -> None:
        self.app = app
        self.step = step

    def __repr__(self) -> str:
        return f"<Stream of {self.app.name}: {type(self.step).__name__} {self.step.name}>"

    def _refused(self, verb: str) -> UnknownName:
        if verb in vars(ColumnStream):
            return UnknownName(f".{verb}() needs columns, and this is a stream of rows", remedy=f".columns().{verb}(…)")
        return unbounded(verb) or no_verb(verb, Stream, ROWS)

    def _then(self, step: Step) -> Stream[Any, Any]:
        return Stream(self.app, self.app.add(step))

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
        check_policy(on_error, "map(on_error)")
        return self._then(
            MapStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

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
        check_function(fn, "flat_map")
        check_policy(on_error, "flat_map(on_error)")
        return self._then(
            FlatMapStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

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
        check_policy(on_error, "filter(on_error)")
        if isinstance(fn, Expression):
            return self._filter_by(fn, with_record, on_error)
        check_function(fn, "filter")
        return self._then(
            FilterStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

    def _filter_by(self, keep: Expression, with_record: bool, on_error: Policy) -> Stream[K, V]:
        if with_record:
            raise DeclarationError(
                f"filter({keep.node}, with_record=True): an expression has no record", remedy="omit with_record="
            )
        schema, refused = fields_behind(self.step, f"filter({keep.node})")
        for name in columns_in(keep.node):
            if name in refused:
                raise DeclarationError(
                    f"filter({keep.node}): {refused[name].what}", remedy="use a function: .filter(lambda value: …)"
                )
        step = FilterColumnsStep(
            parents=(self.step,),
            keep=condition(keep, schema, "filter"),
            schema=schema,
            on_error=on_error,
            where=called_from(),
        )
        return self._then(step)

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
        check_policy(on_error, "peek(on_error)")
        return self._then(
            PeekStep(parents=(self.step,), fn=fn, with_record=with_record, on_error=on_error, where=called_from())
        )

    @overload
    def columns(
        self, kind: None = ..., *, extra: Literal["keep"] | None = ..., on_error: Policy = ...
    ) -> ColumnStream[K, V]: ...
    @overload
    def columns(
        self, kind: type[W], *, extra: Literal["keep"] | None = ..., on_error: Policy = ...
    ) -> ColumnStream[K, W]: ...
    @overload
    def columns(
        self, kind: ArrowSchema, *, extra: Literal["keep"] | None = ..., on_error: Policy = ...
    ) -> ColumnStream[K, dict[str, Any]]: ...
    def columns(
        self, kind: Any = None, *, extra: Literal["keep"] | None = None, on_error: Policy = None
    ) -> ColumnStream[K, Any]:
        """Turn to columns: of the type that the input declares (`serde=hg.json(Order)`), or of `kind`.

        Directly behind such an input, only the columns that the job uses are decoded, and no value is made of a record. Behind other steps,
        a value that does not fit the type is an error of its record. Null values are no rows: they are counted and dropped.

        With `extra="keep"`, `.to(…)` also writes the fields that the type does not have, byte for byte. They pass `filter` and
        `with_columns`, and nothing else: a step that would lose them is refused.

        >>> app.input("orders", serde=hg.json(Order)).columns().filter(hg.col("amount") >= 10)
        """
        return columns_behind(self, kind, extra, on_error)

    @overload
    def map_async(
        self,
        fn: Callable[[V], Awaitable[W]],
        *,
        concurrency: int = ...,
        with_record: Literal[False] = ...,
        on_error: Policy = ...,
    ) -> Stream[K, W]: ...
    @overload
    def map_async(
        self,
        fn: Callable[[Record[K, V]], Awaitable[W]],
        *,
        concurrency: int = ...,
        with_record: Literal[True],
        on_error: Policy = ...,
    ) -> Stream[K, W]: ...
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
        check_policy(on_error, "map_async(on_error)")
        if type(concurrency) is not int or concurrency < 1:
            raise DeclarationError(
                f"map_async(concurrency={concurrency!r}) would never run anything", remedy="at least 1"
            )
        return self._then(
            MapAsyncStep(
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
        """Merge this stream with others. Their records have no order among each other."""
        if not others:
            raise DeclarationError("merge() needs at least one other stream")
        parents = [self.step]
        for other in others:
            if not isinstance(other, Stream):
                raise DeclarationError(f"merge() takes streams, not {other!r}")
            if other.app is not self.app:
                raise DeclarationError(f"merge(): {other!r} belongs to another app")
            if other.step in parents:
                raise DeclarationError("merge(): a stream merged with itself would count every record twice")
            parents.append(other.step)
        return self._then(MergeStep(parents=tuple(parents), where=called_from()))

    def as_events(self) -> Stream[K, V]:
        """From here on, each update counts as an event of its own.

        A running `.agg(…)` emits *updates*: each is the newest value of its key. `agg`, `window` and `batch` behind updates are refused,
        and so is a merge with events, because a count of 1, 2, 3 would add up to 6. `as_events()` says that this is intended.

        >>> totals.as_events().window(hg.tumbling("1m")).agg(changes=hg.count())
        """
        return self._then(EventsStep(parents=(self.step,), where=called_from()))

    @overload
    def rekey(self, by: str, *, on_error: Policy = ...) -> Stream[Any, V]: ...
    @overload
    def rekey(self, by: Callable[[V], K2], *, on_error: Policy = ...) -> Stream[K2, V]: ...
    def rekey(self, by: Selector, *, on_error: Policy = None) -> Stream[Any, V]:
        """Set another key without moving the records. The key is for `to`; to bring equal keys together, use `repartition`."""
        check_selector(by, "rekey")
        check_field(self.step, by, f"rekey({by!r})")
        policy = check_policy(on_error, "rekey(on_error)")
        return self._then(RekeyStep(parents=(self.step,), by=by, on_error=policy, where=called_from()))

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
        if partitions is not None and (type(partitions) is not int or partitions < 1):
            raise DeclarationError(f"repartition(partitions={partitions!r}): a stream has at least one partition")
        check_written(self.step, self._serde(serde, "repartition(serde"), "repartition()")
        made = name_of("by", by, name)
        self.app.topics.intermediate(made)
        step = ShuffleStep(
            parents=(self.step,),
            name=made,
            by=by,
            serde=self._serde(serde, "repartition(serde"),
            key_serde=self._serde(key_serde, "repartition(key_serde", self.app.key_serde),
            partitions=partitions,
            on_error=check_policy(on_error, "repartition(on_error)"),
            where=called_from(),
        )
        return self._then(step)

    def broadcast(self, name: str, *, serde: Serde[Any] | None = None) -> Stream[K, V]:
        """Send the records through an intermediate stream from which every task receives every record."""
        made = name_of("all", None, name)
        self.app.topics.intermediate(made)
        step = ShuffleStep(
            parents=(self.step,),
            name=made,
            by=None,
            serde=self._serde(serde, "broadcast(serde"),
            key_serde=self.app.key_serde,
            everyone=True,
            where=called_from(),
        )
        return self._then(step)

    def gather(self, *, name: str | None = None, serde: Serde[Any] | None = None) -> GatheredStream[K, V]:
        """Send the records of all tasks to one task, through an intermediate stream with one partition, so that `.window(…)` or `.batch(…)`
        makes batches of all of them for Spark.

        >>> orders.gather().window(hg.tumbling("1m")).spark(ranking, schema="country string, place int").to("ranking")

        What waits there for Spark is at most `gather.max-bytes`. `serde` writes the values on their way, as in `repartition`.
        """
        step = gather_step(self.app, self.step, name, self._serde(serde, "gather(serde"), None)
        return GatheredStream(self.app, step)

    def _serde(self, given: Serde[Any] | None, where: str, default: Serde[Any] | None = None) -> Serde[Any]:
        if given is None:
            return default if default is not None else serde_behind(self.step, self.app.serde)
        check_serde(given, where)
        return given

    # ------------------------------------------------------------------------------------------------------------ state

    def agg(
        self,
        *,
        name: str | None = None,
        on_error: Policy = None,
        migrate: Migrate | None = None,
        **aggregates: Aggregate,
    ) -> Stream[K, dict[str, Any]]:
        """Running aggregates for each key. At each commit they emit an update for each key that has changed.

        >>> orders.repartition("country").agg(n=hg.count(), total=hg.sum("amount")).to("totals")

        The step finds its state by its name after the code has changed; fields are compared by name. `migrate(names, states)` converts old
        states that do not fit into new ones; both are mappings of name to state.
        """
        made = plan(aggregates)
        check_aggregated(self.step, made)
        step = AggregateStep(
            parents=(self.step,),
            plan=made,
            name=name_of("agg", None, name or "agg-" + "-".join(aggregates)),
            key_serde=self.app.key_serde,
            migrate=check_migrate(migrate, "agg"),
            on_error=check_policy(on_error, "agg"),
            where=called_from(),
        )
        return self._then(step)

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
        return WindowedStream(self, window, emit, late, at_end, name)

    def table(
        self,
        name: str,
        *,
        broadcast: bool = False,
        key_serde: Serde[Any] | None = None,
        serde: Serde[Any] | None = None,
        ttl: str | float | None = None,
        migrate: Migrate | None = None,
        on_error: Policy = None,
    ) -> TableView[K, V]:
        """The last value of each key; a null value deletes the key. `broadcast=True` keeps a copy of the whole table on every worker."""
        shuffles = shuffles_before(self.step)
        if broadcast and shuffles and not shuffles[-1].everyone:
            raise DeclarationError(
                f"table('{name}', broadcast=True) after repartition: each task gets only its part",
                remedy=f'put .broadcast("{name}-everywhere") before the table',
            )
        step = TableStep(
            parents=(self.step,),
            name=table_name_of(name),
            key_serde=self._serde(key_serde, "table(key_serde", self.app.key_serde),
            serde=self._serde(serde, "table(serde"),
            broadcast=broadcast,
            ttl_ms=duration(ttl, f"table('{name}'): ttl") if ttl is not None else None,
            migrate=check_migrate(migrate, f"table('{name}')"),
            on_error=check_policy(on_error, f"table('{name}', on_error)"),
            where=called_from(),
        )
        return TableView(self.app, self.app.add(step))

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
            return self._then(
                join_step(
                    self,
                    other,
                    within=within,
                    on=on,
                    into=into,
                    how=how,
                    grace=grace,
                    late=late,
                    at_end=at_end,
                    name=name,
                    serde=serde,
                    on_error=on_error,
                )
            )
        if not isinstance(other, TableView):
            refuse_other(other)
        if other.app is not self.app:
            raise DeclarationError(f"join(): the table '{other.step.name}' belongs to another app")
        keeps = None if at_end == "close" else at_end
        own = {"within": within, "grace": grace or None, "late": late, "at_end": keeps, "name": name, "serde": serde}
        if unused := [name for name, given in own.items() if given is not None]:
            raise DeclarationError(
                f"join({unused[0]}=…) of a table: a record meets the row that its key has when it is processed",
                remedy=f"omit {unused[0]}=, or join two streams",
            )
        if how not in ("inner", "left"):
            raise DeclarationError(f"join(how={how!r}) of a table", remedy="'inner' or 'left'")
        by: Any = on
        if by is not None:
            check_selector(by, "join(on=…)")
            check_field(self.step, by, f"join(on={by!r})")
        check_function(into, "join(into=…)", number=2, signature="(value, row)")
        step = JoinTableStep(
            parents=(self.step,),
            table=other.step,
            on=by,
            into=into,
            how=how,
            on_error=check_policy(on_error, "join"),
            where=called_from(),
        )
        return self._then(step)

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
        million rows are by reference. For columns behind a repartition see `ColumnStream.batch`.
        """
        reference = by_reference(self.step, self.app.on_bad_data, by, max_rows, max_bytes, None)
        step = batch_step(self.step, max_rows, max_bytes, max_age, name, reference=reference)
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
        on_error: Policy = None,
    ) -> Ended:
        """Write to an output topic, exactly once.

        Without `key`, the record's own key is written. `key=hg.window_key`, behind a window that says `at_end=`, is the record's key and
        the start of its window: a compacted topic then keeps a result for each. The partition is the one that Kafka's Java client
        would choose, unless `partition(record)` says otherwise.
        """
        check_topic(topic, "to")
        if key is window_key:
            check_behind_window(self.step, topic)
            check_keyed_by_window(self.step, topic)
            key_serde = key_serde if key_serde is not None else own_key()
        elif key is not None:
            check_selector(key, f"to('{topic}', key=…)")
            check_field(self.step, key, f"to('{topic}', key={key!r})")
        if partition is not None:
            check_function(partition, f"to('{topic}', partition=…)", signature="(record)")
        check_written(self.step, self._serde(serde, f"to('{topic}', serde", self.app.serde), f"to('{topic}')")
        if key_serde is None and self.app.output_key_serde.name == OUTPUT_KEY:
            check_output_key(self.step, key, topic)
        step = ToStep(
            parents=(self.step,),
            topic=topic,
            key=key,
            serde=self._serde(serde, f"to('{topic}', serde", self.app.serde),
            key_serde=self._serde(key_serde, f"to('{topic}', key_serde", self.app.output_key_serde),
            partition=partition,
            on_error=check_policy(on_error, f"to('{topic}', on_error)"),
            where=called_from(),
        )
        self.app.add(step)
        return Ended(f"to('{topic}')")

    def share(
        self,
        topic: str,
        *,
        retention: str | float = "7d",
        key: Selector | None = None,
        partitions: int | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Ended:
        """Write a stream for other headgate jobs, exactly once, with watermarks and end of stream: another job reads it by
        `app.input(topic, producers=["this-job"])` as if it were one job with this one.

        The topic holds frames, not plain records: what is no headgate job should read a `.to(…)` beside it. Kafka deletes what is older
        than `retention`, whether it was read or not. Without `key`, the record's own key is written, and each record goes to the partition
        of its key. `partitions` is the number of partitions of the topic: by default that of the widest stream behind it.
        """
        step = share_step(
            self.step,
            topic,
            retention,
            key,
            partitions,
            self._serde(serde, f"share('{topic}', serde"),
            self._serde(key_serde, f"share('{topic}', key_serde", self.app.key_serde),
            on_error,
        )
        self.app.add(step)
        return Ended(f"share('{topic}')")

    def sink(self, fn: Callable[[Batch[K, V]], Any], *, on_error: Policy = None) -> Ended:
        """Call `fn(batch)` with each chunk, at least once. `batch.meta["id"]` is the same when a chunk is tried again; after a crash the
        records may be cut into other chunks, so write by a key of the rows."""
        check_function(fn, "sink", signature="(batch)", awaits=True)
        self.app.add(
            SinkStep(parents=(self.step,), fn=fn, on_error=check_policy(on_error, "sink"), where=called_from())
        )
        return Ended("sink()")

    def process(
        self, actor: type[Actor], /, *, name: str | None = None, on_error: Policy = None, **args: Any
    ) -> Stream[Any, Any]:
        """Process the records in your own actor, constructed with `args`. What it passes to `ctx.forward(…)` goes to the next step."""
        check_actor(actor, "process", args)
        return self._then(
            ActorStep(
                parents=(self.step,),
                name=name_of("actor", None, name or actor.__name__),
                cls=actor,
                args=args,
                on_error=check_policy(on_error, "process"),
                where=called_from(),
            )
        )
