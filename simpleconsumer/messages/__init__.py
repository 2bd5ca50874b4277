"""Kafka's control requests: one table of the fields that each version of their requests and answers has. Pure."""
