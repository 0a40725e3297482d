"""The spans of a worker: what they say of it, and that they can be made. OpenTelemetry is imported when something is traced."""

from __future__ import annotations

from functools import partial

from ...core.errors import EnvironmentFault
from ..tracing.traces import Traces, TraceSpans
from .options import WorkerOptions


def traces_of(options: WorkerOptions) -> Traces:
    """The spans of this worker."""
    return Traces(partial(_spans, options))


def _spans(options: WorkerOptions) -> TraceSpans:
    try:
        from ..tracing.otel import OtelSpans
    except ImportError as error:
        raise EnvironmentFault(
            f"trace.sample needs OpenTelemetry: {error}", remedy="pip install 'headgate[otel]'"
        ) from error
    job = options.declared.app.job
    of = {
        "service.name": job.slug,
        "service.instance.id": options.processor,
        "headgate.job": str(job),
        "headgate.location": options.location,
        "headgate.deployment": options.version,
        "host.name": options.host,
    }
    return OtelSpans(of, options.version)
