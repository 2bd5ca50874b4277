"""Requests and record batches of brokers that list the versions that they serve: Kafka 0.10.0 and later. Pure."""
