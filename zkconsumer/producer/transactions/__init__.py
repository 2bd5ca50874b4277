"""Transactions of producers, and the broker that coordinates them."""
