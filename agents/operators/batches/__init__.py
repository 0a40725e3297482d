"""Bounded batches as operators of a task: rows on their way to Spark, and results on their way back."""
