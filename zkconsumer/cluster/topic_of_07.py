"""The partitions of one topic of Kafka 0.7, as reports show them, and why one is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rebalance.zookeeper import znodes_07

__all__ = ["Topic07", "no_partition", "why_away"]


def why_away(missing: Iterable[int | str], known: Iterable[int | str]) -> str:
    """Return why partitions are missing, a clause that names brokers of Kafka 0.7 that are away; empty without any.

    >>> why_away(["1-0"], ["0-0", "0-1"])
    ', as broker 1 is not registered with it'

    Args:
        missing: Partitions that a topic does not have.
        known: Those that it has.
    """
    away = sorted(_brokers_of(missing) - _brokers_of(known))
    if not away:
        return ""
    brokers = f"broker {away[0]} is" if len(away) == 1 else f"brokers {', '.join(map(str, away))} are"
    return f", because {brokers} not registered with it"


def _brokers_of(partitions: Iterable[int | str]) -> set[int]:
    names = [each for each in partitions if isinstance(each, str) and znodes_07.is_partition(each)]
    return {znodes_07.broker_and_number(each)[0] for each in names}


def no_partition(topic: str, missing: Sequence[int | str], known: Sequence[int | str]) -> str:
    """Return that a topic does not have some partitions, a sentence.

    Args:
        missing: The partitions.
        known: Those that it has.
    """
    away = why_away(missing, known)
    now = " now" if away else ""
    return f"topic {topic!r} has no partition {', '.join(map(str, missing))}{now}{away}"


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
            return "the partition does not exist"
        broker, _ = znodes_07.broker_and_number(name)
        if any(znodes_07.broker_and_number(each)[0] == broker for each in self.partitions):
            return f"broker {broker} does not have this partition of the topic"
        return f"broker {broker} is not registered with the topic; the partition returns with it, at the same position"
