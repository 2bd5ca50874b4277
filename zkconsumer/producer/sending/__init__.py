"""Sends batches to the leaders of their partitions: threads, connections, look-ups, answers."""
