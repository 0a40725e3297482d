"""Sessions of columns whose states are objects (a first, a last, the best row, …) are those of rows, to the byte, and stored alike."""

from __future__ import annotations

import random
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.derive.named_fields import on_columns
from headgate.agents.job.steps.keyed import WindowStep
from headgate.agents.operators.base.addends import ColumnAddends
from headgate.agents.operators.windows import windowed
from headgate.agents.operators.windows.session_arrays import SessionArrays
from headgate.agents.records.columns.records import Records
from headgate.agents.testing.driver import Driver

from .test_early_results import BASE, Windowed, job
from .test_early_results import outcome as outcome_of

GAP = hg.session("60ms")
IN_ORDER = {"one": hg.first("n"), "last": hg.last("x"), "all": hg.collect("x"), "both": hg.last(["n", "x"])}
RANKED = {
    "c": hg.count(),
    "best": hg.arg_max("n", by="x"),
    "worst": hg.arg_min(["n", "k"], by="x"),
    "top": hg.top(2, by="x"),
}
SKETCHED = {"s": hg.sum("n"), "several": hg.count_distinct("n"), "q": hg.quantile("x", 0.5), "m": hg.mean("x")}
SOME = {
    "one": hg.first("n", where=hg.col("n") > 1),
    "last": hg.last("n", where=hg.col("n") > 1),
    "all": hg.collect("x", where=hg.col("x") > 0.3),
    "best": hg.arg_max("x", by="n", where=hg.col("n") > 1),
    "c": hg.count(where=hg.col("x") > 0.3),
}
SESSIONS: dict[str, Windowed] = {
    "in order": lambda of: of.window(GAP).agg(**IN_ORDER),
    "ranked": lambda of: of.window(hg.session("60ms", grace="100ms")).agg(**RANKED),
    "sketched": lambda of: of.repartition("k").window(GAP).agg(**SKETCHED),
    "conditions": lambda of: of.window(hg.session("200ms")).agg(**SOME),
    "late rows": lambda of: of.window(GAP, late="late").agg(**IN_ORDER, **RANKED),
    "kept open": lambda of: of.window(GAP, at_end="keep").agg(**IN_ORDER, **SKETCHED),
}


def outcome(windowed: Windowed, **options: Any) -> dict[str, Any]:
    """Everything that a job does. Which block lies in which slot follows from the order in which keys are written, and means nothing."""
    found = outcome_of(windowed, **options)
    return {**found, "stored": sorted(one for one in found["stored"].values() if one is not None)}


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("chunk", [3, 160])
@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_of_columns_are_those_of_rows(name: str, chunk: int) -> None:
    """In their order, with keys, times and bytes; with late rows, letters that fail, and sums that fit into no array."""
    wanted = outcome(SESSIONS[name], columns=False, chunk=chunk)
    assert wanted["out"] or name == "kept open"
    assert outcome(SESSIONS[name], columns=True, chunk=chunk) == wanted


@pytest.mark.usefixtures("either_part")
@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_go_from_rows_to_columns_and_back_over_restarts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job does of which one version keeps states in lists, and another one in cells: all bytes are the same. In small steps, too."""
    monkeypatch.setattr(windowed, "STEP_RESULTS", 2)
    wanted = outcome(SESSIONS[name], columns=False, behind=lambda d, place: d.restart() if place % 2 else None)
    restarts = 0
    own: Any = WindowStep.in_arrays

    def restart(d: Driver, place: int) -> None:
        nonlocal restarts
        if place % 2:
            restarts += 1
            monkeypatch.setattr(WindowStep, "in_arrays", property(lambda _: False) if restarts % 2 else own)
            d.restart()

    assert outcome(SESSIONS[name], columns=True, behind=restart) == wanted
    assert restarts == 5


@pytest.mark.parametrize("name", [name for name in SESSIONS if name != "late rows"])
def test_no_row_is_made_for_sessions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate plan` shows columns. Where no letter fails, no object stands for a record, not even a key."""
    declared = Declared(job(SESSIONS[name], columns=True))
    assert {step.why_rows() for step, takes in on_columns(declared.steps) if takes} == {None}
    for of, what in ((Records, "of_columns"), (ColumnAddends, "listed"), (ColumnAddends, "values")):
        monkeypatch.setattr(of, what, None)
    monkeypatch.setattr(SessionArrays, "in_lists", None)
    chance = random.Random(3)
    with Driver(job(SESSIONS[name], columns=True, on_error="fail")) as d:
        for second in range(6):
            rows = [{"k": chance.choice("abc"), "n": n, "x": 0.5, "ts": BASE + second * 1000 + n} for n in range(99)]
            chance.shuffle(rows)
            d.send_all("orders", rows)
        assert len(d.read("out")) == 15
