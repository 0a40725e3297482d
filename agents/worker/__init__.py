"""One process at work: the runtime over Kafka and disk, steered by a member and a leader."""
