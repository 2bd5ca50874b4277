"""LogOffsetCalls: asks a broker where logs start and end, which offset belongs to a time, and where epochs end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, ConnectionFailed
from simpleconsumer.partition_rows import check_numbers
from simpleconsumer.types import MAX_INT64, EpochEnd, FetchRequest, LogEnd, OffsetAndTimestamp, TopicPartition

__all__ = ["EARLIEST", "LATEST", "LogOffsetCalls"]

LATEST: Final = -1
"""As a time: the offset behind the last message."""
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
            raise ValueError(f"{len(wanted)} partitions are named, {len(set(wanted))} different ones; name one or "
                             "more, each once")
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
