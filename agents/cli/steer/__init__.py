"""Verbs that change what a running job does."""
