"""Merges the small files of a load."""
