"""Spark's processes: their settings, their start, whether executors are ready, and whether they live."""
