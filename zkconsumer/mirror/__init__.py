"""Mirrors: they copy topics to another cluster, every record once and in order; described in docs/MIRROR.md."""
