"""Combines the rows of a window before a shuffle: each commit sends one partial state per key and window, instead of every row.

A partial state consists of the end of its window, the number of its rows and the states; its frame carries the digest of the plan. No
row is late here: the window operator behind the shuffle decides that, for a whole partial state.
"""

from __future__ import annotations

from typing import Any

from ...core.progress.frames import NO_TIME
from ..job import steps as s
from ..records.column_chunk import ColumnChunk
from ..records.record import Rows
from .keyed import PARTIAL, ShuffleOp
from .open_windows import OpenWindows, Tally
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
        self.tally = Tally()
        self.kept = self._empty()

    def _empty(self) -> OpenWindows:
        assert self.window.window.spans is not None
        self.tally = Tally()
        return OpenWindows(self.window.window.spans, self.plan, None, tally=self.tally)

    def push(self, rows: Rows) -> None:
        keys = self.keys_of(rows)
        if self.careful:
            self.kept = self._empty()
        with blaming(self.window, self.plan.lacking(rows.values)):
            self.kept.take(keys, rows.timestamps, rows.values, NO_TIME)
            if self.careful:
                self.kept.prepare()
        if self.careful:
            self.kept.complete()
            self.seal()

    def push_columns(self, chunk: ColumnChunk) -> None:
        self.push(chunk.rows(sorted(self.reads(frozenset()))))

    def reads(self, behind: frozenset[str]) -> frozenset[str]:
        return self.plan.reads | {str(self.shuffle_step.by)}

    def prepare(self) -> None:
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
        if not self.kept.open:
            return
        kept, tally, step = self.kept, self.tally, self.shuffle_step
        self.kept = self._empty()
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
