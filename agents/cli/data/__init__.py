"""Verbs for what is in topics and tables."""
