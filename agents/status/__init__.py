"""The state of a worker and of its job, as plain values and as metrics."""
