"""Spans as OpenTelemetry has them, sent by OTLP over HTTP. The only file that knows OpenTelemetry; imported when something is traced.

What it decides: what a receiver is told of the worker. Where it is, and what else its clients let one choose, OpenTelemetry's own variables
say (`OTEL_EXPORTER_OTLP_…`, `OTEL_BSP_…`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SPAN_…`). The provider is headgate's own:
spans of user code go where its own provider sends them, and have the span of their letter as parent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from opentelemetry.context import Context as Around
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, use_span
from opentelemetry.trace import Span as OtelsSpan

from .contexts import Links, TraceContext
from .sending import SpanSender
from .traces import Attributes

BY_DEFAULT = "http://localhost:4318"


class OtelSpan:
    """One span; see `traces.TraceSpan`."""

    def __init__(self, span: OtelsSpan) -> None:
        self._span = span

    @property
    def context(self) -> TraceContext:
        own = self._span.get_span_context()
        return TraceContext(own.trace_id, own.span_id)

    def current(self) -> AbstractContextManager[object]:
        return use_span(self._span, record_exception=False, set_status_on_exception=False)

    def failed(self, why: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, why))

    def end(self, attributes: Attributes | None = None) -> None:
        if attributes:
            self._span.set_attributes(attributes)
        self._span.end()


class OtelSpans:
    """The spans of one process; see `traces.TraceSpans`."""

    def __init__(
        self, of: Mapping[str, str], version: str, *, exporter: SpanExporter | None = None, every_s: float | None = None
    ) -> None:
        """`of`: the attributes of the worker as a resource, which variables of the environment override.
        `exporter`, `every_s`: of tests."""
        self._exporter = trace_exporter.OTLPSpanExporter() if exporter is None else exporter
        self._said = _Said()
        self._sender = SpanSender(
            self._export,
            os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
            or BY_DEFAULT,
            most=_number("OTEL_BSP_MAX_QUEUE_SIZE", 2048),
            batch=_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            every_s=_number("OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000 if every_s is None else every_s,
        )
        provider = TracerProvider(sampler=ALWAYS_ON, resource=_resource(of), shutdown_on_exit=False)
        provider.add_span_processor(_Processor(self._sender.add))
        self._tracer = provider.get_tracer("headgate", version)
        self._sender.start()

    @property
    def sent(self) -> int:
        return self._sender.sent

    @property
    def dropped(self) -> int:
        return self._sender.dropped

    def begin(
        self, name: str, attributes: Attributes, links: Links, *, consumes: bool, began_ns: int | None
    ) -> OtelSpan:
        return OtelSpan(
            self._tracer.start_span(
                name,
                Around(),
                SpanKind.CONSUMER if consumes else SpanKind.INTERNAL,
                attributes,
                list(map(_link, links.contexts)),
                start_time=began_ns,
            )
        )

    def stop(self, within_s: float) -> None:
        self._sender.stop(within_s)

    def _export(self, spans: Sequence[ReadableSpan]) -> str:
        """Send spans, in the thread. Returns why that has failed."""
        self._said.last = ""
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return ""
        return self._said.last or "it has refused them"


class _Processor(SpanProcessor):
    def __init__(self, add: Callable[[ReadableSpan], None]) -> None:
        self._add = add

    def on_end(self, span: ReadableSpan) -> None:
        self._add(span)


class _Said(logging.Filter):
    """What the exporter logs in the thread that sends: it says why, and is reported with it instead of each time."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        logging.getLogger(trace_exporter.__name__).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if threading.current_thread().name != "headgate trace":
            return True
        self.last = record.getMessage()
        return False


def _resource(of: Mapping[str, str]) -> Resource:
    return Resource.create(of).merge(OTELResourceDetector().detect())


def _link(to: TraceContext) -> Link:
    return Link(SpanContext(to.trace, to.span, is_remote=True, trace_flags=TraceFlags(to.sampled)))


def _number(name: str, otherwise: int) -> int:
    """A variable that is a number; one that is none is as if it were not set."""
    given = os.environ.get(name, "").strip()
    return int(given) if given.isdecimal() and int(given) else otherwise
