"""Which partition a task reads next, and how much of it."""
