"""The same runtime over memory: a port with logs, clock and threads that a test moves."""
