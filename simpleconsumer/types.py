"""The values of requests and answers, those about groups included. They hold the answers of a broker. Pure.

The values of requests about groups that brokers coordinate: members, lists, states. They decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # With defaults, which `typing` has from Python 3.13 on, `Message` alone stands for `Message[Any, Any]`.
    # `typing_extensions` need not be installed for this: type checkers bring its stubs.
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
MAX_INT64: Final = 2**63 - 1
"""The largest offset and time; as an end it means that nothing comes after it."""
Headers = tuple[tuple[str, bytes | None], ...]
"""The headers of a message, from Kafka 0.11 on: keys, which may repeat, and values."""
Buffer = bytes | bytearray | memoryview
"""The input of every decoder: contiguous bytes. No decoder keeps a buffer longer than the values that it returned."""


class Broker(NamedTuple):
    """A broker and its address.

    Attributes:
        id: Number of the broker in its cluster.
        host: Its host, as it has registered it.
        port: Its port.
        fetch_version: Version of the fetch request that it is known to serve; 0, which all do, when nothing is known.
        generation: Name of the dialect that it speaks (`simpleconsumer.dialect.dialect_of`).
        commit_version: Version of the request that stores offsets in Kafka that it is known to serve: 2 from 0.9 on, 1
            on 0.8.2. A broker reads one as the other without an error.
    """

    id: int
    host: str
    port: int
    fetch_version: int = 0
    generation: str = "kafka08"
    commit_version: int = 1


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then number.

    Attributes:
        topic: Name of the topic.
        partition: The number; in Kafka 0.7 the string `broker-partition`, as in ZooKeeper.
    """

    topic: str
    partition: int | str


class FetchRequest(NamedTuple):
    """The request for messages of one partition.

    Attributes:
        topic: Name of the topic.
        partition: As in `TopicPartition`.
        offset: First offset wanted; in 0.7 a byte position.
        max_bytes: Most bytes of message set in the answer, at least 1.
        leader_epoch: The epoch of the leader as far as the caller knows it, -1: not known. A broker of Kafka 2.1 or
            later refuses a fetch with another one (codes 74 and 75); others do not look at it.
    """

    topic: str
    partition: int | str
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its messages are left out with `isolation.level=read_committed`.

    Attributes:
        producer_id: Whose transaction it was.
        first_offset: Offset of its first message in the partition.
    """

    producer_id: int
    first_offset: int


class FetchedPartition(NamedTuple):
    """The result of a fetch for one partition.

    Attributes:
        topic: As in the request.
        partition: As in the request.
        error_code: 0, or why there is no message set (`errors.broker_error`).
        high_watermark: Offset after the last message that consumers may see; -1 when unknown (0.7, errors).
        message_set: A view into the receive buffer; its last entry may be cut off. The view keeps the whole
            response in memory: copy the parts that are kept for long.
        last_stable_offset: Offset of the first message of an open transaction, or `high_watermark`; -1 when unknown.
        log_start_offset: Offset of the first message that is still there; -1 when unknown.
        aborted: The aborted transactions among the messages; only where they were asked for.
        preferred_replica: Id of the broker that is to be asked instead, nearer to `client.rack`; -1 for none.
    """

    topic: str
    partition: int | str
    error_code: int
    high_watermark: int
    message_set: bytes | memoryview
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: tuple[AbortedTransaction, ...] = ()
    preferred_replica: int = -1

    def log_end(self, *, read_committed: bool) -> int:
        """Return the offset after the last message that the reader may see; -1 if it is not known.

        Brokers name the end of the committed part (`last_stable_offset`) to readers who did not ask for it, too.

        Args:
            read_committed: Whether the fetch was one of `isolation.level=read_committed`.
        """
        return self.last_stable_offset if read_committed and self.last_stable_offset >= 0 else self.high_watermark


class ProducedPartition(NamedTuple):
    """The answer of a broker to one produced message set.

    Attributes:
        error_code: 0, or why it was not stored (`errors.broker_error`).
        base_offset: Offset of its first message; -1 when it was not stored.
        append_time_ms: Time of its messages in ms since 1970, if the broker has set it (`LogAppendTime`); else -1.
    """

    error_code: int
    base_offset: int
    append_time_ms: int = -1


class Message(Generic[K, V]):
    """One message as the application sees it.

    `Message[K, V]` has a key of type K and a value of type V, if they are there: `bytes`, or the values that the
    decoders return.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition; in 0.7 the string `broker-partition`.
        offset: Offset of the message; in 0.7 the byte position where its entry of the log starts. All messages of a
            compressed entry share it.
        next_offset: The offset to commit when the message is done. In a compressed entry of 0.7 it is the start of that
            entry, but for the last message, which has its end: a position within an entry is of no use.
        key: None when the message has no key; otherwise `bytes`, or the value that a key decoder returned.
        value: None for a null value (a deletion mark of a compacted topic).
        timestamp_ms: Milliseconds since 1970, or None before Kafka 0.10.
        index: 0; in 0.7 the number of the message in its compressed entry, from 0 on (`EntryMessage`).
        headers: Keys and values, as they were sent; () before Kafka 0.11, and where a message has none
            (`HeaderMessage`).

    Two messages are equal when all their fields are. They are mutable, so that a decoder's result can replace
    key and value, and therefore have no hash.

    This is a plain class with slots because a frozen dataclass costs a microsecond for each message.
    """

    # In the order of the constructor.
    __slots__ = ("topic", "partition", "offset", "next_offset", "key", "value", "timestamp_ms")  # noqa: RUF023

    topic: str
    partition: int | str
    offset: int
    next_offset: int
    key: K | None
    value: V | None
    timestamp_ms: int | None
    # Of the class, so that messages of Kafka 0.8, and plain entries of 0.7, neither store nor set them.
    index = 0
    headers: Headers = ()
    _done_in_entry = 0

    def __init__(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        next_offset: int,
        key: K | None,
        value: V | None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms

    def _fields(self) -> tuple[Any, ...]:
        return (*(getattr(self, name) for name in Message.__slots__), self.index, self.headers)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Message) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        index = f", index={self.index}" if self.index else ""
        headers = f", headers={self.headers!r}" if self.headers else ""
        return (
            f"Message({self.topic!r}, {self.partition!r}, offset={self.offset}, "
            f"next_offset={self.next_offset}, key={self.key!r}, value={self.value!r}, "
            f"timestamp_ms={self.timestamp_ms}{index}{headers})"
        )


class EntryMessage(Message[K, V]):
    """A message of a compressed entry of Kafka 0.7.

    Attributes:
        index: Its number in the entry, from 0 on.

    It is a class of its own, so that all other messages do without the slot.
    """

    __slots__ = ("index",)

    index: int

    def __init__(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        next_offset: int,
        key: K | None,
        value: V | None,
        timestamp_ms: int | None = None,
        index: int = 0,
    ) -> None:
        super().__init__(topic, partition, offset, next_offset, key, value, timestamp_ms)
        self.index = index

    @property
    def _done_in_entry(self) -> int:  # type: ignore[override]
        """How many messages of the entry at `next_offset` are done when this one is: 0 for the last one."""
        return self.index + 1 if self.next_offset == self.offset else 0


class HeaderMessage(Message[K, V]):
    """A message of Kafka 0.11 and later that has headers.

    Attributes:
        headers: Keys and values in the order in which they were sent; a key may repeat, a value may be None.

    It is a class of its own, so that all other messages do without the slot.
    """

    __slots__ = ("headers",)

    headers: Headers

    def __init__(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        next_offset: int,
        key: K | None,
        value: V | None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(topic, partition, offset, next_offset, key, value, timestamp_ms)
        self.headers = headers


Encodable = bytes | tuple[bytes | None, bytes | None] | Message
"""A value; or key and value, each None for null; or a message, whose key, value and timestamp are used."""


class PartitionMetadata(NamedTuple):
    """The leader and the replicas of one partition.

    Attributes:
        partition: Number of the partition.
        replicas: Ids of the brokers that keep it.
        isr: Ids of the replicas that are in sync.
        leader: Broker id, or None while there is no leader.
        error_code: With 5 (no leader) it cannot be used; with 9 (a replica is not alive) it can.
        leader_epoch: How often the leader has changed; -1 when it is not known (before Kafka 2.1).
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int
    leader_epoch: int = -1


class TopicMetadata(NamedTuple):
    """The partitions of one topic, in the order of the answer.

    Attributes:
        topic: Name of the topic.
        error_code: 0, or why the partitions are not known.
        partitions: The metadata of each partition.
        topic_id: Which of the topics that had this name it is, as 32 hex digits; None when it is not known (before
            Kafka 2.8).
        is_internal: Whether it is a topic of Kafka's own, as far as brokers say so (Kafka 0.10.0 and later).
    """

    topic: str
    error_code: int
    partitions: tuple[PartitionMetadata, ...]
    topic_id: str | None = None
    is_internal: bool = False


@dataclass(frozen=True)
class ClusterMetadata:
    """The metadata of the cluster that one broker has.

    Attributes:
        brokers: By id. Kafka 0.8.0 and 0.8.1 list only brokers of the partitions that were asked for.
        topics: By name.
        cluster_id: Name of the cluster; None when it is not known (before Kafka 0.10.1).
        controller_id: Id of the broker that takes changes of topics; None when it is not known (before Kafka 0.10.0),
            or while there is none. With KRaft any broker may be named: each passes changes on.
    """

    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicMetadata]
    cluster_id: str | None = None
    controller_id: int | None = None


class TopicVerdict(NamedTuple):
    """The answer of a broker to a change of a topic, or of the access lists.

    Attributes:
        error_code: 0 if it is done, or could be done.
        message: The words of the broker; None if it has none.
    """

    error_code: int
    message: str | None = None


class ActiveProducer(NamedTuple):
    """A producer with an id of which a partition's leader knows.

    Attributes:
        producer_id: Its id.
        epoch: The epoch of its last batch.
        last_sequence: Sequence number of the last record of that batch; -1: not known.
        last_timestamp_ms: Time of that batch; -1: not known.
        transaction_start: Offset of the first record of its open transaction; None without one.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int | None


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: The next offset to read, or -1 when nothing is committed.
        metadata: The string that was committed with it.
        leader_epoch: Of the last message before it; -1: not known. Brokers keep it from Kafka 2.1 on.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first message at or after a time.

    Attributes:
        offset: Offset of the message; -1 if there is none.
        timestamp_ms: Milliseconds since 1970; -1 if there is none.
        leader_epoch: The epoch of the leader that has written the message; -1: not known (before Kafka 2.1).
    """

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class LogEnd(NamedTuple):
    """Where the log of a partition ends for readers, as its leader says.

    Attributes:
        error_code: 0, or why it is not known (`errors.broker_error`).
        offset: Offset after the last message; -1 if it is not known.
        leader_epoch: The epoch in which the broker leads that says so; -1: not known (before Kafka 2.1).
    """

    error_code: int
    offset: int
    leader_epoch: int = -1


class EpochEnd(NamedTuple):
    """Where an epoch of a partition's leader ends, as the leader of now knows it.

    Attributes:
        error_code: 0, or why it is not known (`errors.broker_error`).
        leader_epoch: The epoch that was asked for, or the last one before it; -1 if the log has none.
        end_offset: Offset after the last message of that epoch; -1 if the log has none. Messages from there on that a
            reader has taken for messages of that epoch are gone from the log.
    """

    error_code: int
    leader_epoch: int
    end_offset: int


class ProducerId(NamedTuple):
    """The id and epoch under which a producer numbers its batches.

    Attributes:
        producer_id: The id; -1 with an error.
        epoch: Which of the producers with this id it is: a broker refuses those before it. -1 with an error.
    """

    producer_id: int
    epoch: int


NO_ID: Final = ProducerId(-1, -1)
"""Of a producer that has none yet."""


class SaslAnswer(NamedTuple):
    """The broker's side of one step of an authentication.

    Attributes:
        error_code: 0, or why the client is refused.
        message: The reason in the broker's words, or None.
        token: The bytes that the broker sends under the mechanism.
        lifetime_ms: When the client must authenticate again; 0: never, or not said (version 0).
    """

    error_code: int
    message: str | None
    token: bytes
    lifetime_ms: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> SaslAnswer:
        """Return the values of an answer to SaslAuthenticate."""
        return cls(
            answer["error_code"], answer["error_message"], answer["auth_bytes"] or b"",
            answer.get("session_lifetime_ms", 0),
        )  # fmt: skip


CONSUMER_PROTOCOL = "consumer"
"""The protocol type of groups of consumers."""


class JoiningMember(NamedTuple):
    """A member that joins its group.

    Attributes:
        group: Name of the group.
        member_id: As the coordinator has named it; empty for the first time.
        instance_id: Of a static member, which needs Kafka 2.3; None for a dynamic one.
    """

    group: str
    member_id: str = ""
    instance_id: str | None = None


class GenerationMember(NamedTuple):
    """A member of a generation of its group.

    Attributes:
        group: Name of the group.
        generation: Of the group; -1 for an offset that no member commits.
        member_id: As the coordinator has named it.
        instance_id: Of a static member; None for a dynamic one.
    """

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """A member that leaves.

    Attributes:
        member_id: Its id; empty for a static member that is removed by its instance id.
        instance_id: Of a static member, which needs Kafka 2.4; None for a dynamic one.
    """

    member_id: str
    instance_id: str | None = None


class JoinedMember(NamedTuple):
    """A member as the leader sees it.

    Attributes:
        member_id: Its id.
        metadata: The metadata that it wrote for the protocol that was chosen.
        instance_id: Of a static member.
    """

    member_id: str
    metadata: bytes
    instance_id: str | None = None


class JoinedGroup(NamedTuple):
    """The answer to a member that joins.

    Attributes:
        error_code: 0, or why it has not joined; with code 79 the member id is the one to join with.
        generation: Of the group.
        protocol: The name of the assignor that all members know.
        leader: Member id of the leader.
        member_id: Of the member that asked.
        members: All members, for the leader alone.
    """

    error_code: int
    generation: int
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]


class ListedGroup(NamedTuple):
    """A group as the broker that coordinates it lists it.

    Attributes:
        group: Its name.
        protocol_type: `consumer` for consumers; empty for a group that has stored offsets and never had a member.
        state: Such as `Stable`; None from brokers before Kafka 2.6.
        group_type: `classic`, or `consumer` for the protocol of KIP-848; None from brokers before Kafka 3.8.
    """

    group: str
    protocol_type: str
    state: str | None = None
    group_type: str | None = None


class DescribedMember(NamedTuple):
    """A member of a group of the classic protocol.

    Attributes:
        member_id: As the coordinator has named it.
        instance_id: Of a static member; None for a dynamic one, and from brokers before Kafka 2.4.
        client_id: Its `client.id`.
        client_host: Its address, as Java writes it: `/127.0.0.1`.
        metadata: The metadata that it wrote for the protocol that the group has chosen; empty while the group
            rebalances.
        assignment: The assignment that the leader gave it; empty while the group rebalances.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A group of the classic protocol.

    Attributes:
        error_code: 0, or why nothing is said of it.
        group: Its name.
        state: Such as `Stable`; `Dead` for a group that the broker does not know.
        protocol_type: As in `ListedGroup`.
        protocol: The name of the assignor that its members have chosen; empty without members.
        members: All members.
        error_message: The error in words; None from brokers before Kafka 4.0.
    """

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    error_message: str | None = None


class DescribedConsumer(NamedTuple):
    """A member of a group of the protocol of KIP-848.

    Attributes:
        member_id: As the member, or for one of the classic protocol the coordinator, has named it.
        instance_id: Of a static member.
        rack: Where it runs; None if it does not say.
        epoch: Of the assignment that it has.
        client_id: Its `client.id`.
        client_host: Its address.
        topics: That it subscribes to by name.
        regex: By which it subscribes to topics; None without one.
        assigned: The partitions that it has.
        target: The partitions that it shall have; others than `assigned` until it and their owners have followed.
        is_classic: It speaks the classic protocol; None if the broker does not say (before Kafka 4.0).
    """

    member_id: str
    instance_id: str | None
    rack: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assigned: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    is_classic: bool | None = None


class DescribedConsumerGroup(NamedTuple):
    """A group of the protocol of KIP-848.

    Attributes:
        error_code: 0, or why nothing is said of it; 69 also for a group of the classic protocol.
        group: Its name.
        state: Such as `Stable` or `Reconciling`.
        epoch: Of the group: rises with each change of its members and topics.
        assignment_epoch: Of the target assignment; lower than `epoch` until it is computed.
        assignor: The name of the assignor of the broker.
        members: All members.
        error_message: The error in words; None without one.
    """

    error_code: int
    group: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]
    error_message: str | None = None
