"""The protocol of Kafka 0.8 to 0.10: requests, and message sets of magic 0 and 1 as messages or as columns. Pure."""
