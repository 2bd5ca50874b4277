"""KeyedMessage and ProducerData: a message with its topic, as the producers of Kafka 0.8 and 0.7 take them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final

from simpleconsumer.security.secret import is_utf8
from simpleconsumer.types import MAX_INT64, Headers

GivenHeaders = Iterable[tuple[str, bytes | None]]
"""Headers of a message as an application gives them: names may occur several times, and stay in their order."""


def as_headers(given: GivenHeaders) -> Headers:
    """Return headers as they are sent.

    Raises:
        TypeError: One is no pair of text and bytes or None.
        ValueError: The name of one cannot be encoded.
    """
    found = []
    for each in given:
        if not (isinstance(each, tuple | list) and len(each) == 2):
            raise TypeError(f"the header {each!r:.60} is not a pair of name and value")
        name, content = each
        if not isinstance(name, str) or not (content is None or isinstance(content, bytes)):
            raise TypeError(
                f"the header {name!r:.60} has a {type(content).__name__}; a name must be text, a value bytes"
            )
        if not is_utf8(name):
            raise ValueError(f"the header {name!r:.60} cannot be encoded as UTF-8")
        found.append((name, content))
    return tuple(found)


LATEST_TIMESTAMP_MS: Final = MAX_INT64
"""No later time can be stored."""


def as_timestamp(given: Any, topic: str) -> int:
    """Return the time of a message as it is sent: milliseconds since 1970.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is negative, or no 64 bits hold it.

    Source: org.apache.kafka.clients.producer.ProducerRecord (3.9), which refuses negative times.
    """
    limit = f"a time is a whole number of milliseconds since 1970, from 0 to {LATEST_TIMESTAMP_MS}, or None for now"
    try:
        found = None if isinstance(given, bool) else index(given)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"timestamp_ms of a message for {topic} is {given!r:.60}, a {type(given).__name__}: {limit}")
    if not 0 <= found <= LATEST_TIMESTAMP_MS:
        raise ValueError(f"timestamp_ms of a message for {topic} is {found}: {limit}")
    return found


class KeyedMessage:
    """A message for `Producer.send`, as in Kafka 0.8.

    It is made as in Java: `KeyedMessage(topic, message)`, `KeyedMessage(topic, key, message)` or
    `KeyedMessage(topic, key, part_key, message)`.

    Attributes:
        topic: Its topic.
        key: Its key, which is stored; None for none.
        part_key: What the partitioner gets instead of the key; it is not stored.
        message: Its value.
        partition: Its partition, if it is given.
        headers: Its headers, pairs of name and bytes or None; brokers store them from Kafka 0.11 on.
        timestamp_ms: Its time, in milliseconds since 1970; None: when it is sent. Brokers store it from Kafka 0.10 on.
    """

    __slots__ = ("headers", "key", "message", "part_key", "partition", "timestamp_ms", "topic")

    def __init__(
        self, topic: str, *parts: Any, partition: int | str | None = None, headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> None:  # fmt: skip
        if not 1 <= len(parts) <= 3:
            raise TypeError(
                f"KeyedMessage has a topic and 1 to 3 more arguments (key, part_key, message), not {len(parts)}"
            )
        self.topic = topic
        self.message = parts[-1]
        self.key = parts[0] if len(parts) > 1 else None
        self.part_key = parts[1] if len(parts) > 2 else None
        self.partition = partition
        self.headers = headers
        self.timestamp_ms = timestamp_ms

    def __repr__(self) -> str:
        return f"KeyedMessage({self.topic!r}, {self.key!r}, {self.part_key!r}, {self.message!r})"


class ProducerData:
    """Several values with one key, as in Kafka 0.7; the key chooses the partition and is not stored.

    It is made as in Java: `ProducerData(topic, data)` or `ProducerData(topic, key, data)`.

    Attributes:
        topic: Their topic.
        key: What the partitioner gets; None for none.
        data: The values; one that is no list or tuple stands for itself.
    """

    __slots__ = ("data", "key", "topic")

    def __init__(self, topic: str, *parts: Any) -> None:
        if not 1 <= len(parts) <= 2:
            raise TypeError(
                f"ProducerData has a topic, an optional key, and data; {len(parts)} arguments after the "
                "topic are too many or too few"
            )
        self.topic = topic
        self.key = parts[0] if len(parts) == 2 else None
        data = parts[-1]
        self.data = tuple(data) if isinstance(data, list | tuple) else (data,)

    def __repr__(self) -> str:
        return f"ProducerData({self.topic!r}, {self.key!r}, {list(self.data)!r})"

    def messages(self) -> list[KeyedMessage]:
        """Return a message for each value."""
        return [KeyedMessage(self.topic, None, self.key, value) for value in self.data]


def check_messages(messages: Any) -> None:
    """Refuse what can be iterated over, but is no series of messages: its pieces would be sent.

    Raises:
        TypeError: It is text or bytes, a mapping, or a single message.
    """
    if isinstance(messages, str | bytes | bytearray | memoryview):
        raise TypeError(f"{messages!r:.60} is of type {type(messages).__name__}, but send_all accepts a series of "
                        "messages, and then the topic; send accepts one message")  # fmt: skip
    if isinstance(messages, Mapping):
        raise TypeError(f"send_all would send only the keys of a {type(messages).__name__}: give its items(), which "
                        "are pairs of key and value, or put it into a list if it is one message")  # fmt: skip
    if isinstance(messages, KeyedMessage | ProducerData):
        raise TypeError(f"{messages!r:.60} is one message; give it to send, or give send_all a list")


def as_given_messages(message: Any, *, has_value: bool, more: Mapping[str, Any]) -> list[KeyedMessage]:
    """Return the messages that the one argument given to `Producer.send` stands for.

    Args:
        message: A KeyedMessage, or ProducerData.
        has_value: A value is given as well.
        more: The other arguments of `send` by their names; None: not given.

    Raises:
        TypeError: It is neither, or has a value or another argument given besides.
    """
    if has_value:
        raise TypeError(f"a value is given with {message!r:.60}, which has its own: send_all accepts several")
    if isinstance(message, str):
        raise TypeError(f"no value for a message of topic {message!r}")
    if lost := [name for name, each in more.items() if each is not None]:
        raise TypeError(f"{' and '.join(lost)} given with {message!r:.60}, which would be sent without: give "
                        "KeyedMessage everything that the message has")  # fmt: skip
    if isinstance(message, list | tuple):
        raise TypeError(f"a {type(message).__name__} is not a message; send accepts one message, and send_all several")
    return as_keyed_messages(message, None)


def as_keyed_messages(message: Any, topic: str | None) -> list[KeyedMessage]:
    """Return the messages that one element given to `Producer.send_all` stands for.

    Args:
        message: A KeyedMessage, ProducerData; or with a topic a value, or a pair of key and value.
        topic: The topic of values and pairs.

    Raises:
        TypeError: It is nothing of these.
    """
    if isinstance(message, KeyedMessage):
        return [message]
    if isinstance(message, ProducerData):
        return message.messages()
    if topic is None:
        raise TypeError(f"{message!r:.60} is not a KeyedMessage, which is required without a topic")
    if isinstance(message, tuple):
        if len(message) != 2:
            raise TypeError(f"a tuple of {len(message)} is not a pair of key and value")
        return [KeyedMessage(topic, message[0], message[1])]
    return [KeyedMessage(topic, message)]
