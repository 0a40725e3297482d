"""Bounded batches: what one is and how far it is, the ranges that it refers to, what it publishes, and its columns in Spark."""
