"""Spans of OpenTelemetry: what a worker says of its chunks, commits and moves to programs that show traces."""
