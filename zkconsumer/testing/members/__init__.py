"""Consumers as child processes: zkconsumer's own, and Kafka's Java high-level consumer."""
