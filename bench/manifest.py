"""The manifest of files: how large it is, and how long a reader takes, after so many batches.

    python -m bench manifest [--batches 30000 300000] [--keep 30d]     of one task, a batch a minute, with two directories in each

The entries are made and merged as the publisher of a task does it, on the local disk, without the files of rows that they name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from headgate.core.batching.manifest import ManifestEntry, merged, to_merge
from headgate.core.batching.publishing import HOME, Keep, SeriesPaths, Undone, series_name
from headgate.core.settings import duration_ms
from headgate.spark_bridge.data.files import LocalFiles
from headgate.spark_bridge.data.forget import Forgetter
from headgate.spark_bridge.data.publish import published

BATCHES = (30_000, 300_000)
EVERY_MS = 60_000
BEGIN_MS = 1_767_225_600_000
HOUR = 60
"""So many batches come in an hour, which is how often old ones are forgotten where their files stay for a day."""


class Unsynced(LocalFiles):
    """What is written need not survive a power cut here."""

    def put(self, path: str, text: str) -> None:
        """Write a file."""
        where = self._path(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)


def entry(layout: SeriesPaths, number: int) -> ManifestEntry:
    """A batch of a minute."""
    at_ms = BEGIN_MS + number * EVERY_MS
    day = time.strftime("%Y-%m-%d", time.gmtime(at_ms / 1000))
    found = [(f"day={day}/country={one}/part-0-c000.snappy.parquet", 48_211 + number % 997) for one in ("DE", "FR")]
    made = ManifestEntry(
        "sales/1", "revenue", "Partition 0", f"Partition 0/batch/{number}", number, uuid.uuid4().hex, 9000 + number % 1000, "age",
        files=layout.files(number, found), earliest_ms=at_ms + number % 7, latest_ms=at_ms + EVERY_MS - 1 - number % 11,
    )  # fmt: skip
    return made.published()


def filled(top: Path, batches: int, keep: Keep | None) -> int:
    """Write the manifest of so many batches, and forget what is not kept; how many bytes it has."""
    layout = SeriesPaths(f"file://{top}", series_name("sales/1", "revenue", "Partition 0", BEGIN_MS))
    files, names = Unsynced(), set[str]()
    for number in range(1, batches + 1):
        files.put(layout.entry(number), f"{entry(layout, number).line()}\n")
        names.add(layout.entry(number).rpartition("/")[2])
        while due := to_merge(names):
            name, text = merged({one: files.read(f"{layout.manifest}/{one}") or "" for one in due})
            files.put(f"{layout.manifest}/{name}", text)
            for one in due:
                files.delete(f"{layout.manifest}/{one}")
            names = names - set(due) | {name}
        if keep is not None:
            at_ms = BEGIN_MS + number * EVERY_MS
            forget(Forgetter(files, layout), layout, keep, at_ms, Undone(number + 1, frozenset({number})))
            names = set(files.names(layout.manifest)) if number % HOUR == 0 else names
    return sum(one.stat().st_size for one in (top / HOME).rglob("*.json"))


def forget(forgetter: Forgetter, layout: SeriesPaths, keep: Keep, at_ms: int, undone: Undone) -> None:
    """As the publisher does it, which looks after each batch: here, each hour."""
    if (at_ms - BEGIN_MS) // EVERY_MS % HOUR == 0:
        names = forgetter.files.names(layout.manifest)
        forgetter.forget_sometimes(names, keep.cutoff_ms(at_ms, at_ms), keep.delete_after_ms, at_ms, undone)
        forgetter.delete_old(forgetter.files.names(layout.manifest), keep.delete_after_ms, at_ms)


def took(top: Path, **wanted: Any) -> tuple[float, int]:
    """Seconds, and files that were given."""
    began = time.perf_counter()
    found = published(top, **wanted)
    return time.perf_counter() - began, len(found)


def main() -> int:
    """Fill and read."""
    options = argparse.ArgumentParser(prog="python -m bench manifest")
    options.add_argument("--batches", type=int, nargs="*", default=BATCHES)
    options.add_argument("--keep", default="30d")
    given = options.parse_args()
    kept = Keep(duration_ms(given.keep), duration_ms("1d"))
    for batches, keep in ((one, keep) for one in given.batches for keep in (None, kept)):
        with tempfile.TemporaryDirectory(prefix="headgate-manifest-") as top:
            size = filled(Path(top), batches, keep)
            which = "all kept" if keep is None else f"keep={given.keep}"
            print(f"{batches} batches, {which}: {size / 1e6:.1f} MB, {size / batches:.0f} bytes a batch", flush=True)
            last = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(1_767_225_600 + 60 * (batches - 1440)))
            for what, wanted in (
                ("all", {}),
                ("the last day", {"since": last}),
                ("one country", {"where": {"country": "DE"}}),
            ):
                seconds, found = took(Path(top), **wanted)
                print(f"  {what}: {found} files in {seconds:.2f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
