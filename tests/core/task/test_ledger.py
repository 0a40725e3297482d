"""What is durable: counted, so that nothing is believed before its commit is done."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.task.ledger import Ledger, is_own
from headgate.core.task.protocol import RequestCommit


def test_nothing_to_commit_requests_no_commit():
    ledger = Ledger()
    assert ledger.request_commit(urgent=True) == []
    assert ledger.contribute(1) is None
    assert ledger.clean


def test_a_commit_is_requested_once_and_once_more_when_it_becomes_urgent():
    ledger = Ledger()
    ledger.touch()
    requested = [ledger.request_commit(urgent=urgent) for urgent in (False, False, True, True)]
    assert requested == [[RequestCommit(False)], [], [RequestCommit(True)], []]


def test_what_changes_during_a_commit_belongs_to_the_next_one():
    ledger = Ledger()
    first = ledger.touch()
    assert ledger.contribute(1) == {}
    assert ledger.request_commit(urgent=True) == []
    second = ledger.touch()
    assert ledger.request_commit(urgent=False) == [RequestCommit(False)]
    assert ledger.done(1)
    assert (ledger.is_durable(first), ledger.is_durable(second), ledger.clean) == (True, False, False)
    assert not ledger.done(1)
    assert not ledger.done(2)


def test_rows_are_committed_when_they_change_and_belong_to_a_run():
    ledger = Ledger()
    others = ledger.load("r2", {(":said", "a"): ("r2", 1), (":said", "b"): ("r1", 1), ("a", 0, "own"): ("r2", 0)})
    assert others == [(("a", 0, "own"), ("r2", 0))]
    assert ledger.rows == {(":said", "a"): (1,)}
    ledger.put((":said", "a"), (1,))
    assert ledger.clean
    ledger.put((":said", "a"), (2,))
    assert ledger.contribute(1) == {(":said", "a"): ("r2", 2), (":said", "b"): None}
    ledger.done(1)
    ledger.touch()
    assert ledger.contribute(2) == {}


def test_keys_from_msgpack_are_lists_no_more():
    assert is_own((":x",))
    assert not is_own((3,))


def test_durable_though_the_store_could_not_follow_and_forgotten():
    ledger = Ledger()
    ledger.done_anyway()
    made = ledger.touch()
    ledger.contribute(1)
    ledger.done_anyway()
    assert ledger.is_durable(made)
    ledger.touch()
    ledger.forget()
    assert ledger.clean


def test_what_is_forgotten_is_not_what_a_commit_holds():
    """Somebody else must not begin while that may still become durable."""
    ledger = Ledger()
    ledger.touch()
    ledger.contribute(1)
    ledger.touch()
    ledger.forget()
    assert not ledger.clean
    assert ledger.request_commit(urgent=True) == []
    assert ledger.done(1)
    assert ledger.clean


@settings(deadline=None, max_examples=80)
@given(st.lists(st.sampled_from(["touch", "begin", "done"]), max_size=40))
def test_nothing_is_durable_that_no_finished_commit_held(moves):
    ledger, txn, open_, made, held, safe = Ledger(), 0, False, 0, 0, 0
    for move in moves:
        if move == "touch":
            made = ledger.touch()
        elif move == "begin" and not open_:
            txn += 1
            if ledger.contribute(txn) is not None:
                open_, held = True, made
        elif move == "done" and open_:
            ledger.done(txn)
            open_, safe = False, held
        assert ledger.durable == safe
