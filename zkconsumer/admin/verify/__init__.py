"""Verifies groups: owners, offsets and stores, and how to fix a fault."""
