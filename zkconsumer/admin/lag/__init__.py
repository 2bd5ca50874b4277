"""Reads how far groups are behind, once or again and again."""
