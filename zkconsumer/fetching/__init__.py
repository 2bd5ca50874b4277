"""Messages on their way from the brokers into memory: who asks what of whom, and how much of it there may be."""
