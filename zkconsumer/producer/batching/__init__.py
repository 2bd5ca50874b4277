"""Gathers messages into batches, and keeps their outcomes."""
