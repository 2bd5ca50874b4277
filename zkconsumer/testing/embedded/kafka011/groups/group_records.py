"""Records of `__consumer_offsets` that hold groups: keys and values of each version. Pure.

Key: `int16 2, string group`. Value: `int16 version, string protocol type, int32 generation, string protocol, string
leader`, from version 2 on `int64 time of its state`, then for each member `string id`, from version 3 on `string
instance id`, `string client id, string host`, from version 1 on `int32 rebalance time-out`, `int32 session time-out,
bytes subscription, bytes assignment`. Protocol and leader are null without members.

Source: kafka.coordinator.group.GroupMetadataManager (0.9, 1.1, 2.8), GroupMetadataValue.json (4.3).
"""

from __future__ import annotations

from struct import error, pack
from typing import Final, NamedTuple

from simpleconsumer.primitives import encode_array, encode_bytes, encode_nullable_string, encode_string
from zkconsumer.testing.embedded.reading import BadRequest, Reader

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
