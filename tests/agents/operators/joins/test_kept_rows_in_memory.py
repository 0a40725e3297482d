"""The rows of a join count against the memory of a worker: what does not fit is in the store only, and nobody sees a difference."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

import headgate as hg
from headgate.agents.records.columns.matching import matching
from headgate.agents.records.native import chosen
from headgate.agents.state import tables
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.testing.driver import Driver
from headgate.agents.worker.load.join_load import JoinRows, joins_of
from headgate.agents.worker.load.step_facts import load_of_steps, steps_of_load

ROWS, PAD = 4_000, "x" * 1_000
LIMIT = 300_000


def both(left: Any, right: Any) -> Any:
    return {"left": left and left["n"], "right": right and right["n"], "same": (left or right)["pad"] == PAD}


def lived(memories: list[CacheMemory], *, every: int) -> tuple[list[Any], list[int]]:
    """What comes out of a join of two streams with large rows, and the largest use of memory behind each commit."""
    app = hg.App("job")
    left, right = (app.input(topic, key="k", timestamp="ts", max_out_of_order="2s") for topic in ("left", "right"))
    left.join(right, within="10s", how="outer", into=both, name="j").to("out")
    chance = random.Random(3)
    found: list[Any] = []
    used: list[int] = []
    with Driver(app) as d:
        for start in range(0, ROWS, every):
            sides: list[list[Any]] = [[], []]
            for n in range(start, start + every):
                value = {"k": f"k{chance.randrange(ROWS)}", "ts": n * 5 + chance.randrange(2_000), "n": n, "pad": PAD}
                headers = (("h", b"%d" % n),) if n % 3 == 0 else ()
                sides[n % 2].append(hg.Record(None, value, 0, headers))
            for topic, some in zip(("left", "right"), sides, strict=True):
                d.send_all(topic, some)
            d.advance("1s")
            used.append(memories[-1].used)
            if start == ROWS // 2 // every * every:
                d.restart()
            found += [(one.key, one.value, one.timestamp, one.headers) for one in d.read("out")]
        d.drain()
        found += [(one.key, one.value, one.timestamp, one.headers) for one in d.read("out")]
    return found, used


@pytest.mark.parametrize("built", [True, False])
def test_memory_stays_below_its_limit_and_results_are_equal(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four megabytes wait for partners, and 300 kB may be in memory: without packing, a join as long as its distance ends the process.
    What is packed takes a few bytes a row. Over a restart, too."""
    memories: list[CacheMemory] = []
    if not built:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)

    def made(limit: int) -> CacheMemory:
        memories.append(CacheMemory(limit))
        return memories[-1]

    monkeypatch.setattr(tables, "CacheMemory", partial(made, 1 << 30))
    expected, roomy = lived(memories, every=100)
    assert max(roomy) > 2 * LIMIT
    assert [one.evicted for one in memories] == [0] * len(memories)
    memories.clear()
    monkeypatch.setattr(tables, "CacheMemory", partial(made, LIMIT))
    found, used = lived(memories, every=100)
    assert found == expected
    assert len({one[0] for one in found}) > 1_000
    assert sum(one[1]["left"] is not None and one[1]["right"] is not None for one in found) > 100
    uncommitted = 100 * (len(PAD) + 100 + matching().row_bytes)
    assert max(used) <= LIMIT + ROWS * matching().packed_bytes + uncommitted
    assert sum(one.evicted for one in memories) > 2 * LIMIT


def test_what_is_kept_is_said_by_side() -> None:
    """Rows, bytes, the oldest, what was late and what came out alone: of completed letters, over several tasks, through a heartbeat."""
    app = hg.App("job")
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="10s", how="left", into=both_or_none, name="j").to("out")
    with Driver(app, partitions={"left": 2, "right": 2}) as d:
        for partition in (0, 1):
            d.send_all("left", [{"k": f"{partition}", "ts": ts} for ts in (5_000, 6_000)], partition=partition)
            d.send_all("right", [{"k": "r", "ts": 30_000}] * 3, partition=partition)
        d.advance("1s")
        one, other = joins_of(d.tasks.values())
        assert (one.step, one.side, one.rows, one.in_memory, one.oldest_ms, one.late, one.alone) == (
            "j",
            "left",
            4,
            4,
            5_000,
            0,
            0,
        )
        assert (other.side, other.rows, other.oldest_ms) == ("right", 6, 30_000)
        assert one.size > 4 * len(b'{"k":"0","ts":5000}')
        d.send("left", {"k": "x", "ts": 31_000}, partition=0)
        d.send("left", {"k": "x", "ts": 31_000}, partition=1)
        d.advance("1s")
        d.send("left", {"k": "x", "ts": 1_000}, partition=1)
        d.advance("1s")
        one, other = joins_of(d.tasks.values())
        assert (one.rows, one.oldest_ms, one.late, one.alone) == (2, 31_000, 1, 4)
        assert (other.rows, other.late, other.alone) == (6, 0, 0)
        assert steps_of_load(JoinRows, load_of_steps([one, other], 1_000)) == [one, other]
        assert steps_of_load(JoinRows, load_of_steps([one, other], 200)) == [one]


def both_or_none(left: Any, right: Any) -> Any:
    return [left, right]
