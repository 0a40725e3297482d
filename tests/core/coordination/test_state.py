"""The fold of the coordinator stream: total, blind to compaction, and judged only when it is asked."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.coordination import messages as c
from headgate.core.coordination import state as jobstate
from headgate.core.coordination.messages import Delete, Entry, Write, key_of
from headgate.core.coordination.state import NEVER_RAN, JobState
from headgate.core.coordination.wire import encode, encode_key, read
from headgate.core.graph.model import JobModel


def folded(*writes: Write) -> JobState:
    """The state after these writes."""
    state = JobState()
    for n, write in enumerate(writes):
        gone = isinstance(write, Delete)
        state.apply(Entry(n, write.key if gone else key_of(write), None if gone else write, n * 10))
    return state


def life(
    processor: str, incarnation: str, state: str = "joined", process: str = "x", location: str = "here"
) -> c.SetProcessor:
    return c.SetProcessor(processor, incarnation, process, location, state)


GRANT = c.SetGrant("t", 2, "p1", "000001-a", "old-rack")


def test_an_empty_stream_is_an_empty_state():
    state = JobState()
    assert state == JobState()
    assert state != 5
    assert (state.run, state.leader, state.model, state.run_view(), state.config_offset) == (None, None, None, None, -1)
    assert not state.live
    assert state.held("t") is None
    assert state.says("t") == ""
    assert state.location("t") is None
    assert state.task_state("t") is None
    assert state.next_grant("t") == 1
    assert state.newest("p1") is None
    assert state.member("p1") is None
    assert state.next_counter("p1") == 1
    assert state.request("u") is None
    assert state.answer("u") is None


def test_the_last_message_of_a_key_wins_and_a_tombstone_deletes():
    grant = c.SetGrant("t", 3, "p2", "000001-b")
    assert folded(GRANT, grant).grant("t") == grant
    fence = c.SetFence("p1", "000001-a")
    assert folded(fence, Delete(key_of(fence))) == JobState()
    assert folded(Delete(key_of(fence))) == JobState()


def test_what_is_deleted_is_not_found_by_its_task_or_processor_either():
    """States and lives can be asked for by task and by processor; tombstones of them, also of some never written, leave nothing."""
    first, second = c.SetTaskState("t", 1, "running"), c.SetTaskState("t", 2, "running")
    one = life("p1", "000001-a")
    state = folded(first, second, one, Delete(key_of(first)), Delete(key_of(c.SetTaskState("other", 1, "running"))))
    assert list(state.task_states("t")) == [2]
    assert list(state.recorded("p1")) == ["000001-a"]
    state = folded(first, second, one, Delete(key_of(first)), Delete(key_of(second)), Delete(key_of(one)))
    assert (dict(state.task_states("t")), dict(state.recorded("p1")), list(state.processors())) == ({}, {}, [])
    assert state == JobState()


def test_a_held_grant_is_neither_released_nor_fenced():
    """And neither a released one of another number nor another processor's fence matters."""
    assert folded(GRANT).held("t") == GRANT
    assert folded(GRANT, c.SetTaskState("t", 2, "released")).held("t") is None
    assert folded(GRANT, c.SetTaskState("t", 1, "released")).held("t") == GRANT
    assert folded(GRANT, c.SetFence("p1", "000001-a")).held("t") is None
    assert folded(GRANT, c.SetFence("p1", "000002-a")).held("t") is None
    assert folded(GRANT, c.SetFence("p2", "000009-a")).held("t") == GRANT
    assert folded(GRANT, c.SetTaskState("t", 2, "running")).says("t") == "running"
    assert folded(GRANT).says("t") == ""


def test_incarnations_are_ordered_by_their_counter_and_judged_by_the_fence():
    state = folded(life("p1", "000010-a"), life("p1", "000009-z"), c.SetFence("p1", "000009-z"), life("p1", "000008-y"))
    assert [one.incarnation for one in state.incarnations("p1")] == ["000010-a"]
    assert state.newest("p1").incarnation == "000010-a"
    assert set(state.recorded("p1")) == {"000008-y", "000009-z", "000010-a"}
    assert state.processors() == ("p1",)
    assert state.next_counter("p1") == 11
    assert folded(c.SetFence("p1", "000041-a")).next_counter("p1") == 42
    assert folded(c.SetMember("p1", "000041-a", "x")).next_counter("p1") == 42


def test_only_named_joined_unfenced_incarnations_are_members():
    named = c.SetMember("p1", "000001-a", "here")
    one = life("p1", "000001-a")
    assert list(folded(one, named).members()) == [named]
    assert list(folded(named).members()) == []
    assert list(folded(life("p1", "000001-a", "leaving"), named).members()) == []
    assert list(folded(one, named, c.SetFence("p1", "000001-a")).members()) == []
    assert list(folded(one, c.SetMember("p1", "000001-a", "here", "stopped")).members()) == []
    assert folded(one, named).member("p1") == named


def test_grant_numbers_never_begin_again():
    """Not even when the grant itself cannot be read any more."""
    assert folded(GRANT).next_grant("t") == 3
    assert folded(c.SetTaskState("t", 7, "running")).next_grant("t") == 8


def test_where_a_task_last_ran():
    """The holder's place if it ran there; else what the grant says of the one before."""
    assert folded(GRANT, life("p1", "000001-a")).location("t") == "old-rack"
    assert folded(GRANT, life("p1", "000001-a"), c.SetTaskState("t", 2, "running")).location("t") == "here"
    assert (
        folded(GRANT, c.SetMember("p1", "000001-a", "there"), c.SetTaskState("t", 2, "running")).location("t")
        == "there"
    )
    assert (
        folded(GRANT, life("p1", "000001-a"), c.SetTaskState("t", 2, "released", NEVER_RAN)).location("t") == "old-rack"
    )
    assert folded(GRANT, life("p1", "000001-a"), c.SetTaskState("t", 2, "released")).location("t") == "here"
    assert folded(GRANT, c.SetTaskState("t", 2, "running")).location("t") == "old-rack"
    assert folded(c.SetGrant("t", 1, "p1", "000001-a")).location("t") is None


def test_who_has_given_up():
    assert folded(GRANT, c.SetTaskState("t", 2, "failed", "bad")).failed() == {"t": "bad"}
    assert folded(GRANT, c.SetTaskState("t", 2, "failed", "bad"), c.SetFence("p1", "000001-a")).failed() == {}
    assert folded(GRANT, c.SetTaskState("t", 1, "failed", "bad")).failed() == {}


def test_open_requests_are_those_without_a_final_answer_in_the_order_of_the_stream():
    state = folded(
        c.SetRequest("b", "drain"), c.SetRequest("a", "stop"), c.SetRequest("c", "start"), c.SetAnswer("a", "running"),
        c.SetAnswer("c", "done"),
    )  # fmt: skip
    assert [request.uuid for request in state.open_requests()] == ["b", "a"]
    assert state.request("b").verb == "drain"
    assert state.answer("c").state == "done"


def test_what_tasks_see_of_the_run():
    """A draining task still learns what is paused: nothing more is read there."""
    run = c.SetRun("r", "d", "running", "u", paused_job=True, paused_streams=frozenset({"s"}))
    view = folded(run).run_view()
    assert (view.run_id, view.job_uuid, view.draining, view.paused_job, view.paused_streams) == (
        "r",
        "u",
        None,
        True,
        {"s"},
    )
    draining = c.SetRun("r", "d", "draining", "u", drain="q", paused_job=True, paused_streams=frozenset({"s"}))
    view = folded(draining, c.SetJobModel(JobModel(processors=("p1",)))).run_view()
    assert (view.draining, view.paused_job, view.paused_streams) == ("q", True, {"s"})
    assert folded(run).live
    assert not folded(c.SetRun("r", "d", "drained", "u")).live


def test_configuration_and_log_partitions():
    one, two = c.SetConfig("stall.timeout", "1s"), c.SetConfig("error.retries", 2)
    state = folded(one, c.SetChangelog("t", 4), two, c.SetLeader(1, "p", "x"))
    assert {name: config.value for name, config in state.configs.items()} == {"stall.timeout": "1s", "error.retries": 2}
    assert state.config_offset == 2
    assert state.changelogs == {"t": 4}
    assert state.leader == c.SetLeader(1, "p", "x")


def test_problems_are_counted_and_kept_by_offset(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobstate, "PROBLEMS_KEPT", 2)
    state = JobState().fold(read(n, b"?", b"?") for n in range(5))
    assert state.problem_count == 5
    assert sorted(state.problems) == [3, 4]
    assert state.position == 5
    assert state == JobState()


def test_an_override_that_is_none_counts_for_nothing_and_is_named():
    """Somebody wrote it by hand; the settings that workers act on never hold it."""
    wrong = [c.SetConfig("stall.timeout", "soon"), c.SetConfig("no.such", 1), c.SetConfig("state.dir", "/")]
    state = folded(*wrong, c.SetConfig("error.retries", True), c.SetConfig("release.timeout", "5s"))
    assert list(state.configs) == ["release.timeout"]
    assert list(state.wrong_configs) == ["stall.timeout", "no.such", "state.dir", "error.retries"]
    assert "is not a duration" in state.wrong_configs["stall.timeout"]


def test_what_cannot_be_read_is_skipped_and_its_key_is_named_until_it_is_written_again():
    """One typing error in the run would otherwise end every worker of the job: it would be gone."""
    key, value = encode(GRANT)
    state = JobState().fold([read(0, key, value), read(1, key, b"?")])
    assert state.grant("t") == GRANT
    assert state.damaged == {key_of(GRANT): 1}
    assert state.copy().damaged == state.damaged
    state.apply(read(2, key, value))
    assert (state.damaged, state.problem_count) == ({}, 1)
    assert JobState().fold([read(1, key, b"?")]).grant("t") is None


def test_no_one_may_delete_what_is_counted_on():
    """A grant, a run, a log partition: their numbers would begin again, and a task would run twice."""
    state = folded(GRANT, Delete(key_of(GRANT)), Delete(("set-run", ())))
    assert state.grant("t") == GRANT
    assert state.damaged == {key_of(GRANT): 1, ("set-run", ()): 2}
    assert "no one deletes it" in state.problems[2]


def test_a_copy_is_equal_and_independent():
    state = folded(GRANT, life("p1", "000001-a"), c.SetTaskState("t", 2, "running"))
    other = state.copy()
    assert other == state
    other.apply(Entry(9, key_of(c.SetTaskState("t", 3, "x")), c.SetTaskState("t", 3, "x")))
    other.apply(Entry(10, key_of(life("p1", "000002-a")), life("p1", "000002-a")))
    assert state == folded(GRANT, life("p1", "000001-a"), c.SetTaskState("t", 2, "running"))
    assert list(state.task_states("t")) == [2]


# ---------------------------------------------------------------------------------------------------------- properties

_tasks = st.sampled_from(["Partition 0", "Partition 1"])
_processors = st.sampled_from(["p1", "p2"])
_incarnations = st.sampled_from(["000001-a", "000002-b", "000003-c"])
_numbers = st.integers(1, 3)
_uuids = st.sampled_from(["u1", "u2"])
_messages = st.one_of(
    st.builds(c.SetConfig, st.sampled_from(["a", "b"]), st.integers(0, 3)),
    st.builds(c.SetChangelog, _tasks, st.integers(0, 1)),
    st.builds(c.SetRun, st.sampled_from(["r1", "r2"]), st.just("d"), st.sampled_from(sorted(c.LIVE | c.CLOSED)), st.just("u")),
    st.builds(life, _processors, _incarnations, st.sampled_from(["joined", "leaving", "left"])),
    st.builds(c.SetMember, _processors, _incarnations, st.just("here")),
    st.builds(c.SetLeader, st.integers(0, 5), _processors, st.just("x")),
    st.builds(lambda v: c.SetJobModel(JobModel(version=v)), st.integers(0, 5)),
    st.builds(c.SetGrant, _tasks, _numbers, _processors, _incarnations),
    st.builds(c.SetFence, _processors, _incarnations),
    st.builds(c.SetTaskState, _tasks, _numbers, st.sampled_from(["running", "released", "drained", "failed"])),
    st.builds(c.SetLetters, _tasks, _numbers, st.sampled_from([(), (("in", 0, 5, 6, -1, 1, "", ""),)])),
    st.builds(c.SetRequest, _uuids, st.sampled_from(["drain", "stop"])),
    st.builds(c.SetAnswer, _uuids, st.sampled_from(["running", "done"])),
)  # fmt: skip
"""Every writer of the stream, zombies included: any incarnation says anything at any time."""
_records = st.one_of(
    _messages.map(encode),
    _messages.map(lambda m: (encode(m)[0], None)),
    _messages.map(lambda m: (encode(m)[0], b"\xc1 corrupt")),
    st.binary(max_size=4).map(lambda key: (key, b"x")),
    st.just((encode_key(("set-grant", ("Partition 0",))).replace(b"\x93\x01", b"\x93\x02", 1), b"newer")),
)


def compacted(
    records: list[tuple[int, bytes, bytes | None]], upto: int, tombstones: bool
) -> list[tuple[int, bytes, bytes | None]]:
    """What Kafka keeps: below `upto` only the last record of each key's bytes; tombstones there may be gone."""
    last = {key: offset for offset, key, _ in records}
    return [
        (offset, key, value)
        for offset, key, value in records
        if offset >= upto or (last[key] == offset and (value is not None or tombstones))
    ]


@settings(deadline=None, max_examples=80)
@given(st.lists(_records, max_size=40), st.integers(0, 40), st.booleans())
def test_folding_the_compacted_stream_is_folding_the_whole(
    given_records: list[tuple[bytes, bytes | None]], upto: int, tombstones: bool
):
    """Whatever was compacted, and whether tombstones are still there: but for what a message hides that cannot be read."""
    records = [(n, key, value) for n, (key, value) in enumerate(given_records)]
    whole = JobState().fold(read(n, key, value, n) for n, key, value in records)
    kept = JobState().fold(read(n, key, value, n) for n, key, value in compacted(records, upto, tombstones))
    for state in (kept, whole):
        state.messages = {
            kind: {key: found for key, found in messages.items() if (kind, key) not in whole.damaged}
            for kind, messages in state.messages.items()
        }
        state.at = {key: at for key, at in state.at.items() if key not in whole.damaged}
    assert kept == whole


@settings(deadline=None, max_examples=50)
@given(st.lists(_messages, max_size=30), st.integers(0, 2**32))
def test_words_of_fenced_incarnations_change_no_answer(messages: list[c.Message], seed: int):
    """A zombie writes about lives below the fence and grants below the current one: nobody is told anything else by it."""
    state = folded(*messages, c.SetFence("p1", "000003-c"), c.SetGrant("Partition 0", 9, "p2", "000003-c"))
    if state.fence("p2") is not None:
        state = folded(*messages, c.SetFence("p1", "000003-c"), c.SetGrant("Partition 0", 9, "p2", "000004-d"))
    answers = (state.held("Partition 0"), [m for m in state.members() if m.processor == "p1"], state.newest("p1"))
    dice = random.Random(seed)
    for n in range(5):
        zombie = dice.choice(
            [
                life("p1", f"00000{dice.randint(1, 3)}-a", dice.choice(["joined", "left"])),
                c.SetTaskState("Partition 0", dice.randint(1, 8), dice.choice(["running", "released", "drained"])),
            ]
        )
        state.apply(Entry(1000 + n, key_of(zombie), zombie))
    assert (
        state.held("Partition 0"),
        [m for m in state.members() if m.processor == "p1"],
        state.newest("p1"),
    ) == answers


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (None, None),
        (c.SetRun("r1", "d", "running", "u"), "p2"),
        (c.SetRun("r1", "d", "stopped", "u"), None),
        (c.SetRun("r1", "e", "running", "u"), None),
    ],
    ids=["no run", "it runs", "it is stopped", "another deployment"],
)
def test_a_standby_is_one_while_its_run_runs(run: c.SetRun | None, shown: str | None):
    """The model keeps it over a stop, and no one follows a log meanwhile."""
    model = JobModel(run_id="r1", deployment="d", processors=("p1", "p2"), standby={"t": "p2"})
    assert folded(*([] if run is None else [run])).standby("t") is None
    assert folded(c.SetJobModel(model), *([] if run is None else [run])).standby("t") == shown


def test_another_job_on_the_stream_is_named():
    """Whoever leads says whose stream it is: two jobs whose names give the same topics would otherwise steer each other."""
    state = folded(c.SetLeader(1, "p1", "me", "my_sales/1"))
    assert state.other_job("my-sales/1") == "my_sales/1"
    assert state.other_job("my_sales/1") == ""


def test_a_live_run_goes_by_the_settings_that_stand_in_it():
    """What changes between runs only is the run's, whatever was asked since; what changes at once is what was asked last."""
    said = (c.SetConfig("buffer.bytes", "1MiB"), c.SetConfig("commit.interval", "2s"))
    assert folded(*said).overrides == {"buffer.bytes": "1MiB", "commit.interval": "2s"}
    run = c.SetRun("r1", "d", "running", "u", overrides={"compression": "zstd"})
    assert folded(*said, run).overrides == {"compression": "zstd", "commit.interval": "2s"}


def test_overrides_that_cannot_be_read_are_kept_apart_and_say_why():
    state = folded(c.SetConfig("commit.interval", "2s"), c.SetConfig("release.timeout", "soon"))
    assert set(state.configs) == {"commit.interval"}
    assert "'soon' is not a duration" in state.wrong_configs["release.timeout"]


@pytest.mark.parametrize(
    ("not_after", "stamp_ms", "append_ms", "expires"),
    [
        (71_000, 41_000, 101_000, 131_000),  # the command's clock is a minute behind: it still waits 30 s
        (171_000, 141_000, 101_000, 131_000),  # and here 40 s ahead
        (None, 41_000, 101_000, None),
        (71_000, 0, 101_000, 71_000),  # written without a time
        (71_000, 41_000, 0, 71_000),  # on a topic without append times
    ],
)
def test_a_request_expires_by_the_brokers_clock(not_after, stamp_ms, append_ms, expires):
    """A command from a machine whose clock was a minute behind was refused as expired when it came."""
    request = c.SetRequest("u", "drain", not_after=not_after)
    entry = c.Entry(0, c.key_of(request), request, append_ms, stamp=c.Stamp("h", "u", "s", stamp_ms))
    assert JobState().fold([entry]).request("u").not_after == expires
