"""Verifies groups: owners, offsets and stores, and what would mend a fault."""
