"""Says which producers with an id have written to a topic, as the leaders of its partitions know (Kafka 2.8 and later).

A leader forgets a producer that has written nothing for a day (`producer.id.expiration.ms`), and knows none of those
without an id.

Source: kafka.log.ProducerStateManager.activeProducers (2.8), KIP-664.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import ActiveProducer, Broker, TopicPartition
from zkconsumer.admin.offsets.offset_plans import topic_partitions
from zkconsumer.admin.topics.controller_calls import ControllerCalls, refusal
from zkconsumer.admin.values import JsonValue, TopicNotAuthorized
from zkconsumer_error import ErrorCode


@dataclass(frozen=True)
class ProducerRow:
    """One producer that has written to a partition.

    Attributes:
        partition: Its number.
        producer_id: The id of the producer.
        epoch: The epoch of its last batch.
        last_sequence: Sequence number of the last record of that batch; None if it is not known.
        last_timestamp_ms: The newest time in that batch, in milliseconds since 1970; None if it is not known.
        transaction_start: Offset of the first record of its open transaction; None without one.
    """

    partition: int
    producer_id: int
    epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None
    transaction_start: int | None


@dataclass(frozen=True)
class TopicProducers(JsonValue):
    """The producers of a topic.

    Attributes:
        topic: Its name.
        producers: By partition, the one that wrote last first.
        problems: Partitions whose leaders do not say it, as sentences.
    """

    topic: str
    producers: tuple[ProducerRow, ...]
    problems: tuple[str, ...]


def topic_producers(calls: ControllerCalls, topic: str, chosen: Sequence[int]) -> TopicProducers:
    """Return the producers that have written to partitions of a topic.

    Args:
        chosen: Numbers of partitions; none for all.

    Raises:
        NotFound: There is no such topic or partition.
        TopicRefused: The brokers are too old.
        TopicNotAuthorized: They do not let this user read the topic.
    """
    names = topic_partitions(calls.cluster, topic, list(chosen))
    calls.require("producers", topic, "described")
    by_leader: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
    leaders = calls.cluster.leaders(names)
    for name, broker in leaders.items():
        by_leader[broker].append(name)
    rows: list[ProducerRow] = []
    problems = [f"{topic}-{name.partition}: no broker leads it" for name in names if name not in leaders]
    for broker, asked in by_leader.items():
        try:
            with calls.client(broker) as client:
                answers = client.ask(KAFKA011.active_producers(asked))
        except SimpleConsumerError as error:
            problems += [f"{topic}-{name.partition}: {error}" for name in asked]
            continue
        for name, (verdict, found) in zip(asked, answers, strict=True):
            if verdict.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                refused = refusal(verdict, topic, "described", calls.where)
                raise TopicNotAuthorized(refused.sentence, f"have the access lists of the brokers allow this user to "
                                                           f"Read topic {topic}")  # fmt: skip
            if verdict.error_code:
                sentence = refusal(verdict, topic, "described", calls.where).sentence
                problems.append(f"{topic}-{name.partition}: {sentence}")
            rows += [_row(int(name.partition), each) for each in found]
    rows.sort(key=lambda row: (row.partition, -(row.last_timestamp_ms or 0), row.producer_id))
    return TopicProducers(topic, tuple(rows), tuple(sorted(problems)))


def _row(partition: int, found: ActiveProducer) -> ProducerRow:
    sequence, time_ms = (value if value >= 0 else None for value in (found.last_sequence, found.last_timestamp_ms))
    return ProducerRow(partition, found.producer_id, found.epoch, sequence, time_ms, found.transaction_start)
