"""Timers: the index says what the table says, whatever happens to a letter, and follows it without reading it again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.operators.actors.timers import EVENT, PROCESSING, Timers
from headgate.agents.records.values import serdes as serde
from headgate.agents.state.store import MemoryStore
from headgate.agents.state.tables import TaskTables

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), NAMES, st.sampled_from([EVENT, PROCESSING]), st.integers(0, 5)),
        st.tuples(st.just("cancel"), NAMES),
        st.tuples(st.sampled_from(["complete", "drop", "seal"])),
    ),
    max_size=40,
)


def on_a_table():
    tables = TaskTables(MemoryStore())
    table = tables.declare("t.timers", serde.msgpack(), serde.msgpack())
    return tables, table, Timers(table)


def shown(timers):
    return timers.first(EVENT), timers.first(PROCESSING), timers.rest()


@settings(deadline=None, max_examples=80)
@given(STEPS)
def test_the_index_says_what_one_that_was_made_anew_says(steps):
    """Letters that count, that fail, and that are put aside for a commit."""
    tables, table, timers = on_a_table()
    for what, *details in steps:
        if what in ("set", "cancel"):
            getattr(timers, what)(*details)
        elif what == "complete":
            timers.complete()
            tables.complete()
        elif what == "drop":
            timers.drop()
            tables.drop()
        else:
            aside, changes = timers.suspend(), tables.suspend()
            assert shown(timers) == shown(Timers(table))
            tables.seal()
            tables.applied(1)
            tables.resume(changes)
            timers.resume(aside)
        assert shown(timers) == shown(Timers(table))


def test_a_letter_that_fails_does_not_read_all_timers_again(monkeypatch):
    """200,000 timers took half a second for each record that failed."""
    _, table, timers = on_a_table()
    table.update({f"{n}": (EVENT, n) for n in range(1000)})
    assert timers.first(EVENT) == (0, "0")

    def never(*_, **__):
        raise AssertionError("the table is read again")

    monkeypatch.setattr(type(table), "range", never)
    for n in range(100):
        timers.set("new", EVENT, n - 50)
        timers.cancel(f"{n}")
        timers.drop()
        assert timers.first(EVENT) == (0, "0")


def test_timers_that_are_always_moved_on_do_not_pile_up():
    """One that is set further into the future with every record is one timer, and not one for each record."""
    _, _, timers = on_a_table()
    for n in range(10_000):
        timers.set("again", PROCESSING, 1_000_000 + n)
        timers.complete()
    assert len(timers._heaps[PROCESSING]) < 200
    assert timers.first(PROCESSING) == (1_009_999, "again")
