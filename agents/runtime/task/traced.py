"""The spans of one task: of its letters, of what operators hand over at a commit, and of its phases.

What it decides: what a span says. Promises:

- A chunk links to the spans that its records name; of frames those in which they were written, of an input those that its producers have
  written into headers. A chunk with a frame of traced work is traced.
- What a traced letter writes into streams of frames names its span. What operators hold back and hand over at a commit is work of many
  letters: it names a span of its own, which links to theirs.
- A commit is given all spans whose work it makes durable, each once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ....core.orders import TaskState
from ....core.progress.frames import TRACE_HEADER
from ...tracing.contexts import MOST_LINKS, NO_LINKS, Links, TraceContext, links_of
from ...tracing.traces import Attributes, TraceSpan
from .doing import ChunkLetter, Letter
from .site import Site

PHASES = {
    TaskState.RESTORING: "restore",
    TaskState.BOOTSTRAPPING: "bootstrap",
    TaskState.DRAINING: "drain",
    TaskState.ENDING: "end",
    TaskState.RELEASING: "release",
}
"""The phases that have spans. All others are work, or rest."""


class Traced:
    """The traced work of one task."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._traces = site.traces
        self._span: TraceSpan | None = None
        """That of the letter under way."""
        self._complete: list[TraceContext] = []
        """Work that joins the next commit."""
        self._left_out = 0

    @contextlib.contextmanager
    def letter(self, letter: Letter) -> Iterator[None]:
        """A letter runs in this block. It is called while anything is traced."""
        span = self._chunk(letter) if isinstance(letter, ChunkLetter) else self._step(letter.step.kind, letter.attempt)
        pipeline = self._site.pipeline
        if span is None or pipeline is None:
            yield
            return
        self._span = span
        pipeline.trace(span.context.header, outputs=self._traces.propagates)
        pipeline.measures_letter()
        try:
            with span.current():
                yield
        finally:
            self._span = None
            pipeline.trace(None, outputs=False)
            took = {f"headgate.step.{step}.ms": ns / 1e6 for step, ns in pipeline.measured_letter().items()}
            span.end({"headgate.loop.ms": self._site.meter.ns / 1e6, **took})

    def _chunk(self, letter: ChunkLetter) -> TraceSpan | None:
        chunk = letter.chunk
        chosen = self._traces.chosen()
        if not chosen and not chunk.framed:
            return None
        links = links_of(chunk.named(TRACE_HEADER))
        if not chosen and not any(one.sampled for one in links.contexts):
            return None
        last = chunk.next_position - 1
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": chunk.at.stream,
            "messaging.destination.partition.id": str(chunk.at.partition),
            "messaging.batch.message_count": len(chunk),
            "headgate.offset.first": chunk.columns.offset(0) if len(chunk) else last,
            "headgate.offset.last": last,
            "headgate.bytes": chunk.size,
            "headgate.attempt": letter.attempt,
        }
        return self._begin(f"process {chunk.at.stream}", attributes, links, consumes=True)

    def _step(self, kind: str, attempt: int) -> TraceSpan | None:
        return self._begin(kind, {"headgate.attempt": attempt}) if self._traces.chosen() else None

    def _begin(
        self,
        name: str,
        attributes: Attributes,
        links: Links = NO_LINKS,
        *,
        consumes: bool = False,
        ms: int | None = None,
    ) -> TraceSpan | None:
        own: Attributes = {"headgate.task": self._site.name, "headgate.grant": self._site.grant, **attributes}
        return self._traces.begin(name, own, links, consumes=consumes, began_ns=None if ms is None else ms * 1_000_000)

    def failed(self, why: str) -> None:
        """The letter has failed."""
        if self._span is not None:
            self._span.failed(why)

    def complete(self) -> None:
        """What the letter has done joins the next commit."""
        if self._span is not None:
            self._add(self._span.context)

    def _add(self, context: TraceContext) -> None:
        if len(self._complete) < MOST_LINKS:
            self._complete.append(context)
        else:
            self._left_out += 1

    @contextlib.contextmanager
    def hands_over(self) -> Iterator[None]:
        """Operators hand over what they have held back in this block, perhaps in the middle of a letter."""
        pipeline = self._site.pipeline
        if not self._complete or pipeline is None or not pipeline.holds_back:
            yield
            return
        span = self._begin("hand over", {}, Links(tuple(self._complete), self._left_out))
        if span is None:
            yield
            return
        before, outputs = pipeline.named
        pipeline.trace(span.context.header, outputs=self._traces.propagates)
        try:
            with span.current():
                yield
        finally:
            pipeline.trace(before, outputs=outputs)
            span.end()
        self._add(span.context)

    def take(self) -> Links:
        """The work that joins this commit."""
        links = Links(tuple(self._complete), self._left_out)
        self._complete, self._left_out = [], 0
        return links

    def phase_over(self, phase: TaskState, following: TaskState, since_ms: int) -> None:
        """The task has left a phase that it was in since then."""
        name = PHASES.get(phase)
        if name is None or not self._traces.on:
            return
        attributes: Attributes = {"headgate.task.state": following}
        if phase == TaskState.RESTORING:
            attributes = {**attributes, "headgate.records": self._site.state.replayed}
        span = self._begin(name, attributes, ms=since_ms)
        if span is not None:
            if following == TaskState.FAILED:
                span.failed("the task has failed")
            span.end()
