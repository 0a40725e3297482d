"""Where batches go without Spark: databases, files, and sinks of the user's own."""
