"""What a worker knows of itself, and says in each heartbeat: numbers by short names."""
