"""The options of the source, and the values that they take."""
