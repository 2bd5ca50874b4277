"""Reads the offsets in Kafka of many groups: all offset managers at the same time, each over one connection.

Rules, and which failure each prevents:
- The offset manager of a group is the leader of one partition of `__consumer_offsets`, which follows from the group's
  name: no broker has to be asked for it, which would cost a connection for each group.
- A broker that does not answer costs its time-out once, and not once for each of its groups.
- A partition that the broker does not know says nothing about the others: the rest of the request is asked for again,
  and the partition is not asked for on behalf of the next groups.
- A group that a broker refuses (it does not keep its offsets, or is still loading them) is returned, to be asked for
  again on its own.

Source: kafka.server.OffsetManager.partitionFor (0.8.2.2), GroupMetadataManager.partitionFor (1.1.1).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from rebalance.assignment import java_string_hash
from rebalance.subscription import OFFSETS_TOPIC
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.daemon_threads import run_together
from zkconsumer.offsets.offset_manager import OffsetAnswer, codes_of
from zkconsumer_error import ErrorCode

__all__ = ["fetch_offsets_of_groups"]

_PARTITIONS_A_REQUEST: Final = 1000
_MOST_THREADS: Final = 32
_LEAST_INT: Final = -(2**31)

Wanted = Mapping[str, Sequence[TopicPartition]]
Answers = dict[str, OffsetAnswer]


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` that holds a group's offsets.

    >>> offsets_partition("group1", 50)
    40
    """
    number = java_string_hash(group)
    return (0 if number == _LEAST_INT else abs(number)) % partitions


def fetch_offsets_of_groups(
    cluster: Cluster, client_id: str, wanted: Wanted, timeout_s: float, deadline: float
) -> tuple[Answers, list[str]]:
    """Return the offsets of groups, and the groups that have to be asked for on their own.

    Args:
        cluster: It has the topic of offsets.
        client_id: The name under which brokers log and count the requests.
        wanted: Group -> partitions.
        timeout_s: Longest wait for one answer.
        deadline: For all, on the clock `time.monotonic`.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    count = len(cluster.partitions([OFFSETS_TOPIC]).get(OFFSETS_TOPIC, ()))
    if not count:
        return {}, list(wanted)
    places = {group: TopicPartition(OFFSETS_TOPIC, offsets_partition(group, count)) for group in wanted}
    leaders = cluster.leaders(list(dict.fromkeys(places.values())))
    answers: Answers = {}
    of_broker: dict[Broker, list[str]] = {}
    for group, place in places.items():
        if place in leaders:
            of_broker.setdefault(leaders[place], []).append(group)
        else:
            answers[group] = _unknown(wanted[group], f"no broker leads {place.topic}-{place.partition}")
    if not of_broker:
        return answers, []
    again: list[str] = []
    calls = [
        partial(
            _ask, broker, client_id, {group: wanted[group] for group in groups}, timeout_s, deadline, cluster.security
        )
        for broker, groups in of_broker.items()
    ]
    for found, refused in run_together(calls, _MOST_THREADS, "zkconsumer-offset-managers"):
        answers |= found
        again += refused
    return answers, again


def _ask(
    broker: Broker, client_id: str, wanted: Wanted, timeout_s: float, deadline: float, security: Security
) -> tuple[Answers, list[str]]:
    """Return the offsets that one broker keeps, and the groups that it refused."""
    answers: Answers = {}
    again: list[str] = []
    reason: str | None = None
    unled: dict[TopicPartition, str] = {}
    dialect = dialect_of(broker)
    with SimpleConsumer(broker.host, broker.port, timeout_s, client_id, dialect=dialect, security=security) as consumer:
        for group, names in wanted.items():
            if reason is None and time.monotonic() >= deadline:
                reason = f"its offset manager, broker {broker.id}, was not asked in time"
            if reason is not None:
                answers[group] = _unknown(names, reason)
                continue
            try:
                found = _fetch(consumer, group, names, unled)
                mine = {name: unled[name] for name in names if name in unled and name not in found}
                answers[group] = OffsetAnswer(found, mine, frozenset(mine))
            except BrokerError:
                again.append(group)
            except (SimpleConsumerError, AuthenticationFailed) as error:
                reason = f"its offset manager, broker {broker.id}: {error}"
                answers[group] = _unknown(names, reason)
    return answers, again


def _fetch(
    consumer: SimpleConsumer, group: str, names: Sequence[TopicPartition], unled: dict[TopicPartition, str]
) -> dict[TopicPartition, int | None]:
    """Return the offsets of a group.

    Args:
        unled: Partition -> why the broker does not know it; these are not asked for, and more of them are added.
    """
    found: dict[TopicPartition, int | None] = {}
    for first in range(0, len(names), _PARTITIONS_A_REQUEST):
        while asked := [name for name in names[first : first + _PARTITIONS_A_REQUEST] if name not in unled]:
            try:
                rows = consumer.fetch_offsets(group, asked, version=1)
            except BrokerError as error:
                codes = codes_of(error)
                if {*codes.values()} != {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} or not codes.keys() & set(asked):
                    raise
                unled |= {name: str(BrokerError(code, name.topic, name.partition)) for name, code in codes.items()}
                continue
            found |= {name: None if row.offset < 0 else row.offset for name, row in rows.items()}
            break
    return found


def _unknown(names: Sequence[TopicPartition], reason: str) -> OffsetAnswer:
    return OffsetAnswer({}, dict.fromkeys(names, reason))
