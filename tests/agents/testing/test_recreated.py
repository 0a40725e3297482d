"""An input that was deleted and re-created under its name, in the test driver: another topic, whatever its offsets are."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


def copying(**options: object) -> hg.App:
    app = hg.App("copies")
    app.input("orders", **options).to("out")  # type: ignore[arg-type]
    return app


@pytest.mark.parametrize("restarted", [False, True])
def test_the_records_of_a_new_topic_are_not_those_behind_the_position(restarted: bool) -> None:
    """Twenty records, the position is 10: the second ten would be taken for the next ones, and the first ten be lost."""
    with Driver(copying(on_lost="oldest")) as d:
        d.send_all("orders", list(range(10)))
        d.recreate("orders")
        if restarted:
            d.restart()
        d.send_all("orders", list(range(100, 120)))
        assert [one.value for one in d.read("out")] == [*range(10), *range(100, 120)]


def test_a_new_topic_that_is_shorter_holds_up_no_one() -> None:
    """An input of a higher priority is read first, to the end that it had at the start. The new topic has no such offset: the others stood
    still for ever, without a word."""
    app = hg.App("job")
    app.input("rates", on_lost="oldest", priority=1).merge(app.input("orders")).to("out")
    with Driver(app) as d:
        d.send_all("rates", list(range(10)))
        d.restart()  # the end at the start is 10
        d.recreate("rates")
        d.send("rates", 20)
        d.send("orders", 30)
        assert [one.value for one in d.read("out")] == [*range(10), 20, 30]


def test_by_default_the_task_fails_and_names_the_topic() -> None:
    with Driver(copying()) as d:
        d.send_all("orders", list(range(10)))
        with pytest.raises(RuntimeError, match="orders was deleted and re-created"):
            d.recreate("orders")
