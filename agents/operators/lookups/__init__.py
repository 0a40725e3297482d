"""The operator that asks a service: `lookup`, and the rules of when it asks."""
