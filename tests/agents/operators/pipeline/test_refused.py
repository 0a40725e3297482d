"""Whatever user code gives back in a wrong type is refused with its record, while the letter runs: nothing is ever half committed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.operators.base.stateless import MapOp
from headgate.agents.records.kafka.writable import Unwritable, check_headers, check_partition, whole_ms, writable
from headgate.agents.records.limits import TIME_LIMIT
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.state import DriverError

from ...forms import Form

SENT = [{"k": "a", "n": 1}, {"k": "bad", "n": 1}, {"k": "b", "n": 1}, {"k": "a", "n": 2}]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Odd:
    """Equals nothing and everything, as a column of a data frame does."""

    def __eq__(self, other: object) -> Any:
        raise ValueError("the truth value is ambiguous")

    __hash__ = object.__hash__


def is_bad(value: Any) -> bool:
    return value["k"] == "bad"


def record(**changes: Any) -> Any:
    """A step that gives a Record with something wrong in it, for the bad one."""

    def step(stream: Any) -> Any:
        return stream.map(lambda r: replace(r, **changes) if is_bad(r.value) else r, with_record=True)

    return step


def value(wrong: Any) -> Any:
    return lambda stream: stream.map(lambda v: wrong if is_bad(v) else v)


def raises(error: BaseException) -> Any:
    def fn(v: Any) -> Any:
        if is_bad(v):
            raise error
        return v

    return fn


async def nobody_asked() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def later(error: BaseException | None) -> Any:
    async def fn(v: Any) -> Any:
        await asyncio.sleep(0)
        if is_bad(v):
            if error is None:
                await nobody_asked()
            else:
                raise error
        return v

    return fn


async def ends_itself(v: Any) -> Any:
    if is_bad(v):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
    return v


ENDS = [KeyboardInterrupt(), SystemExit(3), asyncio.CancelledError(), BaseExceptionGroup("two", [SystemExit(1)])]
ENDS += [GeneratorExit()]
STEPS: dict[str, Any] = {
    "a header of text": record(headers=[("trace", "abc")]),
    "a header without a name": record(headers=[(None, b"abc")]),
    "a name that is no text": record(headers=[("\ud800", b"abc")]),
    "headers that are text": record(headers="trace"),
    "headers that are a number": record(headers=5),
    "headers that are no pairs": record(headers=[("a", b"b", b"c")]),
    "a float timestamp": record(timestamp=1700000000000.5),
    "a timestamp of text": record(timestamp="now"),
    "a timestamp beyond 64 bits": record(timestamp=2**70),
    "no timestamp": record(timestamp=None),
    "a key that cannot be written": record(key=object()),
    "a value that cannot be written": value({1, 2}),
    "a value whose equality raises": value(Odd()),
    "a whole number beyond 64 bits between stages": lambda st: value({"k": "x", "n": 2**70})(st).repartition("k"),
    "flat_map that gives no list": lambda st: st.flat_map(lambda v: 5 if is_bad(v) else [v]),
    "flat_map that gives a wrong record": lambda st: st.flat_map(
        lambda r: [replace(r, timestamp=1.5)] if is_bad(r.value) else [r], with_record=True
    ),
    "a filter without a truth": lambda st: st.filter(lambda v: _Untrue() if is_bad(v) else True),
    "a key that no serde of keys takes": lambda st: st.rekey(lambda v: ["x"] if is_bad(v) else "x"),
    **{f"map raises {type(e).__name__}": (lambda error: lambda st: st.map(raises(error)))(e) for e in ENDS},
    "an error that cannot be printed": lambda st: st.map(raises(Unprintable())),
    **{f"map_async raises {type(e).__name__}": (lambda error: lambda st: st.map_async(later(error)))(e) for e in ENDS},
    "map_async awaits what was cancelled": lambda st: st.map_async(later(None)),
    "map_async cancels itself": lambda st: st.map_async(ends_itself),
}


class _Untrue:
    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


ENDINGS: dict[str, Any] = {
    "partition= gives text": lambda st: st.to("out", partition=lambda r: "1" if is_bad(r.value) else 0),
    "partition= gives one too many": lambda st: st.to("out", partition=lambda r: 7 if is_bad(r.value) else 0),
    "partition= gives one below": lambda st: st.to("out", partition=lambda r: -1 if is_bad(r.value) else 0),
    "partition= gives a truth": lambda st: st.to("out", partition=lambda r: is_bad(r.value) or 0),
    "partition= gives a list": lambda st: st.to("out", partition=lambda r: [0] if is_bad(r.value) else 0),
    "to(key=) raises": lambda st: st.to("out", key=lambda v: v["k"] if not is_bad(v) else 1 / 0),
    "a serde that gives text": lambda st: st.to(
        "out", serde=hg.custom(lambda b: b, lambda v: str(v) if is_bad(v) else b"%d" % v["n"], name="own")
    ),
    "a key serde that gives a number": lambda st: st.to(
        "out",
        key=lambda v: {"of": v["k"]},
        key_serde=hg.custom(lambda b: b, lambda k: 5 if k["of"] == "bad" else b"k", name="own"),
    ),
    "a serde that exits": lambda st: st.to("out", serde=hg.custom(lambda b: b, _exits, name="own")),
}


def _exits(v: Any) -> bytes:
    if is_bad(v):
        raise SystemExit(1)
    return b"%d" % v["n"]


def _check(app: hg.App) -> None:
    with Driver(app, settings={"chunk.max-records": 3}) as d:
        d.send_all("in", SENT)
        assert len(d.read("out")) == 3
        [letter] = d.dead_letters()
        assert (letter.partition, letter.offset) == (0, 1)
        assert d.table("seen")["n"] == 3
        d.send_all("in", SENT[:1])
        assert len(d.read("out")) == 1


@pytest.mark.parametrize("way", STEPS)
def test_what_a_step_gives_is_refused_with_its_record(way: str) -> None:
    """One dead letter with its origin; the others go out once, and count once."""
    app = hg.App("job", on_error="dead_letter")
    seen = app.table("seen")

    def count(v: Any) -> Any:
        seen["n"] = seen.get("n", 0) + 1
        return v

    STEPS[way](app.input("in")).map(count).to("out")
    _check(app)


def test_what_closes_a_coroutine_is_named_when_user_code_raises_it() -> None:
    """`min() iterable argument is empty` stood there instead, and nobody could know whose it was."""
    app = hg.App("job", on_error="dead_letter")
    app.input("in").map_async(later(GeneratorExit("its own"))).to("out")
    with Driver(app) as d:
        d.send_all("in", SENT)
        assert [one.exception for one in d.dead_letters()] == ["GeneratorExit: its own"]


@pytest.mark.parametrize("way", ENDINGS)
def test_what_an_output_does_not_take_is_refused_with_its_record(way: str) -> None:
    """The same where the record is written: what the letter had done in tables until then is undone with it."""
    app = hg.App("job", on_error="dead_letter")
    seen = app.table("seen")

    def count(v: Any) -> Any:
        seen["n"] = seen.get("n", 0) + 1
        return v

    ENDINGS[way](app.input("in").map(count))
    _check(app)


def _add(state: Any, v: Any) -> Any:
    return [*state, v["k"]]


def _exits_merging(a: Any, b: Any) -> Any:
    if "bad" in a or "bad" in b:
        raise ValueError("it does not merge")
    return a + b


AGGREGATES: dict[str, Any] = {
    "merge raises at the second key": hg.aggregate(list, _add, _exits_merging),
    "add raises": hg.aggregate(int, lambda s, v: s + 1 if not is_bad(v) else 1 / 0, lambda a, b: a + b),
    "add gives what cannot be stored": hg.aggregate(int, lambda s, v: s + 1 if not is_bad(v) else {1}, lambda a, b: b),
    "result raises": hg.aggregate(list, _add, lambda a, b: a + b, result=lambda s: 1 / 0 if "bad" in s else len(s)),
    "result gives what cannot be written": hg.aggregate(
        list, _add, lambda a, b: a + b, result=lambda s: {1} if "bad" in s else len(s)
    ),
    "add exits": hg.aggregate(int, lambda s, v: raises(SystemExit(1))(v) and s + 1, lambda a, b: a + b),
}


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("way", AGGREGATES)
def test_an_aggregate_that_fails_leaves_no_half(way: str, shuffled: bool) -> None:
    """Whatever of init, add, merge and result fails, and at whichever key: the neighbours in the chunk count once."""
    sent = [{"k": k, "n": 1} for k in ("a", "bad", "a", "bad", "b")]
    app = hg.App("job", on_error="dead_letter")
    keyed = app.input("in", key=None if shuffled else "k")
    keyed = keyed.repartition("k") if shuffled else keyed
    keyed.agg(name="sums", x=AGGREGATES[way], n=hg.count()).to("out")
    with Driver(app, settings={"chunk.max-records": 2}) as d:
        d.send_all("in", sent)
        d.send_all("in", sent)
        assert d.table("sums").get("a", {}).get("n") == 4
        assert d.table("sums").get("b", {}).get("n") == 2


NUMBERS = {
    "null before numbers": [None, 3],
    "text before numbers": ["x", 3],
    "numbers before text": [3, "x", 4],
    "beyond a float": [10**400, 0.5, 1],
    "beyond 64 bits": [2**63, 2**63, 1],
}


@pytest.mark.parametrize("kind", ["sum", "min", "max", "mean"])
@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("way", NUMBERS)
def test_numbers_behind_what_is_none(way: str, shuffled: bool, kind: str) -> None:
    """Columns of numbers are added without a copy, which must never meet a state that is no number: the row would be counted by half."""
    app = hg.App("job", on_error="dead_letter")
    keyed = app.input(
        "in", key=None if shuffled else "k", serde=hg.custom(eval, lambda v: repr(v).encode(), name="own")
    )
    keyed = keyed.repartition("k", serde=hg.msgpack()) if shuffled else keyed
    keyed.agg(name="sums", n=hg.count(), x=getattr(hg, kind)("x")).to("out")
    with Driver(app, settings={"chunk.max-records": 1}) as d:
        d.send_all("in", [{"k": "a", "x": x} for x in NUMBERS[way]])
        d.send_all("in", [{"k": "b", "x": 1}])
        counted = d.table("sums").get("a", {}).get("n", 0)
        assert counted + len(d.dead_letters()) == len(NUMBERS[way])
        assert d.table("sums")["b"]["n"] == 1


class Whole(TypedDict):
    k: str
    ts: int
    x: int | None


class Real(TypedDict):
    k: str
    ts: int
    x: float | None


OF_TYPES: dict[str, tuple[type, list[Any]]] = {
    "null before numbers": (Whole, [None, 3]),
    "null between numbers": (Real, [2, None, 3.5]),
    "beyond 64 bits": (Whole, [2**62, 2**62, 1, -(2**62)]),
    "below 64 bits": (Whole, [-(2**63), -1, 2**63 - 1]),
    "no such number": (Whole, [1, 2**63, 1.5, "3", 4]),
    "beyond a float": (Real, [1e308, 1e308, -1e308, 1]),
}


@pytest.mark.parametrize("kind", ["sum", "min", "mean", "first"])
@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("windowed", [True, False])
@pytest.mark.parametrize("way", OF_TYPES)
def test_numbers_of_a_type(way: str, windowed: bool, shuffled: bool, kind: str, form: Form) -> None:
    """Each record counts, or is a dead letter: never by half, whatever holds the states."""
    of, numbers = OF_TYPES[way]
    app = hg.App("job", on_error="dead_letter", on_bad_data="dead_letter")
    keyed = form.input(app, "in", of, key=None if shuffled else "k", timestamp="ts")
    keyed = keyed.repartition("k") if shuffled else keyed
    keyed = keyed.window(hg.tumbling("1s"), name="sums") if windowed else keyed
    more = {} if windowed else {"name": "sums"}
    keyed.agg(n=hg.count(), x=getattr(hg, kind)("x"), **more).to("out")
    with Driver(app, settings={"chunk.max-records": 1, "chunk.max-bytes": 1}) as d:
        d.send_all("in", [{"k": "a", "ts": 1, "x": x} for x in numbers])
        d.send_all("in", [{"k": "b", "ts": 1, "x": 1}])
        d.drain()
        counted = {record.key: record.value["n"] for record in d.read("out")}
        assert counted["b"] == 1
        assert counted.get("a", 0) + len(d.dead_letters()) == len(numbers)


class Emits(hg.Actor):
    """Calls its context with what the record says."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for one in batch:
            if is_bad(one.value):
                CALLS[one.value["way"]](ctx)
            ctx.emit("out", one.value)


CALLS: dict[str, Any] = {
    "emit to no topic": lambda c: c.emit(5, 1),
    "emit to a name that Kafka refuses": lambda c: c.emit("a b", 1),
    "emit a value that cannot be written": lambda c: c.emit("out", {1}),
    "emit a key that cannot be written": lambda c: c.emit("out", 1, key={1}),
    "emit a float timestamp": lambda c: c.emit("out", 1, timestamp=1.5),
    "emit a timestamp beyond 64 bits": lambda c: c.emit("out", 1, timestamp=2**64),
    "emit headers of text": lambda c: c.emit("out", 1, headers=[("a", "b")]),
    "emit to a partition of text": lambda c: c.emit("out", 1, partition="1"),
    "emit to a partition that is not there": lambda c: c.emit("out", 1, partition=9),
    "forward a timestamp of text": lambda c: c.forward(1, timestamp="now"),
    "forward headers of text": lambda c: c.forward(1, headers=[("a", "b")]),
    "a timer at a text": lambda c: c.timer("t", at="now"),
    "a timer beyond 64 bits": lambda c: c.timer("t", at=2**64),
    "a timer after a text": lambda c: c.timer("t", after="soon"),
    "a timer without a name": lambda c: c.timer(None, at=5),
    "a timer named by a number": lambda c: c.timer(5, at=5),
    "an exit": lambda c: raises(SystemExit(1))({"k": "bad"}),
}


@pytest.mark.parametrize("way", CALLS)
def test_what_a_hook_asks_for_is_refused_where_it_asks(way: str) -> None:
    """In the user's own frame, with the record that it came for."""
    app = hg.App("job", on_error="dead_letter")
    app.input("in").process(Emits).to("forwarded")
    with Driver(app) as d:
        d.send_all("in", [{**one, "way": way} for one in SENT])
        assert [one.value["k"] for one in d.read("out")] == ["a", "b", "a"]
        [letter] = d.dead_letters()
        assert letter.offset == 1


async def closes_itself() -> None:
    raise GeneratorExit


@pytest.mark.parametrize("ends", [nobody_asked, closes_itself])
def test_an_agent_that_awaits_what_was_cancelled_does_not_hang(ends: Any) -> None:
    """It stood in "running" for ever, without a word; now the record is a dead letter, and the rest goes on."""
    app = hg.App("job", on_error="dead_letter")

    @app.agent(app.input("in"), sink="out")
    async def agent(batches: Any) -> Any:
        async for batch in batches:
            for one in batch:
                if is_bad(one.value):
                    await ends()
            yield batch.values

    with Driver(app) as d:
        d.send_all("in", SENT)
        assert [one.value["k"] for one in d.read("out")] == ["a", "b", "a"]
        assert [one.offset for one in d.dead_letters()] == [1]


@pytest.mark.parametrize("ends", [nobody_asked, closes_itself])
def test_a_hook_that_awaits_what_was_cancelled_does_not_hang(ends: Any) -> None:
    """The same in an actor."""

    class Waits(hg.Actor):
        async def on_batch(self, ctx: Any, batch: Any) -> None:
            for one in batch:
                if is_bad(one.value):
                    await ends()
                ctx.emit("out", one.value)

    app = hg.App("job", on_error="dead_letter")
    app.actor(app.input("in"))(Waits)
    with Driver(app) as d:
        d.send_all("in", SENT)
        assert len(d.read("out")) == 3
        assert [one.offset for one in d.dead_letters()] == [1]


@pytest.mark.parametrize(
    ("columns", "index"),
    [
        (([b"k"], ["text"], [1], None), 0),
        ((None, [b"a", 5], [1, 1], None), 1),
        ((["k"], [b"a"], [1], None), 0),
        ((None, [b"a", b"b"], [1, 1.5], None), 1),
        ((None, [b"a"], [True], None), 0),
        ((None, [b"a"], [2**63], None), 0),
        ((None, [b"a"], [TIME_LIMIT], None), 0),
        ((None, [b"a"], -2, None), 0),
        ((None, [b"a"], [1], [[("a", "b")]]), 0),
        ((None, [b"a", b"b"], [1, 1], [[], [(b"a", b"b")]]), 1),
    ],
)
def test_the_index_says_which_record(columns: Any, index: int) -> None:
    """With the compiled part and without."""
    with pytest.raises(Unwritable) as caught:
        writable("out", *columns)
    assert caught.value.index == index


def test_what_is_as_good_as_bytes_is_taken() -> None:
    """A bytearray, a memoryview, numbers that only say that they are whole, headers in tuples."""

    class Whole:
        def __index__(self) -> int:
            return 5

    found = writable("out", [bytearray(b"k")], [memoryview(b"v")], [Whole()], [(("a", bytearray(b"b")),)])
    assert found[:4] == ([b"k"], [b"v"], [5], [[("a", b"b")]])
    assert found.size == 2


def test_both_ways_measure_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled part and its twin measure alike, also what holds nothing."""
    columns = [b"key", None], [b"a" * 50, None], [1, 2], [[("a", b"b")], []]
    fast, empty = writable("out", *columns), writable("out", None, [], [], None)
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    assert writable("out", *columns) == fast
    assert writable("out", None, [], [], None) == empty
    with pytest.raises(ValueError, match="2 items, and there are 1"):
        writable("out", None, [b"a"], [1, 2], None)


def test_what_was_expected_is_said() -> None:
    """An error says what is wrong and what to do."""
    with pytest.raises(Unwritable, match=r"partition 3.*Remedy: use a number from 0 to 2"):
        check_partition("out", 3, 3)
    with pytest.raises(Unwritable, match=r"Remedy: round it"):
        whole_ms(1.5, "timestamp")
    with pytest.raises(Unwritable, match=r"Remedy: encode it"):
        check_headers([[("trace", "abc")]], "out")


def test_a_letter_that_is_completed_by_half_is_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Completing cannot fail; if it does all the same, the transaction does not commit, and the task says why."""
    app = hg.App("job")
    app.input("in").map(lambda v: v).to("out")
    complete = MapOp.complete

    def fails(self: MapOp) -> None:
        raise RuntimeError("a fault of headgate's")

    with Driver(app) as d:
        monkeypatch.setattr(MapOp, "complete", fails)
        with pytest.raises((DriverError, RuntimeError), match="a fault of headgate's"):
            d.send("in", 1)
        monkeypatch.setattr(MapOp, "complete", complete)
        assert d.read("out") == []


def test_flags_of_a_letter_go_with_it() -> None:
    """`on_start` is called again when its letter failed, and a commit or a stop that the failed letter asked for is forgotten."""
    calls: list[str] = []

    class Starts(hg.Actor):
        def on_start(self, ctx: Any) -> None:
            calls.append("start")
            ctx.table("rows")["started"] = 1
            ctx.stop()

        def on_batch(self, ctx: Any, batch: Any) -> None:
            if len(calls) == 1:
                raise ValueError("not yet")

    app = hg.App("job")
    app.table("rows")
    app.actor(app.input("in"))(Starts)
    with Driver(app, settings={"error.retries": 1}) as d:
        d.send("in", 1)
        assert d.states == {"Partition 0": "running"}
        d.advance("1m")
        assert len(calls) == 2
        assert d.table("rows")["started"] == 1
        assert d.states == {"Partition 0": "ended"}
