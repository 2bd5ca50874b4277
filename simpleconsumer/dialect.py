"""The dialect of a generation of Kafka: its requests, its message sets, and what its answers to fetches mean.

There is one object for each generation. A broker names its generation (`Broker.generation`), and `dialect_of` returns
the object. Look it up once for a connection or a chunk, never for a message.

Code outside of a generation's own package asks the dialect and imports no generation. The differences between
generations:

    correlation ids   0.7 has none: an answer belongs to the request before it
    metadata          0.7 has none: the name of a partition says which broker has it
    partitions        numbers; in 0.7 strings, `broker-partition`
    offsets           numbers of messages, in the message sets; in 0.7 byte positions, which follow from where a set
                      starts: several messages may share one, and the next one is not `offset + 1`
    requests          in versions, from 0.10.0 on a version that the broker says it serves; in 0.7 without, and one
                      request for the offsets of each partition

Holds what producers need of Kafka 0.11 and later: record batches, also batches that are copied whole, producer ids, and
which broker accepts which.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from simpleconsumer.dialect_types import (
    MAX_ANSWER_BYTES,
    MAX_BATCH_BYTES,
    MAX_DECODED_BYTES,
    AnyRequest,
    Appended,
    Boundary,
    FetchResult,
    Request,
)
from simpleconsumer.kafka011.batch_head import BatchHead
from simpleconsumer.kafka011.dialect import Kafka011
from simpleconsumer.kafka011.record_encode import (
    NO_PRODUCER,
    BatchProducer,
    Run,
    encode_producer_batch,
    encode_producer_set,
)
from simpleconsumer.kafka011.whole_batches import BatchNotWhole, Obstacle, WholeBatch, head_with, newest_ms, restamped
from simpleconsumer.kafka07.dialect import Kafka07
from simpleconsumer.kafka08.dialect import Kafka08
from simpleconsumer.messages.apis import INIT_PRODUCER_ID, PRODUCE
from simpleconsumer.types import (
    NO_ID,
    AbortedTransaction,
    Broker,
    Buffer,
    ClusterMetadata,
    Encodable,
    EpochEnd,
    FetchedPartition,
    FetchRequest,
    LogEnd,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    ProducerId,
    TopicPartition,
)

__all__ = [
    "KAFKA011", "KAFKA07", "KAFKA08", "MAX_DECODED_BYTES", "NO_ID", "NO_PRODUCER", "RECORD_BATCH", "BatchHead",
    "BatchNotWhole", "BatchProducer", "Dialect", "Encodable", "Obstacle", "ProducerId", "Run", "WholeBatch",
    "coordinates_groups", "dialect_of", "encode_producer_batch", "encode_producer_set", "head_with", "newest_ms",
    "restamped", "takes_producer_ids", "takes_zstd",
]  # fmt: skip


class Dialect(Protocol):
    """One generation of requests and message sets. It holds no state: any number of threads may use it.

    Attributes:
        name: As in `Broker.generation`.
        has_correlation_ids: Whether requests and answers carry one.
        has_metadata: Whether brokers can be asked who leads what.
        has_byte_positions: Whether offsets are bytes of the log, which shows not where an entry starts.
        has_offsets_without_messages: Whether a set may end with offsets that are no message's: those of markers of
            transactions and of compacted messages; in 0.7 the bytes of entries without messages.
        has_long_poll: Whether a broker waits for messages before it answers a fetch.
        chooses_versions: Whether brokers say which versions they serve, so that each connection has its own; versions
            that callers pass are then not looked at.
        chooses_partition: Whether a broker chooses the partition of messages that are produced to partition -1.
        not_leader_codes: Error codes of a broker that does not lead a partition.
        columns: Names of the columns of `decode_columns`, as `simpleconsumer.columns` describes them.
        place_columns: The columns that `place_behind` needs.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_correlation_ids(self) -> bool: ...

    @property
    def has_metadata(self) -> bool: ...

    @property
    def has_offsets_without_messages(self) -> bool: ...

    @property
    def has_long_poll(self) -> bool: ...

    @property
    def chooses_versions(self) -> bool: ...

    @property
    def has_byte_positions(self) -> bool: ...

    @property
    def chooses_partition(self) -> bool: ...

    @property
    def not_leader_codes(self) -> Collection[int]: ...

    @property
    def columns(self) -> Sequence[str]: ...

    @property
    def place_columns(self) -> Sequence[str]: ...

    # -- partitions and offsets ----------------------------------------------------------------------------------------

    def partition_number(self, partition: int | str) -> int:
        """Return the number of a partition among those of its topic, or of its topic on its broker."""

    def cuts(self, batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
        """Yield first row and end of each part into which a record batch is cut; in 0.7 between entries if possible.

        Args:
            batch: At least one row, with the `place_columns`.
            max_rows: Most rows of a part; None for no limit.
        """

    def place_of(self, batch: Any, row: int) -> tuple[int, int]:
        """Return offset and index of a row of a record batch: `start_offset` and `start_index` of the decoders."""

    def place_behind(self, batch: Any, row: int) -> tuple[int, int]:
        """Return where to continue after a row of a record batch: `start_offset` and `start_index` of the decoders."""

    # -- requests ------------------------------------------------------------------------------------------------------

    def frame(self, request: Request[Any], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request as it is sent, without its tail, which the caller sends after it.

        The methods below return requests. Methods for a request that the generation does not have raise NoSuchRequest.

        Raises:
            ValueError: The generation has no such version of that request.
        """

    def throttle(self, request: Request[Any], answer: Buffer) -> tuple[str, int]:
        """Return the name of a request, and for how many ms its answer says that the client is throttled; 0: it is not.

        Args:
            answer: The bytes after the correlation id.
        """

    def mutes(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker of these versions answers a client that it throttles at once, and then reads nothing.

        Other brokers handle the request, and hold the answer back.
        """

    def limits_answers(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions keeps to the `max_bytes` of a fetch."""

    def fetch(
        self,
        wanted: Sequence[FetchRequest],
        max_wait_ms: int,
        min_bytes: int,
        version: int,
        *,
        read_committed: bool = False,
        rack: str = "",
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> AnyRequest[list[FetchedPartition]]:
        """Return a fetch of several partitions; the answer has one result for each, in their order.

        It has none at all if the broker throttles the client and reads no further request for some time (`throttle`).

        Args:
            max_bytes: Most bytes of the whole answer, but for its first entry; Kafka 0.10.1 and later.
            read_committed: Nothing from the first open transaction on, and a list of the aborted ones; 0.11 and later.
            rack: Of the reader, which may be sent to a nearer replica; Kafka 2.4 and later.
        """

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int, *, read_committed: bool = False
    ) -> Sequence[AnyRequest[list[tuple[int, list[int]]]]]:
        """Return the requests whose answers, joined, are error code and offsets before a time of each partition.

        Args:
            read_committed: The log ends at the first open transaction; Kafka 0.11 and later.
        """

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> AnyRequest[list[tuple[int, OffsetAndTimestamp]]]:
        """Return the request for error code and first message at or after a time of each partition.

        Args:
            read_committed: Do not look past the first open transaction; Kafka 0.11 and later.
        """

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions (see `api_versions`) answers `offsets_for_times`."""

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Return the request for error code and the versions that a broker serves, by API key."""

    def metadata(self, topics: Sequence[str], *, create: bool = True) -> AnyRequest[ClusterMetadata]:
        """Return the request for brokers and leaders; no topics means all of them.

        Args:
            create: Whether the broker may create topics that do not exist. False needs Kafka 0.10.0 or later.
        """

    def log_ends(
        self, partitions: Sequence[TopicPartition], *, read_committed: bool = False
    ) -> AnyRequest[list[LogEnd]]:
        """Return the request for the ends of logs, with the epochs of their leaders: Kafka 0.10.1 and later.

        Args:
            read_committed: The log ends at the first open transaction; Kafka 0.11 and later.
        """

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> AnyRequest[list[EpochEnd]]:
        """Return the request for the ends of epochs of leaders: Kafka 0.11 and later.

        Args:
            epochs: Partition -> the epoch, and the epoch of now as far as it is known (-1: not known).
        """

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int, timestamp_ms: int = -1
    ) -> AnyRequest[list[int]]:
        """Return the request that stores offsets of a group; the answer is one error code for each.

        Args:
            timestamp_ms: When they were committed, -1: now; in version 1 alone.
        """

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition], version: int
    ) -> AnyRequest[list[tuple[int, OffsetAndMetadata]]]:
        """Return the request for the committed offsets of a group; nothing committed is offset -1, without error."""

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions (see `api_versions`) answers `delete_group`."""

    def delete_group(self, group: str) -> AnyRequest[int]:
        """Return the request that deletes a group and its offsets in Kafka; the answer is an error code."""

    def coordinator(self, group: str) -> AnyRequest[tuple[int, Broker]]:
        """Return the request for error code and broker that keeps the offsets of a group in Kafka."""

    def produce(
        self, message_sets: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int, version: int
    ) -> AnyRequest[list[ProducedPartition]]:
        """Return the request that appends message sets to partitions; the answer has one result for each."""

    def newest_magic(self, served: Mapping[int, range]) -> int | None:
        """Return the newest format of messages that a broker which serves these versions takes; None: not known."""

    # -- message sets --------------------------------------------------------------------------------------------------

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int | None, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, empty for no messages.

        Args:
            magic: Format of the messages; None for the one that all brokers of the generation read.
        """

    def decode_messages(
        self,
        data: Buffer,
        topic: str,
        partition: int | str,
        start_offset: int,
        *,
        start_index: int = 0,
        data_offset: int | None = None,
        high_watermark: int | None = None,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
        aborted: Sequence[AbortedTransaction] = (),
        resume: object = None,
    ) -> Iterator[Message]:
        """Return the messages of a set; other arguments and errors are those of `simpleconsumer.decode_messages`.

        Args:
            start_offset: In 0.7 the start of an entry.
            start_index: 0.7: how many messages of the entry at `start_offset` are skipped. Else 0.
            data_offset: 0.7: position of the first byte of the data; None for `start_offset`. Else not looked at.
            aborted: Those of the same answer (`FetchedPartition.aborted`), whose messages are left out; 0.11 and later.
        """

    def decode_runs(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, **how: Any
    ) -> Iterator[Iterable[Message]]:
        """Return the messages of `decode_messages` in runs; arguments and errors are the same.

        Each run is read to its end, or not at all any more, before the next one is asked for. With the kernel a run may
        be one of its own (`simpleconsumer.kernel`), which has other ways to be read.
        """

    def decode_columns(
        self,
        data: Buffer,
        topic: str,
        partition: int | str,
        start_offset: int,
        *,
        columns: Sequence[str],
        start_index: int = 0,
        data_offset: int | None = None,
        end_offset: int | None = None,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        high_watermark: int | None = None,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
        aborted: Sequence[AbortedTransaction] = (),
        resume: object = None,
    ) -> Iterator[Any]:
        """Return the same as record batches; arguments and errors are those of `simpleconsumer.columns.decode_columns`.

        Args:
            start_index, data_offset, aborted: As for `decode_messages`.

        Raises:
            ImportError: numpy and pyarrow are not installed.
        """

    def set_end(self, data: Buffer, data_offset: int) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the offset after the last one, and the number of entries.

        Args:
            data_offset: The requested offset: in 0.7 the position of the first byte of the data.
        """

    def appended(self, data: Buffer) -> Sequence[Appended]:
        """Return how the records of a set were appended; neighbours that are alike are one, no whole entry is none.

        Empty where no message says so: before Kafka 0.10.0, and in the requests of before.
        """

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return how many bytes of a set that was fetched from `offset` one offset takes; None when it is not known."""

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the first offset that may be in the entry that holds `offset`, at least `start`."""

    def first_entry_fault(self, data: Buffer) -> str | None:
        """Return why the first entry of a set cannot be one, None if it can, or is not whole. 0.7 only; else None."""

    def find_boundary(self, data: Buffer, data_offset: int, position: int) -> Boundary:
        """Return whether a position is the start of an entry, from entries before it. 0.7 only.

        Args:
            data_offset: Position of the first byte of the data, the start of an entry.

        Raises:
            BrokenFraming: An entry before the position has an impossible size.
        """

    def last_entry_before(self, data: Buffer, data_offset: int, position: int) -> int | None:
        """Return where the entry of a set starts that ends at a position; None if none does. 0.7 only; else None."""

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


KAFKA07: Final[Dialect] = Kafka07()
"""Kafka 0.7."""
KAFKA08: Final = Kafka08()
"""Kafka 0.8 and later, in requests that all of them serve up to Kafka 3."""
KAFKA011: Final = Kafka011()
"""Kafka 0.10.0 and later: brokers that say which versions they serve."""
_FIRST_COMMIT_VERSION_OF_COORDINATORS: Final = 2
"""Brokers that are known to serve it, and list no versions, are of Kafka 0.9."""
_ALL: Final[Sequence[Dialect]] = (KAFKA07, KAFKA08, KAFKA011)
_DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in _ALL}


def dialect_of(broker: Broker) -> Dialect:
    """Return the dialect that a broker speaks.

    Raises:
        ValueError: Its generation is not known here.
    """
    dialect = _DIALECTS.get(broker.generation)
    if dialect is None:
        raise ValueError(f"broker {broker.id} is of the generation {broker.generation!r}, not one of {list(_DIALECTS)}")
    return dialect


def coordinates_groups(broker: Broker) -> bool:
    """Return whether a broker may coordinate groups, which those of Kafka 0.9 and later do."""
    if broker.generation == KAFKA08.name:
        return broker.commit_version >= _FIRST_COMMIT_VERSION_OF_COORDINATORS
    return broker.generation == KAFKA011.name


RECORD_BATCH: Final = 2
"""The magic of record batches."""
_FIRST_WITH_ZSTD: Final = 7


def takes_zstd(served: Mapping[int, range]) -> bool:
    """Return whether a broker that serves these versions takes batches with zstd: Kafka 2.1 and later."""
    return _FIRST_WITH_ZSTD in served.get(PRODUCE.key, ())


def takes_producer_ids(served: Mapping[int, range]) -> bool:
    """Return whether a broker that serves these versions keeps batches once: Kafka 0.11 and later."""
    return any(version in served.get(INIT_PRODUCER_ID.key, ()) for version in INIT_PRODUCER_ID.versions)
