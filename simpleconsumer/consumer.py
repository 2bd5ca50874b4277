"""SimpleConsumer: fetch messages, offsets and metadata from one Kafka broker (0.7 or later).

It knows one broker and no group. The caller finds the leader of a partition, handles error codes, and decides where to
continue.

Source: kafka.javaapi.consumer.SimpleConsumer (0.8.2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from simpleconsumer.broker_calls import BrokerCalls
from simpleconsumer.connection import Connection
from simpleconsumer.dialect import KAFKA011, KAFKA08, MAX_DECODED_BYTES, Dialect, Encodable
from simpleconsumer.dialect_types import AnyRequest, Outcome
from simpleconsumer.errors import (
    BrokenFraming,
    BrokerError,
    ConnectionFailed,
    DecodeError,
    MessageError,
    MessageTooLarge,
)
from simpleconsumer.framing import MAX_FRAME_BYTES
from simpleconsumer.security.security import Security
from simpleconsumer.types import (
    MAX_INT64,
    AbortedTransaction,
    Broker,
    Buffer,
    ClusterMetadata,
    EpochEnd,
    FetchedPartition,
    FetchRequest,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    TopicPartition,
)

LATEST: Final = -1
"""As a time: the offset behind the last message."""
EARLIEST: Final = -2
"""As a time: the offset of the first message that is still there."""

_NO_BASE_OFFSET = -1
_GROUP_ID_NOT_FOUND = 69
_MAX_PARTITION = 0x7FFFFFFF
_MAX_BYTES = 0x7FFFFFFF
T = TypeVar("T")
_Decode = Callable[[int, Buffer, Sequence[AbortedTransaction]], Iterator[T]]


class SimpleConsumer:
    """One broker, one connection, made when first needed.

    Every call has one deadline, `timeout_s`, over connecting, sending and receiving. A fault or time-out closes the
    connection (`ConnectionFailed`, `DecodeError`) and the next call makes a new one. Requests that only read are sent
    a second time if an idle connection turns out to be closed; produce and commit never are.

    `version` arguments: 0 is what every broker serves; see `simpleconsumer.kafka08.requests` for which broker has more.
    With `dialect=KAFKA011`, for Kafka 0.10.0 and later, they are not looked at: each connection asks the broker what it
    serves, and requests are sent in the newest version that both have. Offsets of groups are those in Kafka.

    A broker of Kafka 0.7 needs `dialect=KAFKA07`. Its offsets are byte positions, a partition is named by the text
    `broker-partition` or by its number on the broker, fetches are answered at once, and produce requests never.
    Requests that it does not have raise NoSuchRequest, which says what to do instead.

    Threads: One at a time. `close()` from any thread makes a blocked call end at once with ConnectionFailed.

    Attributes:
        client_id: Its name in the logs of the broker.
        dialect: The generation of Kafka that the broker speaks.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 30.0,
        client_id: str = "zkconsumer",
        receive_buffer_bytes: int = 65536,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        reuse_answers: bool = False,
        dialect: Dialect = KAFKA08,
        send_buffer_bytes: int = 0,
        connect_timeout_s: float | None = None,
        read_committed: bool = False,
        rack: str = "",
        security: Security | None = None,
    ) -> None:
        """
        Args:
            timeout_s: Deadline of each call; the wait that a fetch asks of the broker must be shorter.
            client_id: Name under which the broker logs and counts requests.
            receive_buffer_bytes: Socket receive buffer; 0 leaves it to the system.
            max_frame_bytes: Largest answer that is accepted (256 MiB); a larger one is refused before it is read.
            reuse_answers: The message sets of `multifetch` are valid until the next call only; saves memory and time.
            dialect: What the broker speaks (`simpleconsumer.dialect.dialect_of`).
            send_buffer_bytes: Socket send buffer; 0 leaves it to the system.
            connect_timeout_s: Longest part of `timeout_s` for connecting; None: all of it.
            read_committed: Fetches stop at the first open transaction and list those that were aborted, and logs end
                there; needs KAFKA011 and Kafka 0.11 or later.
            security: TLS and SASL (`Security.of`); None for neither.
            rack: Where the reader is: brokers may name a nearer replica (`FetchedPartition.preferred_replica`).
        """
        self.dialect = dialect
        self.client_id = client_id
        self._connection = Connection(
            host, port, timeout_s, receive_buffer_bytes, max_frame_bytes, reuse_answers=reuse_answers,
            send_buffer_bytes=send_buffer_bytes, connect_timeout_s=connect_timeout_s, security=security,
            client_id=client_id,
        )  # fmt: skip
        self._calls = BrokerCalls(self._connection, dialect, client_id)
        self._read_committed = read_committed
        self._rack = rack

    @property
    def host(self) -> str:
        """The host of the broker."""
        return self._connection.host

    @property
    def port(self) -> int:
        """The port of the broker."""
        return self._connection.port

    @property
    def connects(self) -> int:
        """How often it has tried to connect; unchanged between two calls if one connection served both."""
        return self._connection.connects

    def fetch(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        version: int = 0,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> list[Message[bytes, bytes]]:
        """Return the messages from an offset on, decoded; an empty list means that none came within `max_wait_ms`.

        If a message in the middle cannot be delivered, those before it are returned; the next fetch from there raises
        the error.

        Raises:
            BrokerError: The broker refused; `OffsetOutOfRange` and `NotLeaderForPartition` are the usual ones.
            MessageTooLarge: The message at that offset does not fit into `max_bytes`.
            MessageError: The message at that offset cannot be delivered; `next_offset` is behind it.
            BrokenFraming: The message set has an entry of impossible size.
        """
        def decode(at: int, data: Buffer, aborted: Sequence[AbortedTransaction]) -> Iterator[Message[bytes, bytes]]:
            return self.dialect.decode_messages(
                data, topic, partition, at, max_decoded_bytes=max_decoded_bytes, aborted=aborted
            )

        request = FetchRequest(topic, partition, offset, max_bytes)
        return self._fetched(request, decode, max_wait_ms, min_bytes, version)

    def fetch_columns(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        columns: Sequence[str] | None = None,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        version: int = 0,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> list[Any]:
        """Return the messages from an offset on as `pyarrow.RecordBatch`es, otherwise as `fetch` does, errors too.

        Args:
            columns: Some of those of the dialect (`simpleconsumer.columns`); None for all of them.

        Raises:
            ImportError: numpy and pyarrow are not installed (`pip install 'zkconsumer[columns]'`).
        """
        wanted = self.dialect.columns if columns is None else columns
        try:  # a wrong column is reported before anything is sent
            self.dialect.decode_columns(b"", topic, partition, 0, columns=wanted)
        except ImportError as error:
            error.add_note("record batches need numpy and pyarrow: pip install 'zkconsumer[columns]'")
            raise


        def decode(at: int, data: Buffer, aborted: Sequence[AbortedTransaction]) -> Iterator[Any]:
            return self.dialect.decode_columns(
                data, topic, partition, at, columns=wanted, max_decoded_bytes=max_decoded_bytes, aborted=aborted
            )

        request = FetchRequest(topic, partition, offset, max_bytes)
        return self._fetched(request, decode, max_wait_ms, min_bytes, version)

    def multifetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int = 100, min_bytes: int = 1, *, version: int = 0
    ) -> list[FetchedPartition]:
        """Return what the broker has of several partitions, in the order of the requests, in one round trip.

        Message sets are views of the receive buffer (`decode_messages` reads them); each has an error code beside it.

        Args:
            max_wait_ms: How long the broker may wait for `min_bytes`; must be below the deadline of the call.
            min_bytes: With 0 the broker answers at once.

        Raises:
            ValueError: No requests, the same partition twice, or an impossible offset, size or wait.
        """
        requests = [FetchRequest(*request) for request in requests]
        self._check_fetch(requests, max_wait_ms, min_bytes)
        return self.ask(
            self.dialect.fetch(
                requests, max_wait_ms, min_bytes, version, read_committed=self._read_committed, rack=self._rack
            )
        )

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
            raise ValueError(f"{len(wanted)} partitions, {len(set(wanted))} different ones: each is to be named once")
        _check_numbers(wanted)
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
            raise ValueError("no partitions to look for a time in")
        _check_numbers(wanted)
        for (topic, number), time_ms in wanted.items():
            if not 0 <= time_ms <= MAX_INT64:
                raise ValueError(f"{topic}/{number}: the time is {time_ms}, not a number of milliseconds from 0")
        return self.ask(self.dialect.offsets_for_times(wanted))

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

    def api_versions(self) -> dict[int, range]:
        """Return which versions of each API key the broker serves: Kafka 0.10.0 and later.

        Raises:
            BrokerError: The broker refused to answer.
            ConnectionFailed: A broker of 0.8 closes the connection, and one of 0.9 never answers.
        """
        code, served = self.ask(self.dialect.api_versions())
        if code:
            raise BrokerError(code, None, None)
        return served

    def topic_metadata(self, topics: Sequence[str], *, create: bool = True) -> ClusterMetadata:
        """Return brokers and leaders of some topics; asking for an unknown one can create it.

        Error codes are part of the result: 5 for a topic that is being created, 3 for one that does not exist.

        Args:
            create: Whether the broker may create topics; False needs KAFKA011.

        Raises:
            ValueError: An empty list, which a broker takes for all topics (see `all_topic_metadata`).
        """
        if isinstance(topics, str) or not topics:
            raise ValueError(f"topics is {topics!r}: a list of at least one name is needed")
        return self._metadata(topics, create)

    def all_topic_metadata(self) -> ClusterMetadata:
        """Return brokers and leaders of every topic."""
        return self._metadata([])

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
        _check_numbers(wanted)
        codes = self.ask(self.dialect.commit(group, wanted, version, timestamp_ms))
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
        _check_numbers(wanted)
        rows = self.ask(self.dialect.committed(group, wanted, version))
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
        if code not in (0, _GROUP_ID_NOT_FOUND):
            raise BrokerError(code, None, None)
        return code == 0

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
            meanwhile: Called when the request is sent, before its answer is read; it must not raise.
            transactional_id: Of the transaction to which the batches belong; Kafka 0.11 and later.

        Raises:
            ValueError: No partitions, or one without messages.
        """
        if acks not in (-1, 0, 1):
            raise ValueError(f"acks is {acks}: -1, 0 and 1 are known")
        if not sets:
            raise ValueError("no partitions to produce to")
        if not all(sets.values()):
            raise ValueError("no messages to produce")
        _check_numbers(each for each in sets if each.partition != -1 or not self.dialect.chooses_partition)
        request = (
            self.dialect.produce(sets, acks, timeout_ms, version) if transactional_id is None
            else KAFKA011.produce(sets, acks, timeout_ms, transactional_id=transactional_id)
        )  # fmt: skip
        if not request.has_answer:
            self._calls.tell(request)
            return [ProducedPartition(0, _NO_BASE_OFFSET)] * len(sets)
        return self._calls.ask(request, meanwhile)

    def served_versions(self) -> Mapping[int, range]:
        """Return the versions that the broker serves, by API key, as its connection has asked for them.

        Connects if there is no connection. Empty for a dialect that does not choose versions.
        """
        return self._calls.served()

    def ask(self, request: AnyRequest[T]) -> T:
        """Return the decoded answer to a request of the dialect; the connection is closed if it cannot be decoded.

        Raises:
            VersionNotServed: The broker serves no version of it that is spoken here (KAFKA011 alone).
        """
        return self._calls.ask(request)

    def close(self) -> None:
        """Close finally; a call that is blocked in another thread ends at once with ConnectionFailed."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # The names of the JVM API.
    getOffsetsBefore = get_offsets_before  # noqa: N815
    topicMetadata = topic_metadata  # noqa: N815
    commitOffsets = commit_offsets  # noqa: N815
    fetchOffsets = fetch_offsets  # noqa: N815

    def _fetched(
        self, request: FetchRequest, decode: _Decode[T], max_wait_ms: int, min_bytes: int, version: int
    ) -> list[T]:
        """Return what is decoded of one fetch, and of those behind it for as long as there is nothing to deliver.

        Callers go on behind the last message. Of markers, aborted transactions and emptied batches none comes, and
        they would be fetched again for ever.
        """
        while True:
            fetched = self.multifetch([request], max_wait_ms, min_bytes, version=version)[0]
            if fetched.error_code:
                raise BrokerError(fetched.error_code, request.topic, request.partition, request.offset)
            found = _before_error(decode(request.offset, fetched.message_set, fetched.aborted))
            if found:
                return found
            if not self.dialect.chooses_versions:
                return self._nothing(request, fetched.message_set)
            result = self.dialect.classify(fetched, request.offset, request.max_bytes, request.max_bytes)
            if result.outcome is not Outcome.CHUNK:
                return self._nothing(request, fetched.message_set)
            request = request._replace(offset=result.next_offset)

    def _metadata(self, topics: Sequence[str], create: bool = True) -> ClusterMetadata:
        metadata = self.ask(self.dialect.metadata(topics, create=create))
        missing = [topic for topic in topics if topic not in metadata.topics]
        if missing:
            raise DecodeError(f"metadata response: {missing[0]} and {len(missing) - 1} more are missing")
        return metadata

    def _check_fetch(self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int) -> None:
        if not requests:
            raise ValueError("nothing to fetch")
        if not 0 <= max_wait_ms < self._connection.timeout_s * 1000:
            # KAFKA-1147: each answer would come after the connection was closed.
            raise ValueError(f"max_wait_ms is {max_wait_ms}, the deadline of a call {self._connection.timeout_s} s")
        if min_bytes < 0:
            raise ValueError(f"min_bytes is {min_bytes}")
        for request in requests:
            if not 1 <= request.max_bytes <= _MAX_BYTES:
                raise ValueError(f"{request.topic}/{request.partition}: max_bytes is {request.max_bytes}, not a number "
                                 f"from 1 to {_MAX_BYTES}")
            if not ~MAX_INT64 <= request.offset <= MAX_INT64:
                limit = MAX_INT64 if request.offset > 0 else ~MAX_INT64
                raise ValueError(f"{request.topic}/{request.partition}: offset {request.offset} is beyond {limit}")
        _check_numbers([(request.topic, request.partition) for request in requests])
        if len({(request.topic, request.partition) for request in requests}) != len(requests):
            raise ValueError("a partition is asked for twice; brokers answer only one of the two")

    def _nothing(self, request: FetchRequest, message_set: Buffer) -> list[Any]:
        """Return no messages; raise an error if there are none because the first one was cut off."""
        if not len(message_set) or self.dialect.set_end(message_set, request.offset)[2]:
            return []
        answer = FetchedPartition(request.topic, request.partition, 0, -1, memoryview(message_set))
        result = self.dialect.classify(answer, request.offset, request.max_bytes, request.max_bytes)
        if result.outcome is Outcome.BROKEN:
            raise BrokenFraming(f"{request.topic}/{request.partition} at {request.offset}: {result.reason}")
        reason = f"the message is larger than the fetch of {request.max_bytes} bytes; ask for {result.size_bytes}"
        raise MessageTooLarge(request.topic, request.partition, request.offset, result.next_offset, reason)


def _before_error(decoding: Iterator[T]) -> list[T]:
    """Return what comes before the first error; raise the error if nothing does."""
    found: list[T] = []
    try:
        for each in decoding:
            found.append(each)  # noqa: PERF402 - what came before an error is kept
    except (MessageError, DecodeError):
        if not found:
            raise
    return found


def _check_numbers(partitions: Iterable[tuple[str, int | str]]) -> None:
    """Raise for partitions that no broker can have; Kafka 0.7 names them by texts, which are not checked.

    Raises:
        ValueError: A number below 0 or above 2^31-1.
    """
    for topic, number in partitions:
        if isinstance(number, int) and not 0 <= number <= _MAX_PARTITION:
            raise ValueError(f"{topic}/{number}: there is no such partition; their numbers are 0 to {_MAX_PARTITION}")


def _with_metadata(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    return offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)


def _raise_codes(rows: Iterable[tuple[int, str, int | str, int | None]]) -> None:
    """Raise the first error of several partitions with the others attached."""
    errors = [BrokerError(*row) for row in rows if row[0]]
    if errors:
        errors[0].also = tuple(errors[1:])
        raise errors[0]
