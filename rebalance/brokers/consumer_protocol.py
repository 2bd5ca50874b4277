"""Subscriptions and assignments as members of a group write them: bytes that the coordinator passes on unread. Pure.

Subscription, by version:

    int16  version
    array  topics          strings
    bytes  user data       of the assignor; null without any
    array  owned           v1: (string topic, array of int32 partitions)
    int32  generation      v2: the last one of the member, -1 before its first
    string rack            v3: null without one

Assignment: `int16 version, array (string topic, array of int32 partitions), bytes user data`, in versions 0 to 3 alike.

Members of several versions share a group. So a reader takes the fields that it knows of a newer version, and reads one
of version 1 that ends before `owned` as version 0, as some clients write it.

Source: ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json, ConsumerProtocol.java (0.9.0.1 to 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from rebalance.errors import UnreadableMetadata

Partition = tuple[str, int]
"""Topic and number."""

NO_GENERATION: Final = -1

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_FIRST_WITH_OWNED = 1
_FIRST_WITH_GENERATION = 2
_FIRST_WITH_RACK = 3

T = TypeVar("T")
_Read = Callable[[bytes, int], tuple[T, int]]


class Subscription(NamedTuple):
    """The topics that a member wants and the partitions that it has.

    Attributes:
        topics: That it wants to read.
        user_data: The data that its assignor adds; None for nothing.
        owned: The partitions that it holds while the group rebalances; none with assignors that revoke all of them.
        generation: Of the group when it got them; -1 for none.
        rack: Where it runs; None if it does not say.
        instance_id: Of a static member. It is not part of the bytes: the coordinator passes it on with them.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[Partition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


class Assignment(NamedTuple):
    """The partitions that a member gets.

    Attributes:
        partitions: Its partitions.
        user_data: The data that the assignor of the leader adds; None for nothing.
    """

    partitions: tuple[Partition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int) -> bytes:
    """Return the bytes of a subscription, the same for the same topics in any order.

    Args:
        version: 0 to 3; fields that it does not have are left out.
    """
    topics = _array(map(_string, sorted(set(subscription.topics))))
    parts = [_INT16.pack(version), topics, _data(subscription.user_data)]
    if version >= _FIRST_WITH_OWNED:
        parts.append(write_partitions(subscription.owned))
    if version >= _FIRST_WITH_GENERATION:
        parts.append(_INT32.pack(subscription.generation))
    if version >= _FIRST_WITH_RACK:
        parts.append(_string(subscription.rack))
    return b"".join(parts)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Return the subscription in these bytes.

    Raises:
        UnreadableMetadata: They are none.
    """
    version, at = _version(data, "subscription")
    topics, at = _items(data, at, _read_string)
    user_data, at = _read_data(data, at)
    owned: list[Partition] = []
    generation, rack = NO_GENERATION, None
    if version >= _FIRST_WITH_OWNED and at < len(data):
        owned, at = read_partitions(data, at)
        if version >= _FIRST_WITH_GENERATION and at < len(data):
            generation, at = _read_int32(data, at)
            if version >= _FIRST_WITH_RACK and at < len(data):
                rack, at = _read_nullable_string(data, at)
    return Subscription(tuple(topics), user_data, tuple(owned), generation, rack, instance_id)


def encode_assignment(assignment: Assignment) -> bytes:
    """Return the bytes of an assignment, also of an empty one: Java's members do not take an empty text."""
    return _INT16.pack(0) + write_partitions(assignment.partitions) + _data(assignment.user_data)


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in these bytes; none at all means no partitions.

    Raises:
        UnreadableMetadata: They are none.
    """
    if not data:
        return Assignment(())
    _, at = _version(data, "assignment")
    partitions, at = read_partitions(data, at)
    return Assignment(tuple(partitions), _read_data(data, at)[0])


def by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    """Return the numbers of partitions by topic, both sorted."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(set(partitions)):
        found.setdefault(topic, []).append(number)
    return found


def write_partitions(partitions: Iterable[Partition]) -> bytes:
    """Return an array of topics with their partitions."""
    return _array(_string(topic) + _array(map(_INT32.pack, numbers)) for topic, numbers in by_topic(partitions).items())


def read_partitions(data: bytes, at: int) -> tuple[list[Partition], int]:
    """Return the partitions in an array of topics, and where it ends.

    Raises:
        UnreadableMetadata: There is no such array.
    """
    topics, at = _items(data, at, _read_topic)
    return [(topic, number) for topic, numbers in topics for number in numbers], at


def _read_topic(data: bytes, at: int) -> tuple[tuple[str, list[int]], int]:
    topic, at = _read_string(data, at)
    numbers, at = _items(data, at, _read_int32)
    return (topic, numbers), at


# -- primitives --------------------------------------------------------------------------------------------------------


def _array(items: Iterable[bytes]) -> bytes:
    listed: Sequence[bytes] = list(items)
    return _INT32.pack(len(listed)) + b"".join(listed)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _data(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


def _version(data: bytes, what: str) -> tuple[int, int]:
    version, at = _read(_INT16, data, 0)
    if version < 0:
        raise UnreadableMetadata(f"{what} of version {version}", data)
    return version, at


def _read(field: Struct, data: bytes, at: int) -> tuple[int, int]:
    if at + field.size > len(data):
        raise UnreadableMetadata(f"{field.size} bytes are needed at byte {at}, {len(data) - at} are left", data)
    return int(field.unpack_from(data, at)[0]), at + field.size


def _read_int32(data: bytes, at: int) -> tuple[int, int]:
    return _read(_INT32, data, at)


def _items(data: bytes, at: int, read: _Read[T]) -> tuple[list[T], int]:
    count, start = _read_int32(data, at)
    if not -1 <= count <= len(data) - start:
        raise UnreadableMetadata(f"array of {count} items at byte {at}, {len(data) - start} bytes are left", data)
    items = []
    for _ in range(count):
        item, start = read(data, start)
        items.append(item)
    return items, start


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    text, end = _read_nullable_string(data, at)
    if text is None:
        raise UnreadableMetadata(f"string at byte {at} is null", data)
    return text, end


def _read_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    length, start = _read(_INT16, data, at)
    if length == -1:
        return None, start
    end = start + length
    if not start <= end <= len(data):
        raise UnreadableMetadata(f"string of {length} bytes at byte {at}, {len(data) - start} are left", data)
    try:
        return str(data[start:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise UnreadableMetadata(f"string at byte {at} is not UTF-8: {error.reason}", data) from error


def _read_data(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, start = _read_int32(data, at)
    if length == -1:
        return None, start
    if not start <= start + length <= len(data):
        raise UnreadableMetadata(f"{length} bytes at byte {at}, {len(data) - start} are left", data)
    return bytes(data[start : start + length]), start + length
