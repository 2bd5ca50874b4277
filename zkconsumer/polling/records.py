"""ConsumerRecord and ConsumerRecords: what `poll` returns, and the values of offsets and groups. Pure.

Names are those of Kafka's Java consumer in the spelling of PEP 8.

Source: ConsumerRecord, ConsumerRecords, OffsetAndMetadata, OffsetAndTimestamp, ConsumerGroupMetadata (Kafka 3.9).

The records of a poll that an iteration over a consumer has not returned yet.

The interceptors of a consumer, one after the other: they see records before `poll` returns, and commits.

An interceptor that raises changes nothing: it is logged, and the next one gets what this one got.

Source: ConsumerInterceptor, ConsumerInterceptors (Kafka 3.9).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol

from simpleconsumer.types import Headers, TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
NULL_SIZE: Final = -1
"""The size of a key or value that is null."""
_UNKNOWN_GENERATION: Final = -1


class TimestampType(enum.IntEnum):
    """Who set the timestamp of a record, with Kafka's numbers.

    Attributes:
        NO_TIMESTAMP_TYPE: There is none: the format before Kafka 0.10.
        CREATE_TIME: The producer.
        LOG_APPEND_TIME: The broker, when it appended the record.
    """

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record.

    A tuple, because `tuple.__new__(ConsumerRecord, fields)` with all fields is the fastest way to make one: the
    constructor takes twice as long, and that of a class with slots half as long again.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition; in 0.7 the string `broker-partition`.
        offset: Offset of the record; in 0.7 the byte position where its entry of the log starts.
        timestamp: Milliseconds since 1970; None before Kafka 0.10.
        timestamp_type: Who has set it.
        key: The key that `key.deserializer` returned; None when the record has no key.
        value: The value that `value.deserializer` returned; None for null (a deletion mark of a compacted topic).
        headers: Keys, which may repeat, and values; () without any.
        leader_epoch: The epoch of the leader that has appended it; None when it is not known.
        serialized_key_size: Bytes of the key as it was sent, -1 for none.
        serialized_value_size: Bytes of the value as it was sent, -1 for none.
    """

    topic: str
    partition: int | str
    offset: int
    timestamp: int | None
    timestamp_type: TimestampType
    key: K | None
    value: V | None
    headers: Headers = ()
    leader_epoch: int | None = None
    serialized_key_size: int = NULL_SIZE
    serialized_value_size: int = NULL_SIZE


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit, or a committed one: that of the next record to consume.

    Attributes:
        offset: 0 or more.
        metadata: Text that is stored with it; brokers take up to 4096 characters.
        leader_epoch: The leader epoch of the record before it; None when it is not known.

    Raises:
        ValueError: The offset is negative: a broker stores it, and nothing is committed then.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"offset {self.offset} is negative; it must be 0 or more")


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a time.

    Attributes:
        offset: Its offset.
        timestamp: Its timestamp, in milliseconds since 1970.
        leader_epoch: The leader epoch of the record; None when it is not known.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Identifies a member of a group to a transactional producer.

    Attributes:
        group_id: Name of the group.
        generation_id: Its generation; -1 for a consumer that has not joined, and for groups in ZooKeeper.
        member_id: As the coordinator has named the member; empty without one.
        group_instance_id: Name of a static member; None for others.
    """

    group_id: str
    generation_id: int = _UNKNOWN_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None


class ConsumerRecords(Generic[K, V]):
    """The records of one poll, by partition; iterates over all of them, one partition after the other.

    True if there are records. `len` and `count()` are the number of records.

    Args:
        records: By partition, in the order in which they were fetched.
        next_offsets: The position after the records of each partition; also where the position moved without records.
    """

    __slots__ = ("_next_offsets", "_records")

    def __init__(
        self,
        records: Mapping[TopicPartition, Sequence[ConsumerRecord[K, V]]],
        next_offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    ) -> None:
        self._records = {partition: found for partition, found in records.items() if found}
        self._next_offsets = dict(next_offsets or {})

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return chain.from_iterable(self._records.values())

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def __bool__(self) -> bool:
        return bool(self._records)

    def count(self) -> int:
        """Return the number of records of all partitions."""
        return len(self)

    def is_empty(self) -> bool:
        """Return whether there are no records."""
        return not self._records

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have records, in the order of the records."""
        return tuple(self._records)

    def records(self, of: TopicPartition | str) -> list[ConsumerRecord[K, V]]:
        """Return the records of one partition, or of all partitions of a topic, as a new list.

        Args:
            of: A partition, or the name of a topic.
        """
        if isinstance(of, str):
            found = (records for (topic, _), records in self._records.items() if topic == of)
            return list(chain.from_iterable(found))
        return list(self._records.get(of, ()))

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit when all of these records are processed, as a new dict."""
        return dict(self._next_offsets)

    def __repr__(self) -> str:
        found = ", ".join(f"{topic}/{number}: {len(each)}" for (topic, number), each in self._records.items())
        return f"ConsumerRecords({found or 'none'})"


class UnreadRecords:
    """Records that were polled, and are returned one by one.

    Attributes:
        rows: The rest of them.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: Iterator[ConsumerRecord[Any, Any]] = iter(())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the first offset of each partition that was not returned; others are left out."""
        rest: Iterable[ConsumerRecord[Any, Any]] = list(self.rows)
        self.rows = iter(rest)
        found: dict[TopicPartition, int] = {}
        for record in rest:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    def drop(self) -> None:
        """Forget the rest."""
        self.rows = iter(())


logger = logging.getLogger("zkconsumer.polling")


class ConsumerInterceptor(Protocol):
    """The interface of an interceptor; it is called in the thread of `poll`. A method `close` may be left out."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return the records that `poll` returns: these, or others."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See offsets that were committed."""


class ConsumerInterceptors:
    """A chain of interceptors.

    Args:
        interceptors: In the order in which they are called.
    """

    def __init__(self, interceptors: Iterable[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        """Return what the last interceptor has made of the records."""
        for interceptor in self._interceptors:
            try:
                changed: object = interceptor.on_consume(records)
            except Exception:  # noqa: BLE001 - an interceptor of the application must not stop the consumer
                self._log(interceptor, "on_consume")
                continue
            if isinstance(changed, ConsumerRecords):
                records = changed
            else:  # such as None where `return` was forgotten: the records would be lost
                logger.warning("on_consume of interceptor %s returned %s instead of ConsumerRecords, which is ignored",
                               type(interceptor).__name__, type(changed).__name__)  # fmt: skip
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Report committed offsets to all interceptors."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:  # noqa: BLE001
                self._log(interceptor, "on_commit")

    def close(self) -> None:
        """Close all interceptors that can be closed."""
        for interceptor in self._interceptors:
            close = getattr(interceptor, "close", None)
            if close is None:
                continue
            try:
                close()
            except Exception:  # noqa: BLE001
                self._log(interceptor, "close")

    def _log(self, interceptor: ConsumerInterceptor, method: str) -> None:
        logger.warning("%s of interceptor %s failed", method, type(interceptor).__name__, exc_info=True)
