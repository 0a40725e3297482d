"""The election of the leader, and everything that a leader decides."""
