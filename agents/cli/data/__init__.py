"""Verbs for what lies in topics and tables."""
