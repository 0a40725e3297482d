"""Whatever anybody writes into the coordinator stream by hand: no leader and no member is ended by it, and what they write can be read."""

from __future__ import annotations

from typing import Any

import msgpack
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headgate.core.coordination import messages as c
from headgate.core.coordination.events import Fence
from headgate.core.coordination.leader.draft import Draft, Memory
from headgate.core.coordination.leader.grants import changelogs, grants
from headgate.core.coordination.leader.plan import LeaderConfig
from headgate.core.coordination.requests import VERBS
from headgate.core.coordination.state import JobState
from headgate.core.coordination.wire import encode, encode_key, read
from headgate.core.graph.model import JobModel
from headgate.core.machine import Now

from ...house import House, Worker
from ..test_wire import EXAMPLES

TASKS = [f"Partition {n}" for n in range(3)]
INCARNATIONS = ["000001-p1x0", "000001-p2x1", "000002-zz", "000000-a", "000009-a", "9007199254740990-a"]
NUMBERS = st.integers(0, 4) | st.integers(-(2**63), 2**64 - 1)
TEXTS = st.sampled_from([
    *TASKS, *INCARNATIONS, *VERBS, "p1", "p2", "orders", "by-country", "r1", "d1", "u", "x", "", "run", "incarnation", "for good",
    "running", "draining", "drained", "ending", "ended", "stopping", "stopped", "joined", "left", "released", "failed", "done",
    "oldest", "time", "stall.timeout", "answers.keep", "placement.rejoin-grace", "no.such", "1s", "soon",
])  # fmt: skip
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | TEXTS | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = {
    "setting": st.sampled_from(["stall.timeout", "release.timeout", "answers.keep", "no.such"]),
    "task": st.sampled_from(TASKS),
    "processor": st.sampled_from(["p1", "p2", "p9"]),
    "incarnation": st.sampled_from(INCARNATIONS),
    "grant": st.integers(0, 3),
    "uuid": st.sampled_from(["u1", "u2"]),
}
"""Keys that mean something in the house; an incarnation of a key is legal, since what is none is no key."""


def like(example: Any) -> st.SearchStrategy[Any]:
    """Values of this one's type, or of any."""
    if isinstance(example, bool):
        return st.booleans() | PLAIN
    if isinstance(example, int):
        return NUMBERS | PLAIN
    return (TEXTS if isinstance(example, str) else st.just(example)) | PLAIN


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, bytes | None]:
    """A record with a legal key, and a value in which every field may be of another type, another value, or missing."""
    example = draw(st.sampled_from(EXAMPLES))
    kind, fields = c.KEYS[type(example)]
    key = encode_key((kind, tuple(draw(KEYS[name]) for name in fields)))
    values: dict[str, Any] = msgpack.unpackb(encode(example)[1])["values"]
    for name in draw(st.lists(st.sampled_from(sorted(values)), max_size=4)):
        if draw(st.booleans()):
            values.pop(name, None)
        else:
            values[name] = draw(like(values.get(name)))
    whole: Any = {"host": "", "username": "", "source": "", "timestamp": 0, "values": values}
    return key, draw(st.sampled_from([msgpack.packb(whole)] * 8 + [None, msgpack.packb(draw(PLAIN)), b"\xc1"]))


class Attacked(House):
    """A house whose stream is bytes: what the machines write must be readable, and anybody may write anything."""

    def append(self, write: c.Write) -> int:
        offset = super().append(write)
        if not isinstance(write, c.Delete):
            entry = read(offset, *encode(write), self.now.wall)
            assert entry.problem == "", f"{write} cannot be read: {entry.problem}"
            assert entry.message == write
        return offset

    def by_hand(self, key: bytes, value: bytes | None, *, transactional: bool = False) -> None:
        self.log.append(read(len(self.log), key, value, self.now.wall, transactional=transactional))

    def carry_out(self, one: Worker, machine: Any, instruction: Any) -> None:
        if isinstance(
            instruction, Fence
        ):  # of an incarnation that nobody ever was, too: somebody wrote that it holds a task
            self.initialised.add((instruction.processor, instruction.incarnation))
        super().carry_out(one, machine, instruction)

    def check_owners(self) -> None:
        """Who runs what is not asked here: a grant that is written by hand, and can be read, is a grant."""


ATTACK = settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))


def written(kind: str, *key: str, **values: Any) -> tuple[bytes, bytes]:
    """A record with these values, whatever they are."""
    return encode_key((kind, key)), msgpack.packb({"values": values})


CLOSING = written("set-run", run_id="r", deployment="d1", state="running", job_uuid="u", closing=True)
SOON = written("set-config", "stall.timeout", value="soon")


@ATTACK
@example([[SOON]], False)
@example([[CLOSING]], False)
@example([[SOON, CLOSING]], True)
@given(st.lists(st.lists(records(), min_size=1, max_size=4), min_size=1, max_size=4), st.booleans())
def test_no_message_ends_a_leader_or_a_member(rounds: list[list[tuple[bytes, bytes | None]]], before: bool) -> None:
    """One typing error in a repair would have ended every worker of the job, and every later one as soon as it had read so far."""
    house = Attacked(partitions=3)
    if before:
        for record in rounds[0]:
            house.by_hand(*record, transactional=True)
    house.worker("p1")
    house.worker("p2")
    house.run(2)
    for some in rounds:
        for record in some:
            house.by_hand(*record)
        house.settle()
        house.run(8, step=1.0)
    house.worker("p3")
    house.run(8, step=1.0)


RUN = encode_key(("set-run", ()))


def notes(house: House) -> list[str]:
    return [note.text for one in house.workers for note in one.notes]


def test_a_run_that_someone_overwrote_goes_on_and_is_written_again() -> None:
    """All workers would have left with exit code 0, as if it had been closed, and the next one would have begun another job."""
    house = House()
    house.worker("p1")
    house.worker("p2")
    house.run(3)
    run, owners = house.state.run, house.owners()
    house.log.append(read(len(house.log), RUN, b"?"))
    house.log.append(read(len(house.log) + 1, encode_key(("set-grant", ("Partition 0",))), None))
    house.settle()
    house.run(3)
    assert (house.state.run, house.owners(), house.state.damaged) == (run, owners, {})
    assert [one.exit for one in house.workers] == [None, None]
    assert any("about 'set-run': corrupt value" in note for note in notes(house))
    assert max(entry.offset for entry in house.log if entry.message == run) > len(house.log) - 4


def test_no_run_is_begun_over_one_that_no_one_can_read() -> None:
    """It would have another job uuid: every store and every checkpoint would be a foreign one."""
    house = House()
    house.log.append(read(0, RUN, b"?"))
    house.worker("p1")
    house.run(5)
    assert house.state.run is None
    assert any("there is no previous message" in note for note in notes(house))


def test_a_grant_that_no_one_can_read_waits_for_the_fence_of_all_who_may_hold_it() -> None:
    """Two workers would have run the task side by side."""
    plan_ = LeaderConfig("p1", "x", "u")
    draft = Draft(JobState(), plan_, Memory(), Now(1.0, 2), lambda life: "")
    draft.put(c.SetRun("r1", "d1", "running", "u"))
    for name, state in (("p1", "joined"), ("p2", "joined"), ("p3", "left")):
        draft.put(c.SetProcessor(name, "000001-a", name, "here", state, "d1"))
    draft.put(c.SetMember("p1", "000001-a", "here"))
    draft.put(c.SetTaskState("t", 4, "running"))
    draft.put(c.SetJobModel(JobModel(1, 1, "r1", "d1", {"t": ()}, {"t": "p1"}, ("p1",))))
    draft.state.apply(read(draft.state.position, encode_key(("set-grant", ("t",))), b"?"))
    grants(draft)
    assert [order for order in draft.instructions if isinstance(order, Fence)] == [
        Fence("p1", "000001-a"),
        Fence("p2", "000001-a"),
    ]
    assert draft.state.grant("t") is None
    for name in ("p1", "p2"):
        draft.put(c.SetFence(name, "000001-a"))
    draft.put(c.SetProcessor("p1", "000002-b", "p1", "here", "joined", "d1"))
    draft.put(c.SetMember("p1", "000002-b", "here"))
    grants(draft)
    assert draft.state.grant("t") == c.SetGrant("t", 5, "p1", "000002-b")


def test_a_log_partition_that_no_one_can_read_is_not_given_again() -> None:
    """The task would begin with an empty state; the others get what is free."""
    draft = Draft(JobState(), LeaderConfig("p1", "x", "u"), Memory(), Now(1.0, 2), lambda life: "")
    draft.put(
        c.SetJobModel(JobModel(1, 1, "r1", "d1", {"a": (), "b": (), "c": ()}, dict.fromkeys("abc", "p1"), ("p1",)))
    )
    draft.put(c.SetChangelog("a", 1))
    draft.state.apply(read(99, encode_key(("set-changelog", ("b",))), b"?"))
    changelogs(draft)
    assert draft.state.changelogs == {"a": 1, "c": 0}


def test_an_override_that_is_none_is_said_and_counts_for_nothing() -> None:
    """Every leader would have raised, and every later one."""
    house = House()
    one = house.worker("p1")
    house.append(c.SetConfig("stall.timeout", "soon"))
    house.append(c.SetConfig("release.timeout", "5s"))
    house.settle()
    assert one.config is not None
    assert one.config.overrides == {"release.timeout": "5s"}
    assert any("the override of 'stall.timeout' has no effect" in note for note in notes(house))
    house.request("u1", "unset-config", setting="stall.timeout")
    assert house.answer("u1")[0] == "done"
    assert house.state.messages["set-config"].keys() == {("release.timeout",)}


def test_what_a_worker_said_and_no_one_can_read_it_says_again() -> None:
    """Its own record, and the state of its task: the leader would have waited for a message that was there."""
    house = House()
    one = house.worker("p1")
    house.run(2)
    for key in (("set-processor", ("p1", one.init[0])), ("set-task-state", ("Partition 0", 1))):
        house.log.append(read(len(house.log), encode_key(key), b"?"))
    house.settle()
    assert house.state.damaged == {}
    assert house.state.recorded("p1")[one.init[0]].state == "joined"
