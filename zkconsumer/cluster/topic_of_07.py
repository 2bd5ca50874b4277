"""The partitions of one topic of Kafka 0.7, as reports show them, and why one is missing. Pure."""

from __future__ import annotations

from typing import NamedTuple

from rebalance import znodes_07

__all__ = ["Topic07"]


class Topic07(NamedTuple):
    """One topic of Kafka 0.7, for reports: what cannot be read is named, and hides nothing else.

    Attributes:
        partitions: Those of the brokers that are registered below it, in the order of text.
        problems: What cannot be read, a sentence each.
    """

    partitions: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def why_missing(self, name: str) -> str:
        """Return why there is no partition of a name, a clause."""
        if not znodes_07.is_partition(name):
            return "the topic has no such partition"
        broker, _ = znodes_07.broker_and_number(name)
        if any(znodes_07.broker_and_number(each)[0] == broker for each in self.partitions):
            return f"broker {broker} has no such partition of the topic"
        return f"broker {broker} is not registered with the topic; the partition returns with it, at the same position"
