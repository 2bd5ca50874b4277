"""Looks at the topics of the source, for the plan of a mirror: their settings and replicas, and a few of their batches.

It reads one answer of each partition, at the start or at the end of its log. What it does not see is found when it is
copied.

Threads: any.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import GetData, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011, BatchHead, Dialect, dialect_of, head_with
from simpleconsumer.errors import BrokenFraming, MessageError, SimpleConsumerError
from simpleconsumer.types import Broker, FetchedPartition, FetchRequest, TopicPartition
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.zookeeper_connection import read_all
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.sides import Both
from zkconsumer.mirror.topics.plan_findings import Sample
from zkconsumer.mirror.topics.topic_settings import overrides

log = logging.getLogger(__name__)

LAST_RECORDS: Final = 1_000
"""So many records before the end a sample starts, which has several batches then."""
_FETCH_BYTES: Final = 128 * 1024
_ALONE_BYTES: Final = 4 << 20
_MOST_OF_A_FETCH: Final = 20
_OVERHEAD: Final = 12
_IS_CONTROL: Final = 32


def samples(side: Side, names: Sequence[TopicPartition], last: int | None = LAST_RECORDS) -> list[Sample]:
    """Return a sample of each partition that has records and can be read now: as many as fit into one answer.

    Args:
        side: The cluster.
        names: The partitions.
        last: From so many records before the end on; None: from the start on.
    """
    if not names:
        return []
    wanted: dict[Broker, list[FetchRequest]] = defaultdict(list)
    leaders = side.cluster.leaders(names)
    for name, found in side.cluster.log_ends(names, [EARLIEST, LATEST], read_committed=True).items():
        if isinstance(found, str) or name not in leaders:
            continue
        start, end = (int(each or 0) for each in found)
        if end > start:
            offset = start if last is None else max(start, end - last)
            wanted[leaders[name]].append(FetchRequest(*name, offset, _FETCH_BYTES))
    return [sample for broker, asked in wanted.items() for sample in _of_broker(side, broker, asked)]


def _of_broker(side: Side, broker: Broker, asked: list[FetchRequest]) -> Iterator[Sample]:
    dialect = dialect_of(broker)
    try:
        with side.connect(broker) as client:
            for first in range(0, len(asked), _MOST_OF_A_FETCH):
                some = asked[first : first + _MOST_OF_A_FETCH]
                for request, found in zip(some, client.multifetch(some, 0, 1), strict=False):
                    sample = _sample(dialect, request, found)
                    yield sample if sample.records or sample.heads else _of_large(client, dialect, request)
    except SimpleConsumerError as error:
        log.info("mirror: broker %s gives no sample of its records: %s", broker.id, error)


def _of_large(client: SimpleConsumer, dialect: Dialect, request: FetchRequest) -> Sample:
    """Return the sample of a partition of which nothing has come: its first batch is larger than the answer was."""
    request = request._replace(max_bytes=_ALONE_BYTES)
    [found] = client.multifetch([request], 0, 1)
    return _sample(dialect, request, found)


def _sample(dialect: Dialect, request: FetchRequest, found: FetchedPartition) -> Sample:
    name = TopicPartition(request.topic, request.partition)
    records, keyless, oldest_ms = 0, None, None
    try:
        for message in dialect.decode_messages(found.message_set, *name, request.offset):
            records += 1
            time_ms = -1 if message.timestamp_ms is None else message.timestamp_ms
            oldest_ms = time_ms if oldest_ms is None else min(oldest_ms, time_ms)
            if message.key is None and keyless is None:
                keyless = message.offset
    except (MessageError, BrokenFraming) as error:  # the copying will stop there, and say why
        log.info("mirror: a record of %s/%s cannot be read: %s", *name, error)
    return Sample(name, tuple(_heads(dialect, found.message_set)), records, keyless, oldest_ms)


def _heads(dialect: Dialect, data: bytes | memoryview) -> Iterator[BatchHead]:
    """Yield the heads of record batches, up to the first bytes of another format; the last batch may be cut off."""
    at, whole = 0, memoryview(data)
    while dialect is KAFKA011 and at < len(whole):
        rest = whole[at:]
        head = head_with(rest, int.from_bytes(rest[:8], "big", signed=True)) if len(rest) >= _OVERHEAD else None
        if head is None or head.last_delta < 0:
            return
        if not head.attributes & _IS_CONTROL:
            yield head
        at += _OVERHEAD + head.size


# -- what the source tells of its topics ------------------------------------------------------------------------------


def source_settings(both: Both, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic of the source, as far as it tells."""
    return overrides(both.source, topic) if both.port is None else node_settings(both.port, topic)


def target_settings(both: Both, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic of the target."""
    return overrides(both.target, topic) if both.target_port is None else node_settings(both.target_port, topic)


def node_settings(port: ZooKeeperPort, topic: str) -> dict[str, str]:
    """Return the settings that stand at a topic in its ZooKeeper."""
    [reply] = read_all(port, [GetData(f"/config/topics/{topic}")])
    data: Any = reply[0] if isinstance(reply, tuple) else None
    return dict(json.loads(data).get("config", {})) if data else {}


def source_replicas(both: Both, topics: Sequence[str]) -> dict[str, int]:
    """Return how many replicas the partitions of topics of the source have; a topic is missing if it does not tell."""
    reader = both.source.cluster.reader
    if isinstance(reader, MetadataReader):
        found = reader.existing_topics(topics)
        counts = {name: [len(row.replicas) for row in each.partitions] for name, each in found.items()}
    else:
        assert both.port is not None
        replies = read_all(both.port, [GetData(znodes.topic_path(name)) for name in topics])
        counts = {name: _replicas_in(reply) for name, reply in zip(topics, replies, strict=True)}
    return {name: max(each) for name, each in counts.items() if each}


def _replicas_in(reply: Any) -> list[int]:
    """Return the numbers of replicas in the node of a topic; none for one of Kafka 0.7, which lists no replicas."""
    try:
        return [len(each) for each in json.loads(reply[0])["partitions"].values()] if isinstance(reply, tuple) else []
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
