"""Rows on their way to Spark and results on their way back: tables, ranges of Kafka, files, and rows that fail."""
