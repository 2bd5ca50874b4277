"""The errors of the requests to a broker and of decoding its messages. Pure.

    SimpleConsumerError
    ├── DecodeError            bytes that do not follow the protocol: their frame or partition cannot be used
    │   ├── BufferUnderflow    a field ends after the end of the buffer
    │   ├── LimitExceeded      a size above a limit of this package: refused before memory is allocated for it
    │   └── BrokenFraming      an entry of a message set has an impossible size: nothing after it can be found
    ├── BrokerError            the broker answered with an error code
    ├── ConnectionFailed       the socket: refused, timed out, closed, closed by close()
    │   └── Throttled          nothing was sent: the broker throttles this client for longer than the call may take
    ├── NoSuchRequest          the generation of Kafka that the broker speaks has no such request
    ├── VersionNotServed       the broker serves no version of a request that this package speaks
    └── MessageError           one message (or one compressed wrapper); decoding can continue after it
        ├── CrcMismatch        the checksum of the message is wrong
        ├── DamagedOffset      its offset contradicts those of its neighbours, or the end of the log
        ├── UnknownCodec       a codec number that no Kafka of this age defines
        ├── CorruptMessage     bytes that do not decompress, lengths that contradict each other, unknown magic
        └── MessageTooLarge    decompresses to more than the limit, or does not fit into the fetch size

    AuthenticationFailed       TLS or SASL: broker or client refuse each other, and would do so again; stands apart

Wrong arguments of the caller are plain `ValueError`s, raised before anything is sent.
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from typing import NamedTuple

from zkconsumer_error import ZkConsumerError


class SimpleConsumerError(ZkConsumerError):
    """Root of all errors of this package, apart from `ValueError` for wrong arguments."""


class DecodeError(SimpleConsumerError):
    """Bytes from a broker that do not follow the protocol."""


class BufferUnderflow(DecodeError):
    """A field that ends after the end of its buffer."""


class LimitExceeded(DecodeError):
    """A size above a limit of this package, refused before memory is allocated for it."""


class BrokenFraming(DecodeError):
    """An entry of a message set with an impossible size field; the following entries cannot be found."""


class BrokerErrorCode(NamedTuple):
    """One row of Kafka's error table."""

    code: int
    name: str
    retriable: bool
    meaning: str


# Names as in kafka.common.ErrorMapping (0.8.2.2), above 20 as in
# org.apache.kafka.common.protocol.Errors (0.10.0.1). Retriable: the same request, perhaps with new metadata or to
# another broker, can succeed later without any change by an operator.
_CODES = tuple(
    BrokerErrorCode(*row)
    for row in (
        (-1, "Unknown", False, "the broker failed in a way for which it has no code"),
        (0, "None", False, "no error"),
        (1, "OffsetOutOfRange", False, "the offset is no longer in the log, or not yet"),
        (2, "InvalidMessage", True, "a message did not match its checksum"),
        (3, "UnknownTopicOrPartition", True, "this broker does not know that partition"),
        (4, "InvalidFetchSize", False, "the fetch size is negative"),
        (5, "LeaderNotAvailable", True, "a leader is being elected"),
        (6, "NotLeaderForPartition", True, "another broker leads that partition"),
        (7, "RequestTimedOut", True, "the replicas did not acknowledge in time"),
        (8, "BrokerNotAvailable", True, "the broker is not alive"),
        (9, "ReplicaNotAvailable", True, "a replica is not alive; the leader may still serve"),
        (10, "MessageSizeTooLarge", False, "a message is larger than the broker accepts"),
        (11, "StaleControllerEpoch", True, "the controller moved"),
        (12, "OffsetMetadataTooLarge", False, "the metadata string of a commit is too long"),
        (13, "StaleLeaderEpoch", True, "the leader epoch is old, or a broker's connection broke"),
        (14, "OffsetsLoadInProgress", True, "the coordinator is still reading the offsets"),
        (15, "ConsumerCoordinatorNotAvailable", True, "the group has no coordinator yet"),
        (16, "NotCoordinatorForConsumer", True, "another broker coordinates that group"),
        (17, "InvalidTopic", False, "not a legal topic name, or an internal topic"),
        (18, "MessageSetSizeTooLarge", False, "the message set is larger than a log segment"),
        (19, "NotEnoughReplicas", True, "fewer in-sync replicas than the topic requires"),
        (20, "NotEnoughReplicasAfterAppend", True, "written, but to fewer in-sync replicas than required"),
        (21, "InvalidRequiredAcks", False, "acks is not -1, 0 or 1"),
        (22, "IllegalGeneration", False, "the group is in another generation"),
        (23, "InconsistentGroupProtocol", False, "the group speaks another protocol"),
        (24, "InvalidGroupId", False, "not a legal group id"),
        (25, "UnknownMemberId", False, "the group does not know that member"),
        (26, "InvalidSessionTimeout", False, "the session time-out is outside the broker's bounds"),
        (27, "RebalanceInProgress", True, "the group is rebalancing"),
        (28, "InvalidCommitOffsetSize", False, "the commit is larger than a message may be"),
        (29, "TopicAuthorizationFailed", False, "not allowed on that topic"),
        (30, "GroupAuthorizationFailed", False, "not allowed on that group"),
        (31, "ClusterAuthorizationFailed", False, "not allowed on that cluster"),
        (32, "InvalidTimestamp", False, "the timestamp is outside the topic's bounds"),
        (33, "UnsupportedSaslMechanism", False, "the broker does not offer that mechanism"),
        (34, "IllegalSaslState", False, "the request is not legal before authentication"),
        (35, "UnsupportedVersion", False, "the broker does not serve that version, or converts nothing for it"),
        (36, "TopicAlreadyExists", False, "a topic of that name exists"),
        (37, "InvalidPartitions", False, "the number of partitions is not allowed"),
        (38, "InvalidReplicationFactor", False, "a new topic needs more replicas than there are brokers"),
        (39, "InvalidReplicaAssignment", False, "the replicas of a new topic are not allowed"),
        (40, "InvalidConfig", False, "the settings of a new topic are not allowed"),
        (41, "NotController", True, "another broker is the controller"),
        (42, "InvalidRequest", False, "the request contradicts itself"),
        (43, "UnsupportedForMessageFormat", False, "the topic's messages are of a format that has no timestamps"),
        (44, "PolicyViolation", False, "a policy of the cluster forbids the request"),
        (45, "OutOfOrderSequenceNumber", False, "an earlier batch of the same producer is missing"),
        (46, "DuplicateSequenceNumber", False, "the batch has been stored before"),
        (
            47,
            "InvalidProducerEpoch",
            False,
            "another producer with the same transactional id has taken over, or a transaction was open for too long",
        ),
        (48, "InvalidTxnState", False, "the transaction is not in a state for that"),
        (49, "InvalidProducerIdMapping", False, "the producer id does not belong to that transactional id"),
        (50, "InvalidTransactionTimeout", False, "the transaction's time-out is longer than the broker allows"),
        (51, "ConcurrentTransactions", True, "the last transaction of that producer is still being ended"),
        (53, "TransactionalIdAuthorizationFailed", False, "not allowed on that transactional id"),
        (54, "SecurityDisabled", False, "the broker has no authorizer"),
        (55, "OperationNotAttempted", False, "another part of the request failed"),
        (56, "KafkaStorageError", True, "the broker cannot read or write the partition on its disk"),
        (58, "SaslAuthenticationFailed", False, "the credentials were refused"),
        (59, "UnknownProducerId", False, "the broker has forgotten that producer"),
        (60, "ReassignmentInProgress", True, "partitions are being moved"),
        (68, "NonEmptyGroup", False, "the group has members that the broker coordinates"),
        (69, "GroupIdNotFound", False, "the broker has no such group"),
        (70, "FetchSessionIdNotFound", True, "the broker has ended the fetch session"),
        (71, "InvalidFetchSessionEpoch", True, "a request of the fetch session was lost"),
        (72, "ListenerNotFound", True, "the leader has no listener that matches that of the request"),
        (73, "TopicDeletionDisabled", False, "the cluster does not allow topics to be deleted"),
        (74, "FencedLeaderEpoch", True, "the leader has changed since it was looked up"),
        (75, "UnknownLeaderEpoch", True, "the broker does not know yet that it leads"),
        (76, "UnsupportedCompressionType", False, "messages compressed with zstd, which this request cannot have"),
        (77, "StaleBrokerEpoch", True, "the broker has started again"),
        (78, "OffsetNotAvailable", True, "a new leader does not know its high watermark yet"),
        (79, "MemberIdRequired", False, "the member must join again with the id that it was given"),
        (80, "PreferredLeaderNotAvailable", True, "the preferred leader is not alive"),
        (81, "GroupMaxSizeReached", False, "the group has as many members as are allowed"),
        (82, "FencedInstanceId", False, "another member with that instance id has joined"),
        (86, "GroupSubscribedToTopic", False, "members of the group subscribe to that topic"),
        (87, "InvalidRecord", False, "a record violates a rule of the topic, for example it has no key"),
        (88, "UnstableOffsetCommit", True, "offsets of a transaction are being committed"),
        (89, "ThrottlingQuotaExceeded", True, "the quota is exceeded"),
        (
            90,
            "ProducerFenced",
            False,
            "another producer with the same transactional id has taken over, or a transaction was open for too long",
        ),
        (100, "UnknownTopicId", True, "this broker does not know that topic id"),
        (103, "InconsistentTopicId", True, "the topic has been created again"),
        (106, "FetchSessionTopicIdError", True, "the fetch session names some topics by id and some by name"),
        (107, "IneligibleReplica", False, "the replica may not join the in-sync replicas"),
        (108, "NewLeaderElected", True, "another leader was elected in the meantime"),
        (109, "OffsetMovedToTieredStorage", False, "the offset is only in remote storage"),
        (110, "FencedMemberEpoch", False, "the member has another epoch than the coordinator"),
        (111, "UnreleasedInstanceId", True, "another member still has that instance id"),
        (112, "UnsupportedAssignor", False, "the coordinator has no assignor of that name"),
        (113, "StaleMemberEpoch", True, "the epoch of the member is old"),
        (120, "TransactionAbortable", False, "the transaction can only be aborted"),
    )
)
_TABLE = {row.code: row for row in _CODES}


def broker_error(code: int) -> BrokerErrorCode:
    """Return the row of Kafka's error table for a code; unknown codes are named and not retriable.

    Source: kafka.common.ErrorMapping (0.8.2.2), org.apache.kafka.common.protocol.Errors (0.10.0.1; from 36 on 4.3).
    """
    return _TABLE.get(code) or BrokerErrorCode(code, f"Code{code}", False, "a code newer than Kafka 4.3")


class BrokerError(SimpleConsumerError):
    """The broker answered a request, or one partition of it, with an error code.

    Attributes:
        code: The broker's answer, as in Kafka's protocol.
        topic: Of the request; None if it was about no topic.
        partition: Of the request; None if it was about no partition.
        offset: Of the request; None if it had none.
        also: The errors of further partitions of the same request.
    """

    def __init__(self, code: int, topic: str | None, partition: int | str | None, offset: int | None = None) -> None:
        super().__init__(code, topic, partition, offset)
        self.code = code
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.also: tuple[BrokerError, ...] = ()

    @property
    def name(self) -> str:
        """Kafka's name of the code, such as `OffsetOutOfRange`."""
        return broker_error(self.code).name

    @property
    def retriable(self) -> bool:
        """True when the same request can succeed later, perhaps with new metadata."""
        return broker_error(self.code).retriable

    def __str__(self) -> str:
        row = broker_error(self.code)
        more = f" (and {len(self.also)} more partitions failed)" if self.also else ""
        return f"{_place(self.topic, self.partition, self.offset)}{row.name} (code {row.code}): {row.meaning}{more}"


class ConnectionFailed(SimpleConsumerError):
    """The connection to a broker could not be made, or was lost; the socket is closed.

    Attributes:
        host: Of the broker.
        port: Of the broker.
        reason: The failure, as a clause.
        is_sent: The request, or a part of it, was sent before; False if there was no connection.
    """

    def __init__(self, host: str, port: int, reason: str, is_sent: bool = True) -> None:
        super().__init__(host, port, reason, is_sent)
        self.host = host
        self.port = port
        self.reason = reason
        self.is_sent = is_sent

    def __str__(self) -> str:
        return f"{self.host}:{self.port}: {self.reason}"


class Throttled(ConnectionFailed):
    """The broker throttles this client for longer than a call may take; nothing was sent, and the connection is open.

    The attributes are those of `ConnectionFailed`.
    """


class AuthenticationFailed(ZkConsumerError):
    """TLS or SASL failed: a certificate, a password, a mechanism, or a setting is wrong.

    Another try would end in the same way, and many of them may have a user locked out: nothing tries again by itself.
    So it is no `SimpleConsumerError`: code that tries again after such an error does not see it. The text has no
    secrets.

    Attributes:
        host: Of the broker.
        port: Of the broker.
        reason: A clause that says who refuses what.
    """

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(host, port, reason)
        self.host = host
        self.port = port
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.host}:{self.port}: {self.reason}"


class NoSuchRequest(SimpleConsumerError):
    """The generation of Kafka that a broker speaks has no such request; nothing was sent.

    Attributes:
        generation: Name of the dialect.
        request: The request, as a noun.
        remedy: The advice, as a clause.
    """

    def __init__(self, generation: str, request: str, remedy: str) -> None:
        super().__init__(generation, request, remedy)
        self.generation = generation
        self.request = request
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.generation}: brokers of this generation have no request for {self.request}; {self.remedy}"


class VersionNotServed(SimpleConsumerError):
    """A broker serves no version of a request in which this package can send it; the request was not sent.

    Attributes:
        host: Of the broker.
        port: Of the broker.
        api: Name of the request.
        spoken: The versions in which it could be sent.
        served: The oldest and the newest version that the broker serves; None: it does not have the request at all.
    """

    def __init__(self, host: str, port: int, api: str, spoken: tuple[int, ...], served: tuple[int, int] | None) -> None:
        super().__init__(host, port, api, spoken, served)
        self.host = host
        self.port = port
        self.api = api
        self.spoken = spoken
        self.served = served

    def __str__(self) -> str:
        spoken = ", ".join(map(str, self.spoken))
        if self.served is None:
            return f"{self.host}:{self.port}: this broker does not serve {self.api} (this client speaks {spoken})"
        oldest, newest = self.served
        return (
            f"{self.host}:{self.port}: this broker serves {self.api} in the versions {oldest} to {newest}, "
            f"and this client can send the request only in {spoken}"
        )


class MessageError(SimpleConsumerError):
    """One message, or one compressed wrapper, that cannot be delivered.

    Attributes:
        topic: Of the message.
        partition: Of the message.
        reason: The fault, as a clause.
        offset: Offset of the message; of a wrapper, the offset its entry carries (that of its last message). In 0.7
            the byte position where its entry of the log starts.
        next_offset: Offset to continue with when the message is skipped.
        index: 0; in 0.7 the number of the message in its compressed entry. Where `next_offset` is the start of the
            entry, the messages up to and with this one are to be skipped there.
        resume: Opaque value for `decode_messages(buffer, ..., resume=error.resume)`, which continues after
            the message, also inside a wrapper. None when the error does not come from decoding.
    """

    def __init__(
        self, topic: str, partition: int | str, offset: int, next_offset: int, reason: str, index: int = 0
    ) -> None:
        super().__init__(topic, partition, offset, next_offset, reason, *([index] if index else []))
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason
        self.index = index
        self.resume: object = None

    def __reduce__(self) -> tuple[type[MessageError], tuple[object, ...]]:
        """Pickle without `resume`, which holds a decompressed wrapper and is of no use in another process."""
        return type(self), self.args

    def __str__(self) -> str:
        number = f"message {self.index} of the entry: " if self.index else ""
        return f"{_place(self.topic, self.partition, self.offset)}{number}{self.reason}"


class CrcMismatch(MessageError):
    """The bytes of the message do not match its checksum."""


class DamagedOffset(MessageError):
    """The offset of an entry cannot be right; `offset` is one that its neighbours leave free."""


class UnknownCodec(MessageError):
    """The attributes name a codec that is not defined."""


class CorruptMessage(MessageError):
    """The message is invalid: its lengths, its magic, or compressed bytes that do not decompress."""


class MessageTooLarge(MessageError):
    """The message is larger than a limit: that of its decompressed size, or that of the fetch."""


def _place(topic: str | None, partition: int | str | None, offset: int | None) -> str:
    """Return `topic/partition at offset: ` with the parts that are known."""
    place = topic or ""
    if partition is not None:
        place += f"/{partition}"
    if offset is not None:
        place += f" at {offset}"
    return f"{place}: " if place else ""
