"""Fetching: the threads that fetch from the brokers, and the queues and byte budget between them and the streams."""
