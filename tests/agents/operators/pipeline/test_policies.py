"""What happens to a record that fails: the nearest policy wins, and nothing is ever half done."""

from __future__ import annotations

import re
from typing import Any, TypedDict

import polars as pl
import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

from ...forms import Form


class Value(TypedDict):
    n: int


class Timed(TypedDict):
    n: int
    ts: int


class Keyed(TypedDict):
    k: str
    n: int


class Maybe(TypedDict):
    k: str | None
    n: int


def picky(value: Any) -> Any:
    if value["n"] == 0:
        raise ValueError("it is bad")
    return value


async def picky_later(value: Any) -> Any:
    return picky(value)


def picky_frame(frame: pl.DataFrame) -> pl.DataFrame:
    if (frame["n"] == 0).any():
        raise ValueError("it is bad")
    return frame


BAD = {"n": 0}
SENT = [{"n": 1}, BAD, {"n": 2}]
EXPRESSION = 10 // hg.col("n") > 0
"""It has no value for the bad one."""
VERBS = ["map", "filter", "flat_map", "map_async", "join", "filter of typed rows"]
OF_COLUMNS = ["filter of columns", "with_columns", "frame", "rows of columns", "columns of rows"]
SAYS = dict.fromkeys(("filter of typed rows", "filter of columns", "with_columns"), "is divided by zero")


def job(where: dict[str, Any], verb: str = "map") -> hg.App:
    """A job whose step fails on the bad record, with policies at some of app, input and operator."""
    app = hg.App("job", **{"on_error": where["app"]} if "app" in where else {})
    stream: Any = app.input("in", serde=hg.json(Value), on_error=where.get("input"))
    policy = where.get("operator")
    table = app.input("side", key_serde=hg.text()).table("side", broadcast=True)
    match verb:
        case "map":
            stream = stream.map(picky, on_error=policy)
        case "filter":
            stream = stream.filter(lambda v: picky(v) or True, on_error=policy)
        case "flat_map":
            stream = stream.flat_map(lambda v: [picky(v)], on_error=policy)
        case "map_async":
            stream = stream.map_async(picky_later, on_error=policy)
        case "join":
            stream = stream.join(table, on=lambda v: v["n"], into=lambda v, _: picky(v), how="left", on_error=policy)
        case "filter of typed rows":
            stream = stream.filter(EXPRESSION, on_error=policy)
        case "filter of columns":
            stream = stream.columns().filter(EXPRESSION, on_error=policy)
        case "with_columns":
            stream = stream.columns().with_columns(n=hg.col("n") // hg.col("n") * hg.col("n"), on_error=policy)
        case "frame":
            stream = stream.columns().frame(picky_frame, like="polars", schema=Value, on_error=policy)
        case "rows of columns":
            stream = stream.columns().rows().map(picky, on_error=policy)
        case "columns of rows":
            stream = stream.map(lambda v: v if v["n"] else {"n": "it is bad"}).columns(Value, on_error=policy)
        case _:
            raise AssertionError(verb)
    stream.to("out")
    return app


@pytest.mark.parametrize("verb", [*VERBS, *OF_COLUMNS])
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@pytest.mark.parametrize("place", ["app", "input", "operator"])
def test_the_others_go_on(verb: str, policy: str, place: str) -> None:
    """One record of a chunk is left out, wherever the policy was given."""
    with Driver(job({place: policy}, verb)) as d:
        d.send_all("in", SENT)
        assert [r.value for r in d.read("out")] == [{"n": 1}, {"n": 2}]
        assert [letter.value for letter in d.dead_letters()] == ([b'{"n":0}'] if policy == "dead_letter" else [])
        assert d.counters["dead_letters" if policy == "dead_letter" else "records_skipped"] == 1


@pytest.mark.parametrize("verb", [*VERBS, *OF_COLUMNS])
def test_failing_keeps_nothing_and_says_which_record(verb: str) -> None:
    """The default. The task has failed, its chunk never was, and the error names the step and the user's line."""
    with Driver(job({}, verb)) as d:
        with pytest.raises(hg.UserCodeError, match=SAYS.get(verb, "it is bad")) as failed:
            d.send_all("in", SENT)
        assert "test_policies.py:" in str(failed.value)
        assert isinstance(failed.value.__cause__, Exception)
        assert d.states == {"Partition 0": "failed"}
        assert d.read("out") == []
        assert "in[0] offset 1" in d.tasks["Partition 0"].machine.why


@pytest.mark.parametrize("verb", ["map", "filter of columns"])
def test_a_task_that_has_failed_leaves_the_others_running(verb: str) -> None:
    """Its records wait; theirs go on."""
    with Driver(job({}, verb), partitions={"in": 2}) as d:
        with pytest.raises(hg.UserCodeError):
            d.send("in", BAD, partition=0)
        d.send("in", {"n": 1}, partition=0)
        d.send("in", {"n": 2}, partition=1)
        assert [r.value for r in d.read("out")] == [{"n": 2}]
        assert d.states == {"Partition 0": "failed", "Partition 1": "running"}


@pytest.mark.parametrize(
    ("where", "left_out"),
    [
        ({"app": "skip", "input": "fail"}, False),
        ({"app": "fail", "input": "skip"}, True),
        ({"input": "fail", "operator": "skip"}, True),
        ({"app": "skip", "input": "skip", "operator": "fail"}, False),
    ],
)
@pytest.mark.parametrize("verb", ["map", *OF_COLUMNS[:3]])
def test_the_nearest_policy_wins(where: dict[str, Any], left_out: bool, verb: str) -> None:
    """Operator before input before app."""
    with Driver(job(where, verb)) as d:
        if left_out:
            d.send_all("in", SENT)
            assert [r.value for r in d.read("out")] == [{"n": 1}, {"n": 2}]
        else:
            with pytest.raises(hg.UserCodeError):
                d.send_all("in", SENT)


@pytest.mark.parametrize("answer", ["skip", "dead_letter", None])
@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.parametrize("verb", ["map", "frame", "with_columns"])
def test_a_function_decides(answer: str | None, awaits: bool, verb: str) -> None:
    """It gets the record as it came and what was raised; None means that it has dealt with it."""
    asked: list[Any] = []

    def decide(record: hg.Record[Any, Any], exception: Exception) -> Any:
        asked.append((record.key, record.value, record.timestamp, tuple(record.headers)))
        assert SAYS.get(verb, "it is bad") in str(exception)
        return answer

    async def decide_later(record: hg.Record[Any, Any], exception: Exception) -> Any:
        return decide(record, exception)

    with Driver(job({"operator": decide_later if awaits else decide}, verb)) as d:
        d.send_all("in", [{"n": 1}, hg.Record("k", BAD, 7, (("h", b"1"),))])
        assert asked == [(b"k", b'{"n":0}', 7, (("h", b"1"),))]
        assert [r.value for r in d.read("out")] == [{"n": 1}]
        assert len(d.dead_letters()) == (answer == "dead_letter")


def test_a_policy_that_raises_or_answers_nonsense_fails_the_task() -> None:
    """It is user code, too."""
    for policy in (lambda r, e: 1 / 0, lambda r, e: "ignore"):
        for verb in ("map", "with_columns"):
            with Driver(job({"app": policy}, verb)) as d, pytest.raises((ZeroDivisionError, ValueError)):
                d.send("in", BAD)


@pytest.mark.parametrize(
    ("verb", "step"),
    [("map", "map"), ("filter of columns", "filter"), ("with_columns", "with-columns"), ("frame", "frame")],
)
def test_a_dead_letter_says_where_it_came_from(verb: str, step: str) -> None:
    """Topic, partition, offset, step, exception, traceback; key, value and headers as they were."""
    with Driver(job({"app": "dead_letter"}, verb), partitions={"in": 2}) as d:
        d.send("in", {"n": 1}, partition=1)
        d.send("in", BAD, key="k", headers={"h": b"1"}, partition=1)
        (letter,) = d.dead_letters()
        assert (letter.topic, letter.partition, letter.offset) == ("in", 1, 1)
        assert re.fullmatch(rf"{step} \(.*test_policies\.py:\d+\)", letter.step)
        assert (letter.key, letter.value, letter.headers) == (b"k", b'{"n":0}', (("h", b"1"),))
        if verb in SAYS:
            assert SAYS[verb] in letter.exception
        else:
            assert letter.exception == "ValueError: it is bad"
            assert "in picky" in letter.traceback


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_bad_bytes_have_a_policy_of_their_own(policy: str, form: Form) -> None:
    """on_error is for user code, on_bad_data for what cannot be read: value, key, time."""
    app = hg.App("job", on_error="fail")
    form.input(app, "in", Timed, key_serde=hg.text(), timestamp="ts", on_bad_data=policy).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"n": 1, "ts": 1}, b"{", {"n": 2}, {"n": 3, "ts": "x"}, {"n": 4, "ts": 4}])
        d.send("in", {"n": 5, "ts": 5}, key=b"\xff")
        assert [r.value["n"] for r in d.read("out")] == [1, 4]
        letters = d.dead_letters()
        assert len(letters) == (4 if policy == "dead_letter" else 0)
        assert {letter.step for letter in letters} <= {"decode"}


def test_bad_bytes_fail_by_default(form: Form) -> None:
    """With what was wrong with them."""
    app = hg.App("job", on_error="skip")
    form.input(app, "in", Value).to("out")
    with Driver(app) as d:
        with pytest.raises(hg.DataError, match="not json"):
            d.send("in", b"{")
        assert d.states == {"Partition 0": "failed"}


def test_a_chunk_is_all_or_nothing(form: Form) -> None:
    """Outputs, tables, aggregates: a record that fails late undoes what the ones before it did."""
    app = hg.App("job", key_serde=hg.text())
    seen = app.table("seen", value=hg.json())

    def note(value: Any) -> Any:
        seen[value["k"]] = value["n"]
        return value

    stream = form.input(app, "in", Keyed, key="k")
    rows = stream.rows() if form is Form.COLUMNS else stream
    rows.map(note).to("copy")
    stream.agg(name="agg", n=hg.count()).to("counts")
    rows.table("last")
    stream.repartition("k").to("far")
    form.with_columns(stream, lambda v: {**v, "n": 1 // v["n"]}, {"n": 1 // hg.col("n")}).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send("in", {"k": "a", "n": 1}, partition=0)
        for topic in ("copy", "counts", "far", "out"):
            assert len(d.read(topic)) == 1
        with pytest.raises(hg.UserCodeError, match="zero"):
            d.send_all("in", [{"k": "a", "n": 2}, {"k": "b", "n": 3}, {"k": "c", "n": 0}], partition=0)
        for topic in ("copy", "counts", "far", "out"):
            assert d.read(topic) == []
        assert dict(d.table("seen")) == {"a": 1}
        assert dict(d.table("last")) == {"a": {"k": "a", "n": 1}}
        assert dict(d.table("agg")) == {"a": {"n": 1}}


def test_a_value_that_a_table_cannot_hold_fails_the_chunk() -> None:
    """It is found before anything of the chunk joins the transaction."""
    app = hg.App("job", key_serde=hg.text())
    seen = app.table("seen", value=hg.json())

    def note(value: Any) -> Any:
        seen["k"] = {1, 2} if value == "bad" else value
        return value

    app.input("in").map(note).to("out")
    with Driver(app) as d:
        d.send("in", "fine")
        with pytest.raises(hg.DataError, match="cannot be encoded as json"):
            d.send("in", "bad")
        assert [r.value for r in d.read("out")] == ["fine"]
        assert dict(d.table("seen")) == {"k": "fine"}


def test_a_sink_that_fails_is_not_called_again_record_by_record() -> None:
    """Its effects cannot be taken back: with the policy to fail, the chunk fails as it is."""
    calls: list[Any] = []

    def write(batch: hg.Batch[Any, Any]) -> None:
        calls.append(list(batch.values))
        raise OSError("no room")

    app = hg.App("job")
    app.input("in").sink(write)
    with Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match="no room"):
            d.send_all("in", [1, 2, 3])
        assert calls == [[1, 2, 3]]


def test_a_step_of_a_single_record_is_called_once_before_its_policy() -> None:
    calls: list[Any] = []

    def fails(value: Any) -> Any:
        calls.append(value)
        raise ValueError("it is bad")

    app = hg.App("job")
    app.input("in").map(fails, on_error="skip").to("out")
    with Driver(app) as driver:
        driver.send("in", BAD)
    assert calls == [BAD]


def test_a_sink_that_skips_finds_the_poison() -> None:
    """The others arrive, under another id than the chunk that failed."""
    written: dict[str, list[Any]] = {}

    def write(batch: hg.Batch[Any, Any]) -> None:
        if "bad" in batch.values:
            raise ValueError("no")
        written[batch.meta["id"]] = list(batch.values)

    app = hg.App("job")
    app.input("in").sink(write, on_error="skip")
    with Driver(app) as d:
        d.send_all("in", ["a", "bad", "b"])
    assert ["a", "b"] in written.values()
    assert len(written) == 3


@pytest.mark.parametrize("verb", ["rekey", "repartition", "table", "to", "to a partition"])
def test_verbs_that_key_keep_and_write_have_policies_too(verb: str) -> None:
    """A key that cannot be computed, a record without one, a value that cannot be written."""
    app = hg.App("job")
    stream = app.input("in", key_serde=hg.text())
    match verb:
        case "rekey":
            stream.rekey("k", on_error="skip").to("out")
        case "repartition":
            stream.repartition("k", on_error="skip").to("out")
        case "table":
            stream.filter(lambda v: "k" not in v).table("t", on_error="skip")
            stream.filter(lambda v: "k" in v).to("out")
        case "to":
            stream.to("out", key="k", on_error="skip")
        case _:
            stream.to("out", partition=lambda record: len(record.value["k"]) - 1, on_error="skip")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a"}, {"n": 1}, {"k": "b"}])
        assert [r.value for r in d.read("out")] == [{"k": "a"}, {"k": "b"}]
        assert d.counters["records_skipped"] == 1


@pytest.mark.parametrize("verb", ["repartition", "to"])
def test_a_record_whose_key_is_null(verb: str, form: Form) -> None:
    """No shuffle takes it, and an output does. A field that is not there is null, if there is a type that says so."""
    app = hg.App("job")
    stream = form.input(app, "in", Maybe)
    if verb == "repartition":
        stream.repartition("k", on_error="dead_letter").to("out")
    else:
        stream.to("out", key="k", on_error="dead_letter")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "n": 1}, {"n": 2}, {"k": None, "n": 3}, {"k": "b", "n": 4}])
        kept = [(r.key, r.value["n"]) for r in d.read("out")]
        dead = [letter.offset for letter in d.dead_letters()]
    left_out = [2, 3] if verb == "repartition" else [2] if form is Form.ROWS else []
    wanted = [("a", 1), (None, 2), (None, 3), ("b", 4)]
    assert (kept, dead) == ([one for one in wanted if one[1] not in left_out], [n - 1 for n in left_out])


@pytest.mark.parametrize("place", ["app", "operator"])
def test_user_code_behind_an_aggregate_has_policies_too(place: str, form: Form) -> None:
    """Then updates go on with each chunk, so that a failure can be laid at a record's door."""
    app = hg.App("job", on_error="dead_letter" if place == "app" else "fail")
    counts = form.input(app, "in", Keyed, key="k").agg(name="agg", n=hg.sum("n"))
    policy = "dead_letter" if place == "operator" else None
    counts.map(lambda update: 10 // update["n"], on_error=policy).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "n": 5}, {"k": "b", "n": 0}, {"k": "a", "n": 3}])
        assert [r.value for r in d.read("out")] == [1]
        assert [letter.value for letter in d.dead_letters()] == [b'{"k":"b","n":0}']
        assert dict(d.table("agg")) == {"a": {"n": 8}}


def _within(table: Any, value: Any) -> Any:
    """Fails when the sum of all before it and itself is too large; changes the table before it raises."""
    table["sum"] = table.get("sum", 0) + value
    if table["sum"] > 10:
        raise ValueError("too much")
    return table["sum"]


def _unique(table: Any, value: Any) -> Any:
    """Fails for what has been seen."""
    if value in table:
        raise ValueError("seen")
    table[value] = 1
    return value


def _opened(table: Any, value: Any) -> Any:
    """Succeeds only behind the record that opens."""
    name, what = value
    if what == "close":
        del table[name]
        return what
    if what == "open":
        table[name] = 1
        return what
    raise ValueError(what)


@pytest.mark.parametrize(
    ("fn", "sent", "out", "dead"),
    [
        (_within, [5, 4, 3, 1, 2], [5, 9, 10], [b"3", b"2"]),
        (_unique, list("abacbd"), list("abcd"), [b'"a"', b'"b"']),
        (_opened, [["a", "open"], ["b", "?"], ["a", "close"]], ["open", "close"], [b'["b","?"]']),
    ],
)
def test_a_record_is_blamed_only_for_failing_in_its_place(fn: Any, sent: Any, out: Any, dead: Any) -> None:
    """What fails, or succeeds, because of earlier records of its chunk is tried behind them; a try leaves nothing behind."""
    app = hg.App("job", on_error="dead_letter")
    table = app.table("table", key=hg.text(), value=hg.json())
    app.input("in").map(lambda value: fn(table, value)).to("out")
    with Driver(app) as d:
        d.send_all("in", sent)
        assert [r.value for r in d.read("out")] == out
        assert [letter.value for letter in d.dead_letters()] == dead
