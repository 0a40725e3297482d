"""The same runtime over memory: a port whose logs, clock and threads a test controls."""
