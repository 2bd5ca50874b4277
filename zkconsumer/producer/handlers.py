"""CallbackHandler, EventHandler and QueueItem: applications see, change or take over messages on their way.

Source: kafka.producer.async.CallbackHandler, EventHandler, QueueItem (0.7.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from zkconsumer.errors import ConfigError
from zkconsumer.producer.batching.outcome import BatchOutcome
from zkconsumer.producer.keyed_message import GivenHeaders, KeyedMessage
from zkconsumer.producer.placing import named_object


class QueueItem:
    """A message in the hands of a callback handler, which may change its attributes.

    Attributes:
        topic: Its topic.
        data: Its value, before it is encoded.
        key: Its key, before it is encoded; None for none.
        partition: Its partition, if it is given.
        part_key: What the partitioner gets instead of the key.
        headers: Its headers; None for none.
        timestamp_ms: Its time, in milliseconds since 1970; None: when it is sent.
    """

    __slots__ = ("data", "headers", "key", "outcome", "part_key", "partition", "timestamp_ms", "topic")

    def __init__(
        self,
        data: Any,
        topic: str,
        partition: int | str | None = None,
        key: Any = None,
        part_key: Any = None,
        headers: GivenHeaders | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.data = data
        self.topic = topic
        self.partition = partition
        self.key = key
        self.part_key = part_key
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.outcome = BatchOutcome(topic, -1 if partition is None else partition)

    def get_data(self) -> Any:
        """Return its value."""
        return self.data

    def get_topic(self) -> str:
        """Return its topic."""
        return self.topic

    def get_partition(self) -> int | str:
        """Return its partition, -1 if none is given."""
        return -1 if self.partition is None else self.partition

    getData, getTopic, getPartition = get_data, get_topic, get_partition  # noqa: N815

    def message(self) -> KeyedMessage:
        """Return the message as an event handler gets it."""
        return KeyedMessage(
            self.topic, self.key, self.part_key, self.data, partition=self.partition, headers=self.headers,
            timestamp_ms=self.timestamp_ms,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"QueueItem({self.data!r}, {self.topic!r}, partition={self.partition!r}, key={self.key!r})"


class CallbackHandler:
    """Sees messages on their way; a class of an application overrides the methods that it needs.

    `before_enqueue` and `after_enqueue` run in the thread that sends, the others in one thread of the producer, one at
    a time. A method that raises fails the messages that it was given, and no others. Methods may have Java's spelling
    instead: `beforeEnqueue`.
    """

    def init(self, properties: Mapping[str, str]) -> None:
        """Take over `callback.handler.props`; only called for a class that `callback.handler` names."""

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the message that enters the queue."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """Called when a message has entered the queue, or there was no room for it."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return the messages to send, in their order.

        A message that is not returned is kept by the handler: it may be returned by a later call, or at the end. With
        `producer.type=sync` it has failed then.

        Args:
            item: The next message of the queue; None when `queue.buffering.max.ms` is over.
        """
        return [] if item is None else [item]

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        """Return the messages of a batch that are sent; one that is left out has failed."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        """Return messages that go with the last batch."""
        return []

    def close(self) -> None:
        """Called at the end: nothing follows."""


class EventHandler(Protocol):
    """Receives batches in place of the brokers: nothing is encoded, no partition is chosen, no broker is asked.

    `init(properties)` is called, if it is there, for a class that `event.handler` names.
    """

    def handle(self, events: Sequence[KeyedMessage]) -> object:
        """Handle messages; their outcome is that of the call. An error that it raises fails all of them."""

    def close(self) -> object:
        """Called at the end: nothing follows."""


_SPELLINGS = {
    "before_enqueue": "beforeEnqueue",
    "after_enqueue": "afterEnqueue",
    "after_dequeuing_existing_data": "afterDequeuingExistingData",
    "before_sending_data": "beforeSendingData",
    "last_batch_before_close": "lastBatchBeforeClose",
    "close": "close",
}


def hooks_of(handler: object) -> Mapping[str, Callable[..., Any]]:
    """Return the methods of a callback handler by their names here; those that it does not have do nothing.

    Raises:
        TypeError: It has none of them, or is a class.
    """
    if isinstance(handler, type):
        raise TypeError(f"the callback handler {handler.__name__} is a class: give an instance, {handler.__name__}()")
    if handler is not None and not any(hasattr(handler, name) for names in _SPELLINGS.items() for name in names):
        raise TypeError(
            f"{handler!r:.60} is not a callback handler: it has none of the methods {', '.join(_SPELLINGS)}"
        )
    nothing = CallbackHandler()
    found = {}
    for name, java in _SPELLINGS.items():
        method = getattr(handler, name, None) or getattr(handler, java, None) or getattr(nothing, name)
        found[name] = method
    return found


def configured_handler(name: str | None, properties: Sequence[str], setting: str) -> Any:
    """Return an instance of the class that a setting names; None if it names none.

    Args:
        name: The value of `callback.handler` or `event.handler`.
        properties: The value of the setting of that name with `.props`.
        setting: Which of the two settings it is.

    Raises:
        ConfigError: There is no such class, it is no handler, or its properties are no `name=value`.
    """
    if name is None:
        return None
    made = named_object(name, setting, _as_callback_handler if setting == "callback.handler" else as_event_handler)
    if hasattr(made, "init"):
        made.init(_properties(properties, f"{setting}.props"))
    return made


def _as_callback_handler(made: Any) -> Any:
    hooks_of(made)
    return made


def as_event_handler(made: Any) -> EventHandler:
    """Return an event handler.

    Raises:
        TypeError: It has no method `handle`.
    """
    if not callable(getattr(made, "handle", None)):
        raise TypeError(f"{made!r:.60} is not an event handler: it has no method handle")
    handler: EventHandler = made
    return handler


def _properties(given: Sequence[str], setting: str) -> dict[str, str]:
    properties = {}
    for each in given:
        name, separator, value = each.partition("=")
        if not separator:
            raise ConfigError(setting, each, "name=value, or several separated by commas")
        properties[name.strip()] = value.strip()
    return properties
