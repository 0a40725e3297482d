"""Kafka behind the port: which client is used, how it is configured, corrected, connected and closed."""
