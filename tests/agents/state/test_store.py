"""Stores: one interface, two of them, and what makes a RocksDB unusable."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from headgate.agents.state.directory import Directory
from headgate.agents.state.rocks import StoreMemory, open_rocks, wipe
from headgate.agents.state.store import (
    MemoryStore,
    Owner,
    StoreBusy,
    StoreHeld,
    StoreUnusable,
    WriteRefused,
    write_in_turn,
)
from headgate.core.errors import StoreUnreadable

from ...pauses import Beside

OWNER = Owner("u", "Partition 1", 1)


@pytest.fixture(params=["memory", "rocks"])
def store(request, tmp_path):
    """Each of the two."""
    made = MemoryStore() if request.param == "memory" else open_rocks(tmp_path / "t", StoreMemory(8 << 20), Owner("u"))
    yield made
    made.close()


def test_reading_and_writing(store):
    """One write is one step over several tables, with the metadata."""
    assert store.get("a", b"x") is None
    assert store.get_many("a", [b"x"]) == [None]
    assert list(store.range("a")) == []
    store.write({"a": {b"x": b"1", b"y": b"2", b"z": b"3"}, "b": {b"x": b"other"}}, position=7, checkpoint=b"c")
    store.write({"a": {b"y": None}}, followed_until_ms=9)
    assert store.get("a", b"x") == b"1"
    assert store.get_many("a", [b"z", b"y", b"x"]) == [b"3", None, b"1"]
    assert store.get_many("a", []) == []
    assert store.get("b", b"x") == b"other"
    assert (store.meta.position, store.meta.followed_until_ms, store.meta.checkpoint) == (7, 9, b"c")
    assert store.tables() == ["a", "b"]
    store.clear("a")
    assert store.get("a", b"x") is None
    assert store.size() >= 0


READS = {
    "get": lambda store: store.get("t", b"k"),
    "get_many": lambda store: store.get_many("t", [b"k"]),
    "range": lambda store: list(store.range("t")),
    "tables": lambda store: store.tables(),
    "size": lambda store: store.size(),
}


@pytest.mark.parametrize("way", READS)
def test_a_closed_store_does_not_say_that_there_is_nothing(store, way):
    """User code that had not heard of its task's end found every key absent, and made each anew."""
    store.write({"t": {b"k": b"v"}})
    READS[way](store)
    store.close()
    with pytest.raises(StoreUnreadable, match="it is closed"):
        READS[way](store)
    with pytest.raises(WriteRefused, match="is closed"):
        store.write({"t": {b"k": b"v"}})


def test_a_range_that_no_one_has_read_to_its_end_holds_no_store(tmp_path):
    """Its directory could not be opened again as long as somebody held the range: the next life of the task restored everything anew."""
    memory = StoreMemory(8 << 20)
    store = open_rocks(tmp_path / "t", memory, Owner("u"))
    store.write({"t": {b"%d" % n: b"v" for n in range(5000)}})
    rows, never_begun = store.range("t"), store.range("t")
    next(rows)
    store.close()
    open_rocks(tmp_path / "t", memory, Owner("u")).close()
    for one in (rows, never_begun):
        with pytest.raises(StoreUnreadable):
            next(one)


def test_the_first_commit_makes_no_column_family(tmp_path, monkeypatch):
    """Each takes a write to the disk: they are made when the store is opened, in a thread. A table of an older version keeps its own."""
    memory = StoreMemory(8 << 20)
    before = open_rocks(tmp_path / "t", memory, Owner("u"), ["old"])
    before.write({"old": {b"k": b"v"}})
    before.close()
    store = open_rocks(tmp_path / "t", memory, Owner("u"), ["new", "old"])
    monkeypatch.setattr(store, "_handles", None)
    store.write({"new": {b"k": b"v"}, "old": {b"l": b"w"}})
    assert (store.tables(), dict(store.range("old")), store.get("new", b"k")) == (
        ["new", "old"],
        {b"k": b"v", b"l": b"w"},
        b"v",
    )
    store.close()


def test_ranges_in_both_directions(store):
    """From a key up to but not including another, also as new keys come in one by one."""
    for key in (b"d", b"a", b"c", b"b"):
        store.write({"t": {key: key}})
        list(store.range("t"))
    keys = lambda **bounds: [key for key, _ in store.range("t", **bounds)]  # noqa: E731
    assert keys() == [b"a", b"b", b"c", b"d"]
    assert keys(start=b"b", end=b"d") == [b"b", b"c"]
    assert keys(start=b"b", end=b"d", reverse=True) == [b"c", b"b"]
    assert keys(end=b"c", reverse=True) == [b"b", b"a"]
    assert keys(start=b"c", reverse=True) == [b"d", b"c"]
    store.write({"t": {b"b": None, b"zz": None}})
    assert keys() == [b"a", b"c", b"d"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.dictionaries(st.binary(max_size=2), st.one_of(st.none(), st.binary(max_size=2)), max_size=20), max_size=8
    )
)
def test_memory_is_a_dict(writes):
    """Whatever is written in whatever order."""
    store, model = MemoryStore(), {}
    for rows in writes:
        store.write({"t": rows})
        for key, value in rows.items():
            model.pop(key, None) if value is None else model.__setitem__(key, value)
        assert list(store.range("t")) == sorted(model.items())


def test_closing_gives_the_directory_back_at_once(tmp_path):
    """Also when several tables were open: RocksDB keeps its lock while any handle lives."""
    memory = StoreMemory(8 << 20)
    for n in range(5):
        store = open_rocks(tmp_path / "t", memory, Owner("u"))
        assert store.meta.position == (n - 1 if n else None)
        store.write({f"t{n}": {b"k": b"v"}}, position=n)
        with pytest.raises(StoreHeld):
            open_rocks(tmp_path / "t", memory, Owner("u"))
        with pytest.raises(StoreHeld):
            wipe(tmp_path / "t")
        store.close()
        store.close()
    assert store.path == tmp_path / "t"


def test_foreign_newer_damaged_and_unmarked_stores_are_noticed(tmp_path):
    """Each with its reason; wiping makes room for a fresh one."""
    memory = StoreMemory(8 << 20)
    path = tmp_path / "t"

    def reason(**of):
        with pytest.raises(StoreUnusable) as broken:
            open_rocks(path, memory, replace(OWNER, **of))
        return broken.value.reason

    open_rocks(path, memory, OWNER).close()
    assert "belongs to the job u" in reason(job_uuid="another")
    assert "belongs to the task 'Partition 1'" in reason(task="Partition 2")
    assert "partition 1 of the log" in reason(partition=2)

    for data, said in (
        (msgpack.packb({"format": 99}), "newer than"),
        (b"\xc1", "cannot be read"),
        (msgpack.packb([1]), "cannot be read"),
        (None, "no metadata"),
    ):
        database = Rdict(str(path / "db"), Options(raw_mode=True))
        if data is None:
            database.delete(b"meta")
        else:
            database[b"meta"] = data
        database.close()
        del database
        gc.collect()
        assert said in reason()

    (path / "db" / "CURRENT").write_text("rubbish")
    assert "RocksDB cannot open it" in reason()
    wipe(path)
    fresh = open_rocks(path, memory, OWNER)
    assert fresh.meta.position is None
    fresh.close()


def _readers(store):
    return {
        "get": lambda: store.get("t", b"100"),
        "get_many": lambda: store.get_many("t", [b"100", b"200"]),
        "range": lambda: list(store.range("t")),
        "reversed": lambda: list(store.range("t", b"1", reverse=True)),
    }


@pytest.mark.parametrize("way", ["get", "get_many", "range", "reversed"])
def test_a_store_with_a_damaged_block_is_wiped_at_the_next_open(tmp_path, way):
    """RocksDB opens such a store without a word and fails at each read of the block: its task would fail again after each restart,
    although the log has everything that it holds."""
    memory = StoreMemory(8 << 20)
    store = open_rocks(tmp_path / "t", memory, OWNER)
    store.write({"t": {b"%d" % n: random.randbytes(100) for n in range(5000)}}, position=1)
    store._families["t"][0].flush()
    store.close()
    rows = max((tmp_path / "t" / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(rows.read_bytes())
    data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    rows.write_bytes(data)
    damaged = open_rocks(tmp_path / "t", memory, OWNER)
    with pytest.raises(StoreUnreadable):
        _readers(damaged)[way]()
    damaged.close()
    with pytest.raises(StoreUnusable, match="it could not be read"):
        open_rocks(tmp_path / "t", memory, OWNER)
    wipe(tmp_path / "t")
    open_rocks(tmp_path / "t", memory, OWNER).close()


def test_a_reader_that_comes_after_the_close_damages_nothing(tmp_path):
    """A page that reads a table of a task that is just being released must not cost its next owner the store."""
    memory = StoreMemory(8 << 20)
    store = open_rocks(tmp_path / "t", memory, OWNER)
    store.write({"t": {b"k": b"v"}}, position=1)
    store.close()
    with pytest.raises(StoreUnreadable):
        store.get("t", b"k")
    again = open_rocks(tmp_path / "t", memory, OWNER)
    assert again.get("t", b"k") == b"v"
    again.close()


NEIGHBOURS = [
    ("r", "r.15"),
    ("a b", "a-b"),
    ("Partition 1", "Partition-1"),
    ("../../x", "x"),
    (".", ".."),
    ("a/b", "a%2Fb"),
    ("", "%"),
    ("r" * 300, "r" * 301),
    ("A", "a"),
    ("Partition 1", "partition 1"),
]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS)
def test_tasks_of_any_name_have_stores_of_their_own(tmp_path, one, other):
    """Groupers choose the names of tasks: a task that opened the store of another counted on from the other's counts."""
    memory = StoreMemory(8 << 20)
    job = tmp_path / "state" / "sales-1"
    owners = {name: Owner("u", name, n) for n, name in enumerate((one, other))}
    for name, owner in owners.items():
        first, spare = Directory(job, name, memory), Directory(job, name, memory)
        held = first.open(owner)
        beside = spare.open(owner)  # as after a fenced process that still holds its lock
        beside.write({"t": {b"who": name.encode()}}, position=owner.partition + 1)
        held.close()
        beside.close()
    for name, owner in owners.items():
        found = Directory(job, name, memory).open(owner)
        assert found.get("t", b"who") == name.encode()
        found.close()
    assert {path.name for path in tmp_path.iterdir()} == {"state"}
    assert {path.name for path in job.iterdir()} == {"tasks", "spares"}


def test_a_store_with_the_first_record_of_the_log_is_further_than_one_with_none(tmp_path):
    memory = StoreMemory(8 << 20)
    first = Directory(tmp_path, OWNER.task, memory).open(OWNER)
    spare = Directory(tmp_path, OWNER.task, memory).open(OWNER)  # the first one is locked
    spare.write({"t": {b"k": b"v"}}, position=0)
    first.close()
    spare.close()
    with contextlib.closing(Directory(tmp_path, OWNER.task, memory).open(OWNER)) as found:
        assert (found.meta.position, found.get("t", b"k")) == (0, b"v")


def test_one_bound_for_all_databases_of_a_worker(tmp_path):
    """Ten databases are written to; what they hold in memory stays within the one setting."""
    memory = StoreMemory(16 << 20)
    stores = [open_rocks(tmp_path / f"t{n}", memory, Owner("u")) for n in range(10)]

    async def fill():
        for n in range(40):
            for store in stores:
                await write_in_turn(store, {"t": {b"%d-%d" % (n, i): b"x" * 500 for i in range(200)}})

    asyncio.run(fill())
    assert memory.used() <= 1.5 * memory.limit
    for store in stores:
        assert len(list(store.range("t"))) == 8000
        store.close()


def filtered(store):
    """How many tables of a store have a filter for their write buffer, as RocksDB itself has noted."""
    newest = max((store.path / "db").glob("OPTIONS-*"))
    return len(re.findall(r"memtable_prefix_bloom_size_ratio=0\.02", newest.read_text()))


def parted(store):
    """The tables of a store whose new files have their indexes and filters in parts, as RocksDB itself has noted."""
    newest = max((store.path / "db").glob("OPTIONS-*"))
    found = re.findall(r'\[TableOptions/BlockBasedTable "t\.(.+?)"\](.+?)(?=\n\[|$)', newest.read_text(), re.DOTALL)
    return [
        name for name, options in found if "partition_filters=true" in options and "=kTwoLevelIndexSearch" in options
    ]


def test_indexes_and_filters_are_in_parts_once_they_take_much_of_the_memory(tmp_path):
    """All that are open count, and who closes gives room back."""
    rows = {b"%d" % n: b"x" for n in range(24_000)}

    def opened(name):
        return open_rocks(tmp_path / name, memory, Owner("u"), ["t"])

    memory = StoreMemory(400 << 10)  # a quarter of its share for RocksDB is 75 KiB: room for the filters of two
    for name in "abc":
        store = opened(name)
        assert parted(store) == []
        store.write({"t": rows})
        store.flush()
        store.close()
    a, b = opened("a"), opened("b")
    assert (parted(a), parted(b)) == ([], [])
    c = opened("c")
    assert parted(c) == ["t"]
    c.write({"t": {b"7": b"y"}})
    c.flush()
    assert c.get_many("t", [b"7", b"23999", b"-"]) == [b"y", b"x", None]
    c.close()
    a.close()
    c = opened("c")
    assert parted(c) == []
    assert dict(c.range("t")) == {**rows, b"7": b"y"}
    b.close()
    c.close()


def test_a_store_that_grows_begins_to_have_them_in_parts(tmp_path):
    """Otherwise a worker that runs for long would read filters that are larger than its memory, again and again. New tables do as well."""
    memory = StoreMemory(400 << 10)
    store = open_rocks(tmp_path / "a", memory, Owner("u"), ["t"])
    rows = 0
    while not parted(store):
        assert rows < 400_000, "filters of 500 KB"
        store.write({"t": {b"%d" % n: b"x" for n in range(rows, rows + 4_000)}})
        store.flush()  # it accepts no more than its disk has written
        rows += 4_000
    assert rows > 40_000
    store.write({"u": {b"1": b"y"}})
    assert sorted(parted(store)) == ["t", "u"]
    store.flush()
    assert store.get_many("t", [b"0", b"%d" % (rows - 1), b"-"]) == [b"x", b"x", None]
    assert store.get("u", b"1") == b"y"
    store.close()


def test_tables_have_filters_for_their_write_buffers_as_far_as_memory_allows(tmp_path):
    """Each takes its memory before its first row: a sixteenth is for them, and who closes gives it back."""
    memory = StoreMemory(64 << 20)
    size = memory.table_options()[1]
    memory.release(size)
    room = memory.limit // 16 // size
    first = open_rocks(tmp_path / "a", memory, Owner("u"), [f"t{n}" for n in range(room - 1)])
    second = open_rocks(tmp_path / "b", memory, Owner("u"), ["one", "two"])
    second.write({"later": {b"k": b"v"}})
    assert (filtered(first), filtered(second)) == (room - 1, 1)
    first.close()
    first.close()
    third = open_rocks(tmp_path / "c", memory, Owner("u"), [f"t{n}" for n in range(room + 5)])
    assert filtered(third) == room - 1
    second.close()
    third.close()
    assert memory.table_options()[1] == size


def test_a_store_that_does_not_open_takes_no_memory_for_filters(tmp_path):
    """Otherwise a directory that is tried again and again would use up what is for all."""
    memory = StoreMemory(64 << 20)
    (tmp_path / "t" / "db").mkdir(parents=True)
    (tmp_path / "t" / "db" / "CURRENT").write_text("no manifest")
    left = memory._filters
    for _ in range(3):
        with pytest.raises(StoreUnusable):
            open_rocks(tmp_path / "t", memory, Owner("u"), ["one"])
    assert memory._filters == left


FULL_DISK = """
import resource, sys
from pathlib import Path
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner
from headgate.core.errors import EnvironmentFault

store = open_rocks(Path(sys.argv[1]), StoreMemory(8 << 20), Owner("u"))
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
for n in range(100):
    try:
        store.write({"t": {b"%d-%d" % (n, i): b"x" * 1000 for i in range(100)}}, position=n)
    except EnvironmentFault as error:
        assert store.meta.position == n - 1, store.meta
        print(error)
        break
"""


def test_a_full_disk_is_said_with_its_remedy(tmp_path):
    """The write that does not fit raises, and the position stays at the last one that did."""
    told = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "t")], capture_output=True, text=True, timeout=180
    )
    assert "accepts no write" in told.stdout, told.stderr
    assert "free some disk space" in told.stdout


class SlowDisk(StoreMemory):
    """RocksDB may write out 500 kB a second, and a table of 1 MB at a time."""

    def options(self):
        found = super().options()
        found.set_write_buffer_size(1 << 20)
        found.set_ratelimiter(500_000, 100_000, 10)
        return found


@contextlib.contextmanager
def silences():
    """Every pause of a second or more of a thread that wants to speak all the time, as heartbeats do; known when the block is over."""
    pauses, found, through = [], [], threading.Event()

    def speak():
        last = time.monotonic()
        while not through.wait(0.01):
            now = time.monotonic()
            if now - last > 1.0:
                pauses.append((last, now))
            last = now

    speaker = threading.Thread(target=speak)
    speaker.start()
    with Beside() as beside:
        try:
            yield found
        finally:
            through.set()
            speaker.join()
    found += [own for begun, ended in pauses if (own := beside.own(begun, ended)) > 1.0]


def test_a_disk_that_does_not_follow_keeps_no_one_from_speaking(tmp_path):
    """Three tables of 1 MB on a disk that takes two seconds for each: a stall that held the lock of the interpreter for so long
    would silence the heartbeats of the worker, and it would be taken for dead."""
    store = open_rocks(tmp_path / "t", SlowDisk(64 << 20), Owner("u"))
    turns = 0

    async def write():
        nonlocal turns
        for n in range(3):
            rows = {b"%d-%d" % (n, i): random.randbytes(1000) for i in range(1000)}
            while True:
                try:
                    store.write({"t": rows}, position=n)
                    break
                except StoreBusy:
                    turns += 1
                    assert store.meta.position == n - 1
                    await asyncio.sleep(0.02)

    with silences() as found:
        asyncio.run(write())
        store.close()
    assert found == []
    assert turns > 10, "nothing stalled: this test shows nothing"
    again = open_rocks(tmp_path / "t", StoreMemory(64 << 20), Owner("u"))
    assert (again.meta.position, len(list(again.range("t")))) == (2, 3000)
    again.close()


KILLED = """
import os, random, sys
from pathlib import Path
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner

store = open_rocks(Path(sys.argv[1]), StoreMemory(64 << 20), Owner("u"))
store.write({"t": {b"%d" % i: random.randbytes(1000) for i in range(6000)}}, position=1)
os._exit(9)
"""


def test_what_a_killed_process_left_is_worked_off_without_keeping_anyone_from_speaking(tmp_path):
    """RocksDB writes the log out before it is open, and rocksdict holds the interpreter's lock for that: 12 s on this disk."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "t")], check=False, timeout=180)
    with silences() as found:
        store = open_rocks(tmp_path / "t", SlowDisk(64 << 20), Owner("u"))
    assert found == []
    assert (store.meta.position, len(list(store.range("t")))) == (1, 6000)
    store.close()


FULL_FOR_A_MOMENT = """
import resource, sys
from pathlib import Path
from headgate.agents.state.store import Owner, WriteRefused
from headgate.agents.state.rocks import StoreMemory, open_rocks

def refused(position, value):
    try:
        store.write({"t": {b"k%d" % position: value}}, position=position)
    except WriteRefused as error:
        return str(error)

memory = StoreMemory(8 << 20)
store = open_rocks(Path(sys.argv[1]), memory, Owner("u"))
store.write({"t": {b"k0": b"0"}}, position=0)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
first = refused(1, b"x" * 600_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
second = refused(2, b"2")
print("first:", repr(first))
print("second:", repr(second))
print("here:", store.meta.position, len(dict(store.range("t"))))
store.close()
store = open_rocks(Path(sys.argv[1]), memory, Owner("u"))
print("opened:", store.meta.position, dict(store.range("t")), refused(1, b"1"), refused(2, b"2"), store.meta.position)
"""


def test_a_disk_that_is_full_for_a_moment_leaves_no_hole(tmp_path):
    """Else the second commit counts on top of the first, which is missing, and the next start trusts the position of the second."""
    told = subprocess.run(
        [sys.executable, "-c", FULL_FOR_A_MOMENT, str(tmp_path / "t")], capture_output=True, text=True, timeout=180
    )
    lines = [line for line in told.stdout.splitlines() if line.split(":")[0] in ("first", "second", "here", "opened")]
    assert len(lines) == 4, told.stderr
    assert "accepts no write" in lines[0]
    assert "has refused a write, and accepts no more until it is reopened" in lines[1]
    assert lines[2] == "here: 0 1"
    assert lines[3] == "opened: 0 {b'k0': b'0'} None None 2"


def test_a_store_that_refused_a_write_is_never_written_again(store):
    """Whoever asks, and whatever for: changes, a time, or an emptied table; what it held is still read."""
    store.write({"t": {b"k": b"1"}}, position=1)
    with pytest.raises(WriteRefused, match="accepts no write"):
        store.write({"t": None}, position=2)
    for again in (
        lambda: store.write({"t": {b"k": b"3"}}, position=3),
        lambda: store.write({}, followed_until_ms=4),
        lambda: store.clear("t"),
    ):
        with pytest.raises(WriteRefused, match="has refused a write, and accepts no more"):
            again()
    assert (store.meta.position, store.meta.followed_until_ms) == (1, None)
    assert store.get("t", b"k") == b"1"


def test_a_lookup_does_not_read_the_filter_of_a_whole_file(tmp_path):
    """That of this file is larger than a shard of the cache, so it would be read again for each lookup."""
    drawn = random.Random(1)
    rows = {b"user-%d" % number: drawn.randbytes(12) for number in range(1_000_000)}
    keys = list(rows)
    with contextlib.closing(open_rocks(tmp_path / "t", StoreMemory(64 << 20), OWNER)) as store:
        asyncio.run(write_in_turn(store, {"a": rows}))
        store.flush()
        store._view("a").compact_range(None, None)  # into one file, of which nothing is pinned
        wanted = [drawn.sample(keys, 100) for _ in range(80)]
        for some in wanted[:40]:
            store.get_many("a", some)
        before = _bytes_read()
        for some in wanted[40:]:
            assert store.get_many("a", some) == [rows[key] for key in some]
        assert (_bytes_read() - before) / 4_000 < 4_096, "more than a block a key"


def _bytes_read() -> int:
    """How many bytes this process has read from files."""
    return int(Path("/proc/self/io").read_text().split()[1])
