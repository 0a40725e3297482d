"""Runs bounded batches through PySpark."""
