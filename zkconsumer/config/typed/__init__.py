"""The settings as keywords with their types, for type checkers."""
