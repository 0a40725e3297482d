"""Records as Kafka has them: record batches read and written, what a topic accepts, and the partition of a key."""
