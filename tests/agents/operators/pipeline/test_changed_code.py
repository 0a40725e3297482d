"""The code of a job changes while there are states: fields come, go and change places, rows become columns and columns rows.

What one form has stored each other form reads, also keys that memory had no room for; and what was under way when the code changed.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any, TypedDict

import orjson
import pytest

import headgate as hg
from headgate.agents.records.frames import arrow_frames
from headgate.agents.records.frames.chunks import FetchBuffer
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.records.native import chosen
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.state.store import MemoryStore
from headgate.core.errors import DeclarationError
from headgate.core.names import StreamPartition

from ...forms import Form
from .test_pipeline import Rig, chunk


class Row(TypedDict):
    k: str
    ts: int
    n: int


FIELDS: dict[str, Any] = {
    "c": hg.count(),
    "s": hg.sum("n"),
    "low": hg.min("n"),
    "high": hg.max("n"),
    "mean": hg.mean("n"),
    "last": hg.last("n"),
}
START: dict[str, Any] = {"c": 0, "s": 0, "low": None, "high": None, "mean": [0, 0], "last": None}
NUMBERS = [name for name in FIELDS if name != "last"]
SIZE = 10


@pytest.fixture(params=["compiled", "plain"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def added(name: str, state: Any, n: int) -> Any:
    """What a field is behind one more row."""
    match name:
        case "c":
            return state + 1
        case "s":
            return state + n
        case "low":
            return n if state is None else min(state, n)
        case "high":
            return n if state is None else max(state, n)
        case "mean":
            return [state[0] + 1, state[1] + n]
        case _:
            return n


class Story:
    """Lives of one job with one store, and a plain account of what it counts."""

    def __init__(self, seed: int, *, windowed: bool) -> None:
        self.chance = random.Random(f"{seed} {windowed}")
        self.windowed = windowed
        self.store = MemoryStore()
        self.names: list[str] = []
        self.account: dict[Any, dict[str, Any]] = defaultdict(dict)
        self.number = 0

    def app(self, form: Form) -> hg.App:
        app = hg.App("job", key_serde=hg.text())
        stream = form.input(app, "in", Row, key="k", timestamp="ts")
        own = {"name": "agg"}
        if self.windowed:
            stream, own = stream.window(hg.tumbling(SIZE / 1000), name="agg", at_end="keep"), {}
        stream.agg(**{name: FIELDS[name] for name in self.names}, **own).to("out")
        return app

    def changes(self) -> None:
        """Other fields, in another order. One that went and comes back begins anew; the keys there are have it with its first state."""
        some = FIELDS if self.chance.random() < 0.3 else NUMBERS
        self.begin(self.chance.sample(sorted(some), self.chance.randrange(1, len(some) + 1)))

    def begin(self, names: list[str]) -> None:
        """The code has these fields from now on."""
        for states in self.account.values():
            for name in names:
                if name not in self.names:
                    states[name] = START[name]
        self.names = names

    def takes(self, rows: list[Any], names: list[str]) -> None:
        """Rows that count for these fields."""
        for row in rows:
            at = (row["ts"] // SIZE * SIZE + SIZE, row["k"]) if self.windowed else row["k"]
            states = self.account[at]
            for name in names:
                states[name] = added(name, states.get(name, START[name]), row["n"])

    async def lives(self, form: Form, memory: int) -> None:
        rig = Rig(self.app(form), memory=CacheMemory(memory), store=self.store)
        self.check(rig)
        for _ in range(self.chance.randrange(1, 6)):
            rows: list[Any] = [
                {
                    "k": f"k{self.chance.randrange(150)}",
                    "ts": self.chance.randrange(40),
                    "n": self.chance.randrange(-9, 9),
                }
                for _ in range(self.chance.randrange(1, 90))
            ]
            await rig.run(chunk(*map(orjson.dumps, rows)))
            self.takes(rows, self.names)
            if self.chance.random() < 0.6:
                rig.seal()
        rig.seal()
        self.check(rig)

    def check(self, rig: Rig) -> None:
        """The stored states are those of the account, in the order of the declared fields."""
        table = rig.tables.table("agg")
        if self.windowed:
            found = {
                (block[0], key.decode()): state
                for _, block in table.range()
                if isinstance(block, list)
                for key, state in zip(block[2], block[3], strict=True)
            }
        else:
            found = dict(table.range())
        plain = {at: [list(one) if isinstance(one, tuple) else one for one in state] for at, state in found.items()}
        assert plain == {at: [states[name] for name in self.names] for at, states in self.account.items()}


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_states_are_read_by_every_form_and_by_changed_code(seed: int, windowed: bool) -> None:
    """In arrays, in lists and in the store, with room for all keys or for none."""
    story = Story(seed, windowed=windowed)

    async def told() -> None:
        for _ in range(8):
            if not story.names or story.chance.random() < 0.7:
                story.changes()
            await story.lives(story.chance.choice(list(Form)), story.chance.choice([1_000, 20_000, 1 << 20]))

    asyncio.run(told())


@pytest.mark.parametrize("windowed", [False, True])
def test_what_does_not_fit_is_refused(windowed: bool, form: Form) -> None:
    """With the difference, before anything is read; the former code of every form goes on with what arrays have stored."""
    story = Story(1, windowed=windowed)
    story.names = ["c", "s"]
    asyncio.run(story.lives(Form.COLUMNS, 1 << 20))
    wrong = hg.App("job", key_serde=hg.text())
    stream = form.input(wrong, "in", Row, key="k", timestamp="ts")
    if windowed:
        stream.window(hg.tumbling(SIZE / 1000), name="agg", at_end="keep").agg(c=hg.max("n"), s=hg.sum("n"))
    else:
        stream.agg(c=hg.max("n"), s=hg.sum("n"), name="agg")
    with pytest.raises(DeclarationError, match=r"'agg' does not fit .*'c' was count, and would become max"):
        Rig(wrong, store=story.store)
    for other in Form:
        asyncio.run(story.lives(other, 1 << 20))


# ----------------------------------------------------------------------------------------------------- what is on its way

BETWEEN = StreamPartition("job-1-by-k", 0)
KINDS = ("rows", "running", "windows")


def between(kind: str, form: Form, names: list[str]) -> hg.App:
    """Rows, or partial states of these fields, through a shuffle."""
    app = hg.App("job", key_serde=hg.text())
    shuffled = form.input(app, "in", Row, timestamp="ts").repartition("k")
    fields = {name: FIELDS[name] for name in names}
    if kind == "rows":
        shuffled.to("out")
    elif kind == "running":
        shuffled.agg(**fields, name="agg").to("out")
    else:
        shuffled.window(hg.tumbling(SIZE / 1000), name="agg", at_end="keep").agg(**fields).to("out")
    return app


def received(rig: Rig, frames: list[bytes], most: int) -> None:
    """These Kafka records are read in chunks."""
    source = rig.pipeline.sources[BETWEEN.stream]
    buffer = FetchBuffer(BETWEEN, 0, framed=source.serde, spanned=source.spanned)
    records = [
        SimpleNamespace(offset=at, timestamp=1, key=None, value=one, headers=()) for at, one in enumerate(frames)
    ]
    buffer.put([RecordBatch.of(records)], 0, len(records))

    async def read() -> None:
        while (moved := buffer.take(most, None, 1 << 20)) is not None:
            await rig.run(moved)

    asyncio.run(read())
    assert buffer.position == len(frames)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_frames_of_old_and_new_workers_stand_in_one_stream(
    kind: str, seed: int, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches and columns in any order, of former code with other fields, too: each row counts once, whoever reads them."""
    chance = random.Random(f"{kind} {seed}")
    names = ["c", "s", "low", "mean"]
    story = Story(seed, windowed=kind == "windows")
    seen: list[dict[str, Any]] = []
    for code in (names, ["mean", "high", "c"]):
        story.begin(code)
        frames: list[bytes] = []
        turns = [(Form.COLUMNS, 1), (Form.ROWS, 10**9)]
        turns += [(chance.choice(list(Form)), chance.choice([1, 10**9])) for _ in range(4)]
        for of, fewest in chance.sample(turns, len(turns)):
            monkeypatch.setattr(arrow_frames, "FEWEST", fewest)
            sender = Rig(between(kind, of, code))
            rows = [
                {"k": f"k{chance.randrange(90)}", "ts": chance.randrange(40), "n": chance.randrange(-9, 9)}
                for _ in range(chance.randrange(1, 200))
            ]
            asyncio.run(sender.run(chunk(*map(orjson.dumps, rows))))
            sender.seal()
            frames += [one or b"" for one in sender.out(BETWEEN.stream)]
            story.takes(rows, code)
            seen += rows
        assert {one[0] for one in frames} == {4, 5}
        if code is names:  # the others are on their way while the code changes
            split = chance.randrange(1, len(frames))
            monkeypatch.setattr(arrow_frames, "FEWEST", 64)
            former = Rig(between(kind, chance.choice(list(Form)), code), BETWEEN.stream, store=story.store)
            received(former, frames[:split], 300)
            former.seal()
            written = former.out()
            left = frames[split:]
        else:
            reader = Rig(between(kind, form, code), BETWEEN.stream, store=story.store, memory=CacheMemory(5_000))
            received(reader, left + frames, chance.choice([1, 150, 10_000]))
            reader.seal()
            if kind == "rows":
                assert [orjson.loads(one or b"") for one in written + reader.out()] == seen
            else:
                story.check(reader)
