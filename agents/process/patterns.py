"""Which topics the patterns of a job mean, asked before its graph is made.

A run that is not over has the topics with which it began, and a worker that joins it has the same: what has come since stands in the run
(`SetRun.joined`). The next run begins with those that match then.
"""

from __future__ import annotations

from ...core.coordination.messages import OVER
from ...core.errors import NotFound
from ...core.graph.patterned import read_by_run
from ..job.declare.app import App
from ..job.derive.patterns import patterns_of
from ..kafka.connect import CONNECT_S
from ..kafka.topics import TopicsAdmin
from .configuration import Configuration
from .reading import folded


async def find_topics(app: App, configuration: Configuration) -> None:
    """Look which topics there are, if the job reads any by a pattern."""
    app.finish()
    patterns = [step.pattern for step in patterns_of(app.steps)]
    if not patterns:
        return
    admin = TopicsAdmin(configuration.client)
    await admin.start(deadline_s=CONNECT_S)
    try:
        there = await admin.names()
    finally:
        await admin.stop()
    app.found = tuple(there)
    if app.topics.coordinator not in there:
        return
    try:
        run = (await folded(configuration.client, app.topics)).run
    except NotFound:  # it belongs to another job: who starts the worker says so
        return
    if run is not None and run.state not in OVER and (own := read_by_run(run.fingerprint, patterns)):
        app.found = tuple(own)
