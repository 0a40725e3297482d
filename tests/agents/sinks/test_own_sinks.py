"""Sinks of the user's own, on the test driver: what they are told of a batch, and what happens when they fail."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypedDict

import pytest

import headgate as hg


class Order(TypedDict):
    n: int


class Kept(hg.Sink):
    """Keeps what it is told, in a list of the test."""

    def __init__(self, into: list[Any], fails: int = 0) -> None:
        self.into, self.fails = into, fails

    def write(self, rows: Any, batch: Any) -> None:
        self.into.append((batch.id, batch.number, batch.offsets, rows.to_pylist()))
        if len(self.into) <= self.fails:
            raise hg.TargetDown("it is away")


def job(**more: Any) -> hg.App:
    app = hg.App("sales", serde=hg.json())
    app.input("orders", serde=hg.json(Order)).to_sink(Kept, max_rows=2, **more)
    return app


def test_a_batch_says_its_number_and_from_which_offsets_its_rows_came() -> None:
    kept: list[Any] = []
    with hg.testing.Driver(job(into=kept)) as d:
        d.send_all("orders", [{"n": n} for n in range(3)])
        d.end("orders")
    assert [(number, offsets) for _, number, offsets, _ in kept] == [
        (0, {"orders:0": (0, 1)}),
        (1, {"orders:0": (2, 2)}),
    ]
    assert [row["n"] for _, _, _, rows in kept for row in rows] == [0, 1, 2]


def test_a_batch_that_is_tried_again_has_the_same_id_and_rows() -> None:
    """The target was away, twice; what it gets the third time can be recognised."""
    kept: list[Any] = []
    with hg.testing.Driver(job(into=kept, fails=2), settings={"error.retries": 5}) as d:
        d.send_all("orders", [{"n": 1}, {"n": 2}])
        d.advance("1m")
    assert len(kept) == 3
    assert kept[0] == kept[1] == kept[2]


def test_a_policy_that_a_sink_cannot_follow_is_refused() -> None:
    """Which rows are refused is found by writing parts of a batch, which this sink does not undo."""
    with pytest.raises(hg.DeclarationError, match="does not undo"):
        job(into=[], on_error="skip")


def test_what_is_no_sink_is_refused() -> None:
    app = hg.App("sales", serde=hg.json())
    with pytest.raises(hg.DeclarationError, match=r"subclass of hg\.Sink"):
        app.input("orders", serde=hg.json(Order)).to_sink(print)  # type: ignore[arg-type]


# --------------------------------------------------------------------------------------------- what would lose rows, or not work


def declared(sink: type[hg.Sink], **more: Any) -> hg.App:
    app = hg.App("sales", serde=hg.json())
    app.input("orders", serde=hg.json(Order)).to_sink(sink, max_rows=2, **more)
    return app


async def awaited(*given: Any) -> None:
    """Never runs."""


def iterated(*given: Any) -> Any:
    yield given


async def both(*given: Any) -> Any:
    yield given


@pytest.mark.parametrize("name", ["open", "begin", "write", "commit", "rollback", "close"])
@pytest.mark.parametrize(
    ("fn", "what"), [(awaited, "async function"), (iterated, "generator"), (both, "async function")]
)
def test_a_method_that_no_one_awaits_or_iterates_over_is_refused(name: str, fn: Any, what: str) -> None:
    """Python would call it, and nothing of it would run."""
    sink = type("Webhook", (hg.Sink,), {"write": Kept.write, name: fn})
    with pytest.raises(hg.DeclarationError, match=rf"to_sink\(Webhook\): {name} is an? {what}"):
        declared(sink)


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({}, "has no write"),
        ({"write": 5}, "write = 5 is no method"),
        ({"write": lambda self, rows: None}, r"write is called with \(rows, batch\)"),
        ({"write": Kept.write, "transactional": "yes"}, "transactional = 'yes'"),
        ({"write": Kept.write, "transactional": True}, "no begin and no commit and no rollback"),
        (
            {"write": Kept.write, "transactional": True, "begin": lambda s, b: None, "commit": lambda s, n: None},
            "transactional, and has no rollback",
        ),
    ],
)
def test_a_class_that_is_no_whole_sink_is_refused(members: dict[str, Any], what: str) -> None:
    with pytest.raises(hg.DeclarationError, match=what):
        declared(type("Webhook", (hg.Sink,), members))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "missing a required argument: 'into'.*Kept.into, fails=0. follow by name"),
        ({"into": [], "fail": 1}, "unexpected keyword argument 'fail'"),
    ],
)
def test_arguments_that_the_class_does_not_take_are_refused(given: dict[str, Any], what: str) -> None:
    """Not when a task makes the sink, which is after a run has begun."""
    with pytest.raises(hg.DeclarationError, match=what):
        declared(Kept, **given)


def test_an_abstract_class_is_refused() -> None:
    class Abstract(Kept, ABC):
        @abstractmethod
        def address(self) -> str: ...

    with pytest.raises(hg.DeclarationError, match="is abstract: it lacks address"):
        declared(Abstract, into=[])


class Named(Kept):
    """Has an argument that `to_sink` has, too."""

    def __init__(self, name: str = "", **more: Any) -> None:
        super().__init__([])


class Sized(Kept):
    """The same, and it must be given."""

    def __init__(self, max_age: str) -> None:
        super().__init__([])


def test_an_argument_that_to_sink_takes_itself_is_refused_if_the_class_wants_it() -> None:
    """It would never get there, and what was meant for the class would name the step."""
    for sink, given in ((Named, {"name": "x"}), (Sized, {}), (Sized, {"max_age": "1s"})):
        with pytest.raises(hg.DeclarationError, match="is an argument of to_sink itself"):
            declared(sink, **given)
    declared(Named, other=1)


def test_plain_functions_and_static_methods_are_taken() -> None:
    declared(type("Webhook", (hg.Sink,), {"write": staticmethod(lambda rows, batch: None)}))
    declared(type("Webhook", (hg.Sink,), {"write": lambda self, *given: None}))
    declared(type("Webhook", (hg.Sink,), {"write": print}))


@pytest.mark.parametrize(
    ("gives", "what"),
    [
        (lambda: awaited(), "coroutine"),
        (lambda: iterated(), "generator"),
        (lambda: both(), "async_generator"),
        (lambda: Future[None](), "Future"),
    ],
)
def test_a_method_that_returns_what_no_one_waits_for_fails_the_task(gives: Callable[[], Any], what: str) -> None:
    """Its definition does not show it: a plain function that returns what it should have awaited."""

    class Lazy(hg.Sink):
        def write(self, rows: Any, batch: Any) -> Any:
            return gives()

    with hg.testing.Driver(declared(Lazy)) as d:
        with pytest.raises(hg.UserCodeError, match=rf"Lazy\.write has returned a {what}, for which no one waits"):
            d.send_all("orders", [{"n": 1}, {"n": 2}])


def test_a_note_that_is_no_text_fails_the_task() -> None:
    class Sure(Kept):
        def begin(self, batch: Any) -> Any:
            return True

    with hg.testing.Driver(declared(Sure, into=[])) as d:
        with pytest.raises(hg.UserCodeError, match=r"Sure\.begin has returned True"):
            d.send_all("orders", [{"n": 1}, {"n": 2}])


def test_a_sink_may_run_what_is_asynchronous_itself() -> None:
    """In its thread there is no loop."""
    kept: list[Any] = []

    class Own(hg.Sink):
        def write(self, rows: Any, batch: Any) -> None:
            async def post() -> None:
                await asyncio.sleep(0)
                kept.extend(rows.to_pylist())

            asyncio.run(post())

    with hg.testing.Driver(declared(Own)) as d:
        d.send_all("orders", [{"n": 1}, {"n": 2}])
    assert kept == [{"n": 1}, {"n": 2}]
