"""headgate: Kafka-native actors in Python, with exact completeness and Spark for the bounded batches."""

__version__ = "0.1.0"
