"""One coroutine owns the producer: nothing is committed before it is acknowledged, nothing is told before it is durable."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.machine import IllegalEvent, Now, Tick, diagram, replay
from headgate.core.task.committer.commit import LIVE, OPEN, Committer, CommitterState
from headgate.core.task.committer.commit_protocol import (
    Applied,
    Apply,
    Begin,
    Begun,
    Commit,
    CommitEvent,
    Committed,
    Flush,
    Flushed,
    IncarnationOver,
    Paced,
    ProducerFailed,
    Seal,
    Sealed,
    StoreRefused,
    TaskGone,
    TellApplyFailed,
    TellDone,
    Wanted,
)

from ...whole import everything

A, B = "Partition 0", "Partition 1"
AB = frozenset({A, B})
AT = {A: 5, B: 7}


def at(mono: float) -> Now:
    return Now(mono, int(mono * 1000))


T = at(10.0)


def reach(state: str) -> Committer:
    """A committer in this state, by the shortest way; transaction 1 holds A and B."""
    committer = Committer(interval_s=0.2, timeout_s=60.0)
    path = {
        "beginning": [Wanted(A), Wanted(B)],
        "sealing": [Begun(1)],
        "flushing": [Sealed(1, AB)],
        "committing": [Flushed(1, AT)],
        "applying": [Committed(1)],
        "over": [ProducerFailed("gone")],
    }
    if state == "idle":
        return committer
    for name, events in path.items():
        for event in events:
            committer.handle(event, T)
        if name == state:
            break
    assert committer.state == state
    return committer


SAMPLES: dict[type, object] = {
    Wanted: Wanted(A),
    TaskGone: TaskGone(A),
    Begun: Begun(1),
    Sealed: Sealed(1, AB),
    Flushed: Flushed(1, AT),
    Committed: Committed(1),
    Applied: Applied(1, A),
    StoreRefused: StoreRefused(1, A, "disk full"),
    ProducerFailed: ProducerFailed("gone"),
    Paced: Paced(0.5),
    Tick: Tick(),
}


@pytest.mark.parametrize("state", CommitterState)
@pytest.mark.parametrize("kind", get_args(CommitEvent))
def test_every_pair_of_state_and_event_is_handled_or_raises_and_changes_nothing(state, kind):
    committer = reach(state)
    legal = (state, kind) in Committer._index
    before = everything(committer)
    if legal:
        committer.handle(SAMPLES[kind], T)
    else:
        with pytest.raises(IllegalEvent):
            committer.handle(SAMPLES[kind], T)
        assert everything(committer) == before


def test_a_whole_transaction_says_each_step_only_after_the_one_before_it():
    committer = Committer()
    assert committer.handle(Wanted(B), T) == [Begin(1)]
    assert committer.handle(Wanted(A), T) == []
    assert committer.handle(Begun(1), T) == [Seal(1, (B, A))]
    assert committer.handle(Sealed(1, AB), T) == [Flush(1)]
    assert committer.handle(Flushed(1, AT), T) == [Commit(1)]
    assert committer.handle(Committed(1), T) == [Apply(1, A, 5), Apply(1, B, 7)]
    assert committer.handle(Applied(1, B), T) == [TellDone(1, B)]
    assert committer.handle(Applied(1, A), T) == [TellDone(1, A)]
    assert committer.state == "idle"
    assert committer.deadline() is None


def test_it_waits_for_the_interval_unless_someone_cannot_wait():
    committer = finished_once()
    assert committer.handle(Wanted(A), at(10.05)) == []
    assert committer.deadline() == pytest.approx(10.2)
    assert committer.handle(Tick(), at(10.1)) == []
    assert committer.handle(Wanted(B, urgent=True), at(10.1)) == [Begin(2)]
    assert committer.handle(Begun(2), at(10.1)) == [Seal(2, (A, B))]


def test_the_interval_passes():
    committer = finished_once()
    committer.handle(Wanted(A), at(10.05))
    assert committer.handle(Tick(), at(10.21)) == [Begin(2)]


def test_another_interval_counts_for_the_commit_that_is_waited_for():
    committer = finished_once()
    committer.handle(Wanted(A), at(10.05))
    assert committer.handle(Paced(1.0), at(10.1)) == []
    assert committer.view.interval_s == 1.0
    assert committer.deadline() == committer.view.due_s == pytest.approx(11.0)
    assert committer.handle(Tick(), at(10.9)) == []
    assert committer.handle(Paced(0.1), at(10.9)) == []
    assert committer.handle(Tick(), at(10.9)) == [Begin(2)]
    assert (committer.view.state, committer.view.txn, committer.view.open) == ("beginning", 2, True)


def test_a_tick_with_nothing_wanted_begins_nothing():
    committer = finished_once()
    assert committer.handle(Tick(), at(99.0)) == []
    assert committer.state == "idle"


def finished_once() -> Committer:
    committer = reach("applying")
    committer.handle(Applied(1, A), T)
    committer.handle(Applied(1, B), T)
    return committer


def test_who_asks_while_one_is_under_way_shares_the_next_one():
    committer = reach("committing")
    assert committer.handle(Wanted(A, urgent=True), T) == []
    assert committer.handle(Wanted(B, urgent=True), T) == []
    committer.handle(Committed(1), T)
    committer.handle(Applied(1, A), T)
    assert committer.handle(Applied(1, B), T) == [TellDone(1, B), Begin(2)]
    assert committer.handle(Begun(2), T) == [Seal(2, (A, B))]


def asked(committer: Committer, wanted: str, patient: str, seconds: float) -> str:
    """Who takes part in the next transaction, which begins at this time; one letter a task, a capital is urgent."""
    for name in wanted:
        committer.handle(Wanted(name.lower(), urgent=name.isupper()), at(seconds))
    committer.handle(Tick(), at(seconds))
    (seal,) = committer.handle(Begun(committer.txn, frozenset(patient)), at(seconds))
    assert isinstance(seal, Seal)
    committer.handle(Sealed(committer.txn, frozenset()), at(seconds))
    return "".join(seal.tasks)


def test_a_task_with_a_backlog_that_has_done_little_waits_for_a_while():
    committer = Committer()
    assert asked(committer, "abc", "bc", 10.0) == "a"
    assert asked(committer, "a", "bc", 11.0) == "a"
    assert asked(committer, "a", "bc", 11.8) == "a"
    assert asked(committer, "a", "bc", 12.0) == "bca"
    assert committer.deadline() is None


def test_a_task_waits_no_longer_once_it_has_done_enough_or_asks_urgently():
    committer = Committer()
    assert asked(committer, "abc", "bc", 10.0) == "a"
    assert asked(committer, "", "c", 10.2) == "b"
    assert asked(committer, "aC", "c", 10.4) == "ca"


def test_if_only_patient_tasks_ask_the_one_that_has_waited_longest_takes_part():
    committer = Committer()
    assert [asked(committer, one, "abc", 10 + at / 5) for at, one in enumerate(("abc", "a", "", ""))] == list("abca")


def test_a_patient_task_that_has_written_takes_part_and_is_not_asked_again():
    committer = Committer()
    for name in (A, B):
        committer.handle(Wanted(name), T)
    assert committer.handle(Begun(1, frozenset({B})), T) == [Seal(1, (A,))]
    assert committer.handle(Sealed(1, AB), T) == [Flush(1)]
    committer.handle(Flushed(1, AT), T)
    committer.handle(Committed(1), T)
    committer.handle(Applied(1, A), T)
    committer.handle(Applied(1, B), T)
    assert committer.state == "idle"
    assert committer.deadline() is None


def test_nothing_contributed_is_nothing_committed():
    committer = reach("sealing")
    assert committer.handle(Sealed(1, frozenset()), T) == []
    assert committer.state == "idle"


def test_urgency_does_not_outlive_a_task_that_went():
    """A task asks urgently and is abandoned before the transaction under way is over: nobody else's interval is shortened."""
    committer = reach("committing")
    committer.handle(Wanted(A, urgent=True), T)
    committer.handle(TaskGone(A), T)
    committer.handle(Committed(1), T)
    assert committer.handle(Applied(1, B), T) == [TellDone(1, B)]
    assert committer.handle(Wanted(B), T) == []


def test_a_task_that_goes_is_not_waited_for():
    committer = reach("applying")
    assert committer.handle(TaskGone(A), T) == []
    assert committer.handle(TaskGone(B), T) == []
    assert committer.state == "idle"
    assert committer.handle(TaskGone("unknown"), T) == []


def test_a_task_that_goes_between_sealing_and_its_answer_is_committed_and_not_waited_for():
    committer = reach("sealing")
    committer.handle(TaskGone(A), T)
    committer.handle(TaskGone(B), T)
    assert committer.handle(Sealed(1, AB), T) == [Flush(1)]
    assert committer.handle(Flushed(1, {}), T) == [Commit(1)]
    assert committer.handle(Committed(1), T) == []
    assert committer.state == "idle"


def test_a_full_disk_fails_one_task_and_not_the_producer():
    committer = reach("applying")
    assert committer.handle(StoreRefused(1, A, "disk full"), T) == [TellApplyFailed(A, "disk full")]
    assert committer.handle(Applied(1, B), T) == [TellDone(1, B)]
    assert committer.state == "idle"


def test_a_task_whose_disk_was_full_gets_the_commit_that_it_had_asked_for():
    """It leaves with a last commit, and asks once: it would have waited for ever, holding its grant, and no run could stop."""
    committer = reach("applying")
    committer.handle(Wanted(A, urgent=True), T)
    said = committer.handle(StoreRefused(1, A, "disk full"), T)
    for task in sorted(committer.tasks):
        said += committer.handle(Applied(1, task), T)
    assert said[0] == TellApplyFailed(A, "disk full")
    assert Begin(2) in said


def test_answers_about_a_store_that_no_one_waits_for_are_ignored():
    committer = reach("applying")
    committer.handle(TaskGone(A), T)
    assert committer.handle(Applied(1, A), T) == []
    assert committer.handle(StoreRefused(1, A, "disk full"), T) == []


@pytest.mark.parametrize("state", LIVE)
def test_any_failure_ends_the_incarnation_and_blames_only_who_wrote_to_the_target(state):
    committer = reach(state)
    failure = ProducerFailed("topic 'x' is gone", "failed", "x", frozenset({A}))
    assert committer.handle(failure, T) == [IncarnationOver("topic 'x' is gone", "failed", "x", frozenset({A}))]
    assert committer.handle(failure, T) == []
    assert committer.handle(Wanted(A, urgent=True), T) == []
    assert committer.deadline() is None


def test_without_a_target_no_one_is_blamed():
    committer = reach("flushing")
    assert committer.handle(ProducerFailed("fenced", "fenced", tasks=AB), T) == [IncarnationOver("fenced", "fenced")]


@pytest.mark.parametrize("state", OPEN)
def test_silence_is_an_unknown_outcome(state):
    committer = reach(state)
    assert committer.deadline() == pytest.approx(70.0)
    assert committer.handle(Tick(), at(69.0)) == []
    why = f"transaction 1 has been in '{state}' for 60 s"
    assert committer.handle(Tick(), at(70.0)) == [IncarnationOver(why, "unknown")]


def test_stores_have_no_deadline():
    committer = reach("applying")
    assert committer.deadline() is None
    assert committer.handle(Tick(), at(999.0)) == []


def test_an_answer_about_another_transaction_is_a_mistake_of_the_edge():
    for state, event in (
        ("beginning", Begun(2)),
        ("sealing", Sealed(2, AB)),
        ("flushing", Flushed(2, AT)),
        ("flushing", Flushed(1, {A: 1})),
        ("committing", Committed(2)),
        ("applying", Applied(2, A)),
        ("applying", StoreRefused(2, A, "")),
    ):
        committer = reach(state)
        before = everything(committer)
        with pytest.raises(IllegalEvent):
            committer.handle(event, T)  # type: ignore[arg-type]
        assert everything(committer) == before


def test_the_table_draws_itself_and_a_story_plays_again():
    assert "flushing --> committing: Flushed" in diagram(Committer)
    committer = finished_once()
    assert "flushing → committing" in committer.story()
    assert replay(lambda: Committer(interval_s=0.2, timeout_s=60.0), committer.steps()).state == "idle"


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_in_any_order_of_events_nothing_is_told_before_it_is_durable(data):
    """A random edge that answers, fails, forgets tasks and asks at any moment; the promises of the file hold throughout."""
    committer = Committer(interval_s=0.2, timeout_s=5.0)
    now, flushed, durable, told, begun = 0.0, set(), set(), set(), 0
    for _ in range(data.draw(st.integers(5, 60))):
        now += data.draw(st.sampled_from([0.0, 0.05, 0.3]))
        txn = committer.txn
        answers: dict[str, list[object]] = {
            "beginning": [Begun(txn), Begun(txn, AB), Begun(txn, frozenset({A}))],
            "sealing": [Sealed(txn, frozenset({A})), Sealed(txn, AB), Sealed(txn, frozenset())],
            "flushing": [Flushed(txn, {A: txn, B: txn})],
            "committing": [Committed(txn)],
            "applying": [Applied(txn, A), Applied(txn, B), StoreRefused(txn, A, "full")],
        }
        choices = [Wanted(A), Wanted(B, True), TaskGone(A), Tick()] + 3 * answers.get(committer.state, [])
        if data.draw(st.integers(0, 40)) == 0:
            choices = [ProducerFailed("no")]
        event = data.draw(st.sampled_from(choices))
        if type(event) is Flushed:
            flushed.add(txn)
        if type(event) is Committed:
            durable.add(txn)
        for did in committer.handle(event, at(now)):  # type: ignore[arg-type]
            if type(did) is Begin:
                begun += 1
                assert did.txn == begun
            if type(did) is Commit:
                assert did.txn in flushed
            if type(did) in (Apply, TellDone):
                assert did.txn in durable
            if type(did) is TellDone:
                assert (did.txn, did.task) not in told
                told.add((did.txn, did.task))
