"""The port over Kafka: which client library is used, how it is configured, corrected, connected and closed."""
