"""Groups as a broker keeps them: their coordinator, and the log of `__consumer_offsets`."""
