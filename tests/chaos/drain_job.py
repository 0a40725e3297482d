"""The job that is drained and stopped again and again: every record copied behind a shuffle, and counted in windows."""

from __future__ import annotations

import os

import headgate as hg

app = hg.App(os.environ["CHAOS_JOB"])
by_key = app.input(os.environ["CHAOS_INPUT"]).repartition("key")
by_key.to(os.environ["CHAOS_COPIES"])
windows = by_key.window(hg.tumbling("2s", grace="1s"), late=os.environ["CHAOS_LATE"], name="windows")
windows.agg(n=hg.count(), total=hg.sum("amount")).to(os.environ["CHAOS_WINDOWS"])
