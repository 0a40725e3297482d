"""Counts and sums by user and window of 10 s in event time. `headgate run windows_work:app`."""

from __future__ import annotations

import os

import headgate as hg

app = hg.App(os.environ["BENCH_JOB"])
events = app.input(os.environ["BENCH_SOURCE"], key="user", timestamp="ts")
windows = events.window(hg.tumbling("10s", grace=os.environ["BENCH_GRACE"]), name="windows")
windows.agg(n=hg.count(), total=hg.sum("amount")).to(os.environ["BENCH_TARGET"])
