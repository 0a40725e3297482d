"""What `.window(…)` returns.

Promises: a declaration is checked at its own line. A window's name is made from its own arguments (`tumbling-10s`). After its fields have
changed it therefore finds its state again; after its size has changed it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ....core.errors import DeclarationError, UnknownName
from ....core.windows.results import RESERVED
from ....core.words import WINDOW
from ...records.values.serdes import Serde
from ..derive.named_fields import serde_behind
from ..derive.result_fields import check_aggregated
from ..steps.ends import ActorStep
from ..steps.keyed import WindowStep
from ..steps.step import Policy, Step, lineage
from ..types.aggregates import Aggregate, collect, plan
from ..types.arguments import called_from
from ..types.windows import Window, length_of
from .actors import Actor, check_actor
from .checks import check_migrate, check_policy, check_serde, check_topic, name_of
from .refused_verbs import RefusesVerbs

if TYPE_CHECKING:
    from ....core.columns.schema import ColumnSchema
    from ..types.aggregates import AggregatePlan
    from ..types.schemas import Migrate
    from .spark_stream import SparkStream
    from .stream import Stream
    from .stream_ends import BatchedStream

K = TypeVar("K")
V = TypeVar("V")

ROWS = plan({"rows": collect(lambda row: row)})
"""What a session keeps of its rows for an actor."""


def check_behind_window(step: Step, topic: str) -> None:
    """Refuse `hg.window_key` where there are no results of a window."""
    if not any(isinstance(one, WindowStep) for one in lineage((step,))):
        raise DeclarationError(
            f"to('{topic}', key=hg.window_key): no window stands before it, so its records have no window_start",
            remedy="put it behind .window(…).agg(…), or name a field of the value: key=…",
        )


def check_keyed_by_window(step: Step, topic: str) -> None:
    """Refuse `hg.window_key` behind a window of which nobody has said what becomes of it at an end.

    What an end or a drain closes may be opened again by the next run, from nothing: under the same key, its result replaces the first one.
    """
    steps, seen = [step], set[int]()
    while steps:
        one = steps.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if not isinstance(one, WindowStep):
            steps += one.parents
        elif not one.end_said:
            raise DeclarationError(
                f"to('{topic}', key=hg.window_key): a drain, or the end of a bounded run, closes what is open in '{one.name}' "
                f"({one.where}); the next run may open such a window again, from nothing, and its result overwrites the first one",
                remedy='window(…, at_end="keep"): windows stay open over drains and ends, and each gives one result of all its rows; '
                'window(…, at_end="close"): each run gives a result of its own rows, of which a compacted topic keeps the last',
            )


def _early(window: Window, emit: Any) -> tuple[int | None, int | None]:
    """When early results are emitted: after how many ms, or after how many rows."""
    if emit == "final":
        return None, None
    if window.spans is None:
        raise DeclarationError(f"window(emit={emit!r}): a session gives its final result only", remedy="omit emit=")
    if isinstance(emit, str) and emit[:1].isdigit():
        return length_of(emit, "window(emit)"), None
    if type(emit) is not int or emit < 1:
        raise DeclarationError(
            f"window(emit={emit!r})",
            remedy="'final', how often early results come ('10s'), or after how many rows (1000)",
        )
    return None, emit


class WindowedStream(RefusesVerbs, Generic[K, V]):
    """Rows in windows, before `.agg(…)` says how to aggregate them."""

    KIND = WINDOW

    def __init__(
        self,
        stream: Stream[K, V],
        window: Any,
        emit: Any,
        late: str | None,
        at_end: str | None,
        name: str | None,
        schema: ColumnSchema | None = None,
    ) -> None:
        if not isinstance(window, Window):
            raise DeclarationError(
                f"window() takes a window, not {window!r}", remedy='for example .window(hg.tumbling("10s", grace="2s"))'
            )
        self._stream = stream
        self._schema = schema
        self._window = window
        self._late = None if late is None else check_topic(late, "window(late=…)")
        if at_end not in (None, "close", "keep"):
            raise DeclarationError(f"window(at_end={at_end!r})", remedy="'close' or 'keep'")
        self._keeps_open = at_end == "keep"
        if window.by_clock and late is not None:
            raise DeclarationError(
                f"window(late={late!r}): no row comes late by the clock", remedy='omit late=, or time="processing"'
            )
        self._early = _early(window, emit)
        self._name = name_of("window", None, name or str(window))
        self._where = called_from()
        self._used = False
        self._at_end = at_end or "close"
        self._end_said = at_end is not None
        self._batches: BatchedStream[Any, Any] | None = None
        stream.app.windows.append(self)

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
        return f"<window {self._name} of {self._stream.app.name}>"

    def agg(
        self, *, on_error: Policy = None, migrate: Migrate | None = None, **aggregates: Aggregate
    ) -> Stream[K, dict[str, Any]]:
        """Aggregates for each key and window. Each gives a result when its window closes.

        >>> orders.repartition("country").window(hg.tumbling("1m", grace="5s")).agg(n=hg.count()).to("minutes")

        A result has these fields, `window_start` and `window_end` (in ms) and `closed_by`. Its timestamp is the last ms of its window.
        """
        from .stream import Stream

        if isinstance(aggregates.get("name"), str):
            name: object = aggregates["name"]
            raise DeclarationError(
                f"agg(name={name!r}) behind a window: the window has the name",
                remedy=f".window(…, name={name!r}).agg(…)",
            )
        if reserved := sorted(RESERVED & aggregates.keys()):
            raise DeclarationError(
                f"agg({reserved[0]}=…): every result of a window has a field of this name", remedy="take another name"
            )
        made = plan(aggregates)
        check_aggregated(self._stream.step, made)
        if self._window.spans is None and None in made.joins:
            raise DeclarationError(
                f"agg({made.names[made.joins.index(None)]}=hg.aggregate(…)): sessions become one when a row comes between them",
                remedy="tell how two states become one: hg.aggregate(init, add, merge)",
            )
        step = self._step(
            made,
            early_ms=self._early[0],
            early_rows=self._early[1],
            migrate=check_migrate(migrate, "agg"),
            on_error=check_policy(on_error, "agg"),
        )
        return Stream(self._stream.app, step)

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
        from .stream import Stream

        check_actor(actor, "process", args)
        app = self._stream.app
        if self._early != (None, None):
            raise DeclarationError(
                "window(emit=…).process(…): an actor gets the rows of a window when it is closed", remedy="omit emit="
            )
        if serde is not None:
            check_serde(serde, "process(serde")
        after = name_of("actor", None, name or actor.__name__)
        policy = check_policy(on_error, "process")
        kept = self._step(ROWS, rows=serde or serde_behind(self._stream.step, app.serde), on_error=policy)
        step = ActorStep(parents=(kept,), name=after, cls=actor, args=args, on_error=policy, where=called_from())
        return Stream(app, app.add(step))

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
        if self._early != (None, None):
            raise DeclarationError(
                "window(emit=…).spark(…): Spark gets the rows of a window when it is closed", remedy="omit emit="
            )
        if self._batches is None:
            from .gathered import window_batches

            app, step = self._stream.app, self._stream.step
            made = (self._window, self._late, self._at_end, self._name, self._schema)
            self._batches = window_batches(app, step, *made)
        stream = self._batches.spark(fn, schema=schema, rows=rows, name=name, on_error=on_error)
        self._used = True
        return stream

    def _step(self, made: AggregatePlan, **more: Any) -> WindowStep:
        app = self._stream.app
        step = WindowStep(
            parents=(self._stream.step,),
            name=self._name,
            window=self._window,
            plan=made,
            key_serde=app.key_serde,
            late=self._late,
            late_serde=app.serde,
            keeps_open=self._keeps_open,
            end_said=self._end_said,
            schema=self._schema,
            where=called_from(),
            **more,
        )
        self._used = True
        return app.add(step)

    def check_used(self) -> None:
        """Refuse a window of which nothing is made."""
        if not self._used:
            raise DeclarationError(
                f"nothing is made of window '{self._name}' ({self._where})",
                remedy=".agg(…) makes a result of its rows, .process(…) gives them to an actor, .spark(…) to Spark; else remove it",
            )
