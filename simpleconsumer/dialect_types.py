"""Requests, fetch results and limits: the values that pass between a dialect and its callers. Pure.

Also the common part of generations whose offsets are numbers of messages: Kafka 0.8 and all later ones.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from simpleconsumer.types import Buffer, TopicPartition

MAX_ANSWER_BYTES: Final = 0x7FFFFFFF
"""No limit of a whole answer to a fetch; the sizes of partitions limit it, too."""
MAX_DECODED_BYTES: Final = 64 * 1024 * 1024
"""Default of the most bytes that one wrapper, with the wrappers inside of it, may inflate to."""
MAX_BATCH_BYTES: Final = 1024 * 1024
"""Default of the bytes of message set that one record batch is made of; a larger message has a batch for itself."""
MAX_DEPTH: Final = 2
"""How deep wrappers may be nested. Kafka's own producers never nest them; readers up to 0.8.2 allow it."""
T = TypeVar("T")


class Request(NamedTuple, Generic[T]):
    """A request to a broker, without its header, and how its answer is read.

    Attributes:
        api_key: Number of the API; in Kafka 0.7 the type of the request.
        version: Version of the API; 0 in Kafka 0.7, which has no versions.
        body: The bytes after the header.
        decode: Reads the body of the answer; raises DecodeError for bytes that make no sense.
        can_resend: Whether sending it twice does no harm.
        has_answer: False for requests that no broker answers, such as produce with acks 0.
        tail: The bytes after the body, in pieces: message sets are not copied into one large request.
    """

    api_key: int
    version: int
    body: bytes
    decode: Callable[[memoryview], T]
    can_resend: bool = False
    has_answer: bool = True
    tail: Sequence[bytes] = ()


class VersionedRequest(NamedTuple, Generic[T]):
    """A request of which the version is chosen for each connection: the newest one that client and broker have.

    Attributes:
        api_key: Number of the API.
        api: Its name.
        versions: The versions that it can be sent in, in rising order.
        at: Returns the request of a version.
        can_resend: As in `Request`.
        has_answer: As in `Request`.
    """

    api_key: int
    api: str
    versions: Sequence[int]
    at: Callable[[int], Request[T]]
    can_resend: bool = False
    has_answer: bool = True


AnyRequest = Request[T] | VersionedRequest[T]
"""A request of a fixed version, or of one that is chosen for each connection (`chosen_request`)."""


class Outcome(enum.Enum):
    """The meaning of the answer to a fetch for one partition."""

    CHUNK = "messages"
    NOTHING = "no messages yet"
    GROW = "the next message does not fit; try again with a larger size"
    TOO_LARGE = "the next message is larger than the limit"
    DAMAGED = "the next message has the offset of another one; if that lasts, its offset is damaged"
    LEFT_OUT = "the answer leaves out a message that exists; if that lasts, the message is larger than the limit"
    BROKEN = "impossible sizes"
    CHECK_RANGE = "the broker reports the position as out of range"
    FIND_LEADER = "another broker leads"
    BACK_OFF = "try again later"


class FetchResult(NamedTuple):
    """Tells the caller what to do with an answer.

    Attributes:
        valid_bytes: CHUNK: where the whole entries end.
        next_offset: CHUNK, TOO_LARGE, DAMAGED, LEFT_OUT: offset after the messages that the result is about.
        offset: TOO_LARGE, DAMAGED, LEFT_OUT: offset of the message.
        size_bytes: GROW: the size to ask for; TOO_LARGE: the size of the message.
        reason: A clause for the log and the status, for every outcome without progress.
        first_byte: CHUNK: where the whole entries start.
        last_byte: CHUNK: where the last whole entry starts; only in 0.7.
        entries: CHUNK: how many whole entries there are; only in 0.7.
        leader_epoch: CHUNK: the epoch of the leader that appended the last of the entries; -1: not known. Record
            batches alone hold it.
    """

    outcome: Outcome
    valid_bytes: int = 0
    next_offset: int = -1
    offset: int = -1
    size_bytes: int = 0
    reason: str = ""
    first_byte: int = 0
    last_byte: int = 0
    entries: int = 0
    leader_epoch: int = -1


class PositionIs(enum.Enum):
    """Where a position is, as far as known."""

    BOUNDARY = "the start of an entry, or the end of the log"
    INSIDE = "within an entry"
    UNKNOWN = "after the entries that were read"


class Appended(NamedTuple):
    """How some records that follow each other in the log were appended.

    Attributes:
        last_offset: The offset of the last one of them.
        leader_epoch: Of the leader that has appended them; None if it is not known.
        has_log_append_time: Whether their time is that at which the broker has appended them.
    """

    last_offset: int
    leader_epoch: int | None
    has_log_append_time: bool


class Boundary(NamedTuple):
    """The result of a walk about a position.

    Attributes:
        position_is: Where the position is.
        start: BOUNDARY: the position. INSIDE: where the entry around it starts. UNKNOWN: where the walk continues: a
            start of an entry before the position, whose size is needed next. It may be after the end of the data.
        end: INSIDE: where the entry around it ends; else `start`.
    """

    position_is: PositionIs
    start: int
    end: int


class NumberedOffsets:
    """That part of a dialect (`simpleconsumer.dialect.Dialect`) which follows from numbered messages."""

    has_byte_positions: Final = False
    chooses_partition: Final = False
    place_columns: Final = ("offset",)

    def partition_number(self, partition: int | str) -> int:
        """Return the number itself."""
        return int(partition)

    def cuts(self, batch: Any, max_rows: int | None) -> Iterator[tuple[int, int]]:
        """Yield parts of so many rows."""
        count = batch.num_rows if max_rows is None else max_rows
        for first in range(0, batch.num_rows, count):
            yield first, min(first + count, batch.num_rows)

    def place_of(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the offset of a row, and 0."""
        return batch.column("offset")[row].as_py(), 0

    def place_behind(self, batch: Any, row: int) -> tuple[int, int]:
        """Return the offset after a row: the next number."""
        return batch.column("offset")[row].as_py() + 1, 0

    def first_entry_fault(self, data: Buffer) -> str | None:
        """Return None: an offset is found wherever it is."""
        return None

    def find_boundary(self, data: Buffer, data_offset: int, position: int) -> Boundary:
        """Return that every offset can be asked for."""
        return Boundary(PositionIs.BOUNDARY, position, position)

    def last_entry_before(self, data: Buffer, data_offset: int, position: int) -> int | None:
        """Return None: entries are found by their offsets."""
        return None


def numbered(partition: TopicPartition) -> tuple[str, int]:
    """Return topic and number of a partition.

    Raises:
        ValueError: It has a name of Kafka 0.7 instead of a number.
    """
    topic, number = partition
    if not isinstance(number, int):
        raise ValueError(f"{topic}/{number}: partitions of Kafka 0.8 and later are numbers")
    return topic, number
