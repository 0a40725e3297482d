"""What happens to a record that fails: the nearest policy wins, and nothing is ever half done."""

from __future__ import annotations

import re
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


def picky(value: Any) -> Any:
    if value == "bad":
        raise ValueError("it is bad")
    return value


async def picky_later(value: Any) -> Any:
    return picky(value)


SENT = ["a", "bad", "b"]


def job(where: dict[str, Any], verb: str = "map") -> hg.App:
    """A job whose step fails on "bad", with policies at some of app, input and operator."""
    app = hg.App("job", **{"on_error": where["app"]} if "app" in where else {})
    stream = app.input("in", on_error=where.get("input"))
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
            stream = stream.join(table, on=lambda v: v, into=lambda v, _: picky(v), how="left", on_error=policy)
        case "agg":
            keyed = app.input("keyed", key=lambda v: "k", on_error=where.get("input"))
            keyed.agg(n=hg.sum(lambda v: len(picky(v))), on_error=policy).to("sums")
        case _:
            raise AssertionError(verb)
    stream.to("out")
    return app


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map", "map_async", "join"])
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@pytest.mark.parametrize("place", ["app", "input", "operator"])
def test_the_others_go_on(verb: str, policy: str, place: str) -> None:
    """One record of a chunk is left out, wherever the policy was given."""
    with Driver(job({place: policy}, verb)) as d:
        d.send_all("in", SENT)
        assert [r.value for r in d.read("out")] == ["a", "b"]
        assert [letter.value for letter in d.dead_letters()] == ([b'"bad"'] if policy == "dead_letter" else [])
        assert d.counters["dead_letters" if policy == "dead_letter" else "records_skipped"] == 1


@pytest.mark.parametrize("verb", ["map", "filter", "flat_map", "map_async", "join"])
def test_failing_keeps_nothing_and_says_which_record(verb: str) -> None:
    """The default. The task has failed, its chunk never was, and the error names the step and the user's line."""
    with Driver(job({}, verb)) as d:
        with pytest.raises(hg.UserCodeError, match="ValueError: it is bad") as failed:
            d.send_all("in", SENT)
        assert "test_policies.py:" in str(failed.value)
        assert isinstance(failed.value.__cause__, ValueError)
        assert d.states == {"Partition 0": "failed"}
        assert d.read("out") == []
        assert "in[0] offset 1" in d.tasks["Partition 0"].machine.why


def test_a_task_that_has_failed_leaves_the_others_running() -> None:
    """Its records wait; theirs go on."""
    with Driver(job({}), partitions={"in": 2}) as d:
        with pytest.raises(hg.UserCodeError):
            d.send("in", "bad", partition=0)
        d.send("in", "later", partition=0)
        d.send("in", "fine", partition=1)
        assert [r.value for r in d.read("out")] == ["fine"]
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
def test_the_nearest_policy_wins(where: dict[str, Any], left_out: bool) -> None:
    """Operator before input before app."""
    with Driver(job(where)) as d:
        if left_out:
            d.send_all("in", SENT)
            assert [r.value for r in d.read("out")] == ["a", "b"]
        else:
            with pytest.raises(hg.UserCodeError):
                d.send_all("in", SENT)


@pytest.mark.parametrize("answer", ["skip", "dead_letter", None])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_function_decides(answer: str | None, awaits: bool) -> None:
    """It gets the record as it came and what was raised; None means that it has dealt with it."""
    asked: list[Any] = []

    def decide(record: hg.Record[Any, Any], exception: Exception) -> Any:
        asked.append((record.key, record.value, record.timestamp, tuple(record.headers), str(exception)))
        return answer

    async def decide_later(record: hg.Record[Any, Any], exception: Exception) -> Any:
        return decide(record, exception)

    with Driver(job({"operator": decide_later if awaits else decide})) as d:
        d.send_all("in", ["a", hg.Record("k", "bad", 7, (("h", b"1"),))])
        assert asked == [(b"k", b'"bad"', 7, (("h", b"1"),), "it is bad")]
        assert [r.value for r in d.read("out")] == ["a"]
        assert len(d.dead_letters()) == (answer == "dead_letter")


def test_a_policy_that_raises_or_answers_nonsense_fails_the_task() -> None:
    """It is user code, too."""
    for policy in (lambda r, e: 1 / 0, lambda r, e: "ignore"):
        with Driver(job({"app": policy})) as d, pytest.raises((ZeroDivisionError, ValueError)):
            d.send("in", "bad")


def test_a_dead_letter_says_where_it_came_from() -> None:
    """Topic, partition, offset, step, exception, traceback; key, value and headers as they were."""
    with Driver(job({"app": "dead_letter"}), partitions={"in": 2}) as d:
        d.send("in", "fine", partition=1)
        d.send("in", "bad", key="k", headers={"h": b"1"}, partition=1)
        (letter,) = d.dead_letters()
        assert (letter.topic, letter.partition, letter.offset) == ("in", 1, 1)
        assert re.fullmatch(r"map \(.*test_policies\.py:\d+\)", letter.step)
        assert (letter.key, letter.value, letter.headers) == (b"k", b'"bad"', (("h", b"1"),))
        assert letter.exception == "ValueError: it is bad"
        assert "in picky" in letter.traceback


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_bad_bytes_have_a_policy_of_their_own(policy: str) -> None:
    """on_error is for user code, on_bad_data for what cannot be read: value, key, time."""
    app = hg.App("job", on_error="fail")
    app.input("in", key_serde=hg.text(), timestamp="ts", on_bad_data=policy).map(lambda v: v["n"]).to("out")  # pyright: ignore[reportArgumentType]
    with Driver(app) as d:
        d.send_all("in", [{"n": 1, "ts": 1}, b"{", {"n": 2}, {"n": 3, "ts": "x"}, {"n": 4, "ts": 4}])
        d.send("in", {"n": 5, "ts": 5}, key=b"\xff")
        assert [r.value for r in d.read("out")] == [1, 4]
        letters = d.dead_letters()
        assert len(letters) == (4 if policy == "dead_letter" else 0)
        assert {letter.step for letter in letters} <= {"decode"}


def test_bad_bytes_fail_by_default() -> None:
    """With what was wrong with them."""
    app = hg.App("job", on_error="skip")
    app.input("in").to("out")
    with Driver(app) as d:
        with pytest.raises(hg.DataError, match="not json"):
            d.send("in", b"{")
        assert d.states == {"Partition 0": "failed"}


def test_a_chunk_is_all_or_nothing() -> None:
    """Outputs, tables, aggregates: a record that fails late undoes what the ones before it did."""
    app = hg.App("job", key_serde=hg.text())
    seen = app.table("seen", value=hg.json())

    def note(value: Any) -> Any:
        seen[value["k"]] = value["n"]
        return value

    stream = app.input("in", key="k").map(note)
    stream.to("copy")
    stream.agg(name="agg", n=hg.count()).to("counts")
    stream.table("last")
    stream.repartition("k").map(lambda v: v["n"]).to("far")
    stream.map(lambda v: 1 // v["n"]).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send("in", {"k": "a", "n": 1}, partition=0)
        for topic in ("copy", "counts", "far", "out"):
            assert len(d.read(topic)) == 1
        with pytest.raises(hg.UserCodeError, match="ZeroDivisionError"):
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
        d.send_all("in", SENT)
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


@pytest.mark.parametrize("place", ["app", "operator"])
def test_user_code_behind_an_aggregate_has_policies_too(place: str) -> None:
    """Then updates go on with each chunk, so that a failure can be laid at a record's door."""
    app = hg.App("job", on_error="dead_letter" if place == "app" else "fail")
    counts = app.input("in", key="k").agg(name="agg", x=hg.sum("x"))
    policy = "dead_letter" if place == "operator" else None
    counts.map(lambda update: 10 // update["x"], on_error=policy).to("out")
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "x": 5}, {"k": "b", "x": 0}, {"k": "a", "x": 3}])
        assert [r.value for r in d.read("out")] == [1]
        assert [letter.value for letter in d.dead_letters()] == [b'{"k":"b","x":0}']
        assert dict(d.table("agg")) == {"a": {"x": 8}}


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
