"""The producer: partitioners of each version of Kafka."""
