"""Words of other systems on every thing that users hold: the error names a verb that exists."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.declare.streams import WindowedColumns
from headgate.agents.operators.actors.actor import ActorContext
from headgate.core import words
from headgate.core.columns.expressions import Expression


def things() -> dict[str, Any]:
    """One thing of each kind; of those that only a task has, one that was never used."""
    row = dataclasses.make_dataclass("Row", [("user", str), ("amount", float)])
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(row))
    return {
        words.APP: app,
        words.ROWS: orders,
        words.COLUMNS: orders.columns(),
        words.WINDOW: orders.repartition("user").window(hg.tumbling("1m")),
        words.VIEW: app.input("rates").table("rates"),
        words.TABLE: app.table("seen"),
        words.CONTEXT: ActorContext.__new__(ActorContext),
        words.BATCHES: hg.Batches.__new__(hg.Batches),
        words.EXPRESSION: hg.col("amount"),
        words.PACKAGE: hg,
    }


THINGS = things()
EVERY = [(name, on, word) for word in words.WORDS for on in word.on for name in word.names]
VERBS = {
    name
    for kind in (
        *(hg.App, hg.Stream, hg.ColumnStream, hg.WindowedStream, hg.BatchedStream, hg.SparkStream, hg.Table, hg.Actor),
        *(Expression, ActorContext, dict),
    )
    for name in dir(kind)
}


@pytest.mark.parametrize(("name", "on", "word"), EVERY, ids=[f"{on} {name}" for name, on, _ in EVERY])
def test_a_word_of_another_system_is_answered(name: str, on: str, word: words.Word) -> None:
    """Nothing of headgate has the name, and the error says what has."""
    assert not hasattr(THINGS[on], name)
    with pytest.raises(hg.DeclarationError) as refused:
        getattr(THINGS[on], name)
    assert refused.value.remedy == f"{word.instead} ({word.page})"


@pytest.mark.parametrize("word", words.WORDS, ids=[word.names[0] for word in words.WORDS])
def test_an_answer_names_what_exists(word: words.Word) -> None:
    """A verb that was renamed takes the table along."""
    said = re.sub(r"hg\.\w+|app\.\w+|ctx\.\w+", "", word.instead)
    assert [name for name in re.findall(r"\.(\w+)\(", said) if name not in VERBS] == []
    for owner, of in (("hg", hg), ("app", hg.App), ("ctx", hg.Context)):
        assert [name for name in re.findall(rf"\b{owner}\.(\w+)", word.instead) if not hasattr(of, name)] == []


@pytest.mark.parametrize("on", THINGS)
def test_what_libraries_ask_of_any_object_does_not_trip(on: str) -> None:
    """Copies, notebooks and debuggers look for names with underscores, and for names that are not there."""
    thing = THINGS[on]
    assert not hasattr(thing, "_repr_html_")
    assert not hasattr(thing, "nobody_has_this")
    assert getattr(thing, "nobody_has_this", 3) == 3
    assert inspect.unwrap(thing) is thing
    if on not in (words.PACKAGE, words.TABLE):
        assert type(copy.copy(thing)) is type(thing)


def test_a_name_that_nobody_brings_is_answered_with_what_there_is() -> None:
    """A slip of the finger on an app names the verb that was meant."""
    with pytest.raises(hg.DeclarationError, match="did you mean 'input'"):
        THINGS[words.APP].inputt  # noqa: B018
    with pytest.raises(hg.DeclarationError, match="there is 'name'"):
        THINGS[words.VIEW].rows  # noqa: B018


def test_a_stream_is_no_frame_with_brackets() -> None:
    """`sdf[sdf["a"] > 1]` and `sdf["total"] = …` are the first lines of whoever comes from Quix or pandas."""
    for on in words.STREAMS:
        stream = THINGS[on]
        with pytest.raises(hg.DeclarationError, match=r"has no '\[…\]', which Quix, Spark, pandas have"):
            stream["amount"]
        with pytest.raises(hg.DeclarationError, match=r"\.filter\("):
            stream["total"] = 1
    with pytest.raises(TypeError, match="not subscriptable"):
        THINGS[words.APP]["orders"]


@pytest.mark.parametrize("on", words.STREAMS)
def test_spark_says_that_it_wants_batches(on: str) -> None:
    """It is the verb that brings people here, and the first one that they type; 'did you mean share' sends them away."""
    with pytest.raises(hg.DeclarationError, match=r"needs a bounded batch.*\n?.*\.window\(.*\.batch\("):
        THINGS[on].spark(print)


def test_a_window_of_columns_knows_the_words_of_windows() -> None:
    """Both kinds of window are one thing to users."""
    columns = THINGS[words.COLUMNS].repartition("user", name="again").window(hg.tumbling("1m"))
    assert isinstance(columns, WindowedColumns)
    with pytest.raises(hg.DeclarationError, match=r"\.agg\(n=hg\.count\(\)"):
        columns.count()  # type: ignore[attr-defined]


def test_peek_shows_each_row_and_passes_it_on() -> None:
    """With its record if the function wants it; what the function returns is nobody's business."""
    seen: list[Any] = []
    app = hg.App("shop")
    orders = app.input("orders", serde=hg.json(dict), on_error="skip")
    orders.peek(seen.append).peek(lambda record: seen.append(record.key), with_record=True).to("all")
    orders.peek(lambda value: value["amount"] + 1).to("good")
    assert [stage.verb for stage in app.graph().stages].count("peek") == 3
    with hg.testing.Driver(app) as driver:
        driver.send("orders", {"amount": 1}, key="a")
        driver.send("orders", {}, key="b")
        assert [one.key for one in driver.read("good")] == ["a"]
        assert seen[:2] == [{"amount": 1}, "a"]
    with pytest.raises(hg.DeclarationError, match="async function"):
        orders.peek(Waits.call)


class Waits:
    """Holds an async function."""

    @staticmethod
    async def call(value: Any) -> None:
        """Waits."""
