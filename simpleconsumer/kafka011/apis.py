"""The APIs of Kafka 0.10.0 and later as this package speaks them: numbers, versions, and which encoding a version has.

Versions that are left out are of no use to a client, or bring nothing over the one before them. Kafka 4 serves no
Produce before 3, Fetch before 4, ListOffsets 0, OffsetCommit 0 and 1, OffsetFetch 0, OffsetForLeaderEpoch 0 and 1
(KIP-896); its table of versions names Produce 0 to 2 all the same, for the sake of an old client.

Source: clients/src/main/resources/common/message (Kafka 0.10.0 to 4.3).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from simpleconsumer.primitives import encode_int16, encode_int32, encode_string, read_int32
from simpleconsumer.types import Buffer

NEVER: Final = 0x7FFF


class Api(NamedTuple):
    """One API.

    Attributes:
        key: Its number.
        name: Its name in Kafka.
        versions: Those that can be encoded and decoded here, in rising order.
        flexible_from: The first version with compact lengths and tagged fields, of whatever Kafka has.
        throttled_from: The first version whose answers say for how long the client is throttled.
        throttle_at: Where they say it: behind so many bytes of the body, or so many before its end if negative.
    """

    key: int
    name: str
    versions: tuple[int, ...]
    flexible_from: int = NEVER
    throttled_from: int = NEVER
    throttle_at: int = 0

    def frame(self, version: int, correlation_id: int, client_id: str, body: bytes, tail_bytes: int = 0) -> bytes:
        """Return a whole request: size, header and body. `tail_bytes` more follow it, which the size counts.

        Raises:
            ValueError: This package does not speak that version.
        """
        if version not in self.versions:
            spoken = ", ".join(map(str, self.versions))
            raise ValueError(f"version {version} of {self.name}: of its versions, {spoken} are spoken")
        # A client id has the old encoding in every header, so that brokers can read it before they know the version.
        tags = b"\0" if version >= self.flexible_from else b""
        head = encode_int16(self.key) + encode_int16(version) + encode_int32(correlation_id) + encode_string(client_id)
        return encode_int32(len(head) + len(tags) + len(body) + tail_bytes) + head + tags + body

    def throttle_ms(self, version: int, answer: Buffer) -> int:
        """Return for how long an answer says that the client is throttled; 0 if it does not say so, or is cut off.

        Args:
            answer: What follows the correlation id.
        """
        if version < self.throttled_from:
            return 0
        at = self.throttle_at + (len(answer) if self.throttle_at < 0 else int(version >= self.flexible_from))
        return max(read_int32(answer, at)[0], 0) if 0 <= at <= len(answer) - 4 else 0


PRODUCE: Final = Api(0, "Produce", (2, 3, 5, 7, 8), 9, throttled_from=1, throttle_at=-4)
FETCH: Final = Api(1, "Fetch", (2, 3, 4, 5, 7, 9, 10, 11), 12, throttled_from=1)
LIST_OFFSETS: Final = Api(2, "ListOffsets", (0, 1, 2, 4, 5), 6, throttled_from=2)
METADATA: Final = Api(3, "Metadata", (1, 2, 4, 5, 7, 10, 11, 12), 9, throttled_from=3)
OFFSET_COMMIT: Final = Api(8, "OffsetCommit", (2, 3, 5, 6, 7), 8, throttled_from=3)
OFFSET_FETCH: Final = Api(9, "OffsetFetch", (1, 2, 3, 5, 7), 6, throttled_from=3)
FIND_COORDINATOR: Final = Api(10, "FindCoordinator", (0, 1), 3, throttled_from=1)
JOIN_GROUP: Final = Api(11, "JoinGroup", (0, 1, 2, 4, 5), 6, throttled_from=2)
HEARTBEAT: Final = Api(12, "Heartbeat", (0, 1, 3), 4, throttled_from=1)
LEAVE_GROUP: Final = Api(13, "LeaveGroup", (0, 1, 3), 4, throttled_from=1)
SYNC_GROUP: Final = Api(14, "SyncGroup", (0, 1, 3), 4, throttled_from=1)
DESCRIBE_GROUPS: Final = Api(15, "DescribeGroups", (0, 1, 3, 4, 5, 6), 5, throttled_from=1)
LIST_GROUPS: Final = Api(16, "ListGroups", (0, 1, 4, 5), 3, throttled_from=1)
SASL_HANDSHAKE: Final = Api(17, "SaslHandshake", (0, 1))
# Only a request of version 0 is sure to be answered, and an answer to it has the old header.
API_VERSIONS: Final = Api(18, "ApiVersions", (0,), 3)
INIT_PRODUCER_ID: Final = Api(22, "InitProducerId", (0, 1, 3, 4), 2, throttled_from=0)
OFFSET_FOR_LEADER_EPOCH: Final = Api(23, "OffsetForLeaderEpoch", (0, 1, 2, 3), 4, throttled_from=2)
ADD_PARTITIONS_TO_TXN: Final = Api(24, "AddPartitionsToTxn", (0, 1), 3, throttled_from=0)
END_TXN: Final = Api(26, "EndTxn", (0, 1), 3, throttled_from=0)
DESCRIBE_CONFIGS: Final = Api(32, "DescribeConfigs", (0, 1), 4, throttled_from=0)
SASL_AUTHENTICATE: Final = Api(36, "SaslAuthenticate", (0, 1), 2)
DELETE_GROUPS: Final = Api(42, "DeleteGroups", (0,), 2, throttled_from=0)
OFFSET_DELETE: Final = Api(47, "OffsetDelete", (0,), throttled_from=0, throttle_at=2)
CONSUMER_GROUP_DESCRIBE: Final = Api(69, "ConsumerGroupDescribe", (0, 1), 0, throttled_from=0)

APIS: Final = {
    api.key: api
    for api in (
        PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT,
        LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS,
        INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN, END_TXN, DESCRIBE_CONFIGS,
        SASL_AUTHENTICATE, DELETE_GROUPS, OFFSET_DELETE, CONSUMER_GROUP_DESCRIBE,
    )
}  # fmt: skip
"""By key."""
