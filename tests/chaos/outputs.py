"""What leaves a tormented job by other ways than Kafka: rows in a database and in files, behind a service that is asked and keys that are
sick for a while. The job declares it (`declared`), and its account (`Leaving`) says what is lost, doubled or out of order.

One key in four leaves. One in forty is sick: for two seconds of every four its records fail, and park. So at any time records wait, in the
order of their key, and go on later, through kills, moves and zombies. The service fails now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import pyarrow.dataset as ds

import headgate as hg

LEAVES, SICK = 4, 40
"""One key in so many leaves; one in so many is sick."""
SICK_S = 2.0
TABLE = "named"


class Named(TypedDict):
    """A row of the outputs."""

    key: str
    seq: int
    half: int
    name: str


class Sick(Exception):
    """Not now."""


def leaves(value: Mapping[str, Any]) -> bool:
    """Whether the records of a key leave."""
    return int(value["key"][1:]) % LEAVES == 0


def checked(value: dict[str, Any]) -> dict[str, Any]:
    """The value, unless its key is sick."""
    if int(value["key"][1:]) % SICK == 0 and time.time() % (2 * SICK_S) < SICK_S:
        raise Sick(value["key"])
    return value


async def name_of(key: str) -> str:
    """What the service answers."""
    await asyncio.sleep(0.001)
    if random.random() < 0.01:
        raise ConnectionError("away")
    return key.upper()


def named(value: dict[str, Any], name: str) -> Named:
    """The row of a record."""
    return {"key": value["key"], "seq": value["seq"], "half": value["seq"] % 2, "name": name}


def declared(records: Any) -> None:
    """Let records leave, if the environment says where to. Their stream is their own: a record that parks is late in windows, too."""
    if "CHAOS_NAMED" not in os.environ:
        return
    rows = (
        records.filter(leaves)
        .repartition("key", name="leaving")
        .map(checked, on_error=hg.park(after="500ms", times=1_000_000))
        .lookup(name_of, on="key", into=named, cache="1s")
    )
    rows.to(os.environ["CHAOS_NAMED"])
    rows.to_sql(os.environ["CHAOS_SQL"], TABLE, rows=Named, max_age="300ms")
    rows.to_files(os.environ["CHAOS_FILES"], rows=Named, partition_by="half", max_age="1s")


class Leaving:
    """Where the rows go, and what is there."""

    def __init__(self, job: str, url: str, top: Path) -> None:
        self.topic, self.url, self.files = f"{job}-named", url, top / "files"
        self.names = {"CHAOS_NAMED": self.topic, "CHAOS_SQL": url, "CHAOS_FILES": str(self.files)}

    def _ask(self, statement: str) -> list[Any]:
        if self.url.startswith("sqlite"):
            with sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=60) as link:
                return link.execute(statement).fetchall()
        import psycopg

        with psycopg.connect(self.url) as link:
            return link.execute(statement.encode()).fetchall()

    def complete(self, made: int) -> bool:
        """Whether so many rows are in the table and in files of whole batches."""
        if self._ask(f"SELECT count(*) FROM {TABLE}")[0][0] < made or not self.files.exists():
            return False
        return self._files().count_rows() >= made

    def _files(self) -> Any:
        return ds.dataset(hg.published(self.files), format="parquet")

    def _rows(self) -> Iterator[tuple[str, Iterable[tuple[str, int]]]]:
        """Key and number of the rows in the table and in the files."""
        yield "table", self._ask(f"SELECT key, seq FROM {TABLE} ORDER BY seq")
        table = self._files().to_table(columns=["key", "seq"]).sort_by("seq")
        yield "files", zip(table["key"].to_pylist(), table["seq"].to_pylist(), strict=True)

    def wrong(self, true: Mapping[str, int], in_topic: Iterable[Named]) -> list[str]:
        """What differs from an input that has so many records of each key: in the topic in their order, in the others each one once."""
        true, bad = {key: n for key, n in true.items() if leaves({"key": key})}, list[str]()

        def told() -> Iterator[tuple[str, int]]:
            for row in in_topic:
                yield row["key"], row["seq"]
                if row["name"] != row["key"].upper():
                    bad.append(f"topic: {row} has the name of another one")

        for where, rows in [("topic", told()), *self._rows()]:
            seen: dict[str, list[int]] = defaultdict(list)
            for key, seq in rows:
                seen[key].append(seq)
            bad += [
                f"{where}: {_explained(key, seen[key], n)}" for key, n in true.items() if seen[key] != list(range(n))
            ]
            bad += [f"{where}: {key} was never in the input" for key in seen if key not in true]
        return bad


def _explained(key: str, found: list[int], wanted: int) -> str:
    lost, doubled = set(range(wanted)) - set(found), [seq for seq, times in Counter(found).items() if times > 1]
    return f"of {wanted} rows of {key}, {len(lost)} are lost {sorted(lost)[:3]}, {len(doubled)} doubled {doubled[:3]}"


@contextlib.contextmanager
def somewhere(top: Path) -> Iterator[Callable[[str], Leaving]]:
    """Where a job leaves to: a PostgreSQL of its own, or, where there is none, a file of SQLite."""
    import pytest

    from tests import postgres

    top.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(postgres.running()).database()
        except pytest.skip.Exception:
            url = f"sqlite:///{top}/out.db"
        yield lambda job: Leaving(job, url, top)
