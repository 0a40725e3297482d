"""Starts a process from a command line, and sends requests to a job from outside of it."""
