"""The subscription of a consumer, topics with stream counts or a filter, and the thread ids that follow from it. Pure.

Every member applies every other member's filter to its own list of topics, so cleaning and matching are exactly those
of Java (`rebalance.java_regex`).

Source: kafka/consumer/TopicFilter.scala, TopicCount.scala, kafka/common/Topic.scala (0.8.2.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rebalance.errors import InvalidName, UnsupportedFilter
from rebalance.java_regex import java_regex
from rebalance.zookeeper.znodes import BLACK_LIST, MAX_STREAMS, STATIC, WHITE_LIST, Registration

__all__ = [
    "INTERNAL_TOPICS",
    "Subscription",
    "UnsupportedFilter",
    "check_any_group",
    "check_client_id",
    "check_group",
    "check_topic",
    "clean_filter_text",
    "client_id_of",
    "consumer_id_of",
    "java_regex",
    "thread_ids",
]

OFFSETS_TOPIC = "__consumer_offsets"
"""Where brokers from 0.8.2 on keep the offsets of groups that store them in Kafka."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC})
"""Topics that filters leave out unless `exclude.internal.topics` is false."""

MAX_NAME_CHARS = 255

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]*")
_ILLEGAL_CHAR = re.compile(r"[^a-zA-Z0-9._-]")
_QUOTED = re.compile("([\"']).*\\1", re.DOTALL)
_MAX_TEXT_BYTES = 2**15 - 1
_OUTER_QUOTES = re.compile("^[\"']+|[\"']+\\Z")
# The characters that java.lang.String.trim removes: more than blanks, fewer than Unicode's spaces.
_JAVA_BLANKS = "".join(map(chr, range(0x21)))


@dataclass(frozen=True)
class Subscription:
    """The subscription of one consumer. Build it with `static`, `white_list`, `black_list`, `from_registration`.

    Attributes:
        pattern: `static`, `white_list` or `black_list`, the words of the registration.
        entries: (topic, streams) for each topic, or one (cleaned regex, streams).
    """

    pattern: str
    entries: tuple[tuple[str, int], ...]
    _regex: re.Pattern[str] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def static(cls, topics: Mapping[str, int]) -> Subscription:
        """Return a subscription to named topics with a number of streams each; it may be empty.

        Raises:
            InvalidName: A name that no topic can have.
            ValueError: A count below 1 or above `MAX_STREAMS`.
        """
        entries = tuple((check_topic(topic), _check_streams(count)) for topic, count in topics.items())
        return cls(STATIC, entries)

    @classmethod
    def white_list(cls, text: str, streams: int = 1) -> Subscription:
        """Return a subscription to all topics that match a filter, now and later.

        Raises:
            UnsupportedFilter: The filter is no Java regex, or none that can be translated.
        """
        return cls._wildcard(WHITE_LIST, text, streams)

    @classmethod
    def black_list(cls, text: str, streams: int = 1) -> Subscription:
        """Return a subscription to all topics that do not match a filter, now and later.

        Raises:
            UnsupportedFilter: The filter is no Java regex, or none that can be translated.
        """
        return cls._wildcard(BLACK_LIST, text, streams)

    @classmethod
    def from_registration(cls, registration: Registration) -> Subscription:
        """Return what a registered member subscribes to.

        Of a wildcard the first entry counts, cleaned again, as in Java. Topics of a static member are taken
        unchanged, even names that no topic can have: round robin counts them.

        Raises:
            UnsupportedFilter: The member's filter is no Java regex, or none that can be translated.
        """
        if registration.pattern == STATIC:
            return cls(STATIC, registration.subscription)
        return cls._wildcard(registration.pattern, *registration.subscription[0])

    @classmethod
    def _wildcard(cls, pattern: str, text: str, streams: int) -> Subscription:
        cleaned = clean_filter_text(text)
        return cls(pattern, ((cleaned, _check_streams(streams)),), java_regex(cleaned))

    def to_registration(self, timestamp_ms: int) -> Registration:
        """Return the registration to write; `timestamp_ms` counts from 1970."""
        return Registration(self.pattern, self.entries, timestamp_ms)

    @property
    def is_wildcard(self) -> bool:
        """True for a white list and a black list: the topics change with the cluster."""
        return self.pattern != STATIC

    def matches(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        """Return whether the topic is subscribed to; a static subscription leaves no internal topic out."""
        if self._regex is None:
            return any(topic == name for name, _ in self.entries)
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._regex.fullmatch(topic) is not None) == (self.pattern == WHITE_LIST)

    def topics(self, known_topics: Iterable[str], exclude_internal_topics: bool = True) -> list[str]:
        """Return the sorted topics subscribed to: static ones, known or not, or those known ones that match."""
        if not self.is_wildcard:
            return sorted(name for name, _ in self.entries)
        return sorted({topic for topic in known_topics if self.matches(topic, exclude_internal_topics)})

    def streams_of(self, topic: str) -> int:
        """Return the number of streams on a topic: that of the filter for any topic, 0 for one not named."""
        if self.is_wildcard:
            return self.entries[0][1]
        return dict(self.entries).get(topic, 0)


def thread_ids(consumer_id: str, streams: int) -> list[str]:
    """Return `<consumer id>-0`, `-1`, ...: the owners' names, the same for every topic of the consumer.

    In the order of the numbers; Java assigns partitions in string order (`assignment.sort_thread_ids`).
    """
    return [f"{consumer_id}-{index}" for index in range(streams)]


def consumer_id_of(thread_id: str) -> str:
    """Return the consumer id in a thread id: everything before the last hyphen."""
    return thread_id.rpartition("-")[0] or thread_id


def clean_filter_text(text: str) -> str:
    """Return a filter as Kafka stores and matches it.

    Outer blanks, all spaces, and quotes at both ends are removed; every comma becomes `|`.
    Therefore a filter cannot contain `{1,3}`.

    >>> clean_filter_text("'foo,bar baz' ")
    'foo|barbaz'
    """
    return _OUTER_QUOTES.sub("", text.strip(_JAVA_BLANKS).replace(",", "|").replace(" ", ""))


def check_group(name: str) -> str:
    """Return the group's name.

    Raises:
        InvalidName: It is empty, too long, `.`, `..`, or has other characters than `[a-zA-Z0-9._-]`.
    """
    return _check_name("group", name)


def check_any_group(name: str) -> str:
    """Return the name of a group that brokers may coordinate: they take any text.

    Raises:
        InvalidName: It is empty, no request can have it, or it has blanks or quotes at its ends: more often than a name
            that is a slip of the hand, and the group would be another one.
    """
    if not isinstance(name, str):
        raise InvalidName("group", name, "is not text")
    if name != name.strip() or _QUOTED.fullmatch(name):
        raise InvalidName("group", name, "has blanks or quotes at its ends")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidName("group", name, f"cannot be encoded as UTF-8: {error.reason}") from None
    if not 0 < size <= _MAX_TEXT_BYTES:
        raise InvalidName("group", name, f"has {size} bytes; 1 to {_MAX_TEXT_BYTES} are allowed")
    return name


def client_id_of(group: str) -> str:
    """Return the name of a group as a client id, which has fewer characters.

    >>> client_id_of("team/app: orders")
    'team_app__orders'
    """
    return _ILLEGAL_CHAR.sub("_", group)[:MAX_NAME_CHARS]


def check_topic(name: str) -> str:
    """Return the topic's name.

    Raises:
        InvalidName: It is empty, too long, `.`, `..`, or has other characters than `[a-zA-Z0-9._-]`.
    """
    return _check_name("topic", name)


def check_client_id(name: str) -> str:
    """Return the client id; unlike a group it may be empty.

    Raises:
        InvalidName: It is too long or has other characters than `[a-zA-Z0-9._-]`.
    """
    return name if name == "" else _check_name("client id", name)


def _check_name(kind: str, name: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(kind, name, "is not text")
    if not name or len(name) > MAX_NAME_CHARS:
        raise InvalidName(kind, name, f"has {len(name)} characters; 1 to {MAX_NAME_CHARS} are allowed")
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise InvalidName(kind, name, "has characters other than [a-zA-Z0-9._-], or is '.' or '..'")
    return name


def _check_streams(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_STREAMS:
        raise ValueError(f"the number of streams is {count!r}; it must be from 1 to {MAX_STREAMS}")
    return count
