"""Reads the lag of groups, once or at intervals."""
