"""The jobs of one attempt: marked when they start, so that they can be cancelled together.

On a session of this process and on a cluster, the mark is a job group, and one call cancels what runs and whatever the attempt submits
later. On Spark Connect it is a tag; a server that does not answer cancels nothing. Neither can end a function that waits for something
outside of Spark.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from .threads import off_the_loop

REASON = "headgate has cancelled the batch"


def is_connect(session: Any) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


@dataclass(slots=True)
class Jobs:
    """One attempt at a batch. `session` is None until there is one."""

    batch: str
    pool: str
    group: str = field(default_factory=lambda: f"headgate-{uuid.uuid4().hex[:12]}")
    session: Any = None
    called_off: bool = False

    def begin(self, session: Any) -> None:
        """Mark all jobs that this thread starts from here on."""
        off_the_loop()
        self.session = session
        if is_connect(session):
            session.clearTags()
            session.addTag(self.group)
            session._active_session.session = session  # what functions of PySpark find in this thread
            return
        context = session.sparkContext
        context.setJobGroup(self.group, f"headgate batch {self.batch}", interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", self.pool)

    def cancel(self) -> None:
        """Cancel what runs, and what will be submitted."""
        off_the_loop()
        session = self.session
        if session is None:
            return
        if is_connect(session):
            session.interruptTag(self.group)
        else:
            session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self.group, REASON)
