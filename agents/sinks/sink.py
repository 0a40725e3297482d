"""What a sink is: it opens, writes whole batches, commits each, and closes. The built-in ones are made in the same way.

    open → begin → write → commit → begin → … → close

What it may expect:

- One object serves one task and stage. It is called by one thread at a time, never that of the event loop, and batch after batch.
- A batch comes again, with the same id and the same rows, until `commit` has returned. Whatever raises, the object is closed, and another
  one is opened for the next attempt.
- What the target refuses for its rows is a `RowsRefused`, a target that is away a `TargetDown`, which is tried again for ever. All else is
  the sink's own failure.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...core.batching.failing import RowError
from ...core.batching.sinking import SinkBatch, SinkOwner
from ...core.errors import EnvironmentFault, HeadgateError


class Sink:
    """Base class of sinks: `stream.to_sink(Webhook, url="https://…")` makes one `Webhook(url=…)` for each task.

    A sink is at least once, unless it is `transactional`: then nothing of a batch has an effect before `commit`, `rollback` undoes it, and
    `begin` says whether the target has the batch already.
    """

    transactional: ClassVar[bool] = False

    def open(self, owner: SinkOwner) -> None:
        """Connect to the target. `owner` names the job, the task, and the grant under which the task runs; a greater grant is later."""

    def begin(self, batch: SinkBatch) -> str | None:
        """Begin a batch. Returns the note with which the target has committed it before, or None if it is to be written."""
        return None

    def write(self, rows: Any, batch: SinkBatch) -> None:
        """Write the rows of a batch, a `pyarrow.Table` with the declared columns."""
        raise NotImplementedError(f"{type(self).__name__}.write(rows, batch)")

    def commit(self, note: str) -> None:
        """Make the batch durable. Its target keeps the note together with the number of the batch, if it is transactional."""

    def rollback(self) -> None:
        """Undo what was written since `begin`. Only of a transactional sink."""

    def close(self) -> None:
        """Release everything, whatever has failed."""


class RowsRefused(RowError):
    """The target refuses rows of the batch. Which ones, is found out by halving the batch, if the sink is transactional."""


class TargetDown(EnvironmentFault):
    """The target does not answer, or cannot write now. The batch is not to blame, and is tried again for as long as it takes."""

    away = True


class TargetRefuses(HeadgateError):
    """The target refuses the statement, whatever the rows: a table or a column that it does not have, a type that does not fit."""

    final = True
