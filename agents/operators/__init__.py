"""Rows in, rows out: what each step does with a chunk, and what happens to failed records."""
