"""Reads and writes the coordinator stream and the heartbeats, through the port."""
