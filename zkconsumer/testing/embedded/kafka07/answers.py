"""What a broker of Kafka 0.7 does with each request.

What it does where others answer with an error, as the Java broker:

- A produce request is never answered. A set that cannot be stored closes the connection, and the topic is registered
  all the same; one with a payload above `max.message.size` is dropped without a sign.
- An offsets request for a partition that the broker does not have closes the connection.
- A fetch of an unknown topic is answered with an empty set, and makes no topic.

Source: kafka.server.KafkaRequestHandlers, kafka.log.LogManager, kafka.utils.TopicNameValidator (0.7.2).
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from zkconsumer.testing.embedded.broker import NoAnswer, Part
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka07 import requests as requests
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.messages import TooLarge
from zkconsumer.testing.embedded.kafka07.requests import Fetch, Offsets, Produce
from zkconsumer.testing.embedded.kafka07.segment_list import EARLIEST, LATEST
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.kafka07.storage import Storage07

_ILLEGAL_TOPIC = re.compile("^\\.{1,2}$|[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_log = logging.getLogger(__name__)


@dataclass
class FetchedSet:
    """The answer to a fetch of one partition.

    Attributes:
        code: error code.
        data: its bytes.
        length: what the answer says; another number than that of the bytes for a negative fetch size alone.
    """

    code: int
    data: Part = b""
    length: int = 0


class Answers:
    """Stores and reads what requests ask for.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, storage: Storage07, settings: BrokerSettings07, register: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            register: called with a topic when the broker has made its first log of it.
        """
        self._broker_id = broker_id
        self._storage = storage
        self._settings = settings
        self._register = register

    def produce(self, part: Produce) -> None:
        """Store a message set.

        Raises:
            NoAnswer: it cannot be stored.
        """
        partition = part.partition
        if partition == requests.ANY_PARTITION:
            partition = random.randrange(self._settings.partitions_of(part.topic))
        try:
            self._check(part.topic, partition)
            log, is_first = self._storage.find_or_make(part.topic, partition)
            if is_first:
                self._register(part.topic)
            log.append(part.message_set)
        except TooLarge as reason:
            _log.warning("broker %d drops a set for %s-%d: %s", self._broker_id, part.topic, partition, reason)
        except Refusal as reason:
            raise NoAnswer(f"a set for {part.topic}-{partition} is refused: {reason}") from reason

    def fetch(self, part: Fetch) -> FetchedSet:
        """Return what the partition holds from a position on; the slice in it is to be closed."""
        try:
            log = self._find(part.topic, part.partition)
            if log is None:
                return FetchedSet(requests.NO_ERROR)
            data, length = log.read(part.position, part.max_bytes)
            return FetchedSet(requests.NO_ERROR, data, length)
        except Refusal as refusal:
            return FetchedSet(refusal.code)

    def offsets(self, part: Offsets) -> list[int]:
        """Return starts of segments, and the end, before a time.

        Raises:
            NoAnswer: the broker has no such partition, or the number of positions is negative.
        """
        try:
            log = self._find(part.topic, part.partition)
        except Refusal as reason:
            raise NoAnswer(str(reason)) from reason
        if log is None:
            return [0] if part.time_ms in (LATEST, EARLIEST) else []
        if part.most < 0:
            raise NoAnswer(f"offsets of {part.topic}-{part.partition}: {part.most} of them")
        return log.positions_before(part.time_ms, part.most)

    def _find(self, topic: str, partition: int) -> ByteLog | None:
        self._check(topic, partition)
        return self._storage.find(topic, partition)

    def _check(self, topic: str, partition: int) -> None:
        """Return if there can be such a partition.

        Raises:
            Refusal: -1 the name is none of a topic, 3 the broker has fewer partitions of it.
        """
        if not 0 < len(topic) <= self._settings.max_topic_characters or _ILLEGAL_TOPIC.search(topic):
            raise Refusal(requests.UNKNOWN, f"{topic!r} is no name of a topic")
        count = self._settings.partitions_of(topic)
        if not 0 <= partition < count:
            raise Refusal(requests.WRONG_PARTITION, f"{topic} has the partitions 0 to {count - 1}, not {partition}")
