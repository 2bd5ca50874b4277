"""Streams of messages as applications read them, one by one or in batches."""
