"""The leaders of a topic that all running brokers agree on, and that serve requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.kafka.server_process import KafkaServerProcess
from zkconsumer.testing.kafka.settings import version_tuple

__all__ = ["agreed_leaders"]

_FIRST_WITH_OFFSETS_1 = (0, 10, 1)


def agreed_leaders(
    brokers: Mapping[int, KafkaServerProcess], topic: str, partitions: Sequence[int], seen: dict[int, object]
) -> dict[int | str, int] | None:
    """Partition -> leader, if every running broker names the same leaders and those serve requests; None if not.

    Args:
        seen: is filled with what each broker said, for the error of whoever waits.
    """
    seen.clear()
    agreed: dict[int, int] = {}
    for broker in brokers.values():
        if not broker.running or broker.process.paused:
            continue
        try:
            told = kafka_probe.topic_leaders(broker.port, topic)
        except OSError as error:
            seen[broker.broker_id] = error
            return None
        seen[broker.broker_id] = told
        for partition in partitions:
            if partition not in told or told[partition].leader < 0:
                return None
            leader = told[partition].leader
            if agreed.setdefault(partition, leader) != leader:
                return None
    return dict(agreed.items()) if agreed and _lead(brokers, topic, agreed) else None


def _lead(brokers: Mapping[int, KafkaServerProcess], topic: str, leaders: Mapping[int, int]) -> bool:
    """True if each leader answers for its partitions itself."""
    for broker_id in set(leaders.values()):
        broker = brokers.get(broker_id)
        mine = [partition for partition, leader in leaders.items() if leader == broker_id]
        if broker is None or not broker.running:
            return False
        version = int(version_tuple(broker.version) >= _FIRST_WITH_OFFSETS_1)
        try:
            errors = kafka_probe.offset_errors(broker.port, topic, mine, version=version)
        except OSError:
            return False
        if set(errors) != set(mine) or any(errors.values()):
            return False
    return True
