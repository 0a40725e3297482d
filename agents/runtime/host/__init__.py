"""The runtime of one process: its tasks, each under its grant, and what they share."""
