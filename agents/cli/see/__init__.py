"""Verbs that show what a job does."""
