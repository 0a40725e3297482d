"""Aggregates by key: each of them, their updates, their states, and combining before a shuffle."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.types.aggregates import plan
from headgate.agents.testing.driver import Driver

from ...forms import Form


class Row(TypedDict):
    k: str
    x: int


ROWS = [{"k": "a", "x": 3}, {"k": "b", "x": 5}, {"k": "a", "x": 1}, {"k": "a", "x": 2}]


def everything() -> dict[str, hg.Aggregate]:
    return {
        "n": hg.count(),
        "total": hg.sum("x"),
        "least": hg.min("x"),
        "most": hg.max(lambda row: row["x"]),
        "mean": hg.mean("x"),
        "first": hg.first("x"),
        "last": hg.last("x"),
        "all": hg.collect("x"),
        "squares": hg.aggregate(int, lambda state, row: state + row["x"] ** 2, lambda a, b: a + b),
        "shown": hg.aggregate(
            list, lambda state, row: [*state, row["x"]], result=lambda state: "-".join(map(str, state))
        ),
    }


def for_columns() -> dict[str, hg.Aggregate]:
    """Those that need no function of a value."""
    return {
        "n": hg.count(),
        "total": hg.sum("x"),
        "least": hg.min("x"),
        "most": hg.max("x"),
        "mean": hg.mean("x"),
        "first": hg.first("x"),
        "last": hg.last("x"),
        "all": hg.collect("x"),
        "low": hg.min("k"),
    }


def of(form: Form) -> dict[str, hg.Aggregate]:
    return everything() if form is Form.ROWS else for_columns()


def numbers_of(form: Form) -> dict[str, hg.Aggregate]:
    """Those that merge, of which columns hold the states in arrays."""
    if form is Form.ROWS:
        return {name: one for name, one in everything().items() if one.merge is not None}
    return {name: one for name, one in for_columns().items() if name not in ("first", "last", "all", "low")}


def test_every_aggregate_of_columns() -> None:
    """In arrays those of numbers, and all others."""
    found: list[Any] = []
    for form in Form:
        app = hg.App("job")
        form.input(app, "in", Row, key="k").agg(name="agg", **for_columns()).to("out")
        with Driver(app) as d:
            d.send_all("in", ROWS)
            found.append((dict(d.table("agg")), d.read("out")))
    assert found[0] == found[1] == found[2]
    assert list(found[0][0]["a"].values()) == [3, 6, 1, 3, 2.0, 3, 2, [3, 1, 2], "a"]


def test_every_aggregate() -> None:
    """All at once, over one key."""
    app = hg.App("job")
    app.input("in", key="k").agg(name="agg", **everything()).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert d.table("agg")["a"] == {
            "n": 3,
            "total": 6,
            "least": 1,
            "most": 3,
            "mean": 2.0,
            "first": 3,
            "last": 2,
            "all": [3, 1, 2],
            "squares": 14,
            "shown": "3-1-2",
        }


def test_updates_go_on_once_a_commit_and_key(form: Form) -> None:
    """A chunk of four rows of two keys gives two updates, with the greatest time of each key's rows."""
    app = hg.App("job")
    form.input(app, "in", Row, key="k", timestamp="x").agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert d.read("out") == [hg.Record("a", {"n": 3}, 3), hg.Record("b", {"n": 1}, 5)]
        d.send("in", ROWS[1])
        assert d.read("out") == [hg.Record("b", {"n": 2}, 5)]


def test_an_update_may_be_awaited(form: Form) -> None:
    """What awaits cannot run while a transaction closes: then updates go on with each chunk."""

    async def name(update: Any) -> str:
        return f"{update['n']} rows"

    app = hg.App("job")
    form.input(app, "in", Row, key="k").agg(n=hg.count()).map_async(name).to("out")
    with Driver(app) as d:
        d.send_all("in", ROWS)
        assert [r.value for r in d.read("out")] == ["3 rows", "1 rows"]


def test_an_aggregate_of_an_aggregate(form: Form) -> None:
    """Updates of one stage are the rows of the next, behind another shuffle."""
    app = hg.App("job")
    counts = form.input(app, "in", Row).repartition("k").agg(n=hg.count())
    counts.as_events().repartition(lambda update: "all", name="all").agg(name="most", most=hg.max("n")).to("out")
    with Driver(app, partitions={"in": 3}) as d:
        for n in range(9):
            d.send("in", {"k": "a" if n % 3 else "b", "x": n}, partition=n % 3)
        assert d.table("most")["all"] == {"most": 6}
        d.drain()


def test_states_survive_a_restart(form: Form) -> None:
    """They are in the task's log, and are counted on."""
    app = hg.App("job")
    form.input(app, "in", Row).repartition("k").agg(name="agg", **of(form)).to("out")
    with Driver(app, partitions={"in": 2}) as d:
        d.send_all("in", ROWS)
        before = dict(d.table("agg"))
        d.restart()
        assert dict(d.table("agg")) == before
        d.send("in", {"k": "a", "x": 4})
        assert d.table("agg")["a"]["all"] == [3, 1, 2, 4]


def test_a_failing_chunk_leaves_states_as_they_were(form: Form) -> None:
    """Also those that are changed in place."""
    app = hg.App("job")
    own = {"own": hg.aggregate(list, lambda s, row: s.append(1) or s)} if form is Form.ROWS else {}
    stream = form.input(app, "in", Row, key="k")
    stream.agg(name="agg", all=hg.collect("x"), n=hg.sum("x"), **own).to("out")
    stream.agg(name="numbers", n=hg.sum("x"), c=hg.count()).to("more")
    form.with_columns(stream, lambda row: {**row, "x": 1 // (row["x"] - 7)}, {"x": 1 // (hg.col("x") - 7)}).to("far")
    with Driver(app) as d:
        d.send("in", ROWS[0])
        d.read("out")
        d.read("more")
        with pytest.raises(hg.UserCodeError, match="zero"):
            d.send_all("in", [ROWS[2], {"k": "a", "x": 7}])
        assert d.table("agg")["a"] == {"all": [3], "n": 3} | ({"own": [1]} if own else {})
        assert d.table("numbers")["a"] == {"n": 3, "c": 1}
        assert d.read("out") == d.read("more") == []


def test_a_result_that_raises_fails_the_task_and_commits_nothing() -> None:
    """It runs while the transaction is closed, so the whole contribution is void; then with its record, and that one is to fail."""
    app = hg.App("job")
    app.input("in", key="k").agg(bad=hg.aggregate(int, lambda s, _: s, result=lambda s: 1 // s)).to("out")
    with Driver(app) as d:
        with pytest.raises(hg.UserCodeError, match="ZeroDivisionError"):
            d.send("in", ROWS[0])
        assert d.states == {"Partition 0": "failed"}
        assert d.read("out") == []


def _refused(state: int) -> int:
    if state < 0:
        raise ValueError("below zero")
    return state


@pytest.mark.parametrize("combines", [False, True])
def test_a_record_that_a_commit_fails_on_is_left_out(combines: bool) -> None:
    """What came with it in the same transaction counts, and so does what comes later."""
    app = hg.App("job", on_error="dead_letter")
    rows = app.input("in").repartition("k") if combines else app.input("in", key="k")
    total = hg.aggregate(int, lambda s, row: s + row["x"], lambda a, b: a + b, result=_refused)
    rows.agg(total=total, name="agg").to("out")
    with Driver(app) as d:
        d.send_all("in", [*ROWS, {"k": "c", "x": -1}, {"k": "b", "x": 1}])
        assert {r.key: r.value["total"] for r in d.read("out")} == {"a": 6, "b": 6}
        [letter] = d.dead_letters()
        assert letter.exception == "ValueError: below zero"
        d.send("in", {"k": "a", "x": 1})
        assert [r.value for r in d.read("out")] == [{"total": 7}]
        d.end()
        assert d.states == {"Partition 0": "ended"}


rows = st.lists(
    st.fixed_dictionaries({"k": st.sampled_from("abcd"), "x": st.integers(-100, 100), "p": st.integers(0, 2)}),
    max_size=60,
)


@settings(deadline=None, max_examples=15)
@given(rows, st.integers(1, 7))
def test_combining_before_the_shuffle_changes_nothing(form: Form, sent: list[dict[str, Any]], size: int) -> None:
    """The same rows, in the same chunks: partial states give what the rows themselves give."""
    merging = numbers_of(form)
    found: list[Any] = []
    for combines in (True, False):
        app = hg.App("job")
        shuffled = form.input(app, "in", Row).repartition("k")
        shuffled.agg(name="agg", **merging).to("out")
        if not combines:
            shuffled.to("copy")  # another reader needs the rows as they are
        combined = [getattr(step, "combine", None) for step in Driver(app).declared.steps]
        assert any(combined) is combines
        with Driver(app, partitions={"in": 3}) as d:
            for partition in range(3):
                mine = [row for row in sent if row["p"] == partition]
                for start in range(0, len(mine), size):
                    d.send_all("in", mine[start : start + size], partition=partition)
            found.append(dict(d.table("agg")))
    assert found[0] == found[1]


def _whole(state: int, row: dict[str, Any]) -> Any:
    return object() if "bad" in row else state


@settings(deadline=None, max_examples=40)
@given(rows, st.integers(1, 7), st.booleans())
def test_holding_nothing_back_changes_nothing(sent: list[dict[str, Any]], size: int, combines: bool) -> None:
    """A task that a commit has failed on emits with each chunk: its table and each key's last update are the same."""
    merging = {name: one for name, one in everything().items() if one.merge is not None}
    found: list[Any] = []
    for bad in ([], [{"k": "bad", "x": 1, "bad": True}]):
        app = hg.App("job", on_error="skip")
        rows = app.input("in").repartition("k") if combines else app.input("in", key="k")
        rows.agg(name="agg", whole=hg.aggregate(int, _whole, lambda a, b: a), **merging).to("out")
        with Driver(app, settings={"chunk.max-records": size}) as d:
            d.send_all("in", bad)
            d.send_all("in", sent)
            assert d.counters["records_skipped"] == len(bad)
            found.append((dict(d.table("agg")), {r.key: r.value for r in d.read("out")}))
    assert found[0] == found[1]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(-50, 50), min_size=1), st.data())
def test_states_merge_as_rows_add(numbers: list[int], data: Any) -> None:
    """For every aggregate that merges: two halves merged are the whole."""
    merging = {name: one for name, one in everything().items() if one.merge is not None}
    one = plan(merging)
    cut = data.draw(st.integers(0, len(numbers)))
    whole, left, right = ({"k": one.start()} for _ in range(3))
    for states, part in ((whole, numbers), (left, numbers[:cut]), (right, numbers[cut:])):
        one.add(["k"] * len(part), [{"x": x} for x in part], states)
    one.merge(["k"], [right["k"]], left)
    assert one.results([left["k"]]) == one.results([whole["k"]])


def test_states_are_plain_together_as_they_are_each():
    """A chunk's states are judged by column: what is judged plain together and is not would be added to as a number, and fail."""
    made = plan({"n": hg.count(), "least": hg.min("v"), "mean": hg.mean("v")})
    good = [[1, 2.5, (3, 1)], [2, 1, [4.0, 2]]]
    assert made.all_plain(good)
    assert made.all_plain([])
    for odd in (["1", 1, (1, 1)], [1, "x", (1, 1)], [1, 1, "ab"], [1, 1, None], [1, 1], [1, 1, (1, 1), 1], []):
        assert not made.plain(odd)
        assert not made.all_plain([*good, odd])
        assert not made.all_plain([odd])
