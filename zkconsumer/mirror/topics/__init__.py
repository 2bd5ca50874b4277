"""Finds the topics of a mirror, judges them, and makes them on the target."""
