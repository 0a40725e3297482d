"""An app takes what a job is declared with, and refuses what means nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

import headgate as hg


class Counts(hg.Actor):
    def on_batch(self, ctx: hg.Context, batch: hg.Batch[Any, Any]) -> None:
        pass


async def listens(batches: hg.Batches[Any, Any]) -> None:
    async for _ in batches:
        pass


async def gives(batches: hg.Batches[Any, Any]) -> Any:
    async for _ in batches:
        yield []


def plain(batches: Any) -> None:
    pass


async def takes_nothing() -> None:
    pass


class Misspelt(hg.Actor):
    def on_bach(self, ctx: Any, batch: Any) -> None:
        pass


class Deaf(hg.Actor):
    pass


class Needs(Counts):
    def __init__(self, limit: int) -> None:
        self.limit = limit


REFUSED: list[tuple[str, Any, str]] = [
    ("a job without a name", lambda a: hg.App(""), "not a legal name"),
    ("a job with a space", lambda a: hg.App("my job"), "not a legal name"),
    ("an unknown setting", lambda a: hg.App("x", settings={"comit.interval": "1s"}), "did you mean 'commit.interval'"),
    ("a setting of the wrong kind", lambda a: hg.App("x", settings={"commit.interval": "soon"}), "not a duration"),
    ("an unknown policy", lambda a: hg.App("x", on_error="ignore"), "not an error policy"),
    ("a serde that was not called", lambda a: hg.App("x", serde=hg.json), "call it: json()"),
    ("one module instead of a list", lambda a: hg.App("x", include="mine"), "a list of modules"),
    ("an input without a topic", lambda a: a.input(""), "does not name a topic"),
    ("an input of a pattern", lambda a: a.input("orders-.*"), "an input is one topic"),
    ("a topic and a pattern", lambda a: a.input("orders", pattern="orders-.*"), "either a topic or a pattern"),
    ("a pattern that is none", lambda a: a.input(pattern="orders-("), "is no regular expression"),
    ("no topic", lambda a: a.input(), "does not name a topic"),
    ("a pattern of nothing", lambda a: a.input(pattern=""), "names no topic"),
    ("a function of the topic without a pattern", lambda a: a.input("orders", into=lambda v, t: v), "without a pattern"),
    ("a function of too little", lambda a: a.input(pattern="o.*", into=lambda v: v), "(value, topic)"),
    ("an input of several topics", lambda a: a.input(["a", "b"]), "first.merge"),
    ("an input twice", lambda a: (a.input("a"), a.input("a")), "declared twice"),
    ("an option that there is not", lambda a: a.input("a", partition=3), "takes no partition="),
    ("a lag that is none", lambda a: a.input("a", max_out_of_order="-5s"), "not a duration"),
    ("a start that is none", lambda a: a.input("a", start="latest"), "'oldest', 'newest'"),
    ("an until that is none", lambda a: a.input("a", until="oldest"), "'newest', a dict"),
    ("offsets that are none", lambda a: a.input("a", until={0: -1}), "'newest', a dict"),
    ("no offsets", lambda a: a.input("a", until={}), "'newest', a dict"),
    ("until producers without any", lambda a: a.input("a", until="producers"), "names none"),
    ("until producers from the end on", lambda a: a.input("a", producers=["b"], start="newest", until="producers"), "newest"),
    ("the time of a shared stream", lambda a: a.input("a", producers=["b"], timestamp="ts"), "producers say its time"),
    ("the lag of a shared stream", lambda a: a.input("a", producers=["b"], max_out_of_order="5s"), "producers say its time"),
    ("a producer that is no job", lambda a: a.input("a", producers=["b c"]), "producers=["),
    ("a stream shared for too short", lambda a: a.input("a").share("b", retention="1m"), "at least an hour"),
    ("a stream shared in no partition", lambda a: a.input("a").share("b", partitions=0), "at least one partition"),
    ("a stream that is shared and read", lambda a: (a.input("a"), a.input("b").share("a")), "shares itself"),
    ("a stream that is shared and written", lambda a: (a.input("a").share("b"), a.input("c").to("b")), "shares with other jobs"),
    ("updates that are shared", lambda a: a.input("a").agg(n=hg.count(), name="n").share("b"), "one more row"),
    ("a producer that is a number", lambda a: a.input("a", producers=[5]), "a job is named by text"),
    ("producers that are None", lambda a: a.input("a", producers=None), "a list of jobs"),
    ("producers that are none", lambda a: a.input("a", producers=[]), "names no job"),
    ("a producer that is this job", lambda a: a.input("a", producers=["other", a.name]), "names this job itself"),
    ("a bootstrap that is text", lambda a: a.input("a", bootstrap="no"), "True or False"),
    ("producers that are text", lambda a: a.input("a", producers="other"), "a list of jobs"),
    ("lost and found", lambda a: a.input("a", on_lost="skip"), "'fail', 'oldest' or 'newest'"),
    ("a priority that is none", lambda a: a.input("a", priority="high"), "integer"),
    ("a timestamp that is none", lambda a: a.input("a", timestamp=3), "field's name"),
    ("a unit that is none", lambda a: hg.field("ts", unit="minutes"), "one of 's', 'ms', 'us'"),
    ("a key that awaits", lambda a: a.input("a", key=listens), "async function"),
    ("a bad-data policy that is none", lambda a: a.input("a", on_bad_data="ignore"), "not an error policy"),
    ("a table twice", lambda a: (a.table("t"), a.table("t")), "declared twice"),
    ("a table with a space", lambda a: a.table("my table"), "cannot be the name of a table"),
    ("a table whose key serde was not called", lambda a: a.table("t", key=hg.text), "call it: text()"),
    ("an agent without streams", lambda a: a.agent()(listens), "at least one stream"),
    ("an agent without brackets", lambda a: a.agent(listens), "without streams"),
    ("an agent that is not async", lambda a: a.agent(a.input("a"))(plain), "not an async function"),
    ("an agent with a sink that yields nothing", lambda a: a.agent(a.input("a"), sink="x")(listens), "yields nothing"),
    ("an agent that yields into nothing", lambda a: a.agent(a.input("a"))(gives), "has no sink"),
    ("an agent that takes nothing", lambda a: a.agent(a.input("a"))(takes_nothing), "called with (batches)"),
    ("an agent of another app", lambda a: a.agent(hg.App("y").input("a"))(listens), "another app"),
    ("an agent of a topic's name", lambda a: a.agent("orders")(listens), "is not a stream"),
    ("an agent of a stream twice", lambda a: a.agent(*[a.input("a")] * 2)(listens), "passed twice"),
    ("two agents of one name", lambda a: (a.agent(s := a.input("a"))(listens), a.agent(s)(listens)), "two steps are named"),
    ("an actor that is a function", lambda a: a.actor(a.input("a"))(listens), "not derived from hg.Actor"),
    ("an actor with a misspelt hook", lambda a: a.actor(a.input("a"))(Misspelt), "did you mean 'on_batch'"),
    ("an actor without hooks", lambda a: a.actor(a.input("a"))(Deaf), "has no hook"),
    ("an actor that needs arguments", lambda a: a.actor(a.input("a"))(Needs), "cannot be made"),
    ("process with an argument too many", lambda a: a.input("a").process(Needs, limit=1, more=2), "cannot be made"),
    ("a job that reads nothing", lambda a: a.graph(), "has no inputs"),
    ("a job that does nothing", lambda a: (a.input("a").map(str), a.graph()), "has no outputs, tables or actors"),
    ("a shuffle for nobody", lambda a: ((s := a.input("a")).to("x"), s.repartition("k"), a.graph()), "no step reads"),
    ("batches for nobody", lambda a: ((s := a.input("a")).to("x"), s.batch(max_rows=1), a.graph()), "no step reads"),
    ("a module that is not there", lambda a: hg.App("x", include=["no.such.module"]).graph(), "No module named"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "declare", "says"), REFUSED, ids=[one[0] for one in REFUSED])
def test_what_means_nothing_is_refused(what: str, declare: Any, says: str) -> None:
    """With the argument's name, and what to write instead."""
    with pytest.raises(hg.HeadgateError) as refused:
        declare(hg.App("sales"))
    assert says in str(refused.value)


def test_everything_that_an_input_can_say_stands_in_the_graph() -> None:
    """What the machines decide with is what was declared."""
    app = hg.App("sales", "2", settings={"topic.prefix": "eu."})
    orders = app.input(
        "orders",
        key="country",
        timestamp=hg.field("ts", unit="s"),
        max_out_of_order="1.5s",
        start="newest",
        until={0: 5, 1: 7},
        priority=3,
        on_lost="oldest",
    )
    orders.repartition("city", partitions=8).agg(n=hg.count()).to("out")
    graph = app.graph()
    declared = graph.input["orders"]
    assert (declared.key, declared.out_of_order_ms, declared.start, declared.until) == (
        "country",
        1500,
        "newest",
        ((0, 5), (1, 7)),
    )
    assert (declared.priority, declared.on_lost) == (3, "oldest")
    assert graph.writer["eu.sales-2-by-city"].width == 8


@pytest.mark.parametrize(
    "until",
    ["2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)],
)
def test_a_bound_in_time_is_the_same_moment_however_it_is_written(until: Any) -> None:
    app = hg.App("sales")
    app.input("orders", until=until).to("out")
    assert app.graph().input["orders"].until == 1_700_000_000_000


def test_included_modules_are_imported_when_the_job_is_built(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and not while the app itself is being imported."""
    (tmp_path / "hg_included_part.py").write_text("import hg_included_main as m\nm.orders.to('out')\n")
    (tmp_path / "hg_included_main.py").write_text(
        "import headgate as hg\napp = hg.App('x', include=['hg_included_part'])\norders = app.input('orders')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import hg_included_main  # pyright: ignore[reportMissingImports]

    assert hg_included_main.app.graph().outputs == {"out"}
    assert hg_included_main.app.graph().outputs == {"out"}


def test_a_table_outside_of_a_task_says_so() -> None:
    """It is declared at the top of a module, and means something only where a task runs."""
    counts = hg.App("sales").table("counts")
    with pytest.raises(hg.DeclarationError, match="outside of a task"):
        counts["DE"] = 1
    with pytest.raises(hg.DeclarationError, match="outside of a task"):
        counts.get("DE")


def test_the_front_door_brings_no_broker_client_no_spark_and_no_arrow() -> None:
    """Declaring a job must be cheap: command lines and tests do it all the time."""
    script = (
        "import sys, time; began = time.process_time(); import headgate; took = time.process_time() - began\n"
        "heavy = {'pyspark', 'pyarrow', 'faust', 'aiohttp', 'aiokafka', 'rocksdict'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert headgate.testing.Driver\n"
        "print(took)"
    )
    took = min(
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    )
    assert took < 0.5  # 0.06 s of a processor, however busy it is


def test_everything_at_the_front_door_is_there() -> None:
    """`__all__` promises nothing that is not there, and nothing else is guessed."""
    assert [name for name in hg.__all__ if not hasattr(hg, name)] == []
    with pytest.raises(AttributeError):
        hg.cogroup  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]
