"""The tables of a task and the store they lie in."""
