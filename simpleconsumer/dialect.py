"""The dialect of a generation of Kafka: its requests, its message sets, and what its answers to fetches mean.

There is one object for each generation. A broker names its generation (`Broker.generation`), and `dialect_of` returns
the object. Look it up once for a connection or a chunk, never for a message.

Code outside of a generation's own package asks the dialect and imports no generation. What differs between generations:

    correlation ids   0.7 has none: an answer belongs to the request before it
    metadata          0.7 has none: the name of a partition says which broker has it
    partitions        numbers; in 0.7 strings, `broker-partition`
    offsets           numbers of messages; in 0.7 byte positions, so that the next offset is not `offset + 1`
    requests          in versions; in 0.7 without, and one request for the offsets of each partition
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from simpleconsumer.dialect_types import FetchResult, Request
from simpleconsumer.kafka08.dialect import Kafka08
from simpleconsumer.kafka08.message_encode import Encodable
from simpleconsumer.kafka08.message_set import MAX_BATCH_BYTES, MAX_DECODED_BYTES
from simpleconsumer.types import (
    Broker,
    Buffer,
    ClusterMetadata,
    FetchedPartition,
    FetchRequest,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    TopicPartition,
)

__all__ = ["KAFKA08", "MAX_DECODED_BYTES", "Dialect", "Encodable", "dialect_of"]


class Dialect(Protocol):
    """One generation of requests and message sets. It holds no state: any number of threads may use it.

    Attributes:
        name: As in `Broker.generation`.
        has_correlation_ids: Whether requests and answers carry one.
        has_metadata: Whether brokers can be asked who leads what.
        not_leader_codes: Error codes of a broker that does not lead a partition.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_correlation_ids(self) -> bool: ...

    @property
    def has_metadata(self) -> bool: ...

    @property
    def not_leader_codes(self) -> Collection[int]: ...

    # -- partitions and offsets ----------------------------------------------------------------------------------------

    def partition_number(self, partition: int | str) -> int:
        """Return the number of a partition among those of its topic, or of its topic on its broker."""

    def next_offset(self, offset: int) -> int:
        """Return where to continue behind a message that was delivered with this offset."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def frame(self, request: Request[Any], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request as it is sent.

        Raises:
            ValueError: The generation has no such version of that request.
        """

    def fetch(
        self, wanted: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int, version: int
    ) -> Request[list[FetchedPartition]]:
        """Return a fetch of several partitions; the answer has one result for each, in their order."""

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int
    ) -> Sequence[Request[list[tuple[int, list[int]]]]]:
        """Return the requests whose answers, joined, are error code and offsets before a time of each partition."""

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> Request[list[tuple[int, OffsetAndTimestamp]]]:
        """Return the request for error code and first message at or after a time of each partition."""

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions (see `api_versions`) answers `offsets_for_times`."""

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Return the request for error code and the versions that a broker serves, by API key."""

    def metadata(self, topics: Sequence[str]) -> Request[ClusterMetadata]:
        """Return the request for brokers and leaders; no topics means all of them."""

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int, timestamp_ms: int = -1
    ) -> Request[list[int]]:
        """Return the request that stores offsets of a group; the answer is one error code for each.

        Args:
            timestamp_ms: When they were committed, -1: now; in version 1 alone.
        """

    def committed(
        self, group: str, partitions: Sequence[TopicPartition], version: int
    ) -> Request[list[tuple[int, OffsetAndMetadata]]]:
        """Return the request for the committed offsets of a group; nothing committed is offset -1, without error."""

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions (see `api_versions`) answers `delete_group`."""

    def delete_group(self, group: str) -> Request[int]:
        """Return the request that deletes a group and its offsets in Kafka; the answer is an error code."""

    def coordinator(self, group: str) -> Request[tuple[int, Broker]]:
        """Return the request for error code and broker that keeps the offsets of a group in Kafka."""

    def produce(
        self, partition: TopicPartition, data: bytes, acks: int, timeout_ms: int, version: int
    ) -> Request[ProducedPartition]:
        """Return the request that appends a message set to a partition."""

    # -- message sets --------------------------------------------------------------------------------------------------

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, empty for no messages."""

    def decode_messages(
        self,
        data: Buffer,
        topic: str,
        partition: int | str,
        start_offset: int,
        *,
        high_watermark: int | None = None,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
        resume: object = None,
    ) -> Iterator[Message]:
        """Return the messages of a set; arguments and errors are those of `simpleconsumer.decode_messages`."""

    def decode_columns(
        self,
        data: Buffer,
        topic: str,
        partition: int | str,
        start_offset: int,
        *,
        columns: Sequence[str],
        end_offset: int | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        high_watermark: int | None = None,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
        resume: object = None,
    ) -> Iterator[Any]:
        """Return the same as record batches; arguments and errors are those of `simpleconsumer.columns.decode_columns`.

        Raises:
            ImportError: numpy and pyarrow are not installed.
        """

    def set_end(self, data: Buffer) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the offset behind the last one, and how many entries there are."""

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return how many bytes of a set that was fetched from `offset` one offset takes; None when it is not known."""

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the first offset that may be in the entry that holds `offset`, at least `start`."""

    def classify(
        self, answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
    ) -> FetchResult:
        """Return what the answer to a fetch of one partition means. Pure.

        What to do about it, and when to give up, is the caller's decision.

        Args:
            position: The offset that was asked for.
            asked_bytes: The size that was asked for.
            largest_bytes: The largest size that may ever be asked for.
            version: Of the fetch request.
        """


KAFKA08: Final[Dialect] = Kafka08()
_DIALECTS: Final[Mapping[str, Dialect]] = {KAFKA08.name: KAFKA08}


def dialect_of(broker: Broker) -> Dialect:
    """Return the dialect that a broker speaks.

    Raises:
        ValueError: Its generation is not known here.
    """
    dialect = _DIALECTS.get(broker.generation)
    if dialect is None:
        raise ValueError(f"broker {broker.id} is of the generation {broker.generation!r}, not one of {list(_DIALECTS)}")
    return dialect
