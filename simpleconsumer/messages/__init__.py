"""Kafka's control requests: one table of their fields, which the client and the embedded brokers read."""
