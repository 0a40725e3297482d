"""What a worker gives to sinks, and in which threads: one that hangs holds up no other, and none for good."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.sinks.delivery import THREADS, Delivery
from headgate.core.batching.batch_progress import AT_WORK, QUEUED
from headgate.core.batching.batches import BatchInfo, Inline, SinkStage
from headgate.core.batching.sinking import SinkOwner


class Hangs(hg.Sink):
    """Waits with each batch until the test opens it."""

    def __init__(self, at_work: threading.Semaphore, gate: threading.Event) -> None:
        self.at_work, self.gate = at_work, gate

    def write(self, rows: Any, batch: Any) -> None:
        self.at_work.release()
        self.gate.wait()


class Kept(hg.Sink):
    """Keeps what it gets."""

    def __init__(self, into: list[Any]) -> None:
        self.into = into

    def write(self, rows: Any, batch: Any) -> None:
        self.into.append((batch.id, rows.to_pylist()))


@pytest.mark.asyncio
async def test_a_sink_that_hangs_takes_no_thread_from_another_and_is_given_up_when_it_is_called_off() -> None:
    """Eight batches of one sink hang, and the ninth waits. Those of another sink are written; and of the same one, when a hanging batch was
    called off, as at the release of its task."""
    at_work, gate, kept = threading.Semaphore(0), threading.Event(), list[Any]()
    delivery = Delivery()
    contents = Inline([delivery.encode([pa.table({"n": [7]})])])

    def begins(task: str, stage: str, make: Any) -> asyncio.Task[Any]:
        owner = SinkOwner("sales/1", "uuid", task, stage, 1, 0)
        batch = BatchInfo(task, f"{stage}-batches", 1, 1, "rows")
        stages = [SinkStage(stage, make, owner=owner)]
        return asyncio.get_running_loop().create_task(delivery.run(batch, contents, stages))

    def doing() -> dict[str, str]:
        return {name.partition("/")[0]: one.doing for name, one in delivery.seen().attempts.items()}

    async with asyncio.timeout(60):
        hanging = [begins(f"p{n}", "slow", lambda: Hangs(at_work, gate)) for n in range(THREADS)]
        for _ in hanging:
            await asyncio.to_thread(at_work.acquire)
        ninth = begins("p8", "slow", lambda: Kept(kept))
        await begins("p0", "quick", lambda: Kept(kept))
        assert [rows for _, rows in kept] == [[{"n": 7}]]
        assert doing() == {**{f"p{n}": AT_WORK for n in range(THREADS)}, "p8": QUEUED}
        assert not ninth.done()
        hanging[0].cancel()
        await begins("p9", "slow", lambda: Kept(kept))
        await ninth
        assert [rows for _, rows in kept] == [[{"n": 7}]] * 3
        assert doing() == {f"p{n}": AT_WORK for n in range(1, THREADS)}
        gate.set()
        await asyncio.gather(*hanging[1:])
        assert doing() == {}
        await delivery.close()
