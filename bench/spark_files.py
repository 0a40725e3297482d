"""The results of work P in files: which of them are published, since when, and what is in them.

What it decides: a file counts from when its readers find it: by `hg.published` for headgate, in the log of the file sink for Structured
Streaming. So what no reader should see yet is no result. `look` is called again and again while a program runs, and a time is late by as
much as the bench waits between two calls, for every program alike.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as parquet

import headgate as hg
from headgate.core.errors import HeadgateError

from .tumbling import Result

LOG = "_spark_metadata"
"""Where Structured Streaming says which files count."""


@dataclass
class Published:
    """The files of one program."""

    directory: Path
    since: dict[str, float] = field(default_factory=dict)
    """When each file was found (wall, s)."""
    rows: int = 0
    _read: set[str] = field(default_factory=set)

    def look(self) -> int:
        """Find new files. Returns how many rows all have."""
        now = time.time()
        for one in self._named():
            if one not in self.since:
                self.since[one] = now
                self.rows += parquet.read_metadata(one).num_rows
        return self.rows

    def results(self) -> list[Result]:
        """What is in all of them."""
        found: list[Result] = []
        for path, at in self.since.items():
            columns = parquet.ParquetFile(path).read().to_pydict()
            wanted = (columns[name] for name in ("user", "window_end", "n", "total"))
            found += [Result(at * 1000, *row) for row in zip(*wanted, strict=True)]
        return found

    def _named(self) -> list[str]:
        log = self.directory / LOG
        if not log.exists():
            try:
                return hg.published(self.directory)
            except HeadgateError:  # nothing was written yet
                return []
        found: list[str] = []
        for entry in sorted(log.glob("[0-9]*")):
            if entry.name in self._read:
                continue
            added = [json.loads(line) for line in entry.read_text().splitlines()[1:]]
            found += [unquote(urlparse(one["path"]).path) for one in added if one["action"] == "add"]
            if not entry.name.endswith(".compact"):
                self._read.add(entry.name)
        return found
