"""`App`: users declare a job with it. Declaring runs nothing, imports no broker client, and refuses what cannot work.

An app holds steps, tables and settings. It checks each step together with all earlier ones, so the line that is wrong is the one that
raises. `app.graph()` returns the whole job as the value that `core` decides with; a worker, the test driver and `headgate plan` all
start from it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from ....core.errors import DeclarationError, UnknownName
from ....core.graph.keying import PARTITIONERS
from ....core.names import JobName, Topics
from ....core.settings import parse
from ....core.targets import ClosedTopics
from ....core.words import APP
from ...records.values import serdes
from ...records.values.serdes import Serde
from ..derive.result_fields import check_own_fields
from ..steps.ends import ActorStep, AgentStep, TimerStep
from ..steps.sources import InputStep, inputs_of
from ..steps.step import Policy, Step
from ..types.arguments import (
    called_from,
    check_arguments,
    check_function,
    check_selector,
    duration,
    is_generator,
    shown,
)
from ..types.timestamps import When, moment, timestamps_of
from .actors import Actor, ClockTick, check_actor
from .checks import Selector, check_migrate, check_policy, check_serde, check_topic, end_meant, name_of, table_name_of
from .declared_table import DeclaredTable
from .refused_verbs import RefusesVerbs, no_verb
from .streams import Stream

if TYPE_CHECKING:
    from ....core.graph.graph import Graph
    from ..types.schemas import Migrate
    from .windows import DeclaredWindow

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A", bound=Actor)
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound="Callable[[ClockTick], Any]")

Moment = int | str | datetime
"""A time: ms since 1970, ISO 8601 text or a `datetime`; without a time zone it is UTC. Text may name an end of the log instead."""
Until = Moment | Mapping[int, int] | None


class InputOptions(TypedDict, total=False):
    """The options of `App.input` besides its serdes; each is explained there."""

    key: Selector | None
    timestamp: When | None
    max_out_of_order: str | float
    earliest: Moment | None
    max_future: str | float | None
    start: Moment
    until: Until
    priority: int
    bootstrap: bool
    broadcast: bool
    producers: Sequence[str]
    on_lost: Literal["fail", "oldest", "newest"]
    partitioner: Literal["murmur2", "crc32"] | None
    on_bad_data: Policy
    on_error: Policy
    pattern: str
    into: Callable[[Any, str], Any] | None


class App(RefusesVerbs):
    """One job: its name and id, its defaults, and everything declared on it.

    >>> app = hg.App("sales", serde=hg.json())
    >>> orders = app.input("orders", timestamp="ts", max_out_of_order="5s")
    >>> orders.repartition("country").agg(n=hg.count()).to("orders-by-country")
    """

    KIND = APP

    def __init__(
        self,
        name: str,
        id: str = "1",
        *,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = "fail",
        on_bad_data: Policy = "fail",
        chooser: Any = None,
        include: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        for what, given in (("name", name), ("id", id)):
            if type(given) is not str:
                raise DeclarationError(f"App({what}={given!r}) is no text", remedy=f'{what}="sales"')
        self.job = JobName(name, id)
        self.name = name
        self.serde: Serde[Any] = serde if serde is not None else serdes.json()
        self.key_serde: Serde[Any] = key_serde if key_serde is not None else serdes.key()
        self.output_key_serde: Serde[Any] = key_serde if key_serde is not None else serdes.output_key()
        check_serde(self.serde, "App(serde")
        check_serde(self.key_serde, "App(key_serde")
        self.on_error = check_policy(on_error, "App(on_error)") or "fail"
        self.on_bad_data = check_policy(on_bad_data, "App(on_bad_data)") or "fail"
        self.chooser = chooser
        self.settings = dict(settings or {})
        for setting, value in self.settings.items():
            parse(setting, value)
        self.topics = Topics(self.job, self.settings.get("topic.prefix", ""))
        self.steps: list[Step] = []
        self.windows: list[DeclaredWindow] = []
        """What `.window(…)` has returned."""
        self.tables: dict[str, DeclaredTable[Any, Any]] = {}
        if isinstance(include, str):
            raise DeclarationError(f"App(include={include!r})", remedy=f"a list of modules: include=[{include!r}]")
        self._include = tuple(include)
        self._included = False
        self.found: tuple[str, ...] | None = None
        """The topics among which those of patterns are; None: not looked yet."""

    def __repr__(self) -> str:
        return f"<App {self.job}: {len(self.steps)} steps>"

    def _refused(self, verb: str) -> UnknownName:
        return no_verb(verb, App, APP, without=("add", "finish", "graph"))

    # ------------------------------------------------------------------------------------------------------- declaring

    @overload
    def input(
        self, topic: str = ..., *, serde: Serde[V], key_serde: Serde[K], **options: Unpack[InputOptions]
    ) -> Stream[K, V]: ...
    @overload
    def input(self, topic: str = ..., *, serde: Serde[V], **options: Unpack[InputOptions]) -> Stream[Any, V]: ...
    @overload
    def input(self, topic: str = ..., *, key_serde: Serde[K], **options: Unpack[InputOptions]) -> Stream[K, Any]: ...
    @overload
    def input(self, topic: str = ..., **options: Unpack[InputOptions]) -> Stream[Any, Any]: ...
    def input(
        self,
        topic: str = "",
        *,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        **options: Unpack[InputOptions],
    ) -> Stream[Any, Any]:
        """A topic that the job reads.

        `key_serde` decodes keys. Without it, a step that needs keys reads them in the form in which headgate writes them, for example
        as text. `key="field"` says that the topic is partitioned by that field. `timestamp` is a field, `hg.field(…)` or a function;
        without it, Kafka's timestamp is the event time. A record whose time is before `earliest`, or further than `max_future` ahead of the
        broker's time, is bad data: one record of the year 2099 would move time for good. `max_future=None` takes every time: for times
        that are made up. (A test driver knows a broker's time only if it is given `now=`.)
        `start` is where a run without a checkpoint begins: `"oldest"`, `"newest"` or a time. `until` bounds the input, which ends there:
        `"newest"`, a dict of partition → offset, or a time. A time is a number of ms, ISO text or a `datetime` (UTC without a time zone),
        and is compared with Kafka's timestamps. `bootstrap=True`: no other records flow before the task has read this input to the end
        that it had at start. `broadcast=True`: every task reads the whole input. `on_lost`: what to do when records were deleted before
        they were read, or the topic was deleted and re-created. `partitioner`: how producers partition by key, `"murmur2"` (Java
        clients) or `"crc32"` (librdkafka's default).
        Without it, the task tests the keys, and a join of inputs that are partitioned differently fails.
        `producers=["pricing"]`: the topic is a stream that this other job writes by `.share(…)`; several jobs may share one. Its records
        have the times that they had there, its watermark is that of its producers, and with `until="producers"` the input ends when all
        of them have ended.
        `pattern="orders-.*"`, in place of a topic: all topics whose whole name matches this regular expression, each with its own
        partitions and time, merged; those that come while the job runs, too. `into=fn` with it: what `fn(value, topic)` returns goes on as
        the value.
        """
        _one_topic(topic, options)
        pattern = options.get("pattern", "")
        if "pattern" in options:
            topic = check_pattern(pattern)
        else:
            check_topic(topic, "input")
        if (into := options.get("into")) is not None:
            check_into(into, pattern)
        where = f"input('{topic}')"
        if (other := inputs_of(self.steps).get(topic)) is not None:
            raise DeclarationError(
                f"the input '{topic}' is declared twice ({other.where} and {called_from()})",
                remedy="declare it once and use the stream twice",
            )
        check_input(topic, options)
        producers = producing_jobs(options.get("producers", ()), where)
        if str(self.job) in producers:
            raise DeclarationError(
                f"{where}: producers={list(producers)!r} names this job itself, which cannot read what it shares",
                remedy="use the stream that share(…) is called on",
            )
        for name, given in (("serde", serde), ("key_serde", key_serde)):
            if given is not None:
                check_serde(given, f"{where}: {name}")
        check_own_fields((serde or self.serde).type, options.get("key"), options.get("timestamp"), where)
        return Stream(
            self,
            self.add(
                InputStep(
                    name=topic,
                    topic=topic,
                    pattern=pattern,
                    into=into,
                    serde=serde if serde is not None else self.serde,
                    key_serde=key_serde,
                    key=options.get("key"),
                    timestamp=options.get("timestamp"),
                    max_out_of_order_ms=duration(options.get("max_out_of_order", 0), f"{where}: max_out_of_order"),
                    earliest_ms=earliest_of(options.get("earliest", 0), where),
                    max_future_ms=None
                    if (future := options.get("max_future", "1h")) is None
                    else duration(future, f"{where}: max_future"),
                    start=moment(options.get("start", "oldest")),
                    until=moment(options.get("until")),
                    priority=options.get("priority", 0),
                    bootstrap=options.get("bootstrap", False),
                    broadcast=options.get("broadcast", False),
                    producers=producers,
                    on_lost=options.get("on_lost", "fail"),
                    partitioner=options.get("partitioner") or ("murmur2" if options.get("producers") else None),
                    on_bad_data=options.get("on_bad_data"),
                    on_error=options.get("on_error"),
                    where=called_from(),
                )
            ),
        )

    @overload
    def table(
        self,
        name: str,
        *,
        key: Serde[K],
        value: Serde[V],
        ttl: str | float | None = ...,
        migrate: Migrate | None = ...,
    ) -> DeclaredTable[K, V]: ...
    @overload
    def table(
        self, name: str, *, key: Serde[K], ttl: str | float | None = ..., migrate: Migrate | None = ...
    ) -> DeclaredTable[K, Any]: ...
    @overload
    def table(
        self, name: str, *, value: Serde[V], ttl: str | float | None = ..., migrate: Migrate | None = ...
    ) -> DeclaredTable[Any, V]: ...
    @overload
    def table(
        self, name: str, *, ttl: str | float | None = ..., migrate: Migrate | None = ...
    ) -> DeclaredTable[Any, Any]: ...
    def table(
        self,
        name: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        ttl: str | float | None = None,
        migrate: Migrate | None = None,
    ) -> DeclaredTable[Any, Any]:
        """A table that this job's user code reads and writes. Each task has its own part of it.

        >>> seen = app.table("seen", key=hg.text(), value=hg.json(), ttl="1d")

        `migrate(names, value)` converts stored values that no longer fit the declaration.
        """
        self._table_is_free(table_name_of(name))
        for what, given in (("key", key), ("value", value)):
            if given is not None:
                check_serde(given, f"table('{name}'): {what}")
        table: DeclaredTable[Any, Any] = DeclaredTable(
            name,
            key if key is not None else self.key_serde,
            value if value is not None else self.serde,
            duration(ttl, f"table('{name}'): ttl") if ttl is not None else None,
            check_migrate(migrate, f"table('{name}')"),
        )
        self.tables[name] = table
        return table

    def agent(
        self,
        *streams: Stream[Any, Any],
        sink: str | None = None,
        name: str | None = None,
        serde: Serde[Any] | None = None,
        key_serde: Serde[Any] | None = None,
        on_error: Policy = None,
    ) -> Callable[[F], F]:
        """Declare an async generator (or coroutine) over batches. What it yields goes to `sink`.

        >>> @app.agent(orders, sink="alerts")
        ... async def alert(batches: hg.Batches):
        ...     async for batch in batches:
        ...         yield [record for record in batch if record.value["amount"] > 10_000]
        """
        self._own(streams, "agent")
        if sink is not None:
            check_topic(sink, "@app.agent(sink=…)")

        def declare(fn: F) -> F:
            title = getattr(fn, "__name__", repr(fn))
            if not (inspect.isasyncgenfunction(fn) or inspect.iscoroutinefunction(fn)):
                raise DeclarationError(
                    f"@app.agent: {title} is not an async function",
                    remedy="async def …(batches), iterating over batches",
                )
            if sink is not None and not inspect.isasyncgenfunction(fn):
                raise DeclarationError(
                    f"@app.agent(sink='{sink}'): {title} yields nothing", remedy="yield lists of values"
                )
            if sink is None and inspect.isasyncgenfunction(fn):
                raise DeclarationError(
                    f"@app.agent: {title} yields, but has no sink", remedy='@app.agent(…, sink="topic")'
                )
            check_arguments(fn, 1, "@app.agent:", "(batches)")
            self.add(
                AgentStep(
                    parents=tuple(stream.step for stream in streams),
                    name=name_of("agent", fn, name),
                    fn=fn,
                    sink=sink,
                    sink_serde=serde if serde is not None else self.serde,
                    sink_key_serde=key_serde if key_serde is not None else self.output_key_serde,
                    on_error=check_policy(on_error, "agent"),
                    where=called_from(),
                )
            )
            return fn

        return declare

    def actor(
        self, *streams: Stream[Any, Any], name: str | None = None, on_error: Policy = None
    ) -> Callable[[type[A]], type[A]]:
        """Declare a class derived from `hg.Actor` that processes these streams."""
        self._own(streams, "actor")

        def declare(cls: type[A]) -> type[A]:
            check_actor(cls, "@app.actor", {})
            self.add(
                ActorStep(
                    parents=tuple(stream.step for stream in streams),
                    name=name_of("actor", None, name or cls.__name__),
                    cls=cls,
                    on_error=check_policy(on_error, "actor"),
                    where=called_from(),
                )
            )
            return cls

        return declare

    def timer(self, period: str | float, *, name: str | None = None) -> Callable[[T], T]:
        """Declare a function, plain or async, that the clock calls once per period in the whole job, however many tasks and workers it has.

        >>> @app.timer("10s")
        ... async def report(tick: hg.Tick):
        ...     tick.emit("reports", {"number": tick.number, "missed": tick.missed})

        One task calls it, and what it emits and changes in tables is committed together with the tick itself: a tick that is not committed
        has not happened. Ticks stand on the calendar (`"1h"`: at each full hour, UTC), by the clock of the worker that has the task. While
        no worker has it no tick is called; then one is, late, and says how many were missed. Its tables are those of its task: a part of
        the job's, if the job has several tasks.
        """
        period_ms = duration(period, "timer")
        if period_ms < 1:
            raise DeclarationError(f"@app.timer({period!r}): a period is at least 1 ms", remedy='@app.timer("10s")')

        def declare(fn: T) -> T:
            check_function(fn, "timer", signature="(tick)", awaits=True, yields=True)
            if is_generator(fn):
                raise DeclarationError(
                    f"@app.timer: {shown(fn)} yields, which has no meaning here", remedy="tick.emit(topic, value)"
                )
            self.add(TimerStep(name=name_of("timer", fn, name), fn=fn, period_ms=period_ms, where=called_from()))
            return fn

        return declare

    def _own(self, streams: Sequence[Any], verb: str) -> None:
        if not streams:
            raise DeclarationError(f"@app.{verb}() needs at least one stream", remedy=f"@app.{verb}(orders)")
        if len(streams) == 1 and not isinstance(streams[0], Stream) and callable(streams[0]):
            raise DeclarationError(f"@app.{verb} is used without streams", remedy=f"@app.{verb}(orders)")
        for stream in streams:
            if not isinstance(stream, Stream):
                raise DeclarationError(f"@app.{verb}: {stream!r} is not a stream", remedy="app.input(…) returns one")
            if stream.app is not self:
                raise DeclarationError(f"@app.{verb}: {stream!r} belongs to another app")
        if len({id(stream.step) for stream in streams}) < len(streams):
            raise DeclarationError(f"@app.{verb}: a stream is passed twice; its records would arrive twice")

    # -------------------------------------------------------------------------------------------------------- compiling

    def add(self, step: Any) -> Any:
        """Add a step; refuse it if the job could not work with it. Step names are unique in a job."""
        if step.name and step.staged:
            for other in self.steps:
                if other.name == step.name and other.staged:
                    raise DeclarationError(
                        f"two steps are named '{step.name}': {other.where} and {step.where}",
                        remedy="give one of them a name=",
                    )
        if step.tabled:
            self._table_is_free(step.name)
        self._topic_is_open(step)
        from ..derive.declaration import Declared

        self.steps.append(step)
        try:
            Declared(self, unfinished=True).graph  # noqa: B018 - building the graph checks it
        except DeclarationError as error:
            self.steps.pop()
            raise DeclarationError(f"{error.what} (declared at {step.where})", remedy=error.remedy) from None
        return step

    def _topic_is_open(self, step: Step) -> None:
        """Refuse topics that are not the user's to read or write."""
        reads = not step.staged
        for topic in (step.name,) if reads else step.writes:
            if why := self.topics.kept(topic, written=False) if reads else ClosedTopics(self.topics).closed(topic):
                raise DeclarationError(
                    f"the job '{self.job}' cannot {'read' if reads else 'write'} '{topic}' ({step.where}): {why}",
                    remedy=f"{'read from' if reads else 'write to'} a topic of another name",
                )

    def _table_is_free(self, name: str) -> None:
        if name in self.tables:
            raise DeclarationError(f"the table '{name}' is declared twice", remedy="give one of them another name")
        for step in self.steps:
            if step.tabled and step.name == name:
                raise DeclarationError(
                    f"the table '{name}' would have the same name as the step declared at {step.where}",
                    remedy="give one of them another name",
                )

    def finish(self) -> App:
        """Import the modules that `include` names, once."""
        if not self._included:
            self._included = True
            for module in self._include:
                try:
                    importlib.import_module(module)
                except ModuleNotFoundError as error:
                    raise DeclarationError(
                        f"App(include=[…, {module!r}]): {error}", remedy="check that it is on the path; see --app-dir"
                    ) from error
        return self

    def graph(self) -> Graph:
        """The declared job as the value that `core` checks. Raises `DeclarationError` if the job cannot work."""
        from ..derive.declaration import graph_of

        return graph_of(self)


def earliest_of(given: Moment | None, where: str) -> int | None:
    """The least event time of an input in ms; None: any.

    >>> earliest_of("1970-01-01", "input('orders')"), earliest_of(None, "input('orders')")
    (0, None)
    """
    found = moment(given)
    if found is None or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    raise DeclarationError(
        f"{where}: earliest={given!r:.60}", remedy="a time: ms, ISO text or a datetime; None takes all"
    )


def _one_topic(topic: Any, options: Mapping[str, Any]) -> None:
    """Refuse several topics, and patterns where a topic stands: each topic has partitions and a time of its own."""
    several = isinstance(topic, list | tuple | set | frozenset)
    matching = isinstance(topic, str) and not set("*?^$[](){}|+\\").isdisjoint(topic)
    if several or matching:
        raise DeclarationError(
            f"input({topic!r:.100}): an input is one topic, and not several by a list or a pattern",
            remedy=f"app.input(pattern={topic!r:.100}) reads all topics whose whole name matches"
            if matching
            else "app.input(…) for each of them, and first.merge(*others)",
        )
    if topic and "pattern" in options:
        raise DeclarationError(
            f"input({topic!r:.100}, pattern={options['pattern']!r:.100})", remedy="either a topic or a pattern"
        )


def check_pattern(pattern: Any) -> str:
    """The pattern itself; refuse what is none."""
    if not isinstance(pattern, str) or not pattern:
        raise DeclarationError(f"input(pattern={pattern!r:.100}) names no topic", remedy='app.input("orders")')
    try:
        re.compile(pattern)
    except re.error as error:
        raise DeclarationError(
            f"input(pattern={pattern!r:.100}) is no regular expression: {error}", remedy='pattern="orders-.*"'
        ) from None
    return pattern


def check_into(into: Any, pattern: str) -> None:
    """Refuse a function that cannot be told the topic of a value."""
    if not pattern:
        raise DeclarationError("input(into=…) without a pattern", remedy=".map(fn) on the stream: its topic is known")
    check_function(into, "input(into=…)", number=2, signature="(value, topic)")


def check_input(topic: str, options: InputOptions) -> None:
    """Refuse invalid options of an input."""
    where = f"input('{topic}')"
    unknown = sorted(set(options) - InputOptions.__annotations__.keys())
    if unknown:
        raise DeclarationError(
            f"{where} takes no {unknown[0]}=", remedy=", ".join(sorted(InputOptions.__annotations__))
        )
    if (key := options.get("key")) is not None:
        check_selector(key, f"{where}: key")
    if (timestamp := options.get("timestamp")) is not None:
        timestamps_of(timestamp)
    on_lost, start, until = (
        options.get("on_lost", "fail"),
        moment(options.get("start", "oldest")),
        moment(options.get("until")),
    )
    if on_lost not in ("fail", "oldest", "newest"):
        raise DeclarationError(
            f"{where}: on_lost={on_lost!r}", remedy=f"{end_meant(on_lost)}'fail', 'oldest' or 'newest'"
        )
    if (partitioner := options.get("partitioner")) not in (None, *PARTITIONERS):
        raise DeclarationError(
            f"{where}: partitioner={partitioner!r}",
            remedy="'murmur2' (Java's clients, and headgate) or 'crc32' (librdkafka's default); omit it to have the keys tested",
        )
    if isinstance(start, bool) or not (isinstance(start, int) or start in ("oldest", "newest")):
        raise DeclarationError(
            f"{where}: start={start!r}",
            remedy=f"{end_meant(start)}'oldest', 'newest' or a time: ms, ISO text or a datetime",
        )
    if not _is_bound(until):
        raise DeclarationError(
            f"{where}: until={until!r}",
            remedy=f"{end_meant(until, ('newest',))}'newest', a dict of partition → offset, or a time: ms, ISO text or a datetime",
        )
    producers = options.get("producers", ())
    if not isinstance(producers, list | tuple | set | frozenset):
        remedy = f"a list of jobs: [{producers!r}]" if isinstance(producers, str) else 'a list of jobs: ["pricing"]'
        raise DeclarationError(f"{where}: producers={producers!r:.80}", remedy=remedy)
    if not producers and "producers" in options:
        raise DeclarationError(
            f"{where}: producers={producers!r} names no job", remedy="omit it if no headgate job shares the topic"
        )
    for name in ("bootstrap", "broadcast"):
        if not isinstance(options.get(name, False), bool):
            raise DeclarationError(f"{where}: {name}={options.get(name)!r:.80}", remedy="True or False")
    if producers:
        producing_jobs(producers, where)
        for name in ("timestamp", "max_out_of_order"):
            if options.get(name):
                raise DeclarationError(
                    f"{where}: {name}= has no effect on a shared stream, whose producers say its time",
                    remedy=f"omit it; declare it on the input of {' and '.join(map(repr, producers))}",
                )
    priority = options.get("priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise DeclarationError(f"{where}: priority={priority!r}", remedy="an integer; higher priorities are read first")
    check_policy(options.get("on_bad_data"), f"{where}: on_bad_data")
    check_policy(options.get("on_error"), f"{where}: on_error")


def producing_jobs(producers: Sequence[str], where: str) -> tuple[str, ...]:
    """The jobs that write a shared stream, each with its id.

    >>> producing_jobs(["pricing", "orders/2"], "input('a')")
    ('orders/2', 'pricing/1')
    """
    try:
        return tuple(sorted({str(JobName.parse(one)) for one in producers}))
    except (DeclarationError, TypeError, AttributeError) as error:
        why = error.what if isinstance(error, DeclarationError) else "a job is named by text"
        raise DeclarationError(
            f"{where}: producers={list(producers)!r:.200}: {why}",
            remedy='name jobs: producers=["pricing"], or "pricing/2"',
        ) from None


def _is_bound(until: Any) -> bool:
    if isinstance(until, Mapping):
        return bool(until) and all(type(one) is int and one >= 0 for pair in until.items() for one in pair)
    return until is None or until in ("newest", "producers") or type(until) is int
