"""Records of `__consumer_offsets`: groups, and committed offsets. Pure.

Records of `__consumer_offsets` that hold groups: keys and values of each version.

Key: `int16 2, string group`. Value: `int16 version, string protocol type, int32 generation, string protocol, string
leader`, from version 2 on `int64 time of its state`, then for each member `string id`, from version 3 on `string
instance id`, `string client id, string host`, from version 1 on `int32 rebalance time-out`, `int32 session time-out,
bytes subscription, bytes assignment`. Protocol and leader are null without members.

Source: kafka.coordinator.group.GroupMetadataManager (0.9, 1.1, 2.8), GroupMetadataValue.json (4.3).

Records of `__consumer_offsets` that hold committed offsets: keys and values of each version.

Key: `int16 0 or 1, string group, string topic, int32 partition`. Values, each after the `int16` of its version:

    0    int64 offset, string metadata, int64 time of the commit
    1    int64 offset, string metadata, int64 time of the commit, int64 time of its end
    2    as 0
    3    int64 offset, int32 leader epoch, string metadata, int64 time of the commit
    4    as 3 with compact lengths and tagged fields, of which number 0 is the id of the topic

Source: kafka.coordinator.group.GroupMetadataManager (0.9, 1.1, 2.8), OffsetCommitValue.json (4.3).

Also stores groups and reads them back, and has the error codes that members get when a store fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import error, pack
from typing import Final, NamedTuple

from simpleconsumer.messages.schema import encode_compact_string, encode_uvarint
from simpleconsumer.primitives import encode_array, encode_bytes, encode_nullable_string, encode_string
from zkconsumer.testing.embedded.disk.messages import UNKNOWN, Refusal
from zkconsumer.testing.embedded.group import Group
from zkconsumer.testing.embedded.group_values import GroupState, Member
from zkconsumer.testing.embedded.protocol import BadRequest, Reader
from zkconsumer_error import ErrorCode

_KEY: Final = 2
_WITH_REBALANCE: Final = 1
_WITH_TIME: Final = 2
_WITH_INSTANCE: Final = 3


class MemberRecord(NamedTuple):
    """A member of a stored group; times in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    """A stored group.

    Attributes:
        protocol_type: of which kind its members are.
        protocol: their assignor; None without members.
        leader: id of one of them; None without members.
        state_ms: since when it is in its state; -1 if that is not stored.
        members: all of them.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int = -1
    members: tuple[MemberRecord, ...] = ()


def encode_group_key(group: str) -> bytes:
    """Return the key of the record of a group."""
    return pack(">h", _KEY) + encode_string(group)


def decode_group_key(data: bytes) -> str | None:
    """Return the group of a key; None for a key of another kind."""
    reader = Reader(data)
    try:
        return reader.string() if reader.int16() == _KEY else None
    except (error, BadRequest):
        return None


def encode_group(record: GroupRecord, version: int) -> bytes:
    """Return the value of a record."""
    head = pack(">h", version) + encode_string(record.protocol_type) + pack(">i", record.generation)
    head += encode_nullable_string(record.protocol) + encode_nullable_string(record.leader)
    if version >= _WITH_TIME:
        head += pack(">q", record.state_ms)
    return head + encode_array([_encode_member(each, version) for each in record.members])


def _encode_member(member: MemberRecord, version: int) -> bytes:
    instance = encode_nullable_string(member.instance_id) if version >= _WITH_INSTANCE else b""
    rebalance = pack(">i", member.rebalance_ms) if version >= _WITH_REBALANCE else b""
    return b"".join((
        encode_string(member.member_id), instance, encode_string(member.client_id), encode_string(member.host),
        rebalance, pack(">i", member.session_ms), encode_bytes(member.subscription), encode_bytes(member.assignment),
    ))  # fmt: skip


def decode_group(data: bytes) -> GroupRecord | None:
    """Return a value; None if it cannot be read, or is of a version that is not known here."""
    reader = Reader(data)

    def member() -> MemberRecord:
        member_id = reader.string()
        instance_id = reader.nullable_string() if version >= _WITH_INSTANCE else None
        client_id, host = reader.string(), reader.string()
        rebalance_ms = reader.int32() if version >= _WITH_REBALANCE else -1
        session_ms = reader.int32()
        # Before 0.10.1 a member had one time-out for both.
        waits_ms = rebalance_ms if version >= _WITH_REBALANCE else session_ms
        texts = bytes(reader.sized()), bytes(reader.sized())
        return MemberRecord(member_id, instance_id, client_id, host, waits_ms, session_ms, *texts)

    try:
        version = reader.int16()
        if not 0 <= version <= _WITH_INSTANCE:
            return None
        protocol_type, generation = reader.string(), reader.int32()
        protocol, leader = reader.nullable_string(), reader.nullable_string()
        state_ms = reader.int64() if version >= _WITH_TIME else -1
        members = tuple(reader.nullable_array(member) or ())
        return GroupRecord(protocol_type, generation, protocol, leader, state_ms, members)
    except (error, BadRequest):
        return None


DAY_MS: Final = 24 * 60 * 60 * 1000
_WITH_END: Final = 1
_WITH_EPOCH: Final = 3
_FLEXIBLE: Final = 4
_NEWEST_KEY: Final = 1


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group: str
    topic: str
    partition: int


class StoredOffset(NamedTuple):
    """An offset as a group has committed it.

    Attributes:
        leader_epoch: of the message before it; -1 if the client did not say.
        commit_ms: when it was committed.
        retention_ms: for how long the client wants it kept; -1 for as long as the broker keeps offsets.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_ms: int = -1
    retention_ms: int = -1


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of a record, as brokers from 0.9 on write it."""
    return pack(">h", _NEWEST_KEY) + encode_string(key.group) + encode_string(key.topic) + pack(">i", key.partition)


def decode_offset_key(data: bytes) -> OffsetKey | None:
    """Return a key; None for a key of another kind."""
    reader = Reader(data)
    try:
        if not 0 <= reader.int16() <= _NEWEST_KEY:
            return None
        return OffsetKey(reader.string(), reader.string(), reader.int32())
    except (error, BadRequest):
        return None


def encode_offset(stored: StoredOffset, version: int, topic_id: bytes | None = None) -> bytes:
    """Return the value of a record.

    Args:
        version: that the broker writes; an offset with a retention of its own has version 1 before Kafka 4.
        topic_id: of its topic, which version 4 has.
    """
    if version == _FLEXIBLE:
        body = pack(">hqi", version, stored.offset, stored.leader_epoch) + encode_compact_string(stored.metadata)
        tags = b"\0" if topic_id is None else b"\1\0" + encode_uvarint(len(topic_id)) + topic_id
        return body + pack(">q", stored.commit_ms) + tags
    if version == _WITH_END or stored.retention_ms >= 0:
        ends_ms = stored.commit_ms + (stored.retention_ms if stored.retention_ms >= 0 else DAY_MS)
        head = pack(">hq", _WITH_END, stored.offset) + encode_string(stored.metadata)
        return head + pack(">qq", stored.commit_ms, ends_ms)
    epoch = pack(">i", stored.leader_epoch) if version >= _WITH_EPOCH else b""
    return pack(">hq", version, stored.offset) + epoch + encode_string(stored.metadata) + pack(">q", stored.commit_ms)


def decode_offset(data: bytes) -> StoredOffset | None:
    """Return a value; None if it cannot be read."""
    reader = Reader(data)
    try:
        version = reader.int16()
        offset = reader.int64()
        epoch = reader.int32() if version >= _WITH_EPOCH else -1
        reader.is_flexible = version >= _FLEXIBLE
        metadata, commit_ms = reader.string(), reader.int64()
        retention_ms = reader.int64() - commit_ms if version == _WITH_END else -1
    except (error, BadRequest):
        return None
    # A retention that the broker has added by itself is no wish of the client.
    return StoredOffset(offset, metadata, epoch, commit_ms, -1 if retention_ms == DAY_MS else retention_ms)


_MS: Final = 1000


def record_of(group: Group, state_ms: int = -1) -> GroupRecord:
    """Return the record of a group, as it is from now on.

    Args:
        state_ms: the time of now.
    """
    if not group.generation:  # a group that has no members yet does not say of which kind they are
        return GroupRecord("", 0, None, None, state_ms)
    has_members = group.state is GroupState.STABLE
    members = tuple(
        MemberRecord(
            each.member_id, each.instance_id, each.client_id, each.host, round(each.rebalance_s * _MS),
            round(each.session_s * _MS), each.protocols.get(group.protocol, b""), each.assignment,
        )
        for each in group.members.values() if has_members
    )  # fmt: skip
    names = (group.protocol or None, group.leader or None) if has_members else (None, None)
    return GroupRecord(group.protocol_type, group.generation, *names, state_ms, members)


def restored(group: Group, record: GroupRecord | None, now: float) -> Group:
    """Return a new group, as its record says; None: only offsets of it are stored."""
    if record is None:
        return group
    protocol = record.protocol or ""
    members = [
        Member(
            each.member_id, each.instance_id, {protocol: each.subscription}, each.session_ms / _MS,
            each.rebalance_ms / _MS, now, each.assignment, client_id=each.client_id, host=each.host,
        )
        for each in record.members
    ]  # fmt: skip
    group.protocol_type = record.protocol_type
    group.restore(record.generation, protocol, record.leader or "", members, now)
    return group


def translated(code: int, *, of_group: bool = False) -> int:
    """Return what members are told if the log refuses what is to be stored.

    Args:
        of_group: it was the record of the group, not offsets.
    """
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.NOT_COORDINATOR
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return UNKNOWN if of_group else ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return ErrorCode.REBALANCE_IN_PROGRESS if code == ErrorCode.REQUEST_TIMED_OUT and of_group else code


@contextmanager
def as_members_see_it() -> Iterator[None]:
    """Raise Refusal with the code that members are told if the log refuses the record of a group."""
    try:
        yield
    except Refusal as refusal:
        raise Refusal(translated(refusal.code, of_group=True), str(refusal)) from refusal
