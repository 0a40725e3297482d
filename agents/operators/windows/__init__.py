"""Windows as operators of a task, and what they store."""
