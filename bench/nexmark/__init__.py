"""Nexmark, q0 to q22, from Kafka to Kafka, exactly once: headgate beside Flink SQL."""
