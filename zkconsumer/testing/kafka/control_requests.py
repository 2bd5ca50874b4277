"""The kit's own requests to brokers that have no ZooKeeper: topics and their replicas, changed by the brokers' APIs.

Independent of `simpleconsumer` on purpose, as `probe`. Versions are the oldest that Kafka 4.3 serves; Kafka 3.9 has
them, too.
Source: Kafka 4.3.1, clients/src/main/resources/common/message; answers of brokers of 3.9.2, 4.0.2 and 4.3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka.probe import PartitionAnswer, Reader, ask, header, partition_answer, string

API_METADATA = 3
API_CREATE_TOPICS = 19
API_DELETE_TOPICS = 20
API_CREATE_PARTITIONS = 37
API_ELECT_LEADERS = 43
API_ALTER_REASSIGNMENTS = 45
API_LIST_REASSIGNMENTS = 46

TOPIC_EXISTS = 36
ELECTION_NOT_NEEDED = 84
_TIMEOUT_MS = 30_000
_ANSWER_S = 35.0
_NO_TAGS = b"\0"


def brokers_known(port: int) -> set[int]:
    """Ids of the brokers that a broker knows as alive; OSError when it does not answer."""
    reply = Reader(ask(port, header(API_METADATA, 1) + struct.pack(">i", 0)))
    reply.int32()
    known = set()
    for _ in range(reply.int32()):
        known.add(reply.int32())
        reply.string(), reply.int32(), reply.string()
    return known


def partitions_known(port: int, topic: str) -> dict[int, PartitionAnswer]:
    """Partition -> a broker's metadata of it (v4, which creates no topic); empty if it does not know the topic."""
    body = struct.pack(">i", 1) + string(topic) + b"\0"
    reply = Reader(ask(port, header(API_METADATA, 4) + body))
    reply.int32(), reply.int32()
    for _ in range(reply.int32()):  # brokers: id, host, port, rack
        reply.int32(), reply.string(), reply.int32(), reply.string()
    reply.string(), reply.int32(), reply.int32()  # cluster, controller, one topic
    reply.int16(), reply.string(), reply.bool()
    return {number: answer for _ in range(reply.int32()) for number, answer in [partition_answer(reply)]}


def create_topic(port: int, topic: str, assignment: Mapping[int, Sequence[int]], config: Mapping[str, object]) -> int:
    """Error code of a new topic: 0, or `TOPIC_EXISTS`.

    Raises:
        KitError: another error; carries the broker's words.
    """
    replicas = b"".join(struct.pack(">i", partition) + _int32s(ids) for partition, ids in assignment.items())
    settings = b"".join(string(key) + string(_text(value)) for key, value in config.items())
    body = (
        struct.pack(">i", 1) + string(topic) + struct.pack(">ihi", -1, -1, len(assignment)) + replicas
        + struct.pack(">i", len(config)) + settings + struct.pack(">ib", _TIMEOUT_MS, 0)
    )  # fmt: skip
    reply = Reader(ask(port, header(API_CREATE_TOPICS, 2) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.int32(), reply.int32(), reply.string()
    return _checked(reply, f"topic {topic} cannot be created", TOPIC_EXISTS)


def delete_topic(port: int, topic: str) -> None:
    """Delete a topic; KitError if the broker refuses it."""
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", _TIMEOUT_MS)
    reply = Reader(ask(port, header(API_DELETE_TOPICS, 1) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.int32(), reply.int32(), reply.string()
    error = reply.int16()
    if error:
        raise KitError(f"topic {topic} cannot be deleted: error {error}")


def add_partitions(port: int, topic: str, added: Mapping[int, Sequence[int]]) -> None:
    """Add partitions with these replicas, numbered on from the present ones; KitError if the broker refuses it."""
    replicas = b"".join(_int32s(added[partition]) for partition in sorted(added))
    body = (
        struct.pack(">i", 1) + string(topic) + struct.pack(">ii", max(added) + 1, len(added)) + replicas
        + struct.pack(">ib", _TIMEOUT_MS, 0)
    )  # fmt: skip
    reply = Reader(ask(port, header(API_CREATE_PARTITIONS, 0) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.int32(), reply.int32(), reply.string()
    _checked(reply, f"topic {topic} cannot grow")


def elect_preferred(port: int, topic: str, partition: int) -> None:
    """Have the first replica elected as leader; one that leads already is no error. KitError if it is refused."""
    body = struct.pack(">i", 1) + string(topic) + _int32s([partition]) + struct.pack(">i", _TIMEOUT_MS)
    reply = Reader(ask(port, header(API_ELECT_LEADERS, 0) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.int32()
    if reply.int32() and reply.string() and reply.int32():
        reply.int32()
        _checked(reply, f"the first replica of {topic}/{partition} cannot lead", ELECTION_NOT_NEEDED)


def reassign(port: int, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Ask for another set or order of replicas; KitError if the broker refuses it."""
    place = _compact(topic) + b"\x02" + struct.pack(">i", partition) + _compact_int32s(replicas) + _NO_TAGS + _NO_TAGS
    body = _NO_TAGS + struct.pack(">i", _TIMEOUT_MS) + b"\x02" + place + _NO_TAGS
    reply = Reader(ask(port, header(API_ALTER_REASSIGNMENTS, 0) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.varint(), reply.int32()
    what = f"replicas {list(replicas)} of {topic}/{partition} are refused"
    _checked(reply, what, compact=True)
    if reply.varint() > 1:
        reply.compact_string(), reply.varint(), reply.int32()
        _checked(reply, what, compact=True)


def is_reassigned(port: int, topic: str, partition: int) -> bool:
    """True while new replicas of a partition are being filled."""
    place = _compact(topic) + _compact_int32s([partition]) + _NO_TAGS
    body = _NO_TAGS + struct.pack(">i", _TIMEOUT_MS) + b"\x02" + place + _NO_TAGS
    reply = Reader(ask(port, header(API_LIST_REASSIGNMENTS, 0) + body, timeout_s=_ANSWER_S))
    reply.int32(), reply.varint(), reply.int32()
    _checked(reply, f"nobody says whether {topic}/{partition} has its replicas", compact=True)
    return reply.varint() > 1


def _checked(reply: Reader, what: str, *allowed: int, compact: bool = False) -> int:
    """The error code that comes next, with its message behind it; KitError for one that is not allowed."""
    error = reply.int16()
    message = reply.compact_string() if compact else reply.string()
    if error and error not in allowed:
        raise KitError(f"{what}: error {error}{f' ({message})' if message else ''}")
    return error


def _int32s(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)


def _compact_int32s(numbers: Sequence[int]) -> bytes:
    return bytes([len(numbers) + 1]) + struct.pack(f">{len(numbers)}i", *numbers)


def _compact(text: str) -> bytes:
    data = text.encode()
    length, prefix = len(data) + 1, bytearray()
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes([*prefix, length]) + data


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
