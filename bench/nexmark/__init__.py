"""Nexmark, YSB and ShuffleBench, from Kafka to Kafka, exactly once: headgate beside Flink."""
