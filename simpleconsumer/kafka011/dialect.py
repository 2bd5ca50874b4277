"""The dialect of Kafka 0.10.0 and later: versions chosen for each connection, message sets of every magic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from simpleconsumer.dialect_types import Appended, FetchResult
from simpleconsumer.kafka011 import entry_heads, record_batch
from simpleconsumer.kafka011.appended import appended
from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.kafka011.batch_reading import open_reading
from simpleconsumer.kafka011.classify import NOT_LEADER_CODES, classify
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka011.requests import Requests
from simpleconsumer.kafka08.message_encode import Encodable, encode_message_set
from simpleconsumer.numbered_offsets import NumberedOffsets
from simpleconsumer.types import Buffer, FetchedPartition, Message

__all__ = ["Kafka011"]


class Kafka011(NumberedOffsets, Requests):
    """Requests and message sets of Kafka 0.10.0 and later, as `simpleconsumer.dialect.Dialect` describes them."""

    name: Final = "kafka011"
    has_correlation_ids: Final = True
    has_metadata: Final = True
    has_long_poll: Final = True
    has_offsets_without_messages: Final = True
    chooses_versions: Final = True
    not_leader_codes: Final = NOT_LEADER_CODES
    columns: Final = ("key", "value", "offset", "timestamp_ms", "timestamp_type")

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int | None, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, of magic 1 by default, which all of them take; 2 is a record batch."""
        if magic == MAGIC:
            return encode_record_batch(messages, codec, timestamp_ms=timestamp_ms)
        return encode_message_set(messages, codec, 1 if magic is None else magic, timestamp_ms=timestamp_ms)

    def decode_messages(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, **how: Any,
    ) -> Iterator[Message]:  # fmt: skip
        """Return the messages of a set; see `record_batch.decode_messages`."""
        return record_batch.decode_messages(data, topic, partition, start_offset, **how)

    def decode_runs(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *, start_index: int = 0,
        data_offset: int | None = None, **how: Any,
    ) -> Iterator[Iterable[Message]]:  # fmt: skip
        """Return the same messages in runs; see `record_batch.decode_runs`."""
        return record_batch.decode_runs(open_reading(data, start_offset, **how), topic, partition)

    def decode_columns(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, **how: Any,
    ) -> Iterator[Any]:  # fmt: skip
        """Return the messages of a set as record batches of Arrow; see `columns.decode_columns`."""
        from simpleconsumer.kafka011.columns import decode_columns

        return decode_columns(data, topic, partition, start_offset, **how)

    def set_end(self, data: Buffer, data_offset: int) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the offset behind the last one, and how many entries there are."""
        return entry_heads.set_end(data)

    def appended(self, data: Buffer) -> Sequence[Appended]:
        """Return in which epochs records were appended, and who has set their time; see `kafka011.appended`."""
        return appended(data)

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return how many bytes of a set one offset takes; see `entry_heads`."""
        return entry_heads.bytes_an_offset(data, offset)

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the first offset that may be in the entry that holds `offset`; see `entry_heads`."""
        return entry_heads.first_offset_in(data, offset, start)

    def classify(
        self, answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
    ) -> FetchResult:
        """Return what the answer to a fetch of one partition means; see `simpleconsumer.kafka011.classify`."""
        return classify(answer, position, asked_bytes, largest_bytes)
