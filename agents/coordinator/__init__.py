"""The coordinator stream in and out: who reads it, who writes it, and the heartbeats beside it."""
