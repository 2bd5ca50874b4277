"""What is polled: subscriptions, positions of partitions, and records with Kafka's names."""
