"""The parts of a polled consumer: subscriptions, positions of partitions, and records with Kafka's names."""
