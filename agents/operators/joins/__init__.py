"""Joins of two streams as operators of a task, and what they store."""
