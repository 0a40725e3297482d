"""A task's operators put together, without the machine: chunks, seals in the middle of them, frames, what failed."""

from __future__ import annotations

import asyncio
import gc
import sys
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.job.types.aggregates import plan
from headgate.agents.operators.base.bad_records import BadRecord
from headgate.agents.operators.base.stateless import UserCodeError
from headgate.agents.operators.failures.failures import dead_letter, policy_of
from headgate.agents.operators.pipeline.bisection import find_bad
from headgate.agents.operators.pipeline.pipeline import Pipeline
from headgate.agents.records.frames.chunks import Chunk, FetchBuffer
from headgate.agents.records.frames.framing import frame_cuts
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.records.values.serdes import json, msgpack
from headgate.agents.runtime.writing.buffer import Joining, Listed, Spanned
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.agents.testing.logs import Gathered
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import FROM_HEADER, BatchFrame, FrameError, decode

from ...forms import Form


class Row(TypedDict):
    k: str
    n: int


IN = StreamPartition("in", 0)


class Joined(Joining):
    """The open transaction, with what has joined it, emission by emission."""

    def __init__(self, widths: dict[str, int]) -> None:
        super().__init__(
            transactional=True,
            batch=Gathered,
            batch_bytes=1 << 20,
            max_pending_bytes=1 << 30,
            wake=lambda: None,
            now_ms=lambda: 0,
        )
        self.widths = widths
        self.open: list[SimpleNamespace] = []
        self.ask = lambda topic: self.know(topic, widths.get(topic, 1))

    def _join(self, task: str, target: StreamPartition, part: Listed | Spanned) -> None:
        one = part if isinstance(part, Listed) else part.listed()
        stamps = [one.timestamps] * len(one) if isinstance(one.timestamps, int) else one.timestamps
        self.open.append(
            SimpleNamespace(
                task=task, at=target, keys=one.keys, values=one.values, timestamps=stamps, headers=one.headers
            )
        )


class Rig:
    """A pipeline over memory."""

    def __init__(
        self,
        app: hg.App,
        *streams: str,
        width: int = 1,
        memory: CacheMemory | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        declared = Declared(app)
        self.topics = Joined(dict.fromkeys(declared.graph.writer, width))
        self.tables = open_tables(store or MemoryStore(), declared, clock=lambda: 0, memory=memory).tables
        self.counted: dict[str, int] = {}
        self.pipeline = Pipeline(
            declared,
            "Partition 0",
            buffer=self.topics.buffer("t"),
            seal_buffer=self.topics.buffer("t"),
            table=self.tables.table,
            widths=self.topics.widths,
            now_ms=lambda: 0,
            count=lambda name, amount: self.counted.update({name: amount}),
            streams=streams or ("in",),
        )

    async def run(self, chunk: Chunk) -> int | None:
        greatest = await self.pipeline.chunk(chunk)
        self.pipeline.complete()
        self.tables.complete()
        return greatest

    def seal(self) -> None:
        aside = self.tables.suspend()
        self.pipeline.seal()
        self.tables.complete()
        self.tables.seal()
        self.tables.applied(1)
        self.tables.resume(aside)

    def out(self, topic: str = "out") -> list[bytes | None]:
        """What has joined the open transaction."""
        return [value for one in self.topics.open if one.at.stream == topic for value in one.values]


def chunk(*values: bytes, at: StreamPartition = IN, keys: Any = None) -> Chunk:
    return Chunk.of(at, list(values), keys=keys, timestamps=list(range(1, len(values) + 1)))


def test_a_chunk_gives_its_greatest_event_time(form: Form) -> None:
    """Which is what the watermark is made of."""
    app = hg.App("job")
    form.input(app, "in", Row).to("out")
    assert asyncio.run(Rig(app).run(of_keys(1, 2))) == 2


def test_a_seal_in_the_middle_of_a_chunk_takes_only_what_was_complete() -> None:
    """A chunk that awaits belongs to the next transaction, all of it."""

    async def story() -> None:
        gate, reached = asyncio.Event(), asyncio.Event()

        async def wait(value: Any) -> Any:
            if value["n"] == 2:
                reached.set()
                await gate.wait()
            return value

        app = hg.App("job", key_serde=hg.text())
        seen = app.table("seen")

        def note(value: Any) -> Any:
            seen["n"] = value["n"]
            return value

        stream = app.input("in", key="k").map(note)
        stream.to("copy")
        stream.agg(name="agg", n=hg.count(), x=hg.sum("n")).to("counts")
        stream.repartition("k").agg(name="far", n=hg.count()).to("far")
        stream.map_async(wait).to("out")
        rig = Rig(app)
        await rig.run(chunk(b'{"k":"a","n":1}'))
        running = asyncio.ensure_future(rig.run(chunk(b'{"k":"a","n":2}')))  # noqa: TID251 - awaited below
        await reached.wait()
        rig.seal()
        assert rig.out("copy") == [b'{"k":"a","n":1}']
        assert rig.out("counts") == [b'{"n":1,"x":1}']
        assert len(rig.out("job-1-by-k")) == 1
        assert rig.tables.store.get("seen", b"n") == b"\x001"
        gate.set()
        await running
        rig.seal()
        assert rig.out("copy")[1:] == [b'{"k":"a","n":2}']
        assert rig.out("counts")[1:] == [b'{"n":2,"x":3}']
        assert rig.tables.store.get("seen", b"n") == b"\x002"

    asyncio.run(story())


def test_a_chunk_is_let_go_when_it_is_complete(form: Form) -> None:
    """A worker has many tasks, and the next chunk of one may be long in coming: a MiB each that no one needs."""
    app = hg.App("job")
    stream = form.input(app, "in", Row)
    stream.repartition("k").agg(n=hg.count()).to("counts")
    stream.to("out")
    rig, one = Rig(app), of_keys(1, 2)
    before = sys.getrefcount(one), sys.getrefcount(one.columns)
    asyncio.run(rig.run(one))
    gc.collect()
    assert (sys.getrefcount(one), sys.getrefcount(one.columns)) == before


def test_combined_rows_are_not_said_to_be_made_of_the_last_chunk(form: Form) -> None:
    """Those of many chunks leave together at a seal. What is shuffled as it comes names its records."""
    app = hg.App("job")
    stream = form.input(app, "in", Row)
    stream.repartition("k").agg(n=hg.count()).to("counts")
    stream.repartition("n").to("out")
    rig = Rig(app)
    for n in (1, 2):
        asyncio.run(rig.run(of_keys(n)))
        rig.seal()
    says = [(one.at.stream, dict(headers).get(FROM_HEADER)) for one in rig.topics.open for headers in one.headers or []]
    assert sorted(says, key=str) == [("job-1-by-k", None)] * 2 + [("job-1-by-n", b"in[0] offset 0")] * 2


def test_a_task_whose_awaited_function_has_failed_is_not_cancelled() -> None:
    """A group of asyncio's cancels its task for that, and until Python 3.13 it stays so: from then on every cancellation that user code
    raised was taken for one that was asked for, and the letter ended without a word."""

    async def fails(value: Any) -> Any:
        await asyncio.sleep(0)
        raise ValueError(value["n"])

    async def story() -> None:
        app = hg.App("job")
        app.input("in").map_async(fails, concurrency=2).to("out")
        with pytest.raises(UserCodeError):
            await Rig(app).run(of_keys(1, 2, 3))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    asyncio.run(story())


def of_keys(*keys: int) -> Chunk:
    return chunk(*[b'{"k":"k%d","n":%d}' % (key, key) for key in keys])


@pytest.mark.parametrize("copies", [False, True])
def test_states_that_were_given_back_come_again_from_the_table(copies: bool, form: Form) -> None:
    """More keys than fit into the memory of the worker: their sums go on, within and between commits."""
    memory = CacheMemory(100_000 if copies else 40_000)
    app = hg.App("job", key_serde=hg.text())
    more: dict[str, Any] = {"all": hg.collect("n")} if copies else {}
    form.input(app, "in", Row, key="k").agg(name="agg", n=hg.count(), x=hg.sum("n"), **more).to("counts")
    rig = Rig(app, memory=memory)
    operator: Any = next(one for one in rig.pipeline.operators if hasattr(one, "states"))

    async def story() -> None:
        for round_ in range(3):
            for start in range(0, 2000, 100):
                await rig.run(of_keys(*range(start, start + 100), *range(0, 2000, 500)))
                if start % 300 == 0:
                    rig.seal()
                    assert memory.used <= memory.limit
                    assert len(operator.states) < 500 if copies else len(operator.arrays.keys) < 1000
            rig.seal()
            table = rig.tables.table("agg")
            seen = 20 * (round_ + 1)
            for n in range(0, 2000, 50):
                times = seen + round_ + 1 if n % 500 == 0 else round_ + 1
                found: Any = table[f"k{n}"]
                assert list(found)[:2] == [times, times * n]
            rig.tables.complete()

    asyncio.run(story())
    assert memory.used <= memory.limit


def test_states_are_given_back_while_a_chunk_waits(form: Form) -> None:
    """The chunk had looked for its states; another task needed the memory, and a commit passed: none of its sums begins anew."""

    async def story() -> None:
        gate, reached = asyncio.Event(), asyncio.Event()

        async def wait(value: Any) -> Any:
            if gated:
                reached.set()
                await gate.wait()
            return value

        gated = False
        memory = CacheMemory(1 << 20)
        app = hg.App("job", key_serde=hg.text())
        stream = form.input(app, "in", Row, key="k")
        stream.agg(name="agg", n=hg.count(), x=hg.sum("n")).to("counts")
        (stream.rows() if form is Form.COLUMNS else stream).map_async(wait).to("out")
        rig = Rig(app, memory=memory)
        operator: Any = next(one for one in rig.pipeline.operators if hasattr(one, "states"))
        await rig.run(of_keys(*range(50)))
        rig.seal()
        await rig.run(of_keys(*range(10)))
        gated = True
        running = asyncio.ensure_future(rig.run(of_keys(*range(50), 77)))  # noqa: TID251 - awaited below
        await reached.wait()
        other = memory.hold((), lambda: None)
        other.add(["x"], [bytes(2 << 20)])
        assert len(operator.arrays.keys) == 51  # what is to be committed, and what the chunk adds to
        aside = operator.suspend()  # as while a commit emits what was held back
        other.add(["x"], [bytes(3 << 20)])
        assert len(operator.arrays.keys) == 51
        operator.resume(aside)
        rig.seal()
        other.add(["x"], [bytes(4 << 20)])
        gate.set()
        await running
        other.close()
        rig.seal()
        found: list[Any] = rig.tables.table("agg").get_many([f"k{n}" for n in (*range(50), 77)])
        assert [tuple(state) for state in found] == [
            *[(3, 3 * n) for n in range(10)],
            *[(2, 2 * n) for n in range(10, 50)],
            (1, 77),
        ]

    asyncio.run(story())


def test_a_failing_chunk_beside_combined_rows_leaves_them(form: Form) -> None:
    """What completed chunks gave to the shuffle stays; what the failing one gave goes."""
    app = hg.App("job")
    stream = form.input(app, "in", Row)
    stream.repartition("k").agg(n=hg.count(), x=hg.sum("n")).to("out")
    form.with_columns(stream, lambda v: {**v, "x": 1 / v["n"]}, {"x": 1 / hg.col("n")}).to("inverse")
    rig = Rig(app)

    async def story() -> None:
        await rig.run(chunk(b'{"k":"a","n":5}'))
        with pytest.raises(hg.UserCodeError):
            await rig.run(chunk(b'{"k":"a","n":7}', b'{"k":"b","n":0}'))
        rig.seal()

    asyncio.run(story())
    (frame,) = [decode(value or b"") for value in rig.out("job-1-by-k")]
    assert isinstance(frame, BatchFrame)
    assert (frame.keys, [msgpack().loads(value or b"") for value in frame.values]) == ([b"a"], [[1, 5]])
    assert frame.plan == plan({"n": hg.count(), "x": hg.sum("n")}).digest


def test_numbers_and_other_values_in_one_chunk() -> None:
    """Two ways into the same aggregate, one of numbers, one not: the sum is the same."""
    app = hg.App("job")
    stream = app.input("in", key="k")
    merged = stream.merge(stream.map(lambda v: {**v, "n": True}))
    merged.agg(name="agg", n=hg.sum("n"), c=hg.count()).to("out")
    merged.repartition("k").agg(name="far", n=hg.sum("n"), c=hg.count()).to("far")
    rig = Rig(app)
    asyncio.run(rig.run(chunk(b'{"k":"a","n":5}', b'{"k":"a","n":2}')))
    rig.seal()
    assert rig.out() == [b'{"n":9,"c":4}']
    (frame,) = [decode(value or b"") for value in rig.out("job-1-by-k")]
    assert isinstance(frame, BatchFrame)
    assert msgpack().loads(frame.values[0] or b"") == [9, 4]


def test_an_unreadable_frame_is_bad_data() -> None:
    """It is never taken for an empty chunk."""
    app = hg.App("job")
    app.input("in").to("out")
    with pytest.raises(BadRecord, match="not a frame"):
        asyncio.run(Rig(app).run(Chunk(IN, 4, [], bad=FrameError("no such type"))))


def test_frames_are_cut_by_number_and_by_size() -> None:
    """So that a frame fits into a Kafka record, unless one row alone does not."""
    assert frame_cuts([None] * 1200, [b"x"] * 1200) == [(0, 500), (500, 1000), (1000, 1200)]
    assert frame_cuts([None] * 9, [b"x"] * 9, most=4) == [(0, 4), (4, 8), (8, 9)]
    large: list[bytes | None] = [b"x" * 300_000, None, b"x" * 300_000, b"x" * 900_000, b"y"]
    small: list[bytes | None] = [b"", None, b"x", b"y", None]
    cuts = [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert frame_cuts(small, large) == frame_cuts(large, small) == cuts
    headers = [[("a", None), ("b", one)] for one in large]
    assert frame_cuts([None] * 5, small, headers) == cuts
    assert frame_cuts([], []) == []


def test_headers_travel_through_a_shuffle() -> None:
    """Those of the input, and those that a step sets; rows without any have none behind it, either."""
    app = hg.App("job")
    stream = app.input("in")
    more = stream.map(lambda r: hg.Record(r.key, r.value, r.timestamp, [*r.headers, ("n", None)]), with_record=True)
    more.repartition("k").to("out")
    rig = Rig(app)
    came = Chunk(IN, 2, Columns([b'{"k":"a"}', b'{"k":"b"}'], [1, 2], 0, headers=[[("x", b"1")], []]))
    asyncio.run(rig.run(came))
    (value,) = rig.out("job-1-by-k")
    frame = decode(value or b"")
    assert isinstance(frame, BatchFrame)
    assert frame.headers == [[("x", b"1"), ("n", None)], [("n", None)]]
    behind = Rig(app, "job-1-by-k")
    buffer = FetchBuffer(StreamPartition("job-1-by-k", 0), 0, framed=json())
    buffer.put([RecordBatch.of([SimpleNamespace(offset=0, timestamp=1, key=None, value=value, headers=())])], 0, 1)
    moved = buffer.take(10)
    assert moved is not None
    asyncio.run(behind.run(moved))
    assert behind.topics.open[0].headers == frame.headers

    plain = hg.App("job")
    plain.input("in").repartition("k").to("out")
    rig = Rig(plain)
    asyncio.run(rig.run(came.pick(1, 2)))
    frame = decode(rig.out("job-1-by-k")[0] or b"")
    assert isinstance(frame, BatchFrame)
    assert frame.headers is None


def test_rows_are_never_taken_for_partial_states(form: Form) -> None:
    """Nor the other way round: a frame says what its values are."""
    app = hg.App("job")
    stream = form.input(app, "in", Row)
    stream.repartition("k", name="states").agg(n=hg.count()).to("out")
    stream.repartition("k", name="rows").to("more")
    for name, plan_of, why in (("states", None, "rows instead of"), ("rows", 7, "partial states instead of")):
        topic = f"job-1-{name}"
        wrong = Chunk(StreamPartition(topic, 0), 1, Columns([b"{}"], [1], 0), plan=plan_of)
        with pytest.raises(BadRecord, match=why):
            asyncio.run(Rig(app, topic).run(wrong))


def test_rows_of_one_key_go_to_one_partition_and_keep_their_order() -> None:
    """Whatever chunk they come in."""
    app = hg.App("job")
    app.input("in").repartition("k").to("out")
    rig = Rig(app, width=3)
    asyncio.run(rig.run(chunk(*(b'{"k":"%d","n":%d}' % (n % 5, n) for n in range(50)))))
    where: dict[bytes | None, set[int]] = {}
    for one in rig.topics.open:
        frame = decode(one.values[0] or b"")
        assert isinstance(frame, BatchFrame)
        assert frame.timestamps == sorted(frame.timestamps)
        for key in frame.keys:
            where.setdefault(key, set()).add(one.at.partition)
    assert all(len(partitions) == 1 for partitions in where.values())
    assert len(where) == 5


def test_which_records_failed_is_found(form: Form) -> None:
    """With what each of them raised; nothing of it is kept. Where failing is the policy, the first is enough."""

    async def found(policy: str) -> tuple[Rig, Chunk, list[tuple[int, BaseException]]]:
        app = hg.App("job", on_error=policy, on_bad_data=policy)
        stream = form.input(app, "in", Row)
        form.with_columns(stream, lambda v: {**v, "x": 1 / v["n"]}, {"x": 1 / hg.col("n")}).to("out")
        good = b'{"k":"a","n":%d}'
        rig, at = Rig(app), chunk(good % 1, good % 0, b"{", good % 2)
        with pytest.raises(BadRecord) as raised:
            await rig.run(at)
        return rig, at, await find_bad(rig.pipeline, at, raised.value)

    rig, at, bad = asyncio.run(found("skip"))
    assert [(index, type(error)) for index, error in bad] == [(1, hg.UserCodeError), (2, BadRecord)]
    assert rig.out() == []
    source = rig.pipeline.sources["in"]
    assert [policy_of(error, source, rig.pipeline.app) for _, error in bad] == ["skip", "skip"]
    key, value, headers = dead_letter(at, 2, bad[1][1], "Partition 0")
    assert (key, value, dict(headers)["hg-step"], dict(headers)["hg-offset"]) == (None, b"{", b"decode", b"2")
    assert [index for index, _ in asyncio.run(found("fail"))[2]] == [1]


def test_a_stream_that_the_task_does_not_read_has_no_source(form: Form) -> None:
    """A task that owns only one side of a shuffle runs only what is behind it."""
    app = hg.App("job")
    form.input(app, "in", Row).repartition("k").agg(n=hg.count()).to("out")
    assert set(Rig(app, "job-1-by-k").pipeline.sources) == {"job-1-by-k"}
    assert set(Rig(app, "in").pipeline.sources) == {"in"}
