"""The dialect of Kafka 0.8 and later: requests with versions and correlation ids, message sets of magic 0 and 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from simpleconsumer.dialect_types import (
    MAX_ANSWER_BYTES,
    Appended,
    FetchResult,
    NumberedOffsets,
    Request,
    numbered,
)
from simpleconsumer.errors import DecodeError, NoSuchRequest
from simpleconsumer.kafka08 import message_set, requests
from simpleconsumer.kafka08.classify import NOT_LEADER_CODES, bytes_an_offset, classify, first_offset_in
from simpleconsumer.kafka08.message_encode import Encodable, encode_message_set
from simpleconsumer.types import (
    AbortedTransaction,
    Broker,
    Buffer,
    ClusterMetadata,
    EpochEnd,
    FetchedPartition,
    FetchRequest,
    LogEnd,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    TopicPartition,
)
from zkconsumer_error import ErrorCode


class Kafka08(NumberedOffsets):
    """The requests and message sets of Kafka 0.8 and later, as `simpleconsumer.dialect.Dialect` describes them."""

    name: Final = "kafka08"
    has_correlation_ids: Final = True
    has_metadata: Final = True
    has_long_poll: Final = True
    has_offsets_without_messages: Final = False
    chooses_versions: Final = False
    not_leader_codes: Final = NOT_LEADER_CODES
    columns: Final = ("key", "value", "offset", "timestamp_ms", "timestamp_type")

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    # -- requests ------------------------------------------------------------------------------------------------------

    def frame(self, request: Request[Any], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request, but for its tail."""
        return requests.frame_request(
            request.api_key, request.version, correlation_id, client_id, request.body, sum(map(len, request.tail))
        )

    def throttle(self, request: Request[Any], answer: Buffer) -> tuple[str, int]:
        """Return for how long a fetch or produce of version 1 or later was throttled, which brokers of 0.9 say."""
        return requests.throttle(request.api_key, request.version, answer)

    def mutes(self, served: Mapping[int, range]) -> bool:
        """Return False: brokers of 0.9 hold answers back."""
        return False

    def limits_answers(self, served: Mapping[int, range]) -> bool:
        """Return False."""
        return False

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
    ) -> Request[list[FetchedPartition]]:
        """Return a fetch of several partitions."""
        for each in wanted:
            numbered(TopicPartition(each.topic, each.partition))
        body = requests.encode_fetch(wanted, max_wait_ms, min_bytes, version, max_bytes)
        return Request(
            requests.FETCH, version, body, lambda answer: requests.decode_fetch(answer, wanted, version), True
        )

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int, *, read_committed: bool = False
    ) -> list[Request[list[tuple[int, list[int]]]]]:
        """Return one request for all partitions."""
        wanted = [numbered(partition) for partition in partitions]
        body = requests.encode_offsets(wanted, time_ms, max_offsets)
        return [Request(requests.OFFSETS, 0, body, lambda answer: requests.decode_offsets(answer, wanted), True)]

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Request[list[tuple[int, OffsetAndTimestamp]]]:
        """Return the request for the first messages at or after some times: Kafka 0.10.1 and later."""
        wanted = {numbered(partition): time_ms for partition, time_ms in times_ms.items()}
        body = requests.encode_offsets_for_times(wanted)
        return Request(
            requests.OFFSETS, 1, body, lambda answer: requests.decode_offsets_for_times(answer, list(wanted)), True
        )

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `offsets_for_times`."""
        return 1 in served.get(requests.OFFSETS, ())

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Return the request for error code and served versions: Kafka 0.10.0 and later."""
        return Request(requests.API_VERSIONS, 0, b"", requests.decode_api_versions, True)

    def metadata(self, topics: Sequence[str], *, create: bool = True) -> Request[ClusterMetadata]:
        """Return the request for brokers and leaders; no topics means all of them.

        Raises:
            ValueError: Topics by name that the broker is not to create, which these versions cannot say.
        """
        if topics and not create:
            raise ValueError(
                "brokers before 0.10 may create each topic that a request names; ask for all topics instead"
            )
        return Request(requests.METADATA, 0, requests.encode_metadata(topics), requests.decode_metadata, True)

    def log_ends(self, partitions: Sequence[TopicPartition], *, read_committed: bool = False) -> Request[list[LogEnd]]:
        """Raise NoSuchRequest."""
        raise NoSuchRequest(self.name, "the epoch of a log's end", "`get_offsets_before` returns where a log ends")

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> Request[list[EpochEnd]]:
        """Raise NoSuchRequest."""
        raise NoSuchRequest(self.name, "the end of a leader's epoch", "`get_offsets_before` returns where a log ends")

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int, timestamp_ms: int = -1
    ) -> Request[list[int]]:
        """Return the request that stores offsets of a group; the answer is one error code for each.

        Args:
            timestamp_ms: When they were committed, -1: now; in version 1 alone.
        """
        wanted = {numbered(partition): offset for partition, offset in offsets.items()}
        body = requests.encode_offset_commit(group, wanted, version, timestamp_ms)
        return Request(
            requests.OFFSET_COMMIT, version, body, lambda answer: requests.decode_offset_commit(answer, list(wanted))
        )

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition], version: int
    ) -> Request[list[tuple[int, OffsetAndMetadata]]]:
        """Return the request for the committed offsets of a group; nothing committed is offset -1, without error."""
        wanted = [numbered(partition) for partition in partitions]
        # In version 0 "nothing committed" and "no such partition" are the same code.
        none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else 0

        def decode(answer: Buffer) -> list[tuple[int, OffsetAndMetadata]]:
            found = requests.decode_offset_fetch(answer, wanted)
            return [(0 if code == none else code, offset) for code, offset in found]

        body = requests.encode_offset_fetch(group, wanted)
        return Request(requests.OFFSET_FETCH, version, body, decode, True)

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions (see `api_versions`) answers `delete_group`."""
        return 0 in served.get(requests.DELETE_GROUPS, ())

    def delete_group(self, group: str) -> Request[int]:
        """Return the request that deletes a group and its offsets in Kafka; the answer is an error code."""

        def decode(answer: Buffer) -> int:
            codes = requests.decode_delete_groups(answer)
            if group not in codes:
                raise DecodeError(f"delete groups response: group {group!r} is missing")
            return codes[group]

        return Request(requests.DELETE_GROUPS, 0, requests.encode_delete_groups([group]), decode)

    def coordinator(self, group: str) -> Request[tuple[int, Broker]]:
        """Return the request for error code and broker that keeps the offsets of a group in Kafka."""
        body = requests.encode_consumer_metadata(group)
        return Request(requests.CONSUMER_METADATA, 0, body, requests.decode_consumer_metadata, True)

    def produce(
        self, message_sets: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int, version: int
    ) -> Request[list[ProducedPartition]]:
        """Return the request that appends message sets to partitions."""
        wanted = {numbered(partition): data for partition, data in message_sets.items()}
        body, *tail = requests.encode_produce(wanted, acks, timeout_ms)
        return Request(
            requests.PRODUCE, version, body, lambda answer: requests.decode_produce(answer, list(wanted), version),
            has_answer=acks != 0, tail=tail,
        )  # fmt: skip

    def newest_magic(self, served: Mapping[int, range]) -> int | None:
        """Return None: brokers are not asked for their versions."""
        return None

    # -- message sets --------------------------------------------------------------------------------------------------

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int | None, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, of magic 0 by default."""
        return encode_message_set(messages, codec, magic or 0, timestamp_ms=timestamp_ms)

    def decode_messages(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, aborted: Sequence[AbortedTransaction] = (), **how: Any,
    ) -> Iterator[Message]:  # fmt: skip
        """Return the messages of a set; see `message_set.decode_messages`. Offsets are in the data."""
        return message_set.decode_messages(data, topic, partition, start_offset, **how)

    def decode_runs(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, **how: Any
    ) -> Iterator[Iterable[Message]]:
        """Return the messages of a set as one run."""
        return iter((self.decode_messages(data, topic, partition, start_offset, **how),))

    def decode_columns(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, aborted: Sequence[AbortedTransaction] = (), **how: Any,
    ) -> Iterator[Any]:  # fmt: skip
        """Return the messages of a set as record batches; see `columns.decode_columns`."""
        from simpleconsumer.kafka08.columns import decode_columns

        return decode_columns(data, topic, partition, start_offset, **how)

    def set_end(self, data: Buffer, data_offset: int) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the offset after the last one, and the number of entries."""
        return message_set.shallow_end(data)

    def appended(self, data: Buffer) -> Sequence[Appended]:
        """Return nothing: messages of magic 0 say neither epochs nor times."""
        return ()

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return how many bytes of a set one offset takes; see `classify`."""
        return bytes_an_offset(data, offset)

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the first offset that may be in the entry that holds `offset`; see `classify`."""
        return first_offset_in(data, offset, start)

    def classify(
        self, answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
    ) -> FetchResult:
        """Return what the answer to a fetch of one partition means; see `simpleconsumer.kafka08.classify`."""
        return classify(answer, position, asked_bytes, largest_bytes, version)
