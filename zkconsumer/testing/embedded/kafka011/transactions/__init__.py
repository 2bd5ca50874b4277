"""Transactions as a broker keeps them: their coordinator, and the log of `__transaction_state`."""
