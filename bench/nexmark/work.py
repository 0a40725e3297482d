"""A query as a job: `headgate run bench.nexmark.work:app`. Variables say which one, and its topics."""

from __future__ import annotations

import os
from pathlib import Path

import headgate as hg

from .queries import QUERIES
from .queries.records import Topics

app = hg.App(os.environ["NEXMARK_JOB"])
QUERIES[os.environ["NEXMARK_QUERY"]].build(
    app,
    Topics(
        os.environ["NEXMARK_PERSON"],
        os.environ["NEXMARK_AUCTION"],
        os.environ["NEXMARK_BID"],
        os.environ["NEXMARK_OUT"],
        Path(os.environ["NEXMARK_SIDE"]),
    ),
)
