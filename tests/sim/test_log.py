"""The modelled Kafka keeps Kafka's guarantees: single scenarios, and properties compared with a naive second model."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.names import StreamPartition
from tests.sim.log import Fenced, Kafka, NotOngoing, OffsetOutOfRange, Unavailable


def broker(compact: bool = False) -> Kafka:
    kafka = Kafka()
    kafka.create("t", 2, compact=compact, delete_retention_ms=100)
    return kafka


def values(kafka: Kafka, partition: int = 0, committed: bool = True) -> list[object]:
    return [record.value for record in kafka.read("t", partition, 0, 10_000, committed)[0]]


def test_an_open_transaction_holds_everything_behind_it_back():
    """Other records wait behind the first offset of an open transaction, and appear together when it commits."""
    kafka = broker()
    a, b = kafka.init("a"), kafka.init("b")
    kafka.send(a, "t", 0, "k", 1)
    kafka.send(b, "t", 0, "k", 2)
    kafka.commit(b)
    assert values(kafka) == []
    assert kafka.end("t", 0, committed=True) == 0
    kafka.commit(a)
    assert values(kafka) == [1, 2]
    assert kafka.read("t", 0, 0, 10)[1] == kafka.end("t", 0) == 4


def test_a_fenced_producer_writes_nothing_and_its_open_transaction_is_gone():
    """The zombie's records are aborted when the id is initialised again, and everything that it still sends is rejected."""
    kafka = broker()
    old = kafka.init("w")
    kafka.send(old, "t", 0, "k", 1)
    new = kafka.init("w")
    assert new.epoch == old.epoch + 1
    for attempt in (lambda: kafka.send(old, "t", 0, "k", 2), lambda: kafka.commit(old), lambda: kafka.abort(old)):
        with pytest.raises(Fenced):
            attempt()
    kafka.send(new, "t", 0, "k", 3)
    kafka.commit(new)
    assert values(kafka) == [3]
    assert kafka.fenced_writes == 3


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced():
    """The broker's own scan aborts it, so a dead producer does not block readers for ever."""
    kafka = broker()
    slow = kafka.init("w", timeout_ms=10)
    kafka.send(slow, "t", 0, "k", 1)
    kafka.now_ms = 11
    assert kafka.expire() == ["w"]
    assert kafka.end("t", 0, committed=True) == 2
    with pytest.raises(Fenced):
        kafka.commit(slow)
    assert kafka.expire() == []


def test_an_abort_leaves_a_gap_that_positions_step_over():
    """Aborted records count as offsets; a reader passes over them."""
    kafka = broker()
    a = kafka.init("a")
    kafka.send(a, "t", 0, "k", 1)
    kafka.abort(a)
    assert kafka.read("t", 0, 0, 10) == ([], 2)
    assert values(kafka, committed=False) == [1]


def test_a_commit_that_comes_behind_the_abort_is_refused_and_a_repeated_one_is_the_same():
    """A delayed commit never confirms records that the broker has discarded."""
    kafka = broker()
    a = kafka.init("a")
    with pytest.raises(NotOngoing):
        kafka.commit(a)
    kafka.send(a, "t", 0, "k", 1)
    kafka.abort(a)
    with pytest.raises(NotOngoing):
        kafka.commit(a)
    kafka.send(a, "t", 0, "k", 2)
    kafka.commit(a)
    kafka.commit(a)
    assert values(kafka) == [2]


def test_a_duplicate_delivery_of_an_idempotent_record_is_suppressed():
    """The acknowledgement was lost, and the client sends again with the same sequence number: the log contains the record once."""
    kafka = broker()
    assert kafka.single("p", 0, "t", 0, "k", 1) == (0, True)
    assert kafka.single("p", 0, "t", 0, "k", 1) == (0, False)
    assert kafka.single("p", 1, "t", 0, "k", 2) == (1, True)
    kafka.plain("t", 0, "k", 3)
    kafka.plain("t", 0, "k", 3)
    assert values(kafka) == [1, 2, 3, 3]
    assert kafka.suppressed == 1


def test_compaction_keeps_the_last_of_each_key_and_tombstones_for_a_while():
    """A tombstone is kept until its retention has passed since the cleaner first saw it; a later reader cannot know of it."""
    kafka = broker(compact=True)
    log = kafka.topics["t"][0]
    for key, value in (("a", 1), ("b", 2), ("a", None), ("x", 0), ("y", 0)):
        kafka.plain("t", 0, key, value)
    assert log.clean(now_ms=0) == 1
    assert [(r.key, r.value) for r in log.records] == [("b", 2), ("a", None), ("x", 0), ("y", 0)]
    assert log.clean(now_ms=99) == 0
    assert log.clean(now_ms=100) == 1
    assert [r.key for r in log.records] == ["b", "x", "y"]
    assert log.end == 5


def test_compaction_stops_at_an_open_transaction():
    """A record that may still be aborted supersedes nothing."""
    kafka = broker(compact=True)
    kafka.plain("t", 0, "a", 1)
    a = kafka.init("w")
    for value in (2, 3, 4):
        kafka.send(a, "t", 0, "a", value)
    assert kafka.topics["t"][0].clean(0) == 0
    kafka.abort(a)
    kafka.topics["t"][0].clean(0)
    assert values(kafka) == [1]


def test_trimming_growth_and_an_outage():
    """Reading below the start is an error; new partitions are empty; a broker that is down raises an error."""
    kafka = broker()
    for value in range(4):
        kafka.plain("t", 0, "k", value)
    kafka.topics["t"][0].trim(3)
    with pytest.raises(OffsetOutOfRange):
        kafka.read("t", 0, 2, 1)
    assert [r.value for r in kafka.read("t", 0, 3, 9)[0]] == [3]
    assert kafka.start("t", 0) == 3
    kafka.grow("t", 3)
    assert kafka.end("t", 2) == 0
    kafka.down = True
    with pytest.raises(Unavailable):
        kafka.read("t", 0, 3, 1)


class Reader:
    """Reads whenever it is told that there is more."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.values: list[object] = []
        self.position = 0
        kafka.seen = self.seen

    def seen(self, at: StreamPartition) -> None:
        records, self.position = self.kafka.read(*at, self.position, 10_000)
        self.values += [record.value for record in records]


@pytest.mark.parametrize("ends", ["commit", "fence", "timeout"])
def test_what_others_have_committed_is_seen_when_the_transaction_before_it_ends(ends: str):
    """A fence and a timeout show records of others, too; checks that look only at commits would hear of them later than the reader."""
    kafka = broker()
    reader = Reader(kafka)
    first, second = kafka.init("first", timeout_ms=10), kafka.init("second")
    kafka.send(first, "t", 0, "k", 1)
    kafka.send(second, "t", 0, "k", 2)
    kafka.commit(second)
    assert reader.values == []
    if ends == "commit":
        kafka.commit(first)
    elif ends == "fence":
        kafka.init("first")
    else:
        kafka.now_ms = 11
        kafka.expire()
    assert reader.values == ([1, 2] if ends == "commit" else [2])


class Naive:
    """The same guarantees written as definitions, without an index: a list of what was written by whom, and how that ended."""

    def __init__(self) -> None:
        self.rows: list[list[object]] = []  # [transaction or None, value or MARK]
        self.fate: dict[int, str] = {}

    def visible(self) -> list[object]:
        seen: list[object] = []
        for transaction, value in self.rows:
            fate = "c" if transaction is None else self.fate[transaction]
            if fate == "o":
                break
            if fate == "c" and value != "MARK":
                seen.append(value)
        return seen

    def stable(self) -> int:
        for offset, (transaction, value) in enumerate(self.rows):
            if transaction is not None and value != "MARK" and self.fate[transaction] == "o":
                return offset
        return len(self.rows)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "commit", "abort", "init", "plain", "zombie"]), st.integers(0, 2)),
        max_size=60,
    ),
    st.integers(1, 5),
)
def test_readers_see_what_the_definitions_say(steps: list[tuple[str, int]], limit: int):
    """Any interleaving of three producers, their fences and plain records reads as in the naive model, with any fetch size."""
    kafka, naive = broker(), Naive()
    told = Reader(kafka)
    alive = [kafka.init(f"w{i}") for i in range(3)]
    before = list(alive)
    current: list[int | None] = [None] * 3
    for number, (what, who) in enumerate(steps):
        if what == "send":
            if current[who] is None:
                current[who] = number
                naive.fate[number] = "o"
            naive.rows.append([current[who], number])
            kafka.send(alive[who], "t", 0, who, number)
        elif what == "plain":
            naive.rows.append([None, number])
            kafka.plain("t", 0, who, number)
        elif what == "zombie":
            if before[who] is not alive[who]:
                with pytest.raises(Fenced):
                    kafka.send(before[who], "t", 0, who, number)
        else:
            if what == "init":
                before[who], alive[who] = alive[who], kafka.init(f"w{who}")
            elif what == "commit" and current[who] is None:
                with contextlib.suppress(NotOngoing):
                    kafka.commit(alive[who])
            else:
                getattr(kafka, what)(alive[who])
            transaction = current[who]
            if transaction is not None:
                naive.fate[transaction] = "c" if what == "commit" else "a"
                naive.rows.append([transaction, "MARK"])
                current[who] = None
        assert kafka.end("t", 0, committed=True) == naive.stable()
        assert told.values == naive.visible()
    seen: list[object] = []
    position = 0
    while True:
        records, after = kafka.read("t", 0, position, limit)
        if after == position:
            break
        seen += [record.value for record in records]
        position = after
    assert seen == naive.visible()
    assert position == naive.stable()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9))), max_size=40),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_compaction_never_changes_what_a_fold_from_the_start_gives(
    writes: list[tuple[str, int | None]], cleans: list[int]
):
    """A reader that starts at the beginning ends with the same table, whatever was compacted meanwhile."""
    kafka = broker(compact=True)
    for key, value in writes:
        kafka.plain("t", 0, key, value)

    def fold() -> dict[object, object]:
        table: dict[object, object] = {}
        for record in kafka.read("t", 0, 0, 1000)[0]:
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = record.value
        return table

    whole = fold()
    for now in sorted(cleans):
        kafka.topics["t"][0].clean(now)
        assert fold() == whole
