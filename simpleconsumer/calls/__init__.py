"""The calls of a client to one broker: messages, offsets, metadata, groups."""
