"""A suspected chunk, whose rows run one at a time: it gives what it gives as a whole, and costs as many rows, not their square."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict
from unittest import mock

import pytest

import headgate as hg
from headgate.agents.operators.pipeline.pipeline import Pipeline
from headgate.agents.runtime.task.suspicion import Suspicion
from headgate.agents.testing.driver import Driver
from headgate.core.task.suspects import Mark


class Row(TypedDict):
    k: str
    n: int


def totals(stream: Any) -> None:
    stream.agg(name="totals", total=hg.sum("n")).to("totals")


def windows(stream: Any) -> None:
    """Of two kinds, which take the same rows."""
    stream.window(hg.tumbling("2s"), name="short").agg(total=hg.sum("n")).to("short")
    stream.window(hg.hopping("4s", every="2s"), name="long").agg(total=hg.sum("n")).to("long")


@contextmanager
def suspected() -> Iterator[None]:
    """Every chunk of the shuffled stream was under way when a process ended."""

    def of(self: Suspicion, chunk: Mark) -> list[Mark]:
        found = chunk.at is not None and chunk.at.stream.endswith("by-k")
        return [Mark(chunk.at, chunk.first, chunk.upto)] if found else []

    with mock.patch.object(Suspicion, "of", of):
        yield


def job(steps: Any, columns: bool) -> hg.App:
    app = hg.App("job", on_error="dead_letter")
    stream: Any = app.input("in")
    steps((stream.columns(Row) if columns else stream).repartition("k", name="by-k"))
    return app


def outcome(app: hg.App, *sent: list[Any]) -> list[Any]:
    with Driver(app) as d:
        for batch in sent:
            d.send_all("in", batch)
        d.end("in")
        written = [[(r.key, r.value["total"]) for r in d.read(one)] for one in ("totals", "short", "long")]
        return [*written, [json.loads(one.value) for one in d.dead_letters()], d.counters["records_failed"]]


@pytest.mark.parametrize("columns", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("steps", [totals, windows])
def test_a_suspected_chunk_gives_what_it_gives_as_a_whole(steps: Any, columns: bool) -> None:
    sent = [{"k": f"k{n % 3}", "n": n} for n in range(40)]
    whole = outcome(job(steps, columns), sent)
    with suspected():
        by_row = outcome(job(steps, columns), sent)
    assert [dict(one) for one in by_row[:3]] == [dict(one) for one in whole[:3]]
    assert by_row[3:] == whole[3:]
    assert any(whole[:3])


def kept(state: list[Any], value: Any) -> Any:
    return [*state, object() if value["n"] in (13, 27) else value["n"]]


def cannot_be_stored(stream: Any) -> None:
    stream.agg(name="totals", total=hg.aggregate(list, kept)).to("totals")


def cannot_be_stored_in_a_window(stream: Any) -> None:
    stream.window(hg.tumbling("2s"), name="short").agg(total=hg.aggregate(list, kept)).to("short")


@pytest.mark.parametrize("steps", [cannot_be_stored, cannot_be_stored_in_a_window])
def test_a_row_whose_state_cannot_be_stored_is_found_in_a_suspected_chunk(steps: Any) -> None:
    """That shows when all rows have run, and the letter is about to be complete. The row is to blame, and the others stay."""
    sent = [{"k": f"k{n % 3}", "n": n} for n in range(40)]
    whole = outcome(job(steps, columns=False), sent)
    with suspected():
        by_row = outcome(job(steps, columns=False), sent)
    assert [dict(one) for one in by_row[:3]] == [dict(one) for one in whole[:3]]
    assert by_row[3:] == whole[3:]
    assert (whole[3], whole[4]) == ([sent[13], sent[27]], 2)


def test_what_a_suspected_letter_has_done_is_looked_at_once() -> None:
    """It was looked at behind each row, all of it: 7,500 rows behind two windows took minutes, and nothing else of the worker ran."""
    refused: list[int] = []
    refuse = Pipeline._refuse

    def counted(self: Pipeline) -> None:
        refused.append(1)
        refuse(self)

    def looks(rows: int) -> int:
        refused.clear()
        outcome(job(windows, columns=True), [{"k": "a", "n": n} for n in range(rows)])
        return len(refused)

    with suspected(), mock.patch.object(Pipeline, "_refuse", counted):
        assert looks(200) == looks(20)
