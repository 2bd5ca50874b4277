"""`Cluster.produce`: writes messages to a topic of a test cluster, and says where each message went.

KeptWriter: the writer of the last `Cluster.produce`, kept for the next one, which then needs no new connection.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from zkconsumer.producer.partitioners import partition_of_key
from zkconsumer.testing.errors import (
    FIRST_WITH_KEYS,
    FIRST_WITH_TOMBSTONES,
    KitError,
    check_codec,
    require,
    version_tuple,
)
from zkconsumer.testing.writer import Leaders, Sent, Target, Writer, check_leaders, plain_errors

Kind = tuple[str, float]
"""Codec and deadline of a writer."""


class KeptWriter:
    """Keeps one idle writer of a cluster.

    It is used again for the same codec and deadline, as long as leaders and ports of the topic are the same, and not in
    Kafka 0.7. Connections that a broker has closed meanwhile are made again. After a failure the writer is not kept:
    batches may be on their way.

    Threads: any; each call has a writer of its own.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: tuple[Kind, Writer] | None = None

    @contextmanager
    def writer(
        self, cluster: Target, topic: str, leaders: Leaders, *, codec: str, timeout_s: float
    ) -> Iterator[Writer]:
        """The kept writer, or a new one; at the end of the block it is kept, or closed if the block fails.

        Args:
            leaders: those of the partitions that are written to.
            codec: none, gzip, snappy, lz4.
            timeout_s: deadline of one request, and of the tries of a batch that was refused.

        Raises:
            What `Writer` raises.
        """
        kind = codec, timeout_s
        writer = self._taken(kind, topic, leaders)
        if writer is None:
            places: dict[str, Sequence[int | str]] = {topic: list(leaders)}
            writer = Writer(cluster, places, codec=codec, timeout_s=timeout_s, known={topic: leaders})
        try:
            yield writer
        except BaseException:
            writer.close()
            raise
        self._keep(kind, writer)

    def _taken(self, kind: Kind, topic: str, leaders: Leaders) -> Writer | None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is None:
            return None
        kept_kind, writer = kept
        if kept_kind == kind and writer.renew(topic, leaders):
            return writer
        writer.close()
        return None

    def _keep(self, kind: Kind, writer: Writer) -> None:
        with self._lock:
            earlier, self._kept = self._kept, (kind, writer)
        if earlier is not None:
            earlier[1].close()

    def close(self) -> None:
        """Close the kept writer."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()


BATCH_MESSAGES = 1000
BATCH_BYTES = 400_000
"""Most bytes of a batch: a compressed one counts as one message, and brokers take 1 MB (`message.max.bytes`)."""
KeyValue = tuple[bytes | None, bytes | None]


class Keyed(Protocol):
    """A message with key and value, such as `zkconsumer.Message` or `Delivered`."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""


Text = bytes | str | None
Sendable = Text | tuple[Text, Text] | Keyed
"""A value (None: a tombstone), a pair of key and value, or a message with both; text is sent as UTF-8."""


class Produced(NamedTuple):
    """Where a message went.

    Attributes:
        partition: Its partition.
        offset: Its offset; in Kafka 0.7 the position of its entry, which all messages of a compressed one share.
    """

    partition: int | str
    offset: int


def produce(
    cluster: Target,
    kept: KeptWriter,
    topic: str,
    messages: Iterable[Sendable],
    *,
    key: Text = None,
    partition: int | str | None = None,
    partitions: int | None = None,
    codec: str = "none",
    timeout_s: float = 30.0,
) -> list[Produced]:
    """Where each message went, in the order of the messages; `Cluster.produce` describes the arguments."""
    _check_numbers(cluster.version, partition=partition, partitions=partitions)
    pairs = [key_and_value(message, number, key) for number, message in enumerate(_listed(messages))]
    if any(value is None for _, value in pairs):
        require(cluster.version, FIRST_WITH_TOMBSTONES, "a message without a value")
    if any(key is not None for key, _ in pairs):
        require(cluster.version, FIRST_WITH_KEYS, "a message with a key")
    check_codec(cluster.version, codec)
    known = _partitions(cluster, topic, partitions, partition)
    if partition is not None and partition not in known:
        raise KitError(f"topic {topic} has the partitions {', '.join(map(str, known))}; there is no {partition}")
    indexes: dict[int | str, list[int]] = {}
    for index, chosen in enumerate(_chosen(pairs, partition, known)):
        indexes.setdefault(chosen, []).append(index)
    leaders = check_leaders(cluster, topic, list(indexes))
    went: list[Produced | None] = [None] * len(pairs)
    with plain_errors(), kept.writer(cluster, topic, leaders, codec=codec, timeout_s=timeout_s) as writer:
        sent: dict[int | str, list[Sent]] = {}
        for chosen, mine in indexes.items():
            made = batches(pairs[index] for index in mine)
            sent[chosen] = [writer.send(topic, chosen, batch) for batch in made]
        for chosen, mine in indexes.items():
            offsets = (offset for each in sent[chosen] for offset, _ in writer.places(each))
            for index, offset in zip(mine, offsets, strict=True):
                went[index] = Produced(chosen, offset)
    return [place for place in went if place is not None]


def key_and_value(message: Sendable, number: int = 0, default_key: Text = None) -> KeyValue:
    """Key and value of a message, as bytes.

    Args:
        number: of the message in its list, for the error.
        default_key: the key of messages that are only a value.

    Raises:
        TypeError: it is none; names the message.
    """
    if message is None or isinstance(message, bytes | str):
        return _bytes(default_key, number), _bytes(message, number)
    if not isinstance(message, tuple):
        # A message without key or value is refused by its type.
        return _bytes(getattr(message, "key", message), number), _bytes(getattr(message, "value", message), number)
    if len(message) != 2:
        raise TypeError(f"message {number} is a tuple of {len(message)}; a pair of key and value is needed")
    key, value = message
    return _bytes(key, number), _bytes(value, number)


def _bytes(text: object, number: int) -> bytes | None:
    if isinstance(text, str):
        return text.encode()
    if text is None or isinstance(text, bytes):
        return text
    raise _wrong(text, number)


def _wrong(message: object, number: int) -> TypeError:
    kind = type(message).__name__
    return TypeError(f"message {number} has a {kind} ({message!r:.60}): bytes, text, None or pairs of these are needed")


def _listed(messages: Iterable[Sendable]) -> Iterable[Sendable]:
    if isinstance(messages, Mapping):
        raise TypeError("messages is a mapping: a list of pairs of key and value is needed, list(messages.items())")
    # A tuple is a message, a pair of key and value; read as a list it would be two messages without a key.
    if isinstance(messages, bytes | bytearray | str | tuple) or not isinstance(messages, Iterable):
        raise TypeError(f"messages is {messages!r:.60}: a list is needed, for one message [{messages!r:.60}]")
    return messages


def _check_numbers(version: str, **given: int | str | None) -> None:
    for name, value in given.items():
        if name == "partition" and version_tuple(version) < (0, 8):
            if value is not None and not isinstance(value, str):
                raise TypeError(f"partition is {value!r}: in Kafka 0.7 the name of one is needed, such as '0-3'")
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} is {value!r}: an int is needed")


def _partitions(cluster: Target, topic: str, wanted: int | None, needed: int | str | None) -> list[int | str]:
    """The partitions of a topic, which is created if it is not there, unless it would not have the needed one."""
    try:
        known = cluster.partitions(topic)
    except KitError:
        if isinstance(needed, int) and needed not in range(wanted or 1):
            raise KitError(
                f"topic {topic} would be created with {wanted or 1} partitions, without the partition {needed}; "
                "give partitions=, the number of its partitions"
            ) from None
        return list(cluster.create_topic(topic, wanted))
    each = {str(name).partition("-")[0] for name in known} if version_tuple(cluster.version) < (0, 8) else {""}
    if wanted is not None and wanted * len(each) != len(known):
        raise KitError(f"topic {topic} exists and has {len(known)} partitions, not {wanted}")
    return known


def _chosen(pairs: Iterable[KeyValue], partition: int | str | None, known: Sequence[int | str]) -> Iterator[int | str]:
    """The partition of each message."""
    without_key = 0
    for key, _ in pairs:
        if partition is not None:
            yield partition
        elif key is not None:
            yield partition_of_key(key, [int(each) for each in known])
        else:
            yield known[without_key % len(known)]
            without_key += 1


def batches(messages: Iterable[KeyValue]) -> Iterator[list[KeyValue]]:
    """The messages in batches that brokers take, in order; a message above the limit is alone in its batch."""
    batch: list[KeyValue] = []
    held = 0
    for message in messages:
        key, value = message
        count = len(key or b"") + len(value or b"")
        if batch and (len(batch) >= BATCH_MESSAGES or held + count > BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(message)
        held += count
    if batch:
        yield batch
