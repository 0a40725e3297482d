"""What a manifest says of an attempt, whoever has written its files."""

from __future__ import annotations

from headgate.core.batching.batches import ROWS, BatchInfo, manifest_entry
from headgate.core.batching.publishing import declared_write


def test_an_entry_names_the_batch_and_its_window() -> None:
    batch = BatchInfo("Partition 0", "daily", 7, 1000, ROWS, window_start=0, window_end=60_000)
    entry = manifest_entry(declared_write("/lake/orders", "parquet", (), None), batch, "daily-write", "5f")
    assert (entry.batch, entry.stage, entry.number, entry.attempt) == ("Partition 0/daily/7", "daily-write", 7, "5f")
    assert (entry.task, entry.batch_rows, entry.closed_by) == ("Partition 0", 1000, ROWS)
    assert (entry.window_start, entry.window_end) == (0, 60_000)
