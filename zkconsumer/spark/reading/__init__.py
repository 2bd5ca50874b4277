"""Reads topics: plans a query, and fetches the ranges of its tasks."""
