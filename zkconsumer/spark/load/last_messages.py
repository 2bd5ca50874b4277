"""Fetches the last messages that were read of logs again, to recognize logs that were truncated.

A log that was truncated, and has grown past its old end since, has the same offsets and other messages. The last
message that was read shows this, unless the new message at its offset has the same key and value, or compaction has
removed it.

Threads: several fetch in parallel; the caller collects the results.
"""

from __future__ import annotations

import enum
import logging
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import DecodeError, MessageError, SimpleConsumerError
from simpleconsumer.types import Broker, Message, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.load.load_state import LastMessage
from zkconsumer.spark.options.options import SourceOptions
from zkconsumer.spark.reading.leaders import search_leader
from zkconsumer.spark.reading.planning import PlannedRange
from zkconsumer.spark.reading.range_fetcher import FetchedSet, RangeFetcher

__all__ = ["Comparison", "LastMessageCheck"]

log = logging.getLogger(__name__)

_SAMPLE_BYTES: Final = 16 * 1024
_AT_ONCE: Final = 8
_NOT_KNOWN: Final = "%s-%s: it is not known whether the message at %d is the message that was read: %s"


class Comparison(enum.Enum):
    """What a log has at the offset of a message that was read."""

    SAME = "the message that was read"
    DIFFERENT = "another message, or none"
    UNKNOWN = "the message could not be fetched"


class LastMessageCheck:
    """Fetches single messages.

    Args:
        leaders: leader of each partition.
        compacted: topics whose logs have gaps: a message that is missing there means nothing.
    """

    def __init__(
        self, options: SourceOptions, leaders: Mapping[TopicPartition, Broker], compacted: frozenset[str]
    ) -> None:
        small = min(options.config.fetch_message_max_bytes, _SAMPLE_BYTES)
        self._config = ConsumerConfig.from_properties(options.config.to_properties(), fetch_message_max_bytes=small)
        self._patience_s = options.patience_ms / 1000
        self._max_bytes = options.max_message_bytes
        self._leaders = leaders
        self._compacted = compacted

    def compare(self, last_messages: Mapping[TopicPartition, LastMessage]) -> dict[TopicPartition, Comparison]:
        """What the logs have at the offsets of these messages."""
        found = self._all({name: last_message.offset for name, last_message in last_messages.items()})
        return {name: self._judged(name, last_message, found[name]) for name, last_message in last_messages.items()}

    def _judged(self, name: TopicPartition, was: LastMessage, found: LastMessage | Comparison) -> Comparison:
        if isinstance(found, LastMessage):
            return Comparison.SAME if found == was else Comparison.DIFFERENT
        return Comparison.UNKNOWN if found is Comparison.DIFFERENT and name.topic in self._compacted else found

    def at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastMessage]:
        """The messages at these offsets, without those that are not there or cannot be read."""
        return {name: found for name, found in self._all(offsets).items() if isinstance(found, LastMessage)}

    def _all(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastMessage | Comparison]:
        names = sorted(offsets)
        if not names:
            return {}
        with ThreadPoolExecutor(_AT_ONCE, "last-messages") as threads:
            return dict(zip(names, threads.map(lambda name: self._one(name, offsets[name]), names), strict=True))

    def _one(self, name: TopicPartition, offset: int) -> LastMessage | Comparison:
        """The message at an offset; ANOTHER when the log has none there."""
        wanted = PlannedRange(*name, offset, offset + 1, self._leaders.get(name))
        fetcher = RangeFetcher(
            wanted, self._config, search_leader(self._config), patience_s=self._patience_s,
            max_bytes=self._max_bytes, fail_on_data_loss=True,
        )  # fmt: skip
        try:
            with closing(fetcher.fetch()) as answers:
                for answer in answers:
                    if not isinstance(answer, FetchedSet):
                        return Comparison.UNKNOWN
                    decoding = dialect_of(answer.broker).decode_messages(
                        answer.message_set, *name, offset, aborted=answer.aborted
                    )
                    message = next(decoding, None)
                    if message is not None:
                        return _last_message(message) if message.offset == offset else Comparison.DIFFERENT
        except (MessageError, DecodeError) as error:
            if isinstance(name.partition, str):
                return Comparison.DIFFERENT  # on Kafka 0.7 no entry starts there now: these are bytes of another one
            log.warning(_NOT_KNOWN, *name, offset, error)
            return Comparison.UNKNOWN
        except (SparkSourceError, SimpleConsumerError) as error:
            log.warning(_NOT_KNOWN, *name, offset, error)
            return Comparison.UNKNOWN
        return Comparison.DIFFERENT


def _last_message(message: Message) -> LastMessage:
    return LastMessage(message.offset, _crc(message.key), _crc(message.value))


def _crc(content: bytes | None) -> int | None:
    return None if content is None else zlib.crc32(content)
