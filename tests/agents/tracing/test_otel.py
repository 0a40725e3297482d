"""Spans as OpenTelemetry has them, in its own exporter over memory."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headgate.agents.tracing.contexts import Links, TraceContext
from headgate.agents.tracing.otel import OtelSpans
from headgate.agents.tracing.traces import NoTraces, Traces

OTHER = TraceContext(2, 3, sampled=False)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def spans_in(exporter: InMemorySpanExporter, of: dict[str, str] | None = None) -> OtelSpans:
    return OtelSpans(of or {"service.name": "shop-1"}, "1.0", exporter=exporter)


def test_a_span_has_links_attributes_a_beginning_and_an_error(exporter):
    """What a receiver is told of a chunk."""
    spans = spans_in(exporter)
    span = spans.begin("process orders", {"a": 1}, Links((OTHER,), 0), consumes=True, began_ns=10)
    span.failed("it is bad")
    span.end({"b": [1.5]})
    spans.stop(60)
    (found,) = exporter.get_finished_spans()
    assert (found.name, found.kind, found.start_time, found.parent) == ("process orders", SpanKind.CONSUMER, 10, None)
    assert dict(found.attributes) == {"a": 1, "b": (1.5,)}
    assert [(one.context.trace_id, one.context.span_id, one.context.trace_flags) for one in found.links] == [(2, 3, 0)]
    assert (found.status.status_code, found.status.description) == (StatusCode.ERROR, "it is bad")
    assert found.context.span_id == span.context.span


def test_spans_of_user_code_are_part_of_the_letter_and_go_their_own_way(exporter):
    """A program that is instrumented has a provider of its own; headgate touches no global one."""
    spans, users = spans_in(exporter), TracerProvider().get_tracer("user")
    span = spans.begin("process orders", {}, Links(), consumes=True, began_ns=None)
    with span.current():
        inner = users.start_span("asks a service")
    outer = users.start_span("later")
    spans.stop(60)
    assert inner.parent.span_id == span.context.span
    assert outer.parent is None
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert exporter.get_finished_spans() == ()


def test_variables_of_the_environment_go_before_what_the_worker_says(exporter, monkeypatch):
    """`OTEL_SERVICE_NAME` is how people name a service."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "our-shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=theirs,team=blue")
    spans = spans_in(exporter, {"service.name": "shop-1", "service.instance.id": "w1", "host.name": "ours"})
    spans.begin("commit", {}, Links(), consumes=False, began_ns=None).end()
    spans.stop(60)
    of = exporter.get_finished_spans()[0].resource.attributes
    found = [of[name] for name in ("service.name", "service.instance.id", "host.name", "team")]
    assert found == ["our-shop", "w1", "theirs", "blue"]


def test_as_many_letters_are_chosen_as_is_wanted_and_links_that_are_left_out_are_said(exporter):
    """The choice is random; what made the spans stays when nothing is traced for a while."""
    made: list[OtelSpans] = []

    def make() -> OtelSpans:
        made.append(spans_in(exporter))
        return made[-1]

    drawn = iter([0.1, 0.7, 0.4])
    traces = Traces(make, lambda: next(drawn))
    assert traces.begin("commit", {}) is None
    traces.take(0, propagates=True)
    assert (traces.on, traces.propagates, made) == (False, False, [])
    traces.take(0.5, propagates=True)
    assert [traces.chosen() for _ in range(3)] == [True, False, True]
    assert (traces.on, traces.propagates) == (True, True)
    span = traces.begin("commit", {"txn": 1}, Links((OTHER,), 7))
    assert span is not None
    span.end()
    traces.take(0, propagates=True)
    assert traces.begin("commit", {}) is None
    traces.take(1, propagates=False)
    assert (len(made), traces.propagates) == (1, False)
    traces.stop()
    assert dict(exporter.get_finished_spans()[0].attributes) == {"txn": 1, "headgate.links.dropped": 7}


def test_where_nothing_is_ever_traced_settings_change_nothing():
    """The test driver and the simulator."""
    traces = NoTraces()
    traces.take(1, propagates=True)
    assert not traces.on


def test_opentelemetry_can_be_switched_off_for_a_process(exporter, monkeypatch):
    """By its own variable, whatever the job says."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traces = Traces(lambda: spans_in(exporter))
    traces.take(1, propagates=True)
    assert not traces.on
