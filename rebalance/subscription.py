"""The subscription of a member, and the partitions that the strategies assign to it. Pure.

The subscription of a consumer, topics with stream counts or a filter, and the thread ids that follow from it.

Every member applies every other member's filter to its own list of topics, so cleaning and matching are exactly those
of Java (`rebalance.java_regex`).

Source: kafka/consumer/TopicFilter.scala, TopicCount.scala, kafka/common/Topic.scala (0.8.2.2).

The range and roundrobin strategies: which thread of a group gets which partition.

Members do not agree on an assignment: each computes all of it from the same registrations. One different sort order
means two claims on one partition. The orders are therefore named after the versions that define them, and tests compare
the results with those of the JVM.

Source: kafka/consumer/PartitionAssignor.scala (0.8.2.2, 0.9.0.1, 1.1.1), ZookeeperConsumerConnector.scala (0.7.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rebalance.errors import InvalidName, UnequalSubscriptions, UnsupportedFilter
from rebalance.java_regex import java_regex
from rebalance.zookeeper.znodes import BLACK_LIST, MAX_STREAMS, STATIC, WHITE_LIST, Registration

__all__ = [
    "INTERNAL_TOPICS", "Subscription", "UnsupportedFilter", "check_any_group", "check_client_id", "check_group",
    "check_topic", "clean_filter_text", "client_id_of", "consumer_id_of", "java_regex", "thread_ids",
]  # fmt: skip

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
        """Return the subscription of a registered member.

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

    In the order of the numbers; Java assigns partitions in string order (`sort_thread_ids`).
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


Partition = tuple[str, int | str]
"""Topic and partition as the znode is named: an integer in 0.8, `broker-partition` in 0.7."""
_Partition = TypeVar("_Partition", int, str, int | str)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions that one member should hold.

    Attributes:
        mine: partition -> thread id of this member.
        owners: partition -> thread id that should own it, for the partitions of this member's topics.
        frozen: why nothing may be claimed and held partitions are kept, `None` if there is no reason.
        warnings: sentences for the log and the status.
        frozen_topics: topics of which nothing may be claimed, and held partitions are kept.
    """

    mine: Mapping[Partition, str]
    owners: Mapping[Partition, str]
    frozen: str | None = None
    warnings: tuple[str, ...] = ()
    frozen_topics: frozenset[str] = frozenset()


_HASHED_TEXT = {"0.8": "[{},{}]", "1.0": "{}-{}"}


def java_string_hash(text: str) -> int:
    """Return `String.hashCode` of Java: h = 31 * h + unit over UTF-16 units, as a signed 32-bit number.

    >>> java_string_hash("[topic,0]")
    2068025637
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - 2**32 if value & 0x80000000 else value


def sort_thread_ids(threads: Iterable[str]) -> list[str]:
    """Return distinct thread ids in the order of Java strings: by UTF-16 units, so `C-10` before `C-2`."""
    return sorted(set(threads), key=utf16_units)


def sort_partitions_07(partitions: Iterable[str]) -> list[str]:
    """Return the partitions of Kafka 0.7, `broker-partition`, in its order, that of strings: `10-0` before `2-0`."""
    return sorted(set(partitions), key=utf16_units)


def sort_partitions_08(partitions: Iterable[int]) -> list[int]:
    """Return partitions in the order of Kafka 0.8 and later: by number."""
    return sorted(set(partitions))


def assign_topic_range(partitions: Sequence[_Partition], threads: Sequence[str]) -> dict[_Partition, str]:
    """Return partition -> thread for one topic, both sequences sorted as their version demands.

    With n partitions and m threads each gets a run of n // m, the first n % m threads one more.
    """
    if not threads:
        return {}
    share, larger = divmod(len(partitions), len(threads))
    owners: dict[_Partition, str] = {}
    for index, thread in enumerate(threads):
        start = share * index + min(index, larger)
        for partition in partitions[start : start + share + (index < larger)]:
            owners[partition] = thread
    return owners


def sort_partitions(partitions: Iterable[int | str]) -> list[int | str]:
    """Return the partitions of one topic in the order of their generation: numbers by number, names as text."""
    found = set(partitions)
    names = sort_partitions_07(each for each in found if isinstance(each, str))
    return [*sort_partitions_08(each for each in found if isinstance(each, int)), *names]


def assign_range(
    partitions: Mapping[str, Iterable[int | str]], threads: Mapping[str, Iterable[str]]
) -> dict[Partition, str]:
    """Return (topic, partition) -> thread id, each topic by itself, `partition.assignment.strategy=range`.

    Args:
        partitions: Topic -> its partitions, in any order.
        threads: Topic -> thread ids of all members of the group subscribed to it, in any order.
    """
    return {
        (topic, partition): thread
        for topic in sorted(partitions.keys() & threads.keys())
        for partition, thread in assign_topic_range(
            sort_partitions(partitions[topic]), sort_thread_ids(threads[topic])
        ).items()
    }


def assign_roundrobin(
    partitions: Mapping[str, Iterable[int | str]], threads: Mapping[str, Iterable[str]], order: str = "0.8"
) -> dict[Partition, str]:
    """Return (topic, partition) -> thread id, in turns, `partition.assignment.strategy=roundrobin`.

    Partitions are sorted by the Java hash of a text; equal hashes by topic, then number. In Java a hash map
    decides the order of equal hashes, so in a group with Java members `hash_collisions` must be empty.

    Args:
        partitions: Topic -> its partitions, in any order.
        threads: Topic -> thread ids, for every topic that any member of the group subscribes to.
        order: "0.8" hashes `[topic,partition]` (Java 0.8.2 to 0.11), "1.0" `topic-partition` (Java 1.0, 1.1).

    Raises:
        UnequalSubscriptions: The topics do not all have the same threads.
        ValueError: Another order.
    """
    sets = {topic: frozenset(ids) for topic, ids in threads.items()}
    if len(set(sets.values())) > 1:
        raise UnequalSubscriptions(sets)
    receivers = sort_thread_ids(next(iter(sets.values()), ()))
    if not receivers:
        return {}
    subscribed = {topic: partitions[topic] for topic in partitions.keys() & threads.keys()}
    ordered = [found for _, found in _by_hash(subscribed, order)]
    return {found: receivers[index % len(receivers)] for index, found in enumerate(ordered)}


def hash_collisions(partitions: Mapping[str, Iterable[int | str]], order: str = "0.8") -> list[list[Partition]]:
    """Return the groups of partitions whose hashes are equal: round robin with Java members is undefined there.

    >>> hash_collisions({"Aa": [0], "BB": [0], "CC": [0]})
    [[('Aa', 0), ('BB', 0)]]
    """
    groups: dict[int, list[Partition]] = {}
    for value, found in _by_hash(partitions, order):
        groups.setdefault(value, []).append(found)
    return [group for group in groups.values() if len(group) > 1]


def _by_hash(partitions: Mapping[str, Iterable[int | str]], order: str) -> list[tuple[int, Partition]]:
    if order not in _HASHED_TEXT:
        raise ValueError(f"round robin order {order!r} is not one of {', '.join(_HASHED_TEXT)}")
    text = _HASHED_TEXT[order]
    return sorted(
        (java_string_hash(text.format(topic, partition)), (topic, partition))
        for topic, numbers in partitions.items()
        for partition in set(numbers)
    )


def utf16_units(text: str) -> bytes:
    """Return the UTF-16 units of a text, by which Java sorts strings."""
    return text.encode("utf-16-be", "surrogatepass")
