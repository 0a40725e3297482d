"""One worker process: the runtime over Kafka and disk, with its member and its leader."""
