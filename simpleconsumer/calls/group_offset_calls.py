"""GroupOffsetCalls: stores and reads the offsets of groups at a broker, and finds the one that keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.errors import BrokerError
from simpleconsumer.partition_rows import check_numbers
from simpleconsumer.types import Broker, OffsetAndMetadata, TopicPartition
from zkconsumer_error import ErrorCode

__all__ = ["GroupOffsetCalls"]



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
