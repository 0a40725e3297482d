"""A query as a job: `headgate run bench.nexmark.work:app`. Variables say which one, and its topics."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import headgate as hg

from .queries import QUERIES
from .queries.records import Topics

app = hg.App(os.environ["NEXMARK_JOB"])
_given = {one.name: os.environ.get(f"NEXMARK_{one.name.upper()}") for one in fields(Topics) if one.name != "side"}
_topics = Topics(**{name: topic for name, topic in _given.items() if topic}, side=Path(os.environ["NEXMARK_SIDE"]))
QUERIES[os.environ["NEXMARK_QUERY"]].build(app, _topics)
