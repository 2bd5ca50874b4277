"""Assignors: how the leader of a group that brokers coordinate divides the partitions among its members. Pure."""
