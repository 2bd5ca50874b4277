"""Reads and writes records of logs in which brokers keep what they coordinate, in the format of each log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.kafka011.batch_head import MAGIC
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import Message
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka011.message_sets import OldMessage, encode_set

_READ_BYTES: Final = 1024 * 1024


def records_from(log: BatchLog, topic: str, offset: int) -> Iterator[Message]:
    """Yield the messages of a log from an offset on, up to its end.

    Raises:
        Refusal: 6 the log was closed.
    """
    while offset < log.end_offset:
        before = offset
        read = log.read_batches(before, _READ_BYTES, whole_first=True, is_committed=False)
        with read.data as part:
            data = part.read()
        for message in KAFKA011.decode_messages(data, topic, 0, before):
            offset = message.next_offset
            yield message
        if offset == before:
            return


def append_records(
    log: BatchLog, records: Sequence[tuple[bytes, bytes | None]], now_ms: int, magic: int = MAGIC
) -> None:
    """Append keys and values, which come into the log together.

    Args:
        magic: the format of entries.

    Raises:
        Refusal: 6 the log was closed, 10 they are too large.
    """
    if magic == MAGIC:
        log.append_batch(encode_record_batch(records, timestamp_ms=now_ms))
        return
    messages = [OldMessage(number, key, value, now_ms, magic) for number, (key, value) in enumerate(records)]
    log.append_set(encode_set(messages, magic, 0, 0), magic)
