"""Combines the rows of a window before a shuffle: each commit sends one partial state per key and window, instead of every row.

Hopping windows share their rows, so one state is sent per key and *pane* (`Spans.panes`): all rows of a pane belong to the same windows.
The pane of a tumbling window is the window.

A partial state consists of the end of its pane, the number of its rows and the states; its frame carries the digest of the plan. Its time
is the greatest of its rows. No row is late here: the window operator behind the shuffle decides that, for a whole partial state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, cast

from ....core.progress.frames import NO_TIME
from ....core.windows.results import END_FIELD
from ...job.steps.keyed import WindowStep
from ...job.steps.sources import ShuffleStep
from ...job.types.aggregates import AggregatePlan, count
from ...job.types.aggregates import max as greatest
from ...records.columns.records import Records
from ...records.columns.window_rows import rows_of_times
from ...records.frames.arrow_frames import FrameWriter
from ...records.layout import Buffer, Kind
from ...records.memory.taking import join, spans_of, take_spans
from ...records.memory.vectors import Vector
from ..base.addends import Addends, ColumnAddends
from ..base.key_arrays import KeyArrays
from ..base.stateless import Env, blaming, encode_made
from ..shuffle.shuffles import PARTIAL, ShuffleOp
from .open_windows import OpenWindows
from .window_states import ArrayWindow

ROWS_FIELD = "window-rows"
"""The name of the number of rows in a partial state of a pane: no identifier, so no aggregate has it."""


def plan_of_partials(step: WindowStep, *, ends: bool = True) -> AggregatePlan:
    """The number of rows of a pane and the states, behind the end of the pane: what is sent. Without the ends: what is kept."""
    parts = dict(zip(step.plan.names, step.plan.parts, strict=True))
    end = {END_FIELD: greatest(END_FIELD)} if ends else {}
    return AggregatePlan({**end, ROWS_FIELD: count(), **parts}, step.plan.schema)


class WindowCombineOp(ShuffleOp):
    """The sending side of a shuffle that combines rows for the window operator behind it."""

    names_origins = False
    of_letter = ("kept",)

    def __init__(self, step: ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        self.window: WindowStep = cast("WindowStep", step.combine)
        self.plan = self.window.plan
        self.counting = plan_of_partials(self.window, ends=False)
        self.in_arrays = self.window.in_arrays
        self.in_frames = self.in_arrays and self.plan.numeric
        if self.in_frames:
            self.sent = KeyArrays(plan_of_partials(self.window))
            self.partials = FrameWriter(self.sent.fields, self.sent.pack_batch, plan=self.plan.digest)
        self.kept = self._empty()

    def _empty(self) -> OpenWindows:
        spans = self.window.window.spans
        assert spans is not None
        assert spans.panes is not None
        return OpenWindows(spans.panes, self.counting, None, arrays=self.in_arrays, timed=True)

    def push(self, rows: Records) -> None:
        if rows.vectors is not None:
            if self.in_arrays:
                self._take(ColumnAddends(self.window, rows, self.chunk_keys), rows.times, rows.picked)
                return
            keys = self.keys_of_columns(rows)
            rows = rows.of_columns(sorted(self.reads(frozenset())))
        else:
            keys = self.keys_of(rows)
        of = Addends(self.window, keys, rows.values, rows.timestamps)
        self._take(of, array("q", rows.timestamps), None)

    def _take(self, of: Addends | ColumnAddends, times: Buffer, rows: Buffer | None) -> None:
        if self.careful:
            self.kept = self._empty()
        with of.blaming():
            self.kept.take(rows_of_times(self.kept.spans, times, rows, NO_TIME), of)
            if self.careful:
                self.kept.prepare()
        if self.careful:
            self.kept.complete()
            self.seal()

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads | {str(self.shuffle_step.by)}

    def prepare(self) -> None:
        with blaming(self.window):
            self.kept.prepare()

    def complete(self) -> None:
        self.kept.complete()

    def drop(self) -> None:
        self.kept.drop()

    def seal(self) -> None:
        """Send what was held back."""
        kept = self.kept
        if not kept.open.ends:
            return
        self.kept = self._empty()
        self._send_arrays(kept)
        self._send_lists(kept)

    def _send_lists(self, kept: OpenWindows) -> None:
        step = self.shuffle_step
        keys: list[bytes | None] = []
        times: list[int] = []
        listed: list[tuple[int, Iterable[list[Any]]]] = []
        for end in kept.open.ends:
            window = kept.open.live[end]
            if not isinstance(window, ArrayWindow):
                keys += window.states
                times += map(window.times.__getitem__, window.states)
                listed.append((end, window.states.values()))
            elif not self.in_frames:
                found = window.arrays.listed()
                keys += found[0]
                times += found[2]
                listed.append((end, found[1]))
        if not keys:
            return
        values = encode_made(step, PARTIAL, lambda: ([end, *one] for end, of in listed for one in of))
        with blaming(step):
            self.env.shuffle(step.name, step.everyone, keys, times, values, plan=self.plan.digest)

    def _send_arrays(self, kept: OpenWindows) -> None:
        """Send the states of all windows together: a frame for each window would have few rows."""
        step = self.shuffle_step
        together: dict[tuple[Kind, ...], list[tuple[Vector, Buffer, list[Vector]]]] = {}
        for end in kept.open.ends:
            window = kept.open.live[end]
            if not isinstance(window, ArrayWindow) or not self.in_frames:
                continue
            changed = window.arrays.changed()
            keys = take_spans(window.arrays.keys.keys(changed)[0])
            found, times = window.arrays.cells.take(changed)
            states: list[Any] = found
            ends = Vector("int64", keys.length, array("q", [end]) * keys.length)
            together.setdefault(tuple(one.kind for one in states), []).append((keys, times, [ends, *states]))
        for parts in together.values():
            keys = spans_of(join([keys for keys, _, _ in parts]))
            times = b"".join(times for _, times, _ in parts)
            named = self.sent.named([join(column) for column in zip(*(states for _, _, states in parts), strict=True)])
            with blaming(step):
                of = Records.of_vectors(named, times, key_spans=keys)
                self.env.shuffle_columns(step.name, step.everyone, self.partials, of)
