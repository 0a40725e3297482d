"""Files of old batches on a real broker: the worker is killed while it forgets and deletes, and every row is in the files once as long as
it is kept. All other steps: `tests/spark_bridge/data/test_forget.py`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyarrow import fs

import headgate as hg
from headgate.core.batching.forgetting import ForgottenNote, notes
from headgate.spark_bridge.data.files import files_of
from headgate.spark_bridge.data.publish import manifest

from ..s3 import BUCKET, Store
from ..s3 import running as s3_running
from .scenes import KILLED_AT

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]
Topic = Callable[..., str]
PATIENCE_S = 120.0
KEPT = 60
"""The rows of so many seconds are kept, and each row is a second later than the one before."""

STEPS = (
    KILLED_AT
    + """
import headgate as hg
from headgate.spark_bridge.data.files import ArrowFiles, LocalFiles
from headgate.spark_bridge.data.forget import Forgetter

with_files = lambda name: name.startswith("forgotten-") and "-0-" not in name
around(Forgetter, "_put", never, lambda name, _: "noted" if with_files(name) else "")
for one in (LocalFiles, ArrowFiles):
    around(one, "delete", never, lambda path: "deleting" if "/country=" in path and "/_headgate/" not in path else "")

from typing import TypedDict
Order = TypedDict("Order", {"country": str, "n": int, "ts": int})
app = hg.App("JOB", serde=hg.json())
orders = app.input("SOURCE", serde=hg.json(Order), key="n", timestamp="ts")
orders.to_files("OUT", partition_by="country", max_rows=10, max_age="300ms", keep="60s", delete_after="2s")
"""
)


def orders(count: int, start: int) -> list[dict[str, Any]]:
    """Numbered orders of three countries, each a second after the one before."""
    return [{"country": ("DE", "FR", "IT")[n % 3], "n": n, "ts": n * 1000} for n in range(start, start + count)]


class Lake:
    """What is in a directory, or in a bucket."""

    def __init__(self, target: str, store: Store | None) -> None:
        self.target, self.store = target, store
        self.files = files_of(target if store else f"file://{target}")

    def rows(self) -> list[int]:
        """The numbers of all orders in whole batches."""
        begun = self.files.names(f"{self.target if self.store else f'file://{self.target}'}/_headgate")
        return self._rows([one.removeprefix("s3://") for one in hg.published(self.target)] if begun else [])

    def _rows(self, files: list[str]) -> list[int]:
        if not files:
            return []
        system = fs.FileSystem.from_uri(self.target)[0] if self.store else None
        return sorted(ds.dataset(files, filesystem=system).to_table(["n"])["n"].to_pylist())

    def through(self, written: int) -> bool:
        """Whether the last of so many orders is in a whole batch."""
        found = manifest(self.files, self._top.removesuffix("/_headgate"))
        return max((one.latest_ms or 0 for one in found), default=0) >= (written - 1) * 1000

    def seen(self) -> set[str]:
        """The files that plain readers see, from the target on."""
        if self.store:
            top = self.target.removeprefix(f"s3://{BUCKET}/") + "/"
            found = [one.removeprefix(top) for one in self.store.keys(top)]
        else:
            found = [one.relative_to(self.target).as_posix() for one in Path(self.target).rglob("*") if one.is_file()]
        return {one for one in found if not one.startswith("_headgate/")}

    def staged(self) -> list[tuple[str, int]]:
        """What is left in staging."""
        return self.files.found(f"{self._top}/staging")

    @property
    def _top(self) -> str:
        return f"{self.target if self.store else 'file://' + self.target}/_headgate"

    def check(self) -> None:
        """Each batch of each task is listed or forgotten, and plain readers see the files of those that are listed or wait."""
        seen = set[str]()
        listed = manifest(self.files, self._top.removesuffix("/_headgate"))
        for series in self.files.names(f"{self._top}/manifest"):
            where = f"{self._top}/manifest/{series}"
            found = [
                ForgottenNote.read(self.files.read(f"{where}/{name}") or "") for name in notes(self.files.names(where))
            ]
            own = [entry for entry in listed if any(series in file.path for file in entry.files)]
            gone = {n for note in found for first, last in note.numbers.ranges for n in range(first, last + 1)}
            numbers = {entry.number for entry in own}
            assert (gone & numbers, gone | numbers) == (set(), set(range(1, max(numbers) + 1)))
            waiting = [entry for note in found for entry in note.waiting]
            seen |= {file.path for entry in (*own, *waiting) for file in entry.files}
        assert self.seen() == seen


async def until(true: Callable[[], bool]) -> None:
    """Wait until something outside has happened."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(true):  # noqa: ASYNC110 - it is another process that writes
            await asyncio.sleep(0.1)


@pytest.fixture(params=["files", "objects"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """An empty directory, or bucket, that workers reach, too."""
    with s3_running() if request.param == "objects" else nullcontext() as store:
        for name, value in (store.environment if store else {}).items():
            monkeypatch.setenv(name, value)
        yield Lake(f"s3://{BUCKET}/{tmp_path.name}" if store else str(tmp_path / "out"), store)


async def test_kill_9_at_each_step_and_what_is_kept_is_there_once(job: Any, topic: Topic, lake: Lake) -> None:
    """After the note, and while files are deleted. Nothing comes back, nothing is written again, and nothing is left over; no row that is
    young enough is missing."""
    source = topic("orders", partitions=2)
    code = STEPS.replace("SOURCE", source).replace("OUT", lake.target)
    await job.write(source, orders(100, 0))
    written = 100
    for step in ("deleting",) if lake.store else ("noted", "deleting"):
        worker = await job.process(code, "w1", AT=step)
        async with asyncio.timeout(PATIENCE_S):
            while worker.process.returncode is None:  # a batch that is published is what moves time on
                await job.write(source, orders(20, written))
                written += 20
                await until(lambda: worker.process.returncode is not None or lake.through(written))  # noqa: B023
        assert await worker.ended(PATIENCE_S) == -signal.SIGKILL, f"{step}: {worker.text()[-3000:]}"
    last = await job.process(code, "w1")
    await job.write(source, orders(100, written))
    written += 100
    await until(lambda: lake.through(written))
    await job.ask("drain", timeout_s=PATIENCE_S)
    assert await last.ended(PATIENCE_S) == 0
    rows = await asyncio.to_thread(lake.rows)
    assert len(rows) == len(set(rows))
    assert rows[-KEPT:] == list(range(written - KEPT, written))
    assert len(rows) < written / 2
    await asyncio.to_thread(lake.check)
    assert await asyncio.to_thread(lake.staged) == []
    assert "old batches are forgotten" in last.text()
