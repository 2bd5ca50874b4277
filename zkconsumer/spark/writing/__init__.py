"""Writes the rows of batches and streams to topics."""
