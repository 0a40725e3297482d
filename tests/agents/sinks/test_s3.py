"""Rows into files of a store that speaks S3, on the test driver: whole batches, by partition and by time, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import headgate as hg

from ...s3 import BUCKET, Store, running


class Order(TypedDict):
    country: str
    n: int


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket, which this process reaches."""
    with running() as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


def rows_of(files: list[str]) -> list[int]:
    system, _ = fs.FileSystem.from_uri(files[0])
    tables = [pq.read_table(one.removeprefix("s3://"), filesystem=system, partitioning=None) for one in files]
    return sorted(n for table in tables for n in table["n"].to_pylist())


def test_rows_are_in_the_objects_of_whole_batches_once(store: Store) -> None:
    app = hg.App("sales", serde=hg.json())
    target = f"s3://{BUCKET}/orders"
    app.input("orders", serde=hg.json(Order)).to_files(target, partition_by="country", max_rows=10)
    with hg.testing.Driver(app) as d:
        for n in range(35):
            d.send("orders", {"country": ("DE", "FR/x")[n % 2], "n": n}, at=n * 1000)
        d.drain()
    files = hg.published(target)
    assert (len(files), rows_of(files)) == (8, list(range(35)))
    assert rows_of(hg.published(target, where={"country": "FR/x"}, since=30_000)) == [31, 33]
    kept = store.keys("orders/")
    assert sorted(f"s3://{BUCKET}/{one}" for one in kept if "_headgate" not in one) == sorted(files)
    assert [one for one in kept if "/staging/" in one] == []
