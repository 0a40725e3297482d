"""`.frame(fn)`: a function of a frame, in whatever library it works.

A chunk is handed over as one frame, and what the function returns is taken over and checked against the declared schema. A function that
raises, or returns another frame than it should, is an error of this step; the records to blame are found by shorter and shorter frames. A
function that returns no frame at all is wrong for every record, so no policy applies to that.
"""

from __future__ import annotations

from typing import Any

from ...job.steps.columns import FrameStep
from ...logger import Logger
from ...records.columns.arrow_take import columns_of_frame
from ...records.columns.frame_libraries import frames_like
from ...records.columns.framed_columns import HIDDEN, ROW, chunk_of, frame_of, keeps_origin
from ...records.columns.logical_arrow import arrow_batch, logical_in, stored_frame
from ...records.columns.records import Records
from ..base.stateless import Env, Operator, blaming

log = Logger("headgate.frames")


class FrameOp(Operator):
    """Calls a function with the frame of each chunk."""

    def __init__(self, step: FrameStep, env: Env) -> None:
        super().__init__(step, env)
        self.frame = step
        self.make = frames_like(step.like)
        self.logged = False

    def _frame(self, rows: Records) -> Any:
        made, schema = frame_of(rows, self.frame.schema), self.frame.schema
        return arrow_batch(made, logical_in(schema.columns)) if schema.logical else made

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return frozenset(self.frame.schema.names)

    def push(self, rows: Records) -> None:
        step = self.frame
        with blaming(step):
            frame = step.fn(self.make(self._frame(rows)))
            frame = stored_frame(frame, step.gives.columns) if step.gives.logical else frame
            returned = columns_of_frame(frame, step.gives.columns, HIDDEN)
            made = chunk_of(returned, rows, step.gives)
        if not self.logged and not keeps_origin(returned):
            self.logged = True
            same = returned.length == len(rows)
            own = "those of the rows in their places" if same else "the greatest timestamp of their chunk, and no key"
            log.info(
                f"the frame has no {ROW}: its rows get {own}", step=f"{step.verb} ({step.where})", task=self.env.task
            )
        self.forward(made)
