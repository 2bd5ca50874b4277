"""The offsets of a group: loaded, committed, and where reading begins."""
