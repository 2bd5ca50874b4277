"""ProduceCalls: appends messages to partitions of one broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011, Encodable
from simpleconsumer.errors import BrokerError
from simpleconsumer.partition_rows import check_numbers
from simpleconsumer.types import ProducedPartition, TopicPartition

__all__ = ["ProduceCalls"]

_NO_BASE_OFFSET = -1


class ProduceCalls(BrokerClient):
    """Appends messages."""

    def produce(
        self,
        topic: str,
        partition: int | str,
        messages: Iterable[Encodable],
        *,
        codec: str = "none",
        acks: int = 1,
        timeout_ms: int = 10_000,
        magic: int | None = None,
        timestamp_ms: int | None = None,
        version: int = 0,
    ) -> int:
        """Append messages to a partition; return the offset of the first, or -1 where no answer comes.

        It is never sent twice: after ConnectionFailed it is not known whether the messages were stored.

        Args:
            partition: In 0.7 -1 lets the broker choose one.
            acks: 1: the leader has stored it; -1: all in-sync replicas have stored it; 0: no answer at all. Brokers of
                0.7 never answer, and drop without a sign what they do not store: what is too large, for example.
            timeout_ms: How long the broker waits for replicas.
            magic: 1 (with `version` 2, Kafka 0.10) carries timestamps; None: 0, and in Kafka 0.7 its own magic 1. With
                KAFKA011 None is the newest that the broker takes.

        Raises:
            BrokerError: The broker refused the messages.
            ValueError: No messages, or magic 1 with a version that cannot carry it.
        """
        [result] = self.multi_produce(
            {TopicPartition(topic, partition): messages}, codec=codec, acks=acks, timeout_ms=timeout_ms, magic=magic,
            timestamp_ms=timestamp_ms, version=version,
        )  # fmt: skip
        if result.error_code:
            raise BrokerError(result.error_code, topic, partition)
        return result.base_offset

    def multi_produce(
        self,
        messages: Mapping[TopicPartition, Iterable[Encodable]],
        *,
        codec: str = "none",
        acks: int = 1,
        timeout_ms: int = 10_000,
        magic: int | None = None,
        timestamp_ms: int | None = None,
        version: int = 0,
    ) -> list[ProducedPartition]:
        """Append messages to several partitions in one request; return error code and first offset of each, in order.

        Where no answer comes, the codes are 0 and the offsets -1.

        Args:
            messages: Of each partition; other arguments are those of `produce`.

        Raises:
            ValueError: No partitions, one without messages, or magic 1 with a version that cannot carry it.
        """
        if self.dialect.chooses_versions:
            magic = self.dialect.newest_magic(self.served_versions()) if magic is None else magic
        elif magic == 1 and version < 2 and self.dialect.has_metadata:
            raise ValueError(f"magic 1 needs produce version 2, not {version}")
        sets: dict[TopicPartition, bytes] = {}
        for topic, partition in messages:
            sets[TopicPartition(topic, partition)] = self.dialect.encode_messages(
                messages[TopicPartition(topic, partition)], codec, magic, timestamp_ms
            )
        return self.produce_sets(sets, acks=acks, timeout_ms=timeout_ms, version=version)

    def produce_sets(
        self,
        sets: Mapping[TopicPartition, bytes],
        *,
        acks: int = 1,
        timeout_ms: int = 10_000,
        version: int = 0,
        meanwhile: Callable[[], None] | None = None,
        transactional_id: str | None = None,
    ) -> list[ProducedPartition]:
        """Append encoded message sets; return error code and first offset of each, in order, as `multi_produce`.

        Args:
            sets: Of each partition; `dialect.encode_messages` makes one, and several may stand one behind the other.
            meanwhile: As for `Connection.call`.
            transactional_id: Of the transaction to which the batches belong; Kafka 0.11 and later.

        Raises:
            ValueError: No partitions, or one without messages.
        """
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks is {acks}; it must be -1, 0 or 1")
        if not sets:
            raise ValueError("no partitions to produce to")
        if not all(sets.values()):
            raise ValueError("no messages to produce")
        check_numbers(each for each in sets if each.partition != -1 or not self.dialect.chooses_partition)
        request = (
            self.dialect.produce(sets, acks, timeout_ms, version) if transactional_id is None
            else KAFKA011.produce(sets, acks, timeout_ms, transactional_id=transactional_id)
        )  # fmt: skip
        if not request.has_answer:
            self._calls.tell(request)
            return [ProducedPartition(0, _NO_BASE_OFFSET)] * len(sets)
        return self._calls.ask(request, meanwhile, patience=self._patience("produce", timeout_ms))
