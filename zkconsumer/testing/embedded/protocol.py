"""Requests and answers of Kafka 0.8.2.2, from the broker's side. Pure.

Written apart from `simpleconsumer.kafka08.requests`, so that the consumer is not tested by its own encoder.
Request: `int16 api key, int16 version, int32 correlation id, string client id`, body. Answer: `int32 size, int32
correlation id`, body. Produce, fetch, offsets and metadata are answered in version 0 whatever version was asked.

Source: kafka.api.*, kafka.network.RequestChannel (0.8.2.2).

Reads requests front to back, in both encodings of Kafka's messages.

Written apart from the decoders of `simpleconsumer`, so that the consumer is not tested by its own reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct, error, pack
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
TopicPartition = tuple[str, int]
_INT8 = Struct(">b")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_MOST_VARINT_BYTES = 5


class BadRequest(Exception):  # noqa: N818 - not a failure of the broker
    """A request that cannot be read, or that is not served: the Java broker closes the connection."""


class Reader:
    """Reads a request front to back; a field that does not fit is a struct.error or a BadRequest.

    Attributes:
        is_flexible: whether lengths are compact, and structs end with tagged fields.
    """

    def __init__(self, data: bytes | bytearray) -> None:
        self.is_flexible = False
        self._view = memoryview(data)
        self._at = 0

    @property
    def position(self) -> int:
        """How many bytes were read."""
        return self._at

    @position.setter
    def position(self, position: int) -> None:
        self._at = position

    def _take(self, layout: Struct) -> int:
        value: int = layout.unpack_from(self._view, self._at)[0]
        self._at += layout.size
        return value

    def int8(self) -> int:
        return self._take(_INT8)

    def int16(self) -> int:
        return self._take(_INT16)

    def int32(self) -> int:
        return self._take(_INT32)

    def int64(self) -> int:
        return self._take(_INT64)

    def raw(self, length: int) -> memoryview:
        """So many bytes."""
        end = self._at + length
        if length < 0 or end > len(self._view):
            raise BadRequest(f"{length} bytes at byte {self._at} of {len(self._view)}")
        part = self._view[self._at : end]
        self._at = end
        return part

    def uvarint(self) -> int:
        value = 0
        for index in range(_MOST_VARINT_BYTES):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return value
        raise BadRequest(f"a varint before byte {self._at} has more than {_MOST_VARINT_BYTES} bytes")

    def nullable_string(self) -> str | None:
        length = self.uvarint() - 1 if self.is_flexible else self.int16()
        return str(self.raw(length), "utf-8", "replace") if length >= 0 else None

    def string(self) -> str:
        """A string, empty for null."""
        return self.nullable_string() or ""

    def sized(self) -> memoryview:
        return self.raw(self.uvarint() - 1 if self.is_flexible else self.int32())

    def nullable_array(self, read: Callable[[], T]) -> list[T] | None:
        count = self.uvarint() - 1 if self.is_flexible else self.int32()
        return [read() for _ in range(count)] if count >= 0 else None

    def end(self) -> None:
        """Pass over the tagged fields at the end of a struct, in the flexible encoding."""
        for _ in range(self.uvarint() if self.is_flexible else 0):
            self.uvarint()
            self.raw(self.uvarint())

    def partitions(self, read: Callable[[], T]) -> dict[TopicPartition, T]:
        """`[topic [int32 partition, what read reads]]`; of a partition that comes twice the last."""
        found: dict[TopicPartition, T] = {}

        def of_topic() -> None:
            topic = self.string()

            def of_partition() -> None:
                partition = self.int32()
                found[topic, partition] = read()
                self.end()

            self.nullable_array(of_partition)
            self.end()

        self.nullable_array(of_topic)
        return found


PRODUCE: Final = 0
FETCH: Final = 1
OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
CONSUMER_METADATA: Final = 10
API_NAMES: Final = {
    PRODUCE: "produce",
    FETCH: "fetch",
    OFFSETS: "offsets",
    METADATA: "metadata",
    OFFSET_COMMIT: "offset_commit",
    OFFSET_FETCH: "offset_fetch",
    CONSUMER_METADATA: "consumer_metadata",
}
"""The served requests, by API key."""


class Produce(NamedTuple):
    """`int16 acks, int32 timeout ms, [topic [int32 partition, bytes set]]`."""

    acks: int
    timeout_ms: int
    message_sets: dict[TopicPartition, memoryview]


class FetchPosition(NamedTuple):
    """Where to read a partition."""

    offset: int
    max_bytes: int


class Fetch(NamedTuple):
    """`int32 replica id, int32 max wait ms, int32 min bytes, [topic [int32 partition, int64 offset, int32 bytes]]`."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    positions: dict[TopicPartition, FetchPosition]


class Offsets(NamedTuple):
    """`int32 replica id, [topic [int32 partition, int64 time, int32 max offsets]]`; time and count by partition."""

    replica_id: int
    wanted: dict[TopicPartition, tuple[int, int]]


class Metadata(NamedTuple):
    """`[topic]`; none means all."""

    topics: list[str]


class CommittedOffset(NamedTuple):
    """Offset, metadata, and when it was committed (ms; -1: now)."""

    offset: int
    metadata: str
    timestamp_ms: int = -1


class OffsetCommit(NamedTuple):
    """`string group, [topic [int32 partition, int64 offset, string metadata]]`.

    Version 1 has `int32 generation, string member` after the group and an `int64` timestamp after each offset.
    """

    version: int
    group: str
    offsets: dict[TopicPartition, CommittedOffset]


class OffsetFetch(NamedTuple):
    """`string group, [topic [int32 partition]]`."""

    version: int
    group: str
    partitions: list[TopicPartition]


class ConsumerMetadata(NamedTuple):
    """`string group`."""

    group: str


Body = Produce | Fetch | Offsets | Metadata | OffsetCommit | OffsetFetch | ConsumerMetadata


class Request(NamedTuple):
    """A request as read; `api` is a name of `API_NAMES`."""

    api: str
    correlation_id: int
    client_id: str
    body: Body


def decode_request(data: bytes | bytearray) -> Request:
    """Return the request in a frame (without its size).

    Raises:
        BadRequest: it is cut, an API key or version is not served by 0.8.2, or a length is impossible.
    """
    reader = Reader(data)
    try:
        api_key, version = reader.int16(), reader.int16()
        if api_key not in API_NAMES:
            raise BadRequest(f"API key {api_key} is not served")
        if api_key in (OFFSET_COMMIT, OFFSET_FETCH) and version not in (0, 1):
            raise BadRequest(f"version {version} of API key {api_key} is not served")
        correlation_id, client_id = reader.int32(), reader.string()
        return Request(API_NAMES[api_key], correlation_id, client_id, _READERS[api_key](reader, version))
    except error as cut:
        raise BadRequest(f"request of {len(data)} bytes: {cut}") from cut


def _read_produce(reader: Reader, version: int) -> Produce:
    return Produce(reader.int16(), reader.int32(), reader.partitions(reader.sized))


def _read_fetch(reader: Reader, version: int) -> Fetch:
    def position() -> FetchPosition:
        return FetchPosition(reader.int64(), reader.int32())

    return Fetch(reader.int32(), reader.int32(), reader.int32(), reader.partitions(position))


def _read_offsets(reader: Reader, version: int) -> Offsets:
    return Offsets(reader.int32(), reader.partitions(lambda: (reader.int64(), reader.int32())))


def _read_metadata(reader: Reader, version: int) -> Metadata:
    return Metadata([reader.string() for _ in range(reader.int32())])


def _read_offset_commit(reader: Reader, version: int) -> OffsetCommit:
    def offset() -> CommittedOffset:
        value = reader.int64()
        timestamp_ms = reader.int64() if version == 1 else -1
        return CommittedOffset(value, reader.string(), timestamp_ms)

    group = reader.string()
    if version == 1:
        reader.int32(), reader.string()  # generation and member: 0.8.2 has no group coordination
    return OffsetCommit(version, group, reader.partitions(offset))


def _read_offset_fetch(reader: Reader, version: int) -> OffsetFetch:
    return OffsetFetch(version, reader.string(), list(reader.partitions(lambda: None)))


def _read_consumer_metadata(reader: Reader, version: int) -> ConsumerMetadata:
    return ConsumerMetadata(reader.string())


_READERS: Final[dict[int, Callable[[Reader, int], Body]]] = {
    PRODUCE: _read_produce,
    FETCH: _read_fetch,
    OFFSETS: _read_offsets,
    METADATA: _read_metadata,
    OFFSET_COMMIT: _read_offset_commit,
    OFFSET_FETCH: _read_offset_fetch,
    CONSUMER_METADATA: _read_consumer_metadata,
}


# ---- answers


class BrokerAddress(NamedTuple):
    """Id, host and port as advertised to clients."""

    broker_id: int
    host: str
    port: int


class PartitionAnswer(NamedTuple):
    """A partition in a metadata answer; leader -1 for none."""

    error: int
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]


class TopicAnswer(NamedTuple):
    """A topic in a metadata answer."""

    error: int
    topic: str
    partitions: Sequence[PartitionAnswer]


def encode_produce(results: Iterable[tuple[TopicPartition, tuple[int, int]]]) -> bytes:
    """Return error and base offset of each partition."""
    return _topics((where, pack(">ihq", where[1], *result)) for where, result in results)


def encode_fetch(results: Iterable[tuple[TopicPartition, tuple[int, int, int]]]) -> list[bytes]:
    """Return the bytes before each partition's message set, given error, high watermark and length of the set.

    Sets follow their heads, so the answer is: head, set, head, set, and so on, in the order of the input by topic.
    """
    heads: list[bytes] = []
    topics = _grouped((where, pack(">ihqi", where[1], *result)) for where, result in results)
    before = _INT32.pack(len(topics))
    for topic, parts in topics.items():
        before += _string(topic) + _INT32.pack(len(parts))
        for part in parts:
            heads.append(before + part)
            before = b""
    return heads or [before]


def encode_offsets(results: Iterable[tuple[TopicPartition, tuple[int, list[int]]]]) -> bytes:
    """Return error and offsets of each partition."""
    return _topics(
        (where, pack(f">ihi{len(offsets)}q", where[1], code, len(offsets), *offsets))
        for where, (code, offsets) in results
    )


def encode_metadata(brokers: Iterable[BrokerAddress], topics: Iterable[TopicAnswer]) -> bytes:
    """Return brokers and topics."""
    addresses = [_address(broker) for broker in brokers]
    answers = [
        _INT16.pack(topic.error) + _string(topic.topic) + _array([_partition(each) for each in topic.partitions])
        for topic in topics
    ]
    return _array(addresses) + _array(answers)


def encode_offset_commit(results: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """Return the error of each partition."""
    return _topics((where, pack(">ih", where[1], code)) for where, code in results)


def encode_offset_fetch(results: Iterable[tuple[TopicPartition, tuple[int, str, int]]]) -> bytes:
    """Return offset, metadata and error of each partition."""
    return _topics(
        (where, pack(">iq", where[1], offset) + _string(metadata) + _INT16.pack(code))
        for where, (offset, metadata, code) in results
    )


def encode_consumer_metadata(code: int, coordinator: BrokerAddress | None) -> bytes:
    """Return the coordinator of a group; none goes with an error."""
    return _INT16.pack(code) + _address(coordinator or BrokerAddress(-1, "", -1))


def frame(correlation_id: int, size_bytes: int) -> bytes:
    """Return the bytes before the body of an answer: size of the rest, correlation id."""
    return pack(">ii", size_bytes + 4, correlation_id)


def by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions in the order in which answers hold them: topics together, in the order of first mention."""
    topics: dict[str, list[TopicPartition]] = {}
    for where in partitions:
        topics.setdefault(where[0], []).append(where)
    return [where for group in topics.values() for where in group]


def _topics(rows: Iterable[tuple[TopicPartition, bytes]]) -> bytes:
    return _array([_string(topic) + _array(parts) for topic, parts in _grouped(rows).items()])


def _grouped(rows: Iterable[tuple[TopicPartition, bytes]]) -> dict[str, list[bytes]]:
    topics: dict[str, list[bytes]] = {}
    for (topic, _), row in rows:
        topics.setdefault(topic, []).append(row)
    return topics


def _array(items: Sequence[bytes]) -> bytes:
    return _INT32.pack(len(items)) + b"".join(items)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _address(broker: BrokerAddress) -> bytes:
    return _INT32.pack(broker.broker_id) + _string(broker.host) + _INT32.pack(broker.port)


def _partition(answer: PartitionAnswer) -> bytes:
    head = pack(">hii", answer.error, answer.partition, answer.leader)
    return head + b"".join(pack(f">i{len(ids)}i", len(ids), *ids) for ids in (answer.replicas, answer.isr))
