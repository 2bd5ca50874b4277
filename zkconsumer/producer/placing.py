"""Placer: encodes a message, checks its size, and chooses its partition.

Encoders: what makes bytes of keys and values.

Any function of one argument that returns bytes, or None for a null, is an encoder; so is an object with Java's method
`toBytes`, or `toMessage` of Kafka 0.7. Those of `kafka.serializer` have their names.

Source: kafka.serializer.Encoder, DefaultEncoder, StringEncoder, NullEncoder (0.8.2.2).

Encoders, partitioners and handlers that a setting names as `module:name`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple, TypeVar

from rebalance.subscription import check_topic
from simpleconsumer.imported_names import NotImported, imported
from simpleconsumer.types import TopicPartition
from zkconsumer.errors import ConfigError
from zkconsumer.producer.batching.batch_queues import MESSAGE_OVERHEAD_BYTES, Pair, message_size
from zkconsumer.producer.errors import MessageNotSent, OversizedMessage
from zkconsumer.producer.keyed_message import GivenHeaders, as_headers, as_timestamp
from zkconsumer.producer.partitioners import PARTITIONERS, Partitioner
from zkconsumer.producer.sending.delivery import Delivery

T = TypeVar("T")


def named_object(name: str, setting: str, use: Callable[[Any], T], known: Iterable[str] = ()) -> T:
    """Return what `module:name` names, as it is used; of a class an instance.

    Args:
        name: The value of the setting.
        setting: Names it in the error.
        use: Returns what the object is used as; it raises TypeError for one that cannot be.
        known: What else the setting takes, for the error.

    Raises:
        ConfigError: There is no such module or name, its class makes no instance without arguments, or it is nothing
            that the setting takes.
    """
    try:
        found = imported(name.strip())
    except NotImported as error:
        reason = f" ({error})" if ":" in name else ""
        names = "".join(f"{each}, " for each in known)
        allowed = f"{names}{'or ' if names else ''}module:name of a Python object{reason}"
        raise ConfigError(setting, name, allowed) from error.__cause__
    try:
        made = found() if isinstance(found, type) else found
    except Exception as error:
        reason = f"{found.__name__}() raised {type(error).__name__}: {error}"
        raise ConfigError(setting, name, f"a class that needs no arguments ({reason})") from error
    try:
        return use(made)
    except TypeError as error:
        raise ConfigError(setting, name, f"an object that can be used as {setting} ({error})") from error


Encoder = Callable[[Any], bytes | None]


class DefaultEncoder:
    """Accepts bytes, and sends them unchanged."""

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes; `bytearray` and `memoryview` are copied.

        Raises:
            TypeError: It is something else.
        """
        if value is None or isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        way = ("encode it, or set serializer.class (for keys: key.serializer.class) to StringEncoder"
               if isinstance(value, str) else
                             "give a value_encoder or key_encoder that returns bytes for it")  # fmt: skip
        raise TypeError(f"{value!r:.60} is of type {type(value).__name__}; DefaultEncoder needs bytes: {way}")


class _Checked:
    """An encoder of an application: what it returns must be bytes, else it would spoil the messages of its batch.

    Args:
        encode: The encoder.
        name: Names it in errors.
    """

    def __init__(self, encode: Encoder, name: str) -> None:
        self._encode = encode
        self._name = name

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes of a value.

        Raises:
            TypeError: The encoder returned something else. And what it raises.
        """
        found = self._encode(value)
        if found is None or type(found) is bytes:
            return found
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
        raise TypeError(f"the encoder {self._name} returned {found!r:.60} for {value!r:.60}, neither bytes nor None")


class StringEncoder:
    """Encodes text.

    Args:
        encoding: The character set, as Java or Python names it.
    """

    def __init__(self, encoding: str = "UTF8") -> None:
        codecs.lookup(encoding)
        self._encoding = encoding

    def __call__(self, value: object) -> bytes | None:
        """Return the bytes of a text.

        Raises:
            TypeError: It is no text.
            UnicodeEncodeError: The character set lacks one of its characters.
        """
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.60} is not text, which StringEncoder needs")
        return value.encode(self._encoding)


class NullEncoder:
    """Encodes every value as null."""

    def __call__(self, value: object) -> None:
        """Return None."""


def encoder_named(name: str, setting: str, encoding: str) -> Encoder:
    """Return the encoder that a setting names: a class of `kafka.serializer`, or `module:name`.

    Raises:
        ConfigError: There is no such encoder, or no such character set.
    """
    kind = name.strip().removeprefix("kafka.serializer.")
    if kind == "DefaultEncoder":
        return DefaultEncoder()
    if kind == "NullEncoder":
        return NullEncoder()
    if kind == "StringEncoder":
        try:
            return StringEncoder(encoding)
        except LookupError:
            raise ConfigError("serializer.encoding", encoding, "a character set that Python knows") from None
    return named_object(name, setting, as_encoder, ("DefaultEncoder", "StringEncoder", "NullEncoder"))


def as_encoder(given: Any) -> Encoder:
    """Return what encodes: a function, an instance of a class, or `toBytes` or `toMessage` of Java's encoders.

    Raises:
        TypeError: It is nothing of these.
    """
    made = given() if isinstance(given, type) else given
    named = getattr(made, "toBytes", None) or getattr(made, "toMessage", None)
    method: Encoder | None = made if callable(made) else named
    if method is None:
        raise TypeError(f"{given!r:.60} is not an encoder, which is a function that returns bytes")
    if isinstance(made, DefaultEncoder | StringEncoder | NullEncoder) and type(made).__module__ == __name__:
        return made
    return _Checked(method, getattr(given, "__name__", None) or f"{given!r:.60}")


_KEEP_NO_KEY = (DefaultEncoder, StringEncoder, NullEncoder)


class PlacedMessage(NamedTuple):
    """A message that can be sent.

    Attributes:
        name: Its partition.
        pair: Its key and value, encoded.
        size: Its bytes in a message set.
        is_movable: Any other partition would do as well.
    """

    name: TopicPartition
    pair: Pair
    size: int
    is_movable: bool


class Encoding(NamedTuple):
    """What an application makes of keys and values.

    Attributes:
        key: Makes bytes of a key.
        value: Makes bytes of a value.
        partitioner: Chooses the partition of a key.
    """

    key: Encoder
    value: Encoder
    partitioner: Partitioner


class Placer:
    """Prepares messages.

    Args:
        delivery: Knows the partitions.
        encoding: Encodes, and chooses partitions.
        max_bytes: As the attribute.
        has_keys: As the attribute.

    Attributes:
        has_keys: Messages have keys and may have no value; in Kafka 0.7 a key only chooses the partition.
        max_bytes: Most bytes of key and value together.
        takes_bytes: Values are bytes, and are sent as they are.
        keeps_no_key: A message without a key is sent without one; an encoder of an application may make one.
    """

    def __init__(
        self,
        delivery: Delivery,
        encoding: Encoding,
        max_bytes: int,
        has_keys: bool,
    ) -> None:
        self.max_bytes = max_bytes
        self.has_keys = has_keys
        self.takes_bytes = isinstance(encoding.value, DefaultEncoder)
        self.keeps_no_key = not has_keys or type(encoding.key) in _KEEP_NO_KEY
        self._encode_key, self._encode_value, self._partitioner = encoding
        self._delivery = delivery
        self._checked: set[str] = set()

    def place(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | str | None = None,
        part_key: Any = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> PlacedMessage:
        """Return a message with its partition; the arguments are those of `Producer.send`.

        Raises:
            MessageNotSent: The topic is not known, or the message is too large.
            TypeError, ValueError: What the encoders and the partitioner do not take, or no partition of the topic.
        """
        pair: Pair = self._encode_key(key) if self.has_keys else None, self._encode_value(value)
        if headers and (given := as_headers(headers)):
            pair = *pair[:2], given
        if timestamp_ms is not None:
            pair = self.timed(topic, pair, timestamp_ms)
        size = self.check(topic, pair, partition)
        by = key if part_key is None else part_key
        name = TopicPartition(topic, self.partition(topic, by, partition))
        return PlacedMessage(name, pair, size, by is None and partition is None)

    def timed(self, topic: str, pair: Pair, timestamp_ms: Any) -> Pair:
        """Return an encoded message with its time.

        Raises:
            TypeError, ValueError: It is no time that can be stored; TypeError on Kafka 0.7, which stores none.
        """
        found = as_timestamp(timestamp_ms, topic)
        if not self.has_keys:
            raise TypeError(f"a message for {topic} has the time {found} (timestamp_ms): Kafka 0.7 stores no times, "
                            "which need Kafka 0.10 or later")  # fmt: skip
        return *pair[:2], pair[2] if len(pair) > 2 else (), found

    def all_timed(self, topic: str, pairs: list[Pair], timestamps_ms: Sequence[Any]) -> list[Pair]:
        """Return encoded messages with their times, of which there are as many; None leaves a message without one.

        Raises:
            What `timed` raises for one of them; ValueError for another number of times.
        """
        if len(timestamps_ms) != len(pairs):
            raise ValueError(f"{len(timestamps_ms)} times for {len(pairs)} messages for {topic}")
        return [pair if time_ms is None else self.timed(topic, pair, time_ms)
                for pair, time_ms in zip(pairs, timestamps_ms, strict=True)]  # fmt: skip

    def check(self, topic: str, pair: Pair, partition: int | str | None) -> int:
        """Return the bytes of an encoded message in a message set.

        Raises:
            OversizedMessage: It is too large.
            MessageNotSent: It has no value, and no broker says whether it takes that.
            TypeError: It has no value, which the brokers do not take.
        """
        if pair[1] is None:
            self._check_null(topic, partition)
        size = message_size(pair)
        if size - MESSAGE_OVERHEAD_BYTES > self.max_bytes:
            reason = f"it has {size - MESSAGE_OVERHEAD_BYTES} bytes, more than message.max.bytes = {self.max_bytes}"
            raise OversizedMessage(topic, partition, reason)
        return size

    def _check_null(self, topic: str, partition: int | str | None) -> None:
        if not self.has_keys:
            raise TypeError(f"a message for {topic} has no value: Kafka 0.7 stores no null, only values of 0 bytes")
        found = self._delivery.takes_null_values(topic)
        if isinstance(found, str):
            reason = f"it has no value, and no broker says whether it accepts that: {found}"
            raise MessageNotSent(topic, partition, reason)
        if not found:
            raise TypeError(f"a message for {topic} has no value: its brokers are of Kafka 0.8.0, whose consumers "
                            "cannot read a null, only values of 0 bytes")  # fmt: skip

    def place_batch(
        self, topic: str, messages: Sequence[tuple[Any, Any]], partition: int | str,
        timestamps_ms: Sequence[int | None] | None = None,
    ) -> tuple[TopicPartition, list[Pair], int]:  # fmt: skip
        """Return partition, encoded messages and size of a batch whose messages all go to one partition.

        Raises:
            What `place` raises for one of them; ValueError for a batch without messages, or another number of times.
        """
        if not messages:
            raise ValueError(f"a batch for {topic} has no messages")
        name = TopicPartition(topic, self.partition(topic, None, partition))
        encode_key, encode_value = self._encode_key, self._encode_value
        pairs: list[Pair] = (
            [(encode_key(key), encode_value(value)) for key, value in messages] if self.has_keys
            else [(None, encode_value(value)) for _, value in messages]
        )  # fmt: skip
        if timestamps_ms is not None:
            pairs = self.all_timed(topic, pairs, timestamps_ms)
        sizes = list(map(message_size, pairs))
        if max(sizes) - MESSAGE_OVERHEAD_BYTES > self.max_bytes or not self.has_keys:
            for pair in pairs:
                self.check(topic, pair, partition)
        return name, pairs, sum(sizes)

    def leaders(self, topic: str) -> Mapping[int | str, int | None]:
        """Return the partitions of a topic with their leaders: the same mapping until they are looked up again.

        Raises:
            MessageNotSent: The topic is not known.
        """
        known = self._delivery.partitions(topic)
        if isinstance(known, str):
            raise MessageNotSent(topic, None, known)
        return known

    def name_without_key(self, topic: str) -> TopicPartition | None:
        """Return where messages of a topic go that have no key; None if the topic is not known."""
        if isinstance(self._delivery.partitions(topic), str):
            return None
        return TopicPartition(topic, self._delivery.sticky_partition(topic))

    def partition(self, topic: str, key: Any, partition: int | str | None) -> int | str:
        """Return where a message goes: the partition that is given, or that of the key, or any.

        Raises:
            MessageNotSent: The topic is not known.
            TypeError, ValueError: What the partitioner does not take, or no partition of the topic.
        """
        if topic not in self._checked:
            self._checked.add(check_topic(topic))
        known = self._delivery.partitions(topic)
        if isinstance(known, str):
            raise MessageNotSent(topic, partition, known)
        if partition is not None:
            partition = _as_name(partition)
            if partition not in known:
                self._check_partition(topic, partition)
            return partition
        if key is None:
            return self._delivery.sticky_partition(topic)
        chosen = self._partitioner(key, len(known))
        if type(chosen) is not int:
            chosen = _as_number(chosen, key, topic)
        if not 0 <= chosen < len(known):
            raise ValueError(f"the partitioner chose {chosen} for the key {key!r:.60}, of {len(known)} partitions of "
                             f"topic {topic!r}")  # fmt: skip
        return list(known)[chosen]

    def _check_partition(self, topic: str, partition: int | str) -> None:
        """Look once more for a partition: the topic may have grown since the last look-up."""
        known = self._delivery.partitions_by_now(topic, partition)
        if isinstance(known, str):
            reason = f"whether the topic has this partition is not known: {known}"
            raise MessageNotSent(topic, partition, reason)
        if partition not in known:
            names = ", ".join(map(str, known))
            raise ValueError(f"topic {topic!r} has no partition {partition!r}; it has {names}")


def _as_name(partition: Any) -> int | str:
    """Return a partition as it is on the wire: 1.0 equals 1, and would spoil the request."""
    if type(partition) is int or isinstance(partition, str):
        return partition
    try:
        return index(partition)
    except TypeError:
        raise TypeError(f"the partition {partition!r:.60} is neither a number nor a name") from None


def _as_number(chosen: Any, key: Any, topic: str) -> int:
    """Return what a partitioner chose, if it is a number in some type."""
    try:
        return index(chosen)
    except TypeError:
        raise TypeError(f"the partitioner chose {chosen!r:.60} for the key {key!r:.60} of topic {topic!r}: it must "
                        "return the number of a partition, counted from 0") from None  # fmt: skip


def as_partitioner(given: Any) -> Partitioner:
    """Return what chooses partitions: a function, an instance of a class, the method `partition`, or what a name names.

    Args:
        given: One of these, a name of `PARTITIONERS`, or `module:name`.

    Raises:
        ConfigError: It is nothing of these.
    """
    if isinstance(given, str):
        known = PARTITIONERS.get(given.strip())
        return known or named_object(given, "partitioner.class", _method_of, PARTITIONERS)
    try:
        return _method_of(given() if isinstance(given, type) else given)
    except TypeError as error:
        allowed = f"a function of key and number of partitions ({error})"
        raise ConfigError("partitioner.class", given, allowed) from error


def _method_of(made: Any) -> Partitioner:
    method: Partitioner | None = made if callable(made) else getattr(made, "partition", None)
    if not callable(method):
        raise TypeError(f"{made!r:.60} is not a function, and has no method partition")
    return method
