"""The embedded broker: a real Apache Kafka on this machine, without Docker and without root."""
