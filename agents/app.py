"""`App`: what a user declares a job with. Declaring runs nothing, imports no broker client, and refuses what cannot work.

An app holds steps, tables and settings. `app.graph()` gives them as the value that `core` checks; a worker, the test driver and
`headgate plan` all start from that.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..core.errors import DeclarationError
from ..core.names import JobName
from . import serde as serdes
from . import steps as s
from .actors import Actor, Batches
from .stream import Stream, TableView, called_from, check_policy, name_of

if TYPE_CHECKING:
    from ..core.graph import Graph
    from .serde import Serde

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A", bound=Actor)

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(value: str | float) -> int:
    """`"5s"`, `"200ms"`, `"1d"` or a number of seconds, in milliseconds.

    >>> duration_ms("5s"), duration_ms("200ms"), duration_ms(1.5)
    (5000, 200, 1500)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1000)
    text = str(value).strip()
    for unit in sorted(UNITS, key=len, reverse=True):
        if text.endswith(unit):
            try:
                return round(float(text[: -len(unit)]) * UNITS[unit])
            except ValueError:
                break
    raise DeclarationError(f"{value!r} is no duration", remedy="for example '200ms', '5s', '1m', '12h', '1d'")


class DeclaredTable(Generic[K, V]):
    """A table of an app, as declared. Inside a task it is a mapping; outside of one it says so."""

    def __init__(self, name: str, key: Serde[Any], value: Serde[Any], ttl_ms: int | None) -> None:
        self.name = name
        self.key_serde = key
        self.serde = value
        self.ttl_ms = ttl_ms

    def _bound(self) -> Any:
        from .tables import current_table

        return current_table(self.name)

    def __getitem__(self, key: K) -> V:
        return self._bound()[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._bound()[key] = value

    def __delitem__(self, key: K) -> None:
        del self._bound()[key]

    def __contains__(self, key: object) -> bool:
        return key in self._bound()

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or a default."""
        return self._bound().get(key, default)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """The values of many keys, None where there is none: one look-up for all."""
        return self._bound().get_many(list(keys))

    def update(self, changes: dict[K, V]) -> None:
        """Set many keys."""
        self._bound().update(changes)

    def range(self, start: K | None = None, end: K | None = None) -> Iterable[tuple[K, V]]:
        """Keys and values from `start` up to but not including `end`, in the order of the keys' bytes."""
        return self._bound().range(start, end)


class App:
    """One job: its name and id, its defaults, and everything that is declared on it.

    >>> app = hg.App("sales", serde=hg.json())
    >>> orders = app.input("orders", timestamp="ts", max_out_of_order="5s")
    >>> orders.repartition("country").agg(n=hg.count()).to("orders-by-country")
    """

    duration_ms = staticmethod(duration_ms)

    def __init__(
        self,
        name: str,
        id: str = "1",
        *,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: s.Policy = "fail",
        on_bad_data: s.Policy = "fail",
        chooser: Any = None,
        include: Sequence[str] = (),
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.job = JobName(name, id)
        self.name = name
        self.serde: Serde[Any] = serde if serde is not None else serdes.json()
        self.key_serde: Serde[Any] = key_serde if key_serde is not None else serdes.text()
        self.on_error = check_policy(on_error, "App(on_error)")
        self.on_bad_data = check_policy(on_bad_data, "App(on_bad_data)")
        self.chooser = chooser
        self.settings = dict(settings or {})
        self.steps: list[s.Step] = []
        self.tables: dict[str, DeclaredTable[Any, Any]] = {}
        self._include = tuple(include)
        self._included = False

    def __repr__(self) -> str:
        return f"<App {self.job}: {len(self.steps)} steps>"

    # ------------------------------------------------------------------------------------------------------- declaring

    @overload
    def input(self, topic: str, *, serde: Serde[V], key_serde: Serde[K], **options: Any) -> Stream[K, V]: ...
    @overload
    def input(self, topic: str, *, serde: Serde[V], **options: Any) -> Stream[Any, V]: ...
    @overload
    def input(self, topic: str, **options: Any) -> Stream[Any, Any]: ...
    def input(
        self,
        topic: str,
        *,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        key: str | Callable[[Any], Any] | None = None,
        timestamp: Any = None,
        max_out_of_order: str | float = 0,
        start: str | int = "oldest",
        until: Any = None,
        priority: int | None = None,
        bootstrap: bool = False,
        broadcast: bool = False,
        producers: Sequence[str] = (),
        on_lost: str = "fail",
        on_bad_data: s.Policy = None,
        on_error: s.Policy = None,
    ) -> Stream[Any, Any]:
        """A topic that the job reads.

        `timestamp`: a field, `hg.field(…)` or a function; without it Kafka's timestamp is the event time.
        `start`: `"oldest"`, `"newest"` or a time (ms), where a run without a checkpoint begins.
        `until`: `"newest"`, offsets by partition, or a time: the input is bounded and ends there.
        `bootstrap=True`: nothing else flows before it has been read to its end at the start.
        """
        if not isinstance(topic, str) or not topic:
            raise DeclarationError(f"input({topic!r}) names no topic")
        for other in self.steps:
            if isinstance(other, s.InputStep) and other.topic == topic:
                raise DeclarationError(
                    f"the input '{topic}' is declared twice ({other.where} and {called_from()})",
                    remedy="declare it once and use the stream twice",
                )
        if on_lost not in ("fail", "oldest", "newest"):
            raise DeclarationError(f"input('{topic}', on_lost={on_lost!r})", remedy="'fail', 'oldest' or 'newest'")
        if isinstance(start, str) and start not in ("oldest", "newest"):
            raise DeclarationError(f"input('{topic}', start={start!r})", remedy="'oldest', 'newest' or a time in ms")
        if not (until is None or until == "newest" or isinstance(until, int | dict)):
            raise DeclarationError(
                f"input('{topic}', until={until!r})", remedy="'newest', a dict of partition → offset, or a time in ms"
            )
        step = s.InputStep(
            name=topic,
            topic=topic,
            serde=serde or self.serde,
            key_serde=key_serde,
            key=key,
            timestamp=timestamp,
            max_out_of_order_ms=duration_ms(max_out_of_order),
            start=start,
            until=until,
            priority=priority,
            bootstrap=bootstrap,
            broadcast=broadcast,
            producers=tuple(producers),
            on_lost=on_lost,
            on_bad_data=check_policy(on_bad_data, f"input('{topic}')"),
            on_error=check_policy(on_error, f"input('{topic}')"),
            where=called_from(),
        )
        return Stream(self, self.add(step))

    def table(
        self,
        name: str,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        ttl: str | float | None = None,
    ) -> DeclaredTable[K, V]:
        """A table that actors and agents of this job read and write; each task has its own part of it.

        >>> seen = app.table("seen", key=hg.text(), value=hg.json(), ttl="1d")
        """
        if name in self.tables:
            raise DeclarationError(f"the table '{name}' is declared twice")
        table: DeclaredTable[K, V] = DeclaredTable(
            name_of("table", None, name),
            key or self.key_serde,
            value or self.serde,
            duration_ms(ttl) if ttl is not None else None,
        )
        self.tables[name] = table
        return table

    def agent(
        self,
        *streams: Stream[Any, Any],
        sink: str | None = None,
        name: str | None = None,
        serde: Serde[Any] | None = None,
        on_error: s.Policy = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Declare an async generator (or coroutine) over batches; what it yields goes to `sink`.

        >>> @app.agent(orders, sink="alerts")
        ... async def alert(batches: hg.Batches):
        ...     async for batch in batches:
        ...         yield [record for record in batch if record.value["amount"] > 10_000]
        """
        self._own(streams, "agent")

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            if not (inspect.isasyncgenfunction(fn) or inspect.iscoroutinefunction(fn)):
                raise DeclarationError(
                    f"@app.agent: {fn.__name__} is no async function",
                    remedy="async def …(batches), iterating over batches",
                )
            if sink is not None and not inspect.isasyncgenfunction(fn):
                raise DeclarationError(
                    f"@app.agent(sink='{sink}'): {fn.__name__} yields nothing", remedy="yield lists of values"
                )
            self.add(
                s.AgentStep(
                    parents=tuple(stream.step for stream in streams),
                    name=name_of("agent", fn, name),
                    fn=fn,
                    sink=sink,
                    sink_serde=serde or self.serde,
                    on_error=check_policy(on_error, "agent"),
                    where=called_from(),
                )
            )
            return fn

        return declare

    def actor(
        self, *streams: Stream[Any, Any], name: str | None = None, on_error: s.Policy = None
    ) -> Callable[[type[A]], type[A]]:
        """Declare a class derived from `hg.Actor` that takes these streams."""
        self._own(streams, "actor")

        def declare(cls: type[A]) -> type[A]:
            if not (isinstance(cls, type) and issubclass(cls, Actor)):
                raise DeclarationError(f"@app.actor: {cls!r} is not derived from hg.Actor")
            self.add(
                s.ActorStep(
                    parents=tuple(stream.step for stream in streams),
                    name=name_of("actor", None, name or cls.__name__),
                    cls=cls,
                    on_error=check_policy(on_error, "actor"),
                    where=called_from(),
                )
            )
            return cls

        return declare

    def _own(self, streams: Sequence[Stream[Any, Any]], verb: str) -> None:
        if not streams:
            raise DeclarationError(f"@app.{verb}() needs at least one stream")
        for stream in streams:
            if not isinstance(stream, Stream):
                raise DeclarationError(f"@app.{verb}: {stream!r} is no stream", remedy="app.input(…) makes one")
            if stream.app is not self:
                raise DeclarationError(f"@app.{verb}: {stream!r} belongs to another app")

    # -------------------------------------------------------------------------------------------------------- compiling

    def add(self, step: s.Step) -> Any:
        """Take a step in. Names of steps are unique in a job."""
        if step.name and not isinstance(step, s.InputStep):
            for other in self.steps:
                if other.name == step.name and not isinstance(other, s.InputStep):
                    raise DeclarationError(
                        f"two steps are named '{step.name}': {other.where} and {step.where}",
                        remedy="give one of them a name=",
                    )
        self.steps.append(step)
        return step

    def finish(self) -> App:
        """Import what `include` names, once."""
        if not self._included:
            self._included = True
            for module in self._include:
                importlib.import_module(module)
        return self

    def graph(self) -> Graph:
        """The declared job as the value that `core` checks; raises `DeclarationError` for what cannot work."""
        from .declared import graph_of

        return graph_of(self.finish())


__all__ = ["App", "Batches", "DeclaredTable", "TableView", "duration_ms"]
