"""The dialect of Kafka 0.7: requests without versions and correlation ids, message sets by byte position.

Classifies the answer to a fetch for one partition, in Kafka 0.7. Rules, and which failure each prevents:
- A position moves by whole entries only, by the bytes that they take: nobody could fetch from any other position.
- "Out of range" moves no position: a broker that comes back with another log reports it for positions that are good.
- A first entry that is cut off is asked for with the size that it names; while that size itself is cut off, with twice
  as much. At the end of a set a cut off entry is no error.
- A broker sends as many bytes as it is asked for, unless its segment ends, and segments end with an entry. So an entry
  that is cut off in an answer that is shorter shows that the position is not the start of an entry, or that the log is
  damaged. Asking for more would never end.
- A head that no message can have is reported as such, and not taken for a huge message: with `skip`, a consumer would
  move its position by the size that it names, out of the log.

Source: kafka.consumer.FetcherRunnable, PartitionTopicInfo, kafka.message.ByteBufferMessageSet, FileMessageSet,
kafka.server.KafkaRequestHandlers (0.7.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from simpleconsumer.dialect_types import MAX_ANSWER_BYTES, Appended, Boundary, FetchResult, Outcome, Request
from simpleconsumer.errors import BrokenFraming, NoSuchRequest, broker_error
from simpleconsumer.kafka07 import message_set, requests
from simpleconsumer.kafka07.message_set import LAYOUT, find_boundary, last_entry_before, with_positions
from simpleconsumer.kafka07.requests import encode_message_set
from simpleconsumer.primitives import MAX_FRAME_BYTES, plain, walk_entries
from simpleconsumer.types import (
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
    TopicPartition,
)

_OUT_OF_RANGE: Final = 1
_WRONG_PARTITION: Final = 3
NOT_LEADER_CODES: Final = frozenset((_WRONG_PARTITION,))
"""Error codes of a broker that does not have the partition."""
_NEWEST_MAGIC: Final = 1
_MISPLACED: Final = "the position is not the start of an entry, or the log is damaged"


def classify(answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int) -> FetchResult:
    """Return what the answer to a fetch of one partition means.

    Args:
        position: The position that was asked for.
        asked_bytes: The size that was asked for.
        largest_bytes: The largest size that may ever be asked for.
    """
    code = answer.error_code
    if code == _WRONG_PARTITION:
        return FetchResult(Outcome.FIND_LEADER, reason=_no_partition(answer))
    if code:
        row = broker_error(code)
        outcome = Outcome.CHECK_RANGE if code == _OUT_OF_RANGE else Outcome.BACK_OFF
        return FetchResult(outcome, reason=f"{row.name} (code {code}): {row.meaning}")
    data = with_positions(answer.message_set, position)
    if not len(data):
        return FetchResult(Outcome.NOTHING)
    try:
        walk = walk_entries(data, LAYOUT)
    except BrokenFraming as error:
        return FetchResult(Outcome.BROKEN, reason=f"{error}: {_MISPLACED}")
    if not walk.entries:
        return _does_not_fit(data, position, asked_bytes, largest_bytes)
    return FetchResult(Outcome.CHUNK, walk.end, position + walk.end, last_byte=walk.last, entries=walk.entries)


def _no_partition(answer: FetchedPartition) -> str:
    """Return that a broker does not have a partition; of a name `broker-partition`, which broker, and what names it."""
    reason = f"WrongPartition (code {answer.error_code})"
    if isinstance(answer.partition, int):
        return f"{reason}: the broker has no partition {answer.partition} of the topic"
    broker, _, number = answer.partition.partition("-")
    node = f"/brokers/topics/{answer.topic}/{broker}"
    return f"{reason}: broker {broker} has no partition {number} of the topic, although {node} counts it"


def _does_not_fit(data: Buffer, position: int, asked_bytes: int, largest_bytes: int) -> FetchResult:
    """Return the result of a set without any whole entry."""
    size_is_known = len(data) >= LAYOUT.overhead
    needed = LAYOUT.size.unpack_from(data)[0] + LAYOUT.overhead if size_is_known else 2 * asked_bytes
    broken = _why_broken(data, asked_bytes, needed)
    if broken is not None:
        return FetchResult(Outcome.BROKEN, reason=f"{broken}: {_MISPLACED}")
    size = f"it takes {needed} bytes" if size_is_known else f"its size is not within the {len(data)} bytes that came"
    reason = f"the entry at {position} does not fit into {asked_bytes} bytes: {size}"
    if needed <= largest_bytes or (not size_is_known and asked_bytes < largest_bytes):
        return FetchResult(Outcome.GROW, size_bytes=min(needed, largest_bytes), reason=reason)
    reason += f", and the limit is {largest_bytes}"
    after = position + needed if size_is_known else position
    return FetchResult(Outcome.TOO_LARGE, next_offset=after, offset=position, size_bytes=needed, reason=reason)


def _why_broken(data: Buffer, asked_bytes: int, needed: int) -> str | None:
    """Return why the only entry of a set, which is cut off, can be none; None if it can be one."""
    if len(data) < asked_bytes:
        return f"{len(data)} bytes of {asked_bytes} came, in the middle of an entry"
    if len(data) > LAYOUT.overhead and data[LAYOUT.overhead] > _NEWEST_MAGIC:
        return f"the entry has magic {data[LAYOUT.overhead]} (0 and 1 are known)"
    if needed > MAX_FRAME_BYTES:
        return f"the entry takes {needed} bytes, more than any answer can have"
    return None


_IN_ZOOKEEPER: Final = "offsets of groups are only in ZooKeeper: use ConsumerConnector, Admin or the command line"


class Kafka07:
    """The requests and message sets of Kafka 0.7, as `simpleconsumer.dialect.Dialect` describes them."""

    name: Final = "kafka07"
    has_correlation_ids: Final = False
    has_metadata: Final = False
    has_long_poll: Final = False
    has_offsets_without_messages: Final = True
    chooses_versions: Final = False
    has_byte_positions: Final = True
    chooses_partition: Final = True
    not_leader_codes: Final = NOT_LEADER_CODES
    columns: Final = ("key", "value", "offset", "entry_index", "next_offset", "timestamp_ms", "timestamp_type")
    place_columns: Final = ("offset", "entry_index", "next_offset")

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    # -- partitions and offsets ----------------------------------------------------------------------------------------

    def partition_number(self, partition: int | str) -> int:
        """Return the number of a partition on its broker, of the name `broker-partition`."""
        return requests.partition_number(partition)

    def cuts(self, batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
        """Yield parts that end where an entry ends, if one does within `max_rows`.

        A part that starts within an entry ends with it: while its partition is revoked, no other may be delivered.
        """
        from simpleconsumer.kafka07.columns import cuts

        return cuts(batch, max_rows)

    def place_of(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the position of the entry of a row, and the number of the row in that entry."""
        return batch.column("offset")[row].as_py(), batch.column("entry_index")[row].as_py()

    def place_behind(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the position after a row, and how many messages of the entry there are done."""
        offset, index, after = (batch.column(name)[row].as_py() for name in self.place_columns)
        return after, index + 1 if after == offset else 0

    # -- requests ------------------------------------------------------------------------------------------------------

    def frame(self, request: Request[object], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request, which carries neither correlation id nor client id."""
        _check_version(request.version)
        return requests.frame_request(request.api_key, request.body)

    def throttle(self, request: Request[Any], answer: Buffer) -> tuple[str, int]:
        """Return that the client is not throttled: there are no quotas."""
        return "", 0

    def mutes(self, served: Mapping[int, range]) -> bool:
        """Return False."""
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
        """Return a fetch of several partitions; the broker answers at once, whatever there is."""
        _check_version(version)
        if len(wanted) == 1:
            [one] = wanted
            body = requests.encode_fetch(one)
            return Request(requests.FETCH, 0, body, lambda answer: [requests.decode_fetch(answer, one)], True)
        body = requests.encode_multi_fetch(wanted)
        return Request(requests.MULTI_FETCH, 0, body, lambda answer: requests.decode_multi_fetch(answer, wanted), True)

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int, *, read_committed: bool = False
    ) -> list[Request[list[tuple[int, list[int]]]]]:
        """Return one request for each partition; on one that it does not have, the broker closes the connection."""
        bodies = [requests.encode_offsets(partition, time_ms, max_offsets) for partition in partitions]
        return [
            Request(requests.OFFSETS, 0, body, lambda answer: [requests.decode_offsets(answer)], True)
            for body in bodies
        ]

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Request[list[tuple[int, OffsetAndTimestamp]]]:
        """Raise NoSuchRequest."""
        _refuse("the message of a time", "messages have no timestamps: `get_offsets_before` finds segments of a time")

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return False."""
        return False

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Raise NoSuchRequest."""
        _refuse("the versions that they serve", "all brokers of 0.7 serve the same requests, which have no versions")

    def metadata(self, topics: Sequence[str], *, create: bool = True) -> Request[ClusterMetadata]:
        """Raise NoSuchRequest."""
        _refuse("metadata", "brokers and topics are in ZooKeeper, and the name of a partition says which broker has it")

    def log_ends(self, partitions: Sequence[TopicPartition], *, read_committed: bool = False) -> Request[list[LogEnd]]:
        """Raise NoSuchRequest."""
        _refuse("the epoch of a log's end", "partitions have no leaders: each is on one broker")

    def epoch_ends(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> Request[list[EpochEnd]]:
        """Raise NoSuchRequest."""
        _refuse("the end of a leader's epoch", "partitions have no leaders: each is on one broker")

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], version: int, timestamp_ms: int = -1
    ) -> Request[list[int]]:
        """Raise NoSuchRequest."""
        _refuse("committing offsets", _IN_ZOOKEEPER)

    def fetch_offsets(
        self, group: str, partitions: Sequence[TopicPartition], version: int
    ) -> Request[list[tuple[int, OffsetAndMetadata]]]:
        """Raise NoSuchRequest."""
        _refuse("committed offsets", _IN_ZOOKEEPER)

    def serves_delete_groups(self, served: Mapping[int, range]) -> bool:
        """Return False."""
        return False

    def delete_group(self, group: str) -> Request[int]:
        """Raise NoSuchRequest."""
        _refuse("deleting a group", _IN_ZOOKEEPER)

    def coordinator(self, group: str) -> Request[tuple[int, Broker]]:
        """Raise NoSuchRequest."""
        _refuse("the offset manager of a group", _IN_ZOOKEEPER)

    def produce(
        self, message_sets: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int, version: int
    ) -> Request[list[ProducedPartition]]:
        """Return the request that appends message sets to partitions; no broker answers it, whatever `acks` says."""
        _check_version(version)
        if len(message_sets) == 1:
            [(partition, data)] = message_sets.items()
            kind, body = requests.PRODUCE, requests.encode_produce(partition, data)
        else:
            kind, body = requests.MULTI_PRODUCE, requests.encode_multi_produce(message_sets)
        return Request(kind, 0, body, lambda answer: [], has_answer=False)

    def newest_magic(self, served: Mapping[int, range]) -> int | None:
        """Return None: brokers do not list their versions."""
        return None

    # -- message sets --------------------------------------------------------------------------------------------------

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int | None, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, of magic 1 by default; there are no timestamps."""
        return encode_message_set(messages, codec, 1 if magic is None else magic)

    def decode_messages(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        high_watermark: int | None = None, aborted: Sequence[AbortedTransaction] = (), **how: Any,
    ) -> Iterator[Message]:  # fmt: skip
        """Return the messages of a set; see `message_set.decode_messages`. There is no high watermark."""
        return message_set.decode_messages(data, topic, partition, start_offset, **how)

    def decode_runs(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, **how: Any
    ) -> Iterator[Iterable[Message]]:
        """Return the messages of a set as one run."""
        return iter((self.decode_messages(data, topic, partition, start_offset, **how),))

    def decode_columns(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        high_watermark: int | None = None, aborted: Sequence[AbortedTransaction] = (), **how: Any,
    ) -> Iterator[Any]:  # fmt: skip
        """Return the messages of a set as record batches; see `columns.decode_columns`."""
        from simpleconsumer.kafka07.columns import decode_columns

        return decode_columns(data, topic, partition, start_offset, **how)

    def set_end(self, data: Buffer, data_offset: int) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the position after the last one, and how many there are."""
        walk = walk_entries(plain(data), message_set.LAYOUT)
        return walk.end, data_offset + walk.end if walk.entries else None, walk.entries

    def appended(self, data: Buffer) -> Sequence[Appended]:
        """Return nothing: messages of magic 0 say neither epochs nor times."""
        return ()

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return 1: positions count bytes."""
        return 1.0

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the start of the entry that holds a position; `start` is that of the first entry of the data."""
        return find_boundary(data, start, offset).start

    def first_entry_fault(self, data: Buffer) -> str | None:
        """Return why the first entry of a set cannot be one; see `message_set.first_entry_fault`."""
        return message_set.first_entry_fault(data)

    def find_boundary(self, data: Buffer, data_offset: int, position: int) -> Boundary:
        """Return whether a position is the start of an entry; see `message_set`."""
        return find_boundary(data, data_offset, position)

    def last_entry_before(self, data: Buffer, data_offset: int, position: int) -> int | None:
        """Return where the entry of a set starts that ends at a position; see `message_set`."""
        return last_entry_before(data, data_offset, position)

    def classify(
        self, answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
    ) -> FetchResult:
        """Return what the answer to a fetch of one partition means; see `simpleconsumer.kafka07.dialect`."""
        return classify(answer, position, asked_bytes, largest_bytes)


def _check_version(version: int) -> None:
    if version:
        raise ValueError(f"version {version}: requests of Kafka 0.7 have no versions, so it must be 0")


def _refuse(request: str, remedy: str) -> NoReturn:
    raise NoSuchRequest(Kafka07.name, request, remedy)
