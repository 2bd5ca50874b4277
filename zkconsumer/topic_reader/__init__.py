"""Reads topics without joining a group; described in docs/USAGE.md."""
