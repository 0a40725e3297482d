"""What an aggregate has at hand of its table is what the store has, whatever its task is doing."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import headgate as hg
from headgate.agents.operators.pipeline.pipeline import Pipeline
from headgate.agents.operators.plain.aggregating import AggregateOp
from headgate.agents.queries.committed import CommittedPart, written
from headgate.agents.queries.queryable import queryables
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.state.store import MemoryStore
from headgate.core.names import StreamPartition

from ..operators.pipeline.test_pipeline import Rig

IN = StreamPartition("in", 0)
KEYS = [b"a", b"b", b"c"]
SENT = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([1, 2.5, 2**62])), min_size=1, max_size=6)


def job() -> hg.App:
    app = hg.App("job", on_error="fail")
    app.input("in").agg(n=hg.count(), total=hg.sum("n"), most=hg.max("n"), mean=hg.mean("n"), name="totals").to("out")
    return app


def read(value: Any) -> Any:
    return orjson.loads(written(value))


class Task(RuleBasedStateMachine):
    """A task: its letters complete or are dropped, what it has changed is sealed, and applied to its store later or at once."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.rig = Rig(job(), store=self.store)
        self.asked = queryables(self.rig.pipeline.declared)["totals"]
        self.part = CommittedPart("Partition 0", self.store, self.rig.tables.table("totals"), self.asked)
        self.position = 0

    @property
    def pipeline(self) -> Pipeline:
        return self.rig.pipeline

    @property
    def op(self) -> AggregateOp:
        return next(one for one in self.pipeline.operators if isinstance(one, AggregateOp))

    def read(self, sent: list[tuple[bytes, Any]]) -> None:
        values = [orjson.dumps({"n": n}) for _, n in sent]
        made = Chunk.of(IN, values, keys=[key for key, _ in sent], timestamps=list(range(1, len(sent) + 1)))
        asyncio.run(self.pipeline.chunk(made))

    @rule(sent=SENT)
    def a_letter(self, sent: list[tuple[bytes, Any]]) -> None:
        self.read(sent)
        self.pipeline.complete()
        self.rig.tables.complete()

    @rule(sent=SENT)
    def a_letter_that_is_dropped(self, sent: list[tuple[bytes, Any]]) -> None:
        self.read(sent)
        self.pipeline.drop()
        self.rig.tables.drop()

    @rule(sent=SENT)
    def a_commit_in_the_middle_of_a_letter(self, sent: list[tuple[bytes, Any]]) -> None:
        self.read(sent)
        self.a_commit_begins()
        self.a_commit_is_durable()
        self.pipeline.drop()
        self.rig.tables.drop()

    @rule()
    def a_marker_is_announced(self) -> None:
        """Operators emit what they hold back, and their tables wait for the commit."""
        aside = self.rig.tables.suspend()
        self.pipeline.seal()
        self.rig.tables.complete()
        self.rig.tables.resume(aside)

    @rule()
    def a_commit_begins(self) -> None:
        self.a_marker_is_announced()
        self.rig.tables.seal()
        self.position += 1

    @rule()
    def a_commit_is_durable(self) -> None:
        if self.rig.tables.table("totals").sealed:
            self.rig.tables.applied(self.position)

    @rule()
    def memory_is_short(self) -> None:
        self.op._give_back()

    @invariant()
    def what_is_at_hand_is_what_is_stored(self) -> None:
        table = self.rig.tables.table("totals")
        assert table.at_hand is not None
        places, results = table.at_hand(KEYS)
        stored = list(map(read, self.part._stored(KEYS)))
        assert [orjson.loads(one) for one in results] == [stored[at] for at in places]
        assert list(map(read, self.part.read(KEYS))) == stored


TestTask = Task.TestCase
TestTask.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_a_key_is_at_hand_as_soon_as_its_commit_is_durable() -> None:
    """And not while it is written, or has changed again; a key without a row never is, though a failed letter had it."""
    task = Task()
    at_hand = task.rig.tables.table("totals").at_hand
    assert at_hand is not None

    def found() -> list[bytes]:
        return [KEYS[at] for at in at_hand(KEYS)[0]]

    task.a_letter([(b"a", 1), (b"b", 2)])
    task.a_letter_that_is_dropped([(b"c", 1)])
    seen = [found()]
    for step in (task.a_marker_is_announced, task.a_commit_begins, task.a_commit_is_durable):
        step()
        seen.append(found())
    assert seen == [[], [], [], [b"a", b"b"]]
    task.a_letter([(b"b", 2)])
    assert found() == [b"a"]
    task.memory_is_short()
    assert found() == []
    task.a_letter_that_is_dropped([(b"a", 1)])  # what it has read stays
    assert found() == [b"a"]
