"""The job as it was declared: refused before it runs, and the one derivation of its tasks, widths and producers."""
