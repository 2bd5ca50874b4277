"""Messages of `consume` and `produce`: read and printed, parsed and sent."""
