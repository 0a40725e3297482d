"""Serdes whose schemas stand in a schema registry, as Confluent's serializers have them: Avro, Protobuf, JSON Schema."""
