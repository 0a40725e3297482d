"""Which letter the operators get next: watermark, end, drain, due work, and the last one.

What the reconciliation knows (`progress`) and what the operators have heard (`:heard` in the ledger) differ, and a letter is the
difference. It counts as *heard* with its last step, in the same commit as the effects of that step. So a crash between two steps leads to
the same letter again, and after its last step it never comes again.

Order: for each stream, the last watermark before the drain or the end, and what steps hear because it has ended before they hear the end;
streams in the order of the plan. Then steps whose time advances without a
newer time of a stream (a stream has ended or is idle; or the step before them has heard a newer time, or owes less). Then due work. Then,
when all inputs that count have ended or drained, one letter for the whole task (`stream` is None). A letter carries the time of each step
that it advances, and the time is stored with it.
"""

from __future__ import annotations

from collections import deque

from ..progress.frames import MAX_TIME
from ..progress.producers import StreamPhase
from .inputs import Inputs
from .protocol import DRAIN, END, WATERMARK, RunStep, WorkDue
from .time import NOTHING_HEARD, Heard, TaskTime


class Letters:
    """The letters that wait."""

    def __init__(self, inputs: Inputs, time: TaskTime) -> None:
        self.inputs = inputs
        self.time = time
        self.number = 0
        self.due: set[str] = set()
        """Streams whose newer time is due."""
        self.work: deque[WorkDue] = deque()

    def newer_time(self) -> list[str]:
        """The streams with a newer time than the operators have heard."""
        progress = self.inputs.progress
        return [
            one.stream
            for one in self.inputs.counted
            if progress.watermark(one.stream) > self.time.heard.get(one.stream, NOTHING_HEARD).ts
            and self.time.heard.get(one.stream, NOTHING_HEARD).status == StreamPhase.OPEN
        ]

    def next(self, hooks: frozenset[str]) -> RunStep | None:
        """The next letter, or None. `hooks`: the letters for the whole task that have run."""
        return self._of_streams() or self._of_steps() or self._of_work() or self._of_task(hooks)

    def _of_streams(self) -> RunStep | None:
        progress = self.inputs.progress
        for one in self.inputs.counted:
            stream = one.stream
            heard = self.time.heard.get(stream, NOTHING_HEARD)
            if heard.status >= StreamPhase.ENDED:
                continue
            if progress.ended(stream):
                return self._of_end(stream, heard)
            if heard.status == StreamPhase.OPEN and progress.drained(stream):
                if heard.ts < MAX_TIME:
                    return self._letter(WATERMARK, stream, MAX_TIME, cause=DRAIN)
                return self._letter(DRAIN, stream, cause=DRAIN)
            if stream in self.due:
                self.due.discard(stream)
                ts = progress.watermark(stream)
                if heard.status == StreamPhase.OPEN and ts > heard.ts:
                    return self._letter(WATERMARK, stream, ts, cause=DRAIN if ts == MAX_TIME else WATERMARK)
        return None

    def _of_end(self, stream: str, heard: Heard) -> RunStep:
        """A stream has ended: before its end, its last time, and the times of the steps that only wait for it."""
        ts = self.inputs.progress.watermark(stream)
        if heard.status == StreamPhase.OPEN and heard.ts < ts < MAX_TIME:
            return self._letter(WATERMARK, stream, ts, cause=WATERMARK)
        times = self.time.newer(stream, self._ended(stream, heard))
        if times:
            return self._letter(WATERMARK, None, cause=WATERMARK, times=times)
        return self._letter(END, stream, cause=END)

    def _ended(self, stream: str, heard: Heard) -> Heard:
        """What is heard with the end of a stream."""
        progress = self.inputs.progress
        ts = progress.watermark(stream)
        return Heard(heard.ts if ts == MAX_TIME else max(heard.ts, ts), progress.phase(stream))

    def _of_steps(self) -> RunStep | None:
        times = self.time.newer()
        return self._letter(WATERMARK, None, cause=WATERMARK, times=times) if times else None

    def _of_work(self) -> RunStep | None:
        if not self.work:
            return None
        work = self.work.popleft()
        return self._letter(work.kind, None, key=work.key, cause=work.kind)

    def _of_task(self, hooks: frozenset[str]) -> RunStep | None:
        kind = self.finished()
        if not kind or hooks & {END, DRAIN}:
            return None
        return self._letter(kind, None, cause=kind)

    def finished(self) -> str:
        """`end` or `drain` if the operators have heard it of every input that counts; otherwise empty."""
        kind = END
        for one in self.inputs.counted:
            status = self.time.heard.get(one.stream, NOTHING_HEARD).status
            if status == StreamPhase.OPEN:
                return ""
            if status == StreamPhase.DRAINED:
                kind = DRAIN
        return kind

    def _letter(
        self,
        kind: str,
        stream: str | None,
        ts: int | None = None,
        *,
        key: str = "",
        cause: str = "",
        times: tuple[tuple[str, int], ...] = (),
    ) -> RunStep:
        self.number += 1
        if kind == WATERMARK and stream is not None and ts is not None:
            times = self.time.newer(stream, self.time.heard.get(stream, NOTHING_HEARD)._replace(ts=ts))
        return RunStep(self.number, kind, stream, ts, key, cause, times)

    def complete(self, step: RunStep) -> None:
        """Note that the last step of a letter is done: it has been heard."""
        self.time.tell(step.times)
        if step.stream is not None:
            heard = self.time.heard.get(step.stream, NOTHING_HEARD)
            if step.kind == WATERMARK and step.ts is not None:
                heard = Heard(step.ts, heard.status)
            elif step.kind == END:
                heard = self._ended(step.stream, heard)
            else:
                heard = Heard(heard.ts, StreamPhase.DRAINED)
            self.time.hear(step.stream, heard)
