"""The kit's own requests to brokers: whether one answers, which leaders it names, and whether a leader serves.

Independent of `simpleconsumer` on purpose: a test bed must not rest on the code under test.

The kit's own requests to brokers that have no ZooKeeper: topics and their replicas, changed by the brokers' APIs.

Versions are the oldest that Kafka 4.3 serves; Kafka 3.9 has
them, too.
Source: Kafka 4.3.1, clients/src/main/resources/common/message; answers of brokers of 3.9.2, 4.0.2 and 4.3.1.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.waiting import Deadline

API_OFFSETS = 2
API_METADATA = 3
API_VERSIONS = 18
OFFSETS_07 = 4
LATEST = -1
MAX_REPLY_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class PartitionAnswer:
    """One broker's metadata of a partition; `error` 0 and a `leader` of 0 or more mean that it can be used."""

    error: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def ask(port: int, body: bytes, *, timeout_s: float = 5.0) -> bytes:
    """The body of a broker's answer to one request; OSError when there is none in time."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        return ask_on(connection, body, timeout_s=timeout_s)


def ask_on(connection: socket.socket, body: bytes, *, timeout_s: float = 5.0) -> bytes:
    """The body of the answer to one request on a connection that stands; OSError when there is none in time."""
    deadline = Deadline(timeout_s)
    connection.sendall(struct.pack(">i", len(body)) + body)
    (length,) = struct.unpack(">i", deadline.receive(connection, 4))
    if not 0 <= length <= MAX_REPLY_BYTES:
        raise ConnectionError(f"answer of {length} bytes from {connection.getpeername()}")
    return deadline.receive(connection, length)


def answers(port: int, generation_07: bool = False, *, timeout_s: float = 5.0) -> bool:
    """True if a broker answers a real request, one that creates nothing."""
    if generation_07:
        request = struct.pack(">h", OFFSETS_07) + string("zkconsumer-probe") + struct.pack(">iqi", 0, LATEST, 1)
    else:
        request = _offsets_request("zkconsumer-probe", [0])  # a metadata request would create the topic
    try:
        ask(port, request, timeout_s=timeout_s)
    except OSError:
        return False
    return True


def answers_versions(port: int, *, timeout_s: float = 5.0) -> bool:
    """True if a broker of Kafka 0.10 or later, or a controller, says which APIs it has."""
    try:
        ask(port, header(API_VERSIONS), timeout_s=timeout_s)
    except OSError:
        return False
    return True


def topic_leaders(port: int, topic: str) -> dict[int, PartitionAnswer]:
    """Partition -> this broker's metadata of it (metadata request v0); empty while it does not know the topic.

    Creates the topic where the broker does so by itself. Raises OSError when the broker does not answer.
    """
    reply = Reader(ask(port, header(API_METADATA) + struct.pack(">i", 1) + string(topic)))
    reply.int32()  # correlation id
    for _ in range(reply.int32()):  # brokers: id, host, port
        reply.int32(), reply.string(), reply.int32()
    answer: dict[int, PartitionAnswer] = {}
    for _ in range(reply.int32()):
        reply.int16(), reply.string()
        for _ in range(reply.int32()):
            partition, known = partition_answer(reply)
            answer[partition] = known
    return answer


def partition_answer(reply: Reader) -> tuple[int, PartitionAnswer]:
    """A partition and its metadata, read from an answer of a version up to 4."""
    error, partition, leader = reply.int16(), reply.int32(), reply.int32()
    return partition, PartitionAnswer(error, leader, reply.int32s(), reply.int32s())


def offset_errors(port: int, topic: str, partitions: Sequence[int], *, version: int = 0) -> dict[int, int]:
    """Partition -> error code of an offsets request, which only a leader answers with 0.

    Args:
        version: 0, or 1, which brokers have from 0.10.1 on, and those of 4.0 and later need.
    """
    reply = Reader(ask(port, _offsets_request(topic, partitions, version)))
    reply.int32()
    errors = {}
    for _ in range(reply.int32()):
        reply.string()
        for _ in range(reply.int32()):
            partition, error = reply.int32(), reply.int16()
            errors[partition] = error
            for _ in range(2 if version else reply.int32()):  # time and offset, or a list of offsets
                reply.int64()
    return errors


def _offsets_request(topic: str, partitions: Sequence[int], version: int = 0) -> bytes:
    most = b"" if version else struct.pack(">i", 1)
    entries = b"".join(struct.pack(">iq", partition, LATEST) + most for partition in partitions)
    place = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(partitions))
    return header(API_OFFSETS, version) + place + entries


def header(api: int, version: int = 0) -> bytes:
    """The header of a request, with the correlation id 1."""
    return struct.pack(">hhi", api, version, 1) + string("zkconsumer-testing")


def string(text: str) -> bytes:
    """A string as requests have it."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


class Reader:
    """Reads an answer front to back; a null string is an empty one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def bool(self) -> bool:
        return self._take(">?") != 0

    def int16(self) -> int:
        return self._take(">h")

    def int32(self) -> int:
        return self._take(">i")

    def int64(self) -> int:
        return self._take(">q")

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.int32()))

    def string(self) -> str:
        length = self.int16()
        text = self._data[self._at : self._at + max(length, 0)].decode()
        self._at += max(length, 0)
        return text

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(">B")
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def compact_string(self) -> str:
        length = max(self.varint() - 1, 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()


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
    """The next error code, which its message follows; KitError for one that is not allowed."""
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
