"""How often a step failed with which error is counted by its class."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.error_counts import FAILED, failed_so
from headgate.agents.operators.failures.kinds import MOST, OTHER, ErrorKinds
from headgate.testing import Driver


def counted(d: Driver) -> dict[tuple[str, str], int]:
    """The errors that the driver has counted."""
    return {tuple(kind): times for kind, times in failed_so([d.counters]).items()}


def test_what_is_left_out_is_counted_by_step_and_class():
    """A step by its name, and what cannot be read by its input; a text that differs makes no other error."""

    def worth(order: dict[str, Any]) -> float:
        return 1 / order["n"]

    app = hg.App("kinds")
    app.input("orders", on_error="skip", on_bad_data="skip").map(worth).to("out")
    with Driver(app) as d:
        for value in (b'{"n": 0}', b"{", b'{"n": 0}', b'{"m": 1}', b'{"n": 2}', b'{"k": 1}'):
            d.send("orders", value)
        assert counted(d) == {
            ("map", "ZeroDivisionError"): 2,
            ("map", "KeyError"): 2,
            ("orders", "DataError"): 1,
        }
        assert d.counters["records_failed"] == 5


def test_each_try_of_a_letter_that_fails_is_counted():
    """The task has failed with it in the end; who looks sees by what."""

    def worth(order: dict[str, Any]) -> Any:
        return order["n"]

    app = hg.App("kinds")
    app.input("orders").map(worth).to("out")
    with Driver(app) as d:
        with pytest.raises(hg.HeadgateError, match="KeyError"):
            d.send("orders", {"m": 1})
        ((kind, times),) = counted(d).items()
        assert kind == ("map", "KeyError")
        assert times >= 1


def test_rows_on_which_a_result_fails_are_counted():
    """Behind an aggregate no record of an input is left out, but a row."""

    def fussy(row: dict[str, Any]) -> Any:
        return row["none"]

    app = hg.App("kinds")
    orders = app.input("orders").repartition("user", partitions=1)
    orders.agg(n=hg.count(), name="counts").map(fussy, on_error="dead_letter").to("out")
    with Driver(app) as d:
        d.send("orders", {"user": "ann"})
        assert counted(d) == {("map", "KeyError"): 1}
        assert len(d.dead_letters()) == 1


def test_classes_of_errors_are_bounded():
    """User code may make a class for each record."""
    kinds = ErrorKinds()
    names = {
        kinds.counter("map", type(f"Odd{n}", (Exception,), {"__module__": "odd.errors"})()) for n in range(3 * MOST)
    }
    assert len(names) == MOST + 1
    assert f"{FAILED}map|odd.Odd0" in names
    assert f"{FAILED}map|{OTHER}" in names
    assert kinds.counter("map", ExceptionGroup("two", [ValueError()])) == f"{FAILED}map|{OTHER}"
