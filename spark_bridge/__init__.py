"""The muscle: bounded batches through PySpark."""
