"""Lanes: batches under given numbers, each stored once, in one partition of the target."""
