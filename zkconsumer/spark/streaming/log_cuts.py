"""Asks leaders whether a log was cut off since it was seen, by the epochs of its leaders.

A log that lost messages by an unclean election, and has grown since, has the offsets of before and other messages. Each
change of a leader begins a new epoch, and the new leader knows where the epochs before it end in its log. So it is
enough to keep an offset that the log had reached, and the epoch in which its leader said so: where the epochs up to
that one end below the offset, the log was cut there.

What this cannot show: a log that comes back after two unclean elections, the second one in favour of a replica that led
before what was seen; and brokers before Kafka 2.1, which report no epochs.

Source: Kafka 2.8, kafka.server.epoch.LeaderEpochFileCache.endOffsetFor; KIP-320.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.errors import VersionNotServed
from simpleconsumer.types import EpochEnd, TopicPartition
from zkconsumer.cluster.log_ends import OneTime, ask_at

__all__ = ["OTHER_EPOCH", "Cuts", "LogMark", "ask_cuts", "ask_ends", "cut_at"]

OTHER_EPOCH: Final = (74, 75)
"""Codes of brokers that lead a partition in a later epoch, or in an earlier one, than the request names."""
_MAY_NOT_ASK: Final = (29, 31)
"""Codes of brokers that do not let this user ask for epochs."""


class LogMark(NamedTuple):
    """What was seen of a log.

    Attributes:
        offset: It reached up to here,
        epoch: when its leader had this epoch, or before.
    """

    offset: int
    epoch: int


@dataclass
class Cuts:
    """What leaders say of logs that were seen before.

    Attributes:
        at: Partition -> where its log was cut, below what was seen.
        refused: Partition -> error code; whether its log was cut is not known yet.
    """

    at: dict[TopicPartition, int] = field(default_factory=dict)
    refused: dict[TopicPartition, int] = field(default_factory=dict)


def cut_at(mark: LogMark, epoch_now: int, found: EpochEnd) -> int | None:
    """Return where a log was cut below what was seen of it; None if it was not, or if that is not known. Pure.

    The log of a leader only grows while its epoch lasts.

    Args:
        epoch_now: The leader's, -1 if it is not known.
        found: Where the epoch of the mark ends.
    """
    is_known = not found.error_code and found.leader_epoch >= 0 and found.end_offset >= 0
    is_over = found.leader_epoch < max(mark.epoch, epoch_now)
    return found.end_offset if is_known and is_over and found.end_offset < mark.offset else None


def ask_ends(
    consumer: SimpleConsumer, partitions: Sequence[TopicPartition]
) -> tuple[OneTime, dict[TopicPartition, int]]:
    """Return where logs end, by one request, and the epochs of their leader as far as it reports them.

    Args:
        consumer: Connected to the leader of all of them.

    Raises:
        SimpleConsumerError: The broker does not answer.
    """
    if not consumer.dialect.chooses_versions:
        return ask_at(consumer, partitions, LATEST), {}
    try:
        answers = dict(zip(partitions, consumer.log_ends(partitions), strict=True))
    except VersionNotServed:  # Kafka 0.10.0
        return ask_at(consumer, partitions, LATEST), {}
    good = {name: answer for name, answer in answers.items() if not answer.error_code}
    ends = OneTime(
        {name: answer.offset if answer.offset >= 0 else None for name, answer in good.items()},
        {name: answer.error_code for name, answer in answers.items() if answer.error_code},
    )
    return ends, {name: answer.leader_epoch for name, answer in good.items() if answer.leader_epoch >= 0}


def ask_cuts(
    consumer: SimpleConsumer, marks: Mapping[TopicPartition, LogMark], epochs: Mapping[TopicPartition, int]
) -> Cuts:
    """Ask a leader whether logs were cut below what was seen of them.

    Args:
        epochs: Its epochs of now, -1 where that is not known; a broker with another one refuses.

    Raises:
        SimpleConsumerError: The broker does not answer.
    """
    found = Cuts()
    if not marks or not consumer.dialect.chooses_versions:
        return found
    try:
        answers = consumer.epoch_ends({name: (mark.epoch, epochs.get(name, -1)) for name, mark in marks.items()})
    except VersionNotServed:
        return found
    for (name, mark), answer in zip(marks.items(), answers, strict=True):
        if answer.error_code and answer.error_code not in _MAY_NOT_ASK:
            found.refused[name] = answer.error_code
        cut = cut_at(mark, epochs.get(name, -1), answer)
        if cut is not None:
            found.at[name] = cut
    return found
