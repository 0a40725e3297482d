"""Verbs refuse what cannot work, at the line that is wrong, in the user's own words."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, TypedDict

import pytest

import headgate as hg


async def waits(value: Any) -> Any:
    return value


async def yields(value: Any) -> Any:
    yield value


class Waits:
    async def __call__(self, value: Any) -> Any:
        return value


def two(a: Any, b: Any) -> Any:
    return a


def int_of(value: Any) -> int:
    return int(value)


class Client:
    """What libraries give: some of its methods make something to await."""

    def plain(self, value):  # type: ignore[no-untyped-def]
        return value

    def future(self, value: Any) -> asyncio.Future[int] | None:
        return asyncio.get_running_loop().create_task(waits(value))

    def hidden(self, value: Any) -> SomewhereElse:  # type: ignore[name-defined]  # noqa: F821
        return waits(value)


class Word(TypedDict):
    word: str


def words(stream: Any, schema: str = "word string, n int") -> Any:
    return stream.batch(max_rows=1).spark(two, rows=Word, schema=schema)


class Order(TypedDict):
    user: str
    paid: bool
    ts: int


def late_to(stream: Any, topic: str) -> Any:
    return stream.window(hg.tumbling("1s"), late=topic).agg(n=hg.count())


def app() -> hg.App:
    return hg.App("sales")


REFUSED: list[tuple[str, Any, str]] = [
    ("map of a coroutine", lambda a, s: s.map(waits), "async function"),
    ("map of an async generator", lambda a, s: s.map(yields), "async function"),
    ("map of an object that awaits", lambda a, s: s.map(Waits()), "async function"),
    ("map of a partial coroutine", lambda a, s: s.map(functools.partial(waits)), "async function"),
    ("map of no function", lambda a, s: s.map(3), "needs a function"),
    ("map of a function of two", lambda a, s: s.map(two), "called with"),
    ("map of a function of none", lambda a, s: s.map(lambda: 1), "called with"),
    ("filter of a coroutine", lambda a, s: s.filter(waits), "async function"),
    ("flat_map of a coroutine", lambda a, s: s.flat_map(waits), "async function"),
    ("map_async that runs nothing", lambda a, s: s.map_async(waits, concurrency=0), "concurrency"),
    ("lookup by a plain function of two", lambda a, s: s.lookup(two), "called with (question)"),
    ("lookup of a batch by a function of none", lambda a, s: s.lookup(lambda: 1, batch=2), "called with (list of questions)"),
    ("lookup by a plain function", lambda a, s: s.lookup(int_of), "int_of returns, which is a plain function"),
    ("lookup by a method that awaits nothing", lambda a, s: s.lookup(Client().plain), "write `async def`"),
    ("lookup that keeps what is good for no time", lambda a, s: s.lookup(waits, max_cached=5), "without cache= keeps no answer"),
    ("lookup that keeps none", lambda a, s: s.lookup(waits, cache="5m", max_cached=0), "a whole number, at least 1"),
    ("lookup into what awaits", lambda a, s: s.lookup(waits, into=waits), "async function"),
    ("lookup on no selector", lambda a, s: s.lookup(waits, on=3), "a field's name, or a function"),
    ("lookup on a field that is not there", lambda a, s: a.input("x", serde=hg.json(Order)).lookup(waits, on="usr"), "usr"),
    ("lookup of no batch", lambda a, s: s.lookup(waits, batch=0), "a whole number, at least 1"),
    ("lookup that retries half", lambda a, s: s.lookup(waits, retry=0.5), "a whole number, at least 0"),
    ("lookup at no rate", lambda a, s: s.lookup(waits, rate="fast"), '"500/s", "30/m"'),
    ("lookup at a rate of none", lambda a, s: s.lookup(waits, rate=0), '"500/s", "30/m"'),
    ("lookup without time", lambda a, s: s.lookup(waits, timeout=0), "more than 0"),
    ("lookup with a cache of no time", lambda a, s: s.lookup(waits, cache="soon"), "lookup(cache='soon')"),
    ("lookup of a service away by no error", lambda a, s: s.lookup(waits, away="OSError"), "takes exceptions"),
    ("an unknown policy", lambda a, s: s.map(str, on_error="ignore"), "'fail', 'skip', 'dead_letter'"),
    ("a policy of one argument", lambda a, s: s.map(str, on_error=lambda record: "skip"), "(record, exception)"),
    ("a field without a name", lambda a, s: s.repartition(""), "does not name a field"),
    ("a selector that is none", lambda a, s: s.rekey(3), "field's name"),
    ("a selector that awaits", lambda a, s: s.rekey(waits), "async function"),
    ("repartition by a lambda", lambda a, s: s.repartition(lambda v: v), "this repartition has no name"),
    ("repartition by its own key", lambda a, s: s.repartition(), "this repartition has no name"),
    ("no partitions", lambda a, s: s.repartition("a", partitions=0), "at least one partition"),
    ("half a partition", lambda a, s: s.repartition("a", partitions=1.5), "at least one partition"),
    ("a name that is no topic", lambda a, s: s.repartition("a", name="a b"), "cannot be the name"),
    ("the dead letters' name", lambda a, s: s.repartition("a", name="dead-letters"), "dead-letter"),
    ("a serde that was not called", lambda a, s: s.repartition("a", serde=hg.json), "call it: json()"),
    ("a type as a serde", lambda a, s: a.input("x", serde=Order), "call it: hg.json(Order)"),
    ("a name that is no text", lambda a, s: hg.App(3), "is no text"),
    ("an id that is no text", lambda a, s: hg.App("sales", id=1), "is no text"),
    ("event time in text", lambda a, s: a.input("x", serde=hg.json(Order), timestamp="user"), "hg.field(…, unit='iso')"),
    ("event time in no text", lambda a, s: a.input("x", serde=hg.json(Order), timestamp=hg.field("ts", unit="iso")), "no time in 'iso'"),
    ("event time in a flag", lambda a, s: a.input("x", serde=hg.json(Order), timestamp="paid"), "declares it as bool"),
    ("early results at no known time", lambda a, s: s.repartition("a").window(hg.tumbling("1m"), emit="finl"), "'final', how often"),
    ("a serde that is none", lambda a, s: s.to("x", serde="json"), "is not a serde"),
    ("merge of nothing", lambda a, s: s.merge(), "at least one other"),
    ("merge with itself", lambda a, s: s.merge(s), "count every record twice"),
    ("merge of one stream twice", lambda a, s: s.merge(*[a.input("b")] * 2), "count every record twice"),
    ("merge with another app", lambda a, s: s.merge(app().input("b")), "another app"),
    ("merge with no stream", lambda a, s: s.merge("b"), "takes others, not"),
    ("agg of nothing", lambda a, s: s.agg(), "at least one aggregate"),
    ("agg of the builtin sum", lambda a, s: s.agg(total=sum), "not an aggregate"),
    ("agg by a rekeyed key", lambda a, s: s.rekey("a").agg(n=hg.count()), "without a shuffle"),
    ("agg of differently keyed streams", lambda a, s: s.repartition("a").merge(s.repartition("b")).agg(n=hg.count()), "different keys"),
    ("agg of what every task has", lambda a, s: s.broadcast("all").agg(n=hg.count()), "every task would repeat the work"),
    ("agg of updates", lambda a, s: s.repartition("a").agg(n=hg.count()).map(dict).agg(name="of", n=hg.sum("n")), "each update of 'agg-n'"),
    ("a window of updates", lambda a, s: s.repartition("a").agg(n=hg.count()).window(hg.tumbling("1s")).agg(n=hg.sum("n")), "one more row"),
    ("a batch of updates", lambda a, s: s.repartition("a").agg(n=hg.count()).batch(max_rows=1), ".as_events()"),
    ("events among updates", lambda a, s: s.merge(s.repartition("a").agg(n=hg.count())), "mixes the events of 'orders'"),
    ("sum of nothing", lambda a, s: s.agg(n=hg.sum("")), "does not name a field"),
    ("sum of a coroutine", lambda a, s: s.agg(n=hg.sum(waits)), "async function"),
    ("a state that cannot be stored", lambda a, s: s.agg(n=hg.aggregate(set, two)), "cannot be stored"),
    ("add of one argument", lambda a, s: s.agg(n=hg.aggregate(int, lambda state: state)), "(state, value)"),
    ("a table of headgate's own", lambda a, s: s.table("__control"), "reserved for headgate"),
    ("a table without a name", lambda a, s: s.table(""), "cannot be the name"),
    ("a table that lives no time", lambda a, s: s.table("t", ttl="soon"), "ttl: 'soon' is not a duration"),
    ("a broadcast table of a part", lambda a, s: s.repartition("a").table("t", broadcast=True), "only its part"),
    ("join with a stream", lambda a, s: s.join(a.input("b"), into=two), "needs within="),
    ("join with a table for user code", lambda a, s: s.join(a.table("t"), into=two), "a table that follows a stream"),
    ("join with another app", lambda a, s: s.join(app().input("b").table("t"), into=two), "another app"),
    ("join with itself", lambda a, s: s.join(s.table("t"), into=two), "with itself"),
    ("an outer join with a table", lambda a, s: s.join(a.input("b").table("t"), into=two, how="outer"), "'inner' or 'left'"),
    ("into of one argument", lambda a, s: s.join(a.input("b").table("t"), into=str.upper), "(value, row)"),
    ("into that awaits", lambda a, s: s.join(a.input("b").table("t"), into=waits), "async function"),
    ("join on what it is not keyed by", lambda a, s: s.join(a.input("b", key="x").table("t"), on="y", into=two), "keyed by"),
    ("batch without a bound", lambda a, s: s.batch(), "without a limit"),
    ("batch of no rows", lambda a, s: s.batch(max_rows=0), "at least 1"),
    ("batch of true bytes", lambda a, s: s.batch(max_bytes=True), "at least 1"),
    ("batch of no age", lambda a, s: s.batch(max_age="old"), "not a duration"),
    ("a session at Spark", lambda a, s: s.window(hg.session("1s")).spark(two, schema="a int"), "a session belongs to a key"),
    ("a window at Spark without a schema", lambda a, s: s.window(hg.tumbling("1s")).spark(two, schema=""), "without a schema"),
    ("a window is not a stream", lambda a, s: s.window(hg.tumbling("1s")).to("x"), ".window().to(): a window is not a record"),
    ("a batch is not a stream", lambda a, s: s.batch(max_rows=1).to("x"), ".batch().to(): a batch is not a record"),
    ("spark without a schema", lambda a, s: s.batch(max_rows=1).spark(two, schema=""), "without a schema"),
    ("spark with a type that Spark does not have", lambda a, s: s.batch(max_rows=1).spark(two, schema="a strin"), "did you mean 'string'"),
    ("a key that no result has", lambda a, s: words(s).to("x", key="wrd"), "of .spark() has no column 'wrd'"),
    ("a key that no result has, later", lambda a, s: words(s).filter(len).rekey(len).share("x", key="wrd"), "did you mean 'word'"),
    ("a shuffle by what no result has", lambda a, s: s.merge(words(s)).repartition("wrd"), "repartition('wrd')"),
    ("a new key that no result has", lambda a, s: words(s).rekey("wrd"), "rekey('wrd')"),
    ("directories by what no result has", lambda a, s: words(s).write("/x", partition_by="wrd"), "no column 'wrd'"),
    ("a decimal as JSON", lambda a, s: words(s, "n decimal").filter(len).to("x"), "JSON has no decimal"),
    ("bytes as JSON", lambda a, s: words(s, "n binary").repartition("n"), "cast('string')"),
    ("bytes for others", lambda a, s: words(s, "n binary").share("x"), "share('x'): JSON has no binary"),
    ("a list of distances", lambda a, s: s.join(a.input("b"), within=["1s", "2s"], into=two), 'within=("1s", "10s")'),
    ("late rows to no topic", lambda a, s: s.join(a.input("b"), within="1s", into=two, late=""), "join(late='') does not name"),
    ("join with a serde that is none", lambda a, s: s.join(a.input("b"), within="1s", into=two, serde=5), "join(serde=5) is not a serde"),
    ("spark of one argument", lambda a, s: s.batch(max_rows=1).spark(lambda df: df, rows=Word, schema="a int"), "called with (df, batch)"),
    ("to nowhere", lambda a, s: s.to(""), "does not name a topic"),
    ("to a stream", lambda a, s: s.to(s), "does not name a topic"),
    ("to an illegal topic", lambda a, s: s.to("a b"), "not a legal name"),
    ("to its own input", lambda a, s: s.to("orders"), "has a cycle"),
    ("to its own dead letters", lambda a, s: s.to("sales-1-dead-letters"), "kept for the job's own streams"),
    ("an input that a reset would delete", lambda a, s: a.input("sales-1-orders"), "cannot read 'sales-1-orders'"),
    ("a shared stream that a reset would delete", lambda a, s: s.share("sales-1-orders"), "cannot write 'sales-1-orders'"),
    ("an input that steers a job", lambda a, s: a.input("__headgate_coordinator_b_1"), "a topic of headgate itself"),
    ("late rows to a coordinator stream", lambda a, s: late_to(s, "__headgate_coordinator_b_1"), "a topic of headgate itself"),
    ("late rows of a join to a log", lambda a, s: s.join(a.input("b"), within="1s", into=two, late="__headgate_log_b_1"), "headgate"),
    ("to a topic of the brokers", lambda a, s: s.to("__transaction_state"), "a topic of Kafka itself"),
    ("to a stream between its stages", lambda a, s: (s.repartition("a"), s.to("sales-1-by-a")), "job's own stream"),
    ("to a partition by a coroutine", lambda a, s: s.to("x", partition=waits), "async function"),
    ("a step behind to", lambda a, s: s.to("x").map(str), "cannot follow to('x')"),
    ("a step behind sink", lambda a, s: s.sink(print).to("x"), "cannot follow sink()"),
    ("sink of no function", lambda a, s: s.sink("x"), "needs a function"),
    ("process by a function", lambda a, s: s.process(two), "not derived from hg.Actor"),
    ("two steps of one name", lambda a, s: (s.repartition("a"), s.map(str).repartition("a")), "two steps are named 'by-a'"),
    ("two tables of one name", lambda a, s: (a.table("t"), s.table("t")), "declared twice"),
    ("a table called like an aggregate", lambda a, s: (s.agg(name="n", n=hg.count()), a.table("n")), "would have the same name"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "declare", "says"), REFUSED, ids=[one[0] for one in REFUSED])
def test_what_cannot_work_is_refused_when_it_is_declared(what: str, declare: Any, says: str) -> None:
    """And the refused step leaves nothing behind: the job can be declared on."""
    job = app()
    orders = job.input("orders")
    with pytest.raises(hg.DeclarationError) as refused:
        declare(job, orders)
    assert says in str(refused.value)
    job.input("more").to("even-more")
    assert "more" in {step.name for step in job.steps}


def test_a_refusal_says_where_the_line_is() -> None:
    """A graph that cannot work is noticed at the verb that makes it so."""
    job = app()
    keyed = job.input("orders").rekey("country")
    with pytest.raises(hg.DeclarationError) as refused:
        keyed.agg(n=hg.count())
    assert "test_stream.py:" in str(refused.value)


def test_what_may_give_something_to_await_can_be_looked_up_with() -> None:
    """A lambda, a partial function, a method that says so, and one whose annotation cannot be read here."""
    orders = app().input("orders")
    client = Client()
    for fn in (waits, Waits(), functools.partial(waits), lambda one: waits(one), client.future, client.hidden):
        orders.lookup(fn)


def test_streams_are_values() -> None:
    """A verb changes nothing of the stream it is called on, so a stream may be used twice."""
    job = app()
    orders = job.input("orders")
    orders.filter(bool).to("some")
    orders.to("all")
    assert job.graph().outputs == {"some", "all"}


def test_names_come_from_arguments_and_not_from_positions() -> None:
    """A verb more upstream renames no topic and no table."""
    plain, more = app(), app()
    plain.input("orders").repartition("country").agg(n=hg.count()).to("out")
    more.input("orders").map(dict).filter(bool).repartition("country").agg(n=hg.count()).to("out")
    named = [{stage.name for stage in job.graph().stages if stage.stateful or stage.shuffles} for job in (plain, more)]
    assert named == [{"by-country", "agg-n"}, {"by-country", "agg-n"}]


def test_a_function_lends_its_name() -> None:
    """Underscores become hyphens, because the name becomes part of a topic."""

    def land_of(order: Any) -> Any:
        return order["country"]

    job = app()
    job.input("orders").repartition(land_of).agg(n=hg.count()).to("out")
    assert job.graph().intermediates == {"sales-1-by-land-of"}


def test_a_table_may_be_called_like_its_input() -> None:
    """As in the first example that everybody reads."""
    job = app()
    rates = job.input("rates", key="currency").table("rates", broadcast=True)
    job.input("orders").join(rates, on="currency", into=two).to("out")
    assert job.graph().input["rates"].broadcast
    assert job.graph().input["rates"].bootstrap


def test_an_input_that_also_flows_on_is_no_bootstrap_input() -> None:
    """Else its watermark, end and drain would not count."""
    job = app()
    orders = job.input("orders")
    last = orders.table("last")
    orders.to("copy")
    job.input("payments").join(last, into=two).to("out")
    assert not job.graph().input["orders"].bootstrap


def generates(value: Any) -> Any:
    yield value


class Generates:
    def __call__(self, value: Any) -> Any:
        yield value


class Hook(hg.Actor):
    def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> Any:
        yield ctx.forward(batch.values)


class AsyncHook(hg.Actor):
    async def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> Any:
        yield ctx.forward(batch.values)


@pytest.mark.parametrize("fn", [generates, Generates()], ids=["a function", "an object"])
@pytest.mark.parametrize("verb", ["map", "filter", "peek", "sink", "map_async", "lookup"])
def test_a_generator_is_refused_where_nothing_would_iterate_over_it(verb: str, fn: Any) -> None:
    """`filter` would let every record through, and `peek` and `sink` would do nothing."""
    stream = hg.App("shop").input("orders")
    with pytest.raises(hg.DeclarationError, match="yields, so nothing of it would run"):
        getattr(stream, verb)(fn)


@pytest.mark.parametrize("fn", [generates, yields])
def test_flat_map_takes_a_generator(fn: Any) -> None:
    """A plain one: what an async one yields would never be awaited."""
    stream = hg.App("shop").input("orders")
    if fn is generates:
        stream.flat_map(fn)
    else:
        with pytest.raises(hg.DeclarationError, match="never be awaited"):
            stream.flat_map(fn)


@pytest.mark.parametrize("actor", [Hook, AsyncHook])
def test_a_hook_that_yields_is_refused(actor: Any) -> None:
    """All records of its stream would be gone."""
    stream = hg.App("shop").input("orders")
    with pytest.raises(hg.DeclarationError, match=r"on_batch yields, so nothing of it would run.*ctx\.forward"):
        stream.process(actor)


@pytest.mark.parametrize("fn", [generates, yields])
def test_a_periodic_function_that_yields_is_refused(fn: Any) -> None:
    with pytest.raises(hg.DeclarationError, match=r"yields.*tick\.emit"):
        hg.App("shop").timer("1s")(fn)
