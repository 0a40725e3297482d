"""The declared job: its graph, the checks before it runs, and the one derivation of its tasks, stream widths and producers."""
