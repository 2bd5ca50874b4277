"""How a generation of Kafka writes groups and topics in ZooKeeper: 0.7, or 0.8 and later.

A member works with one generation, which is found before it registers; all members of a group must have the same.
"""

from __future__ import annotations

from typing import Final, Protocol

from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.lenient_json import java_refusal
from rebalance.zookeeper.znodes import Registration

__all__ = ["GENERATION_07", "GENERATION_08", "ChosenGeneration", "Generation", "other_than"]


class Generation(Protocol):
    """One generation's registrations and topics. It holds no state.

    Attributes:
        name: `0.7` or `0.8`, as in `kafka.generation`.
        has_broker_nodes: Whether the children of a topic are its brokers; else its data lists its partitions.
        strategies: The assignment strategies that its Java members have.
        storages: Where its groups can keep their offsets.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_broker_nodes(self) -> bool: ...

    @property
    def strategies(self) -> tuple[str, ...]: ...

    @property
    def storages(self) -> tuple[str, ...]: ...

    def format_registration(self, registration: Registration) -> bytes:
        """Return the data of a registration node.

        Raises:
            ValueError: Text that would stop the Java members of the group.
        """

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        """Return the registration that a node holds.

        Raises:
            UnreadableNode: No reader can use it; Kafka07Node or Kafka08Node: it is of the other generation.
        """

    def java_refusal(self, data: bytes) -> str | None:
        """Return why a Java member fails on a registration that we can read; None when it does not fail."""


class _Generation08:
    """Kafka 0.8 and later: JSON."""

    name: Final = "0.8"
    has_broker_nodes: Final = False
    strategies: Final = ("range", "roundrobin")
    storages: Final = ("zookeeper", "kafka")

    def format_registration(self, registration: Registration) -> bytes:
        return znodes.format_registration(registration)

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        return znodes.parse_registration(data, path)

    def java_refusal(self, data: bytes) -> str | None:
        return java_refusal(data)


class _Generation07:
    """Kafka 0.7: text."""

    name: Final = "0.7"
    has_broker_nodes: Final = True
    strategies: Final = ("range",)
    storages: Final = ("zookeeper",)

    def format_registration(self, registration: Registration) -> bytes:
        return znodes_07.format_registration_07(registration)

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        return znodes_07.parse_registration_07(data, path)

    def java_refusal(self, data: bytes) -> str | None:
        return None if data[:1] in (b"*", b"!") else java_refusal(data)


GENERATION_08: Final[Generation] = _Generation08()
GENERATION_07: Final[Generation] = _Generation07()


def other_than(generation: Generation) -> Generation:
    """Return the other generation."""
    return GENERATION_07 if generation is GENERATION_08 else GENERATION_08


class ChosenGeneration:
    """The generation of one member: that of Kafka 0.8 until another one was found.

    Attributes:
        value: The generation.

    Threads: Set once, before the coordinator starts; read by any.
    """

    def __init__(self, value: Generation = GENERATION_08) -> None:
        self.value = value
