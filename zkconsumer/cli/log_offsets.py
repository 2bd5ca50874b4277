"""Where the logs of partitions begin and end, asked of their leaders; a broker that does not answer is asked once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rebalance.requests import ZooKeeperPort
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cli.zookeeper_access import READ_TIMEOUT_S
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.config import ConsumerConfig

__all__ = ["LogOffsets", "read_log_offsets"]

LogOffsets = tuple[int | None, ...] | str
"""One offset for each time asked for, `None` where no segment is that old; or why nothing is known."""

_BROKER_TIMEOUT_S = 5.0


def read_log_offsets(
    port: ZooKeeperPort, zookeeper: str, wanted: Sequence[TopicPartition], times_ms: Sequence[int], client_id: str
) -> dict[TopicPartition, LogOffsets]:
    """The offsets of each partition at each of the times.

    Args:
        wanted: partitions of topics that stand in ZooKeeper.
        times_ms: `EARLIEST`, `LATEST`, or milliseconds since 1970, which gives the begin of the newest segment file
            that was last written before then.

    Raises:
        ZooKeeperSilent: ZooKeeper does not answer.
    """
    if not wanted:
        return {}
    cluster = ClusterReader(port, READ_TIMEOUT_S)
    config = ConsumerConfig(zookeeper, client_id, client_id=client_id)
    directory = BrokerDirectory(config, cluster.brokers, cluster.existing, cluster.leaders)
    leaders = directory.leaders(dict.fromkeys(wanted))
    found: dict[TopicPartition, LogOffsets] = {name: "no broker leads it" for name in wanted if name not in leaders}
    by_leader: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
    for name, broker in leaders.items():
        by_leader[broker].append(name)
    for broker, names in by_leader.items():
        found.update(_ask(broker, names, times_ms, client_id))
    return found


def _ask(
    broker: Broker, names: Sequence[TopicPartition], times_ms: Sequence[int], client_id: str
) -> dict[TopicPartition, LogOffsets]:
    found: dict[TopicPartition, LogOffsets] = {}
    failure: str | None = None
    with SimpleConsumer(broker.host, broker.port, _BROKER_TIMEOUT_S, client_id) as consumer:
        for name in names:
            try:
                found[name] = failure or tuple(_offset(consumer, name, time_ms) for time_ms in times_ms)
            except BrokerError as error:
                found[name] = error.name
            except SimpleConsumerError as error:
                found[name] = failure = f"broker {broker.id}: {error}"
    return found


def _offset(consumer: SimpleConsumer, name: TopicPartition, time_ms: int) -> int | None:
    offsets = consumer.get_offsets_before(name.topic, int(name.partition), time_ms)
    return offsets[0] if offsets else None
