"""The store of a task, and the log that it is restored from and that each commit is written to."""
