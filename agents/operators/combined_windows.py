"""Combines the rows of a window before a shuffle: each commit sends one partial state per key and window, instead of every row.

A partial state consists of the end of its window, the number of its rows and the states; its frame carries the digest of the plan. No
row is late here: the window operator behind the shuffle decides that, for a whole partial state.
"""

from __future__ import annotations

from typing import Any

from ...core.progress.frames import NO_TIME
from ..job import steps as s
from ..records.arrow_frames import FrameWriter
from ..records.column_chunk import ColumnChunk
from ..records.record import Rows
from ..records.window_rows import rows_of_times
from .addends import refuse_nulls, too_large
from .key_arrays import KeyArrays
from .open_arrays import OpenArrays, addition_of, has_window_arrays, plan_of_partials
from .open_windows import OpenWindows, Tally
from .shuffles import PARTIAL, ShuffleOp
from .stateless import Env, blaming, encode


class WindowCombineOp(ShuffleOp):
    """The sending side of a shuffle that combines rows for the window operator behind it."""

    def __init__(self, step: s.ShuffleStep, env: Env) -> None:
        super().__init__(step, env)
        assert isinstance(step.combine, s.WindowStep)
        self.window = step.combine
        self.plan = step.combine.plan
        self.careful = False
        """A commit has failed on what was held back: partial states are now sent with each chunk, so that a failure belongs to a record."""
        self.partials: FrameWriter | None = None
        """Writes states of arrays; made when there are some."""
        self.in_arrays = has_window_arrays(self.window)
        self.tally = Tally()
        self.kept = self._empty()

    def _empty(self) -> OpenWindows | OpenArrays:
        spans = self.window.window.spans
        assert spans is not None
        if self.in_arrays:
            return OpenArrays(spans, plan_of_partials(self.window), None)
        self.tally = Tally()
        return OpenWindows(spans, self.plan, None, tally=self.tally)

    def push(self, rows: Rows) -> None:
        keys = self.keys_of(rows)
        if self.careful:
            self.kept = self._empty()
        assert isinstance(self.kept, OpenWindows)
        with blaming(self.window, self.plan.lacking(rows.values)):
            self.kept.take(keys, rows.timestamps, rows.values, NO_TIME)
            if self.careful:
                self.kept.prepare()
        self._send_if_careful()

    def push_columns(self, chunk: ColumnChunk) -> None:
        if not self.in_arrays:
            self.push(chunk.rows(sorted(self.reads(frozenset()))))
            return
        refuse_nulls(self.window, chunk)
        if self.careful:
            self.kept = self._empty()
        kept = self.kept
        assert isinstance(kept, OpenArrays)
        for end, rows in rows_of_times(kept.spans, chunk.times, chunk.picked, NO_TIME).open:
            part = chunk if rows is None else chunk.kept(rows)
            kept.take(end, addition_of(part, self.chunk_keys(part), end))
        if self.careful:
            self.prepare()
        self._send_if_careful()

    def _send_if_careful(self) -> None:
        if self.careful:
            self.kept.complete()
            self.seal()

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads | {str(self.shuffle_step.by)}

    def prepare(self) -> None:
        if isinstance(self.kept, OpenArrays) and self.kept.refused():
            raise too_large(self.window, None)
        with blaming(self.window):
            self.kept.prepare()

    def complete(self) -> None:
        self.kept.complete()

    def drop(self) -> None:
        self.kept.drop()

    def suspend(self) -> Any:
        return self.kept.suspend()

    def resume(self, aside: Any) -> None:
        self.kept.resume(aside)

    def seal(self) -> None:
        """Send what was held back."""
        kept, tally = self.kept, self.tally
        if not kept.open:
            return
        self.kept = self._empty()
        if isinstance(kept, OpenArrays):
            for end in kept.ends:
                self._send_arrays(kept.open[end].arrays)
        else:
            self._send_lists(kept, tally)

    def _send_lists(self, kept: OpenWindows, tally: Tally) -> None:
        step = self.shuffle_step
        keys: list[bytes | None] = []
        states: list[list[Any]] = []
        times: list[int] = []
        for end in kept.ends:
            window = kept.open[end].states
            keys += window
            counts = map(tally.rows[end].__getitem__, window)
            states += [[end, n, *state] for n, state in zip(counts, window.values(), strict=True)]
            times += map(tally.times[end].__getitem__, window)
        values = encode(step, PARTIAL, states)
        with blaming(step):
            self.env.shuffle(step.name, step.everyone, keys, times, values, plan=self.plan.digest)

    def _send_arrays(self, arrays: KeyArrays) -> None:
        step = self.shuffle_step
        changed = arrays.changed()
        keys, (states, times) = arrays.keys.keys(changed)[0], arrays.cells.take(changed)
        if self.partials is None:
            self.partials = FrameWriter(arrays.fields, arrays.pack_batch, plan=self.plan.digest)
        with blaming(step):
            self.env.shuffle_columns(step.name, step.everyone, self.partials, keys, times, arrays.batch(states))
