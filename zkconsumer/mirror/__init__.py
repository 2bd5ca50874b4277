"""Lanes: they carry record batches that are encoded already into one partition each, every record once and in order."""
