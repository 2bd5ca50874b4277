"""Inspects and changes consumer groups: members, owners, offsets, topics."""
