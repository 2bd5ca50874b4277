"""Offsets: loaded after a claim, committed under the fence of the registration."""
