"""The operators of a task, connected, and what happens when a chunk fails."""
