"""What brokers of Kafka 0.8 to 0.10 speak: requests, message sets of magic 0 and 1, rows and columns of them."""
