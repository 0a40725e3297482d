"""`dedupe` passes on the first row of each key: in rows and columns, over chunks, restarts, failures and commits in a letter's middle."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.steps.keyed import DedupeStep
from headgate.agents.learning import MustLearn
from headgate.agents.operators.base.stateless import Operator
from headgate.agents.operators.plain.deduping import DedupeOp
from headgate.agents.records.columns.records import Records
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError


class Payment(TypedDict):
    id: str
    n: int


def once(app: hg.App, form: str, **more: Any) -> Any:
    """Payments without duplicates, in this form."""
    rows: Any = app.input("payments", serde=hg.json(Payment) if form != "dicts" else hg.json())
    return (rows.columns() if form == "columns" else rows).repartition("id").dedupe(**more)


def numbers(d: Driver) -> list[int]:
    return [one.value["n"] for one in d.read("once")]


FORMS = pytest.mark.parametrize("form", ["dicts", "rows", "columns"])


@FORMS
def test_the_first_record_of_each_key_is_kept_over_chunks_and_restarts(form: str) -> None:
    app = hg.App("shop")
    once(app, form).to("once")
    with Driver(app) as d:
        d.send_all("payments", [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "a", "n": 3}, {"id": "b", "n": 4}])
        d.send_all("payments", [{"id": "b", "n": 5}, {"id": "c", "n": 6}, {"id": "c", "n": 7}])
        assert sorted(numbers(d)) == [1, 2, 6]
        d.restart()
        d.send_all("payments", [{"id": one, "n": 8} for one in "abcd"])
        assert numbers(d) == [8]
        assert dict(d.table("dedupe").items()) == dict.fromkeys("abcd", True)


@FORMS
def test_a_key_is_new_again_when_its_time_is_over(form: str) -> None:
    app = hg.App("shop")
    once(app, form, ttl="1d", name="seen").to("once")
    with Driver(app) as d:
        d.send_all("payments", [{"id": "a", "n": 1}, {"id": "a", "n": 2}])
        d.advance("23h")
        d.send("payments", {"id": "a", "n": 3})  # does not begin a new day
        assert numbers(d) == [1]
        d.advance("2h")
        d.send_all("payments", [{"id": "a", "n": 4}, {"id": "a", "n": 5}])
        assert numbers(d) == [4]


@FORMS
@settings(max_examples=30)
@given(
    cuts=st.lists(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=12), max_size=6),
    restarts=st.sets(st.integers(0, 5)),
)
def test_what_passes_is_what_a_set_lets_pass(form: str, cuts: list[list[tuple[str, int]]], restarts: set[int]) -> None:
    """A record that fails behind it never was: the next one of its key is the first."""
    app = hg.App("shop", on_error="skip")
    rows = once(app, form)
    (rows.rows() if form == "columns" else rows).map(refusing_nines).to("once")
    seen: set[str] = set()
    wanted: list[tuple[str, int]] = []
    with Driver(app) as d:
        for at, cut in enumerate(cuts):
            d.send_all("payments", [{"id": key, "n": n} for key, n in cut])
            for key, n in cut:
                if key not in seen and n != 9:
                    seen.add(key)
                    wanted.append((key, n))
            if at in restarts:
                d.restart()
        found = [(one.value["id"], one.value["n"]) for one in d.read("once")]
    assert sorted(found) == sorted(wanted)


def refusing_nines(payment: Any) -> Any:
    if payment["n"] == 9:
        raise ValueError("nine")
    return payment


def test_streams_of_columns_with_the_same_columns_are_merged() -> None:
    app = hg.App("shop")
    web, shop = (app.input(topic, serde=hg.json(Payment)).columns() for topic in ("web", "shop"))
    both = web.select("id", n=hg.col("n") + 1).merge(shop.select("id", "n"))
    both.repartition("id").dedupe().to("once")
    with Driver(app) as d:
        d.send("web", {"id": "a", "n": 1})
        d.send_all("shop", [{"id": "a", "n": 5}, {"id": "b", "n": 6}])
        assert sorted(numbers(d)) == [2, 6]


def test_a_merge_of_other_columns_or_of_rows_is_refused() -> None:
    app = hg.App("shop")
    web = app.input("web", serde=hg.json(Payment)).columns()
    with pytest.raises(DeclarationError, match=r"one stream has the columns .* the same columns in the same order"):
        web.merge(web.select("id"))
    with pytest.raises(DeclarationError, match=r"merge\(\) of a ColumnStream takes others"):
        web.merge(web.rows())  # type: ignore[arg-type]


def test_updates_are_no_events_that_could_be_duplicates() -> None:
    app = hg.App("shop")
    counts = app.input("payments", key="id").agg(n=hg.count())
    with pytest.raises(DeclarationError, match="would take each update of"):
        counts.dedupe()


def test_a_record_without_a_key_is_bad() -> None:
    app = hg.App("shop", on_error="dead_letter")
    app.input("payments").dedupe().to("once")
    with Driver(app) as d:
        d.send("payments", {"n": 1})
        d.send("payments", {"n": 2}, key="a")
        assert numbers(d) == [2]
        (letter,) = d.dead_letters()
        assert "has no key" in letter.exception


# ------------------------------------------------------------------------------------------------- in the middle of a letter


class Env:
    """What a dedupe needs of its task."""

    push_result = None

    def __init__(self, declared: Declared) -> None:
        self.tables = open_tables(MemoryStore(), declared, clock=lambda: 0).tables
        self.table = self.tables.table


class Sink(Operator):
    """Collects what comes out."""

    def __init__(self) -> None:
        self.out: list[Any] = []

    def push(self, rows: Records) -> None:
        self.out += rows.values


class Letters:
    """A dedupe whose letters and commits the test makes."""

    def __init__(self) -> None:
        app = hg.App("shop")
        app.input("payments", key="id").dedupe().to("once")
        declared = Declared(app)
        self.env = Env(declared)
        step = next(one for one in declared.steps if isinstance(one, DedupeStep))
        self.op = DedupeOp(step, self.env)  # type: ignore[arg-type]
        self.sink = Sink()
        self.op.children.append(self.sink)

    def push(self, *keys: str) -> list[Any]:
        """Push rows with these keys; what comes out."""
        self.sink.out = []
        self.op.push(Records(list(keys), [0] * len(keys), [one.encode() for one in keys], key_serde=hg.key()))
        return self.sink.out

    def complete(self) -> None:
        self.op.prepare()
        self.env.tables.prepare()
        self.op.complete()
        self.env.tables.complete()

    def drop(self) -> None:
        self.op.drop()
        self.env.tables.drop()

    def commit(self, *keys: str) -> list[Any]:
        """Seal and apply, with rows that come out of another step meanwhile."""
        aside, tables = self.op.suspend(), self.env.tables.suspend()
        out = self.push(*keys) if keys else []
        self.complete()
        self.env.tables.seal()
        self.op.resume(aside)
        self.env.tables.resume(tables)
        self.env.tables.applied(1)
        return out


def test_a_letter_that_fails_leaves_no_trace() -> None:
    of = Letters()
    assert of.push("a", "a", "b") == ["a", "b"]
    of.drop()
    assert of.push("b", "c") == ["b", "c"]
    of.complete()
    assert of.push("a", "b") == ["a"]


def test_keys_that_are_forgotten_here_are_in_the_table() -> None:
    of = Letters()
    of.push("a")
    of.op._give_back()  # in the middle of a letter nothing else has its keys
    assert of.push("a") == []
    of.complete()
    for step in (of.op._give_back, of.commit, of.op._give_back):
        step()
        assert of.push("a") == []
        of.complete()


def test_a_commit_in_the_middle_of_a_letter_keeps_what_the_letter_has_seen() -> None:
    of = Letters()
    of.push("a")
    of.commit()
    assert of.push("a", "b") == ["b"]
    of.complete()
    of.commit()
    assert of.push("a", "b") == []


def test_a_letter_whose_key_a_commit_in_its_middle_has_seen_runs_again() -> None:
    of = Letters()
    of.push("a")
    assert of.commit("a", "b") == ["a", "b"]
    with pytest.raises(MustLearn, match="has seen a key of it"):
        of.complete()
    of.drop()
    assert of.push("a", "c") == ["c"]
    of.complete()


def test_a_commit_that_has_seen_other_keys_is_none_of_the_letters_business() -> None:
    of = Letters()
    of.push("a")
    assert of.commit("b") == ["b"]
    assert of.push("a", "b", "c") == ["c"]
    of.complete()
