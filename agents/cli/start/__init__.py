"""Verbs before and at the start of a job: what it needs, and the worker itself."""
