"""Asks a broker about offsets, of logs and of groups, and appends messages to its partitions.

GroupOffsetCalls: stores and reads the offsets of groups at a broker, and finds the one that keeps them.

LogOffsetCalls: asks a broker where logs start and end, which offset belongs to a time, and where epochs end.

ProduceCalls: appends messages to partitions of one broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011, Encodable
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, ConnectionFailed
from simpleconsumer.primitives import check_numbers
from simpleconsumer.types import (
    MAX_INT64,
    Broker,
    EpochEnd,
    FetchRequest,
    LogEnd,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    TopicPartition,
)
from zkconsumer_error import ErrorCode


class GroupOffsetCalls(BrokerClient):
    """Asks for offsets of groups."""

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int] | Mapping[TopicPartition, OffsetAndMetadata],
        *,
        version: int = 0,
        timestamp_ms: int = -1,
    ) -> None:
        """Store offsets of a group: version 0 in ZooKeeper, 1 and 2 in Kafka; needs Kafka 0.8.1 or later.

        Args:
            offsets: Partition -> next offset to read.
            version: Of the request.
            timestamp_ms: When they were committed, from which a broker counts how long it keeps them; -1: now. In
                version 1 alone.

        Raises:
            BrokerError: Of the first partition that was refused; `also` lists the errors of the others. The offsets of
                all other partitions are stored.
        """
        wanted = {TopicPartition(*partition): _with_metadata(offset) for partition, offset in offsets.items()}
        if not wanted:
            return
        check_numbers(wanted)
        codes = self.ask(self.dialect.commit_offsets(group, wanted, version, timestamp_ms))
        _raise_codes(
            (code, *partition, wanted[partition].offset) for partition, code in zip(wanted, codes, strict=True)
        )

    def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, version: int = 0
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group, -1 for none: version 0 from ZooKeeper, 1 from Kafka.

        Raises:
            BrokerError: Of the first partition that failed; `also` lists the errors of the others.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted:
            return {}
        check_numbers(wanted)
        rows = self.ask(self.dialect.fetch_offsets(group, wanted, version))
        _raise_codes((code, *partition, None) for partition, (code, _) in zip(wanted, rows, strict=True))
        return {partition: row for partition, (_, row) in zip(wanted, rows, strict=True)}

    def consumer_metadata(self, group: str) -> Broker:
        """Return the broker that keeps the offsets of a group in Kafka (0.8.2 and later).

        Raises:
            BrokerError: `ConsumerCoordinatorNotAvailable` (15), as always the first time; ask again.
        """
        code, broker = self.ask(self.dialect.coordinator(group))
        if code:
            raise BrokerError(code, None, None)
        return broker

    def delete_group(self, group: str) -> bool:
        """Delete a group and its offsets in Kafka, at the broker that keeps them; return False if it has none.

        Needs Kafka 1.1 (`dialect.serves_delete_groups`).

        Raises:
            BrokerError: `NonEmptyGroup` (68) while the group has members that the broker coordinates, and others.
        """
        code = self.ask(self.dialect.delete_group(group))
        if code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
            raise BrokerError(code, None, None)
        return code == 0

    # The names of the JVM API.
    commitOffsets = commit_offsets  # noqa: N815
    fetchOffsets = fetch_offsets  # noqa: N815


def _with_metadata(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)


def _raise_codes(rows: Iterable[tuple[int, str, int | str, int | None]]) -> None:
    """Raise the first error of several partitions with the others attached."""
    errors = [BrokerError(*row) for row in rows if row[0]]
    if errors:
        errors[0].also = tuple(errors[1:])
        raise errors[0]


LATEST: Final = -1
"""As a time: the offset after the last message."""
EARLIEST: Final = -2
"""As a time: the offset of the first message that is still there."""


class LogOffsetCalls(BrokerClient):
    """Asks for offsets of logs."""

    def get_offsets_before(self, topic: str, partition: int | str, time_ms: int, max_offsets: int = 1) -> list[int]:
        """Return at most `max_offsets` offsets of segments that were started before a time, newest first.

        Args:
            time_ms: Milliseconds since 1970, or LATEST or EARLIEST. Brokers use the times of segment files.

        Raises:
            BrokerError: The broker is not the leader, or does not know the partition.
        """
        [(code, offsets)] = self.multi_offsets_before([TopicPartition(topic, partition)], time_ms, max_offsets)
        if code:
            raise BrokerError(code, topic, partition)
        return offsets

    def multi_offsets_before(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int = 1
    ) -> list[tuple[int, list[int]]]:
        """Return error code and offsets of several partitions, in their order, in one round trip (0.7: one for each).

        A broker of Kafka 0.7 closes the connection for a partition that it does not have. A fetch of one byte, which it
        answers, then shows the error code.

        Args:
            time_ms: As for `get_offsets_before`.
            max_offsets: As for `get_offsets_before`.

        Raises:
            ValueError: No partitions, the same one twice, or one that cannot exist.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        if not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(
                f"{len(wanted)} partitions are named, {len(set(wanted))} different ones; name one or more, each once"
            )
        check_numbers(wanted)
        asked = self.dialect.offsets(wanted, time_ms, max_offsets, read_committed=self._read_committed)
        if self.dialect.has_correlation_ids:
            return [row for request in asked for row in self.ask(request)]
        return [self._offsets_07(each, request) for each, request in zip(wanted, asked, strict=True)]

    def _offsets_07(
        self, partition: TopicPartition, request: AnyRequest[list[tuple[int, list[int]]]]
    ) -> tuple[int, list[int]]:
        try:
            [row] = self.ask(request)
        except ConnectionFailed as error:
            if not isinstance(error.__cause__, ConnectionError):  # a deadline that is over, or a close by the caller
                raise
            [found] = self.ask(self.dialect.fetch([FetchRequest(*partition, 0, 1)], 0, 0, 0))
            if found.error_code not in self.dialect.not_leader_codes:
                raise
            return found.error_code, []
        return row

    def offset_for_time(self, topic: str, partition: int, time_ms: int) -> OffsetAndTimestamp | None:
        """Return the first message with a timestamp at or after a time, None if there is none: Kafka 0.10.1 and later.

        Messages without a timestamp, as producers before 0.10 send them, are never found.

        Args:
            time_ms: Milliseconds since 1970.

        Raises:
            BrokerError: The broker is not the leader, or does not know the partition; 43 for a topic whose
                format has no timestamps (`get_offsets_before` finds segments of it).
            ConnectionFailed: An older broker closes the connection.
        """
        [(code, found)] = self.offsets_for_times({TopicPartition(topic, partition): time_ms})
        if code:
            raise BrokerError(code, topic, partition)
        return None if found.offset < 0 else found

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> list[tuple[int, OffsetAndTimestamp]]:
        """Return error code and first message of several partitions, in their order, in one round trip.

        Args:
            times_ms: As for `offset_for_time`. Where there is no such message, offset and timestamp are -1.

        Raises:
            ValueError: No partitions, or a negative time.
            ConnectionFailed: A broker before 0.10.1 closes the connection.
        """
        wanted = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
        if not wanted:
            raise ValueError("no partitions to search for a time")
        check_numbers(wanted)
        for (topic, number), time_ms in wanted.items():
            if not 0 <= time_ms <= MAX_INT64:
                raise ValueError(f"{topic}/{number}: the time is {time_ms}; it must be milliseconds since 1970, from 0")
        return self.ask(self.dialect.offsets_for_times(wanted, read_committed=self._read_committed))

    def log_ends(self, partitions: Sequence[TopicPartition]) -> list[LogEnd]:
        """Return where the logs of several partitions end, in their order, with the epochs of their leaders.

        Raises:
            VersionNotServed: The broker is older than Kafka 0.10.1.
            NoSuchRequest: The dialect has no versions to choose from.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        return self.ask(self.dialect.log_ends(wanted, read_committed=self._read_committed)) if wanted else []

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> list[EpochEnd]:
        """Return where epochs of the leaders of several partitions end, in their order: Kafka 0.11 and later.

        Args:
            epochs: Partition -> the epoch, and the epoch of now as far as it is known (-1: not known). An error code
                of 74 or 75 says that the broker knows another epoch of now.

        Raises:
            VersionNotServed: The broker is older.
            NoSuchRequest: The dialect has no versions to choose from.
        """
        return self.ask(self.dialect.epoch_ends(epochs)) if epochs else []

    getOffsetsBefore = get_offsets_before  # noqa: N815


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
                0.7 never answer, and drop messages that they do not store, such as too large ones, without a sign.
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
            sets: Of each partition; `dialect.encode_messages` makes one, and several may follow one another.
            meanwhile: As for `Connection.call`.
            transactional_id: Of the transaction to which the batches belong; Kafka 0.11 and later.

        Raises:
            ValueError: No partitions, or one without messages.
        """
        request = self._produce(sets, acks, timeout_ms, version, transactional_id)
        if not request.has_answer:
            self._calls.tell(request)
            return [ProducedPartition(0, _NO_BASE_OFFSET)] * len(sets)
        return self._calls.ask(request, meanwhile, patience=self._patience("produce", timeout_ms))

    def send_sets(
        self,
        sets: Mapping[TopicPartition, bytes],
        *,
        acks: int = -1,
        timeout_ms: int = 10_000,
        transactional_id: str | None = None,
    ) -> None:
        """Send encoded message sets over the connection that stands, and do not wait for the answer.

        Up to five requests may be under way so. `next_produced` returns their answers in order, and until the last one
        has come, there are no other calls. A broker serves the requests of a connection in their order.

        Args:
            sets: As for `produce_sets`; so are the other arguments.

        Raises:
            ConnectionFailed: There is no connection, or it was lost: `is_sent` says whether these messages may be
                stored. Those of earlier requests whose answers have not come may be stored in any case.
            Throttled: The broker throttles this client for longer than a call may take; nothing was sent.
            ValueError: As for `produce_sets`, or acks 0, which brings no answer.
        """
        if acks == 0:
            raise ValueError("acks is 0: there would be no answer")
        self._calls.send_ahead(self._produce(sets, acks, timeout_ms, 0, transactional_id))

    def next_produced(self, timeout_ms: int = 10_000) -> list[ProducedPartition]:
        """Return error code and first offset of each partition of the earliest request of `send_sets`.

        Args:
            timeout_ms: That of the request.

        Raises:
            ConnectionFailed: The connection was lost, or no answer came in time: the answers to all requests are lost.
            DecodeError: The answer makes no sense; likewise.
        """
        if not self.ahead:
            raise ConnectionFailed(self.host, self.port, "the connection was closed")
        answer: list[ProducedPartition] = self._calls.next_answer(self._patience("produce", timeout_ms))
        return answer

    def _produce(
        self,
        sets: Mapping[TopicPartition, bytes],
        acks: int,
        timeout_ms: int,
        version: int,
        transactional_id: str | None,
    ) -> AnyRequest[list[ProducedPartition]]:
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks is {acks}; it must be -1, 0 or 1")
        if not sets:
            raise ValueError("no partitions to produce to")
        if not all(sets.values()):
            raise ValueError("no messages to produce")
        check_numbers(each for each in sets if each.partition != -1 or not self.dialect.chooses_partition)
        if transactional_id is not None:
            return KAFKA011.produce(sets, acks, timeout_ms, transactional_id=transactional_id)
        return self.dialect.produce(sets, acks, timeout_ms, version)
