"""The paths and payloads of the znodes of Kafka 0.7: text where later versions write JSON.

It handles text and bytes and no connection. As in `rebalance.zookeeper.znodes`, reading is lenient and writing is
strict: a registration that one reader cannot parse fails the rebalance of every Java member of the group.

    /brokers/ids/<id>               creator:host:port
    /brokers/topics/<topic>         no data; one child for each broker that has partitions of the topic
    /brokers/topics/<topic>/<id>    how many partitions this broker has: the partitions <id>-0, <id>-1, ...
    /consumers/<group>/ids/<id>     { "topic": streams,"topic": streams }, or *streams*regex, or !streams!regex

Source: kafka/utils/ZkUtils.scala, kafka/consumer/TopicCount.scala, kafka/cluster/Broker.scala, Partition.scala (0.7.2).

Reads the partitions of one topic of Kafka 0.7: its brokers, which are its children, and the number that each has.

The list of brokers is watched, and so is each number. A broker registers its number once, in an ephemeral node, and a
broker that comes back with another number is another child; but an operator may write another number into the node.
Members that knew it and members that did not would then compute different assignments.

How a generation of Kafka writes groups and topics in ZooKeeper: 0.7, or 0.8 and later.

A member works with one generation, which is found before it registers; all members of a group must have the same.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final, Protocol

from rebalance.errors import Kafka08Node, UnreadableNode
from rebalance.subscription import sort_partitions_07
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.port.requests import Fault, GetChildren, GetData, Reply, WatchEvent
from rebalance.zookeeper.znodes import (
    BLACK_LIST,
    MAX_STREAMS,
    STATIC,
    WHITE_LIST,
    BrokerNode,
    Registration,
    broker_path,
    java_refusal,
    parse_lenient,
    topic_path,
)

MAX_PARTITIONS: Final = 100_000
"""Most partitions of one topic on one broker; a foreign 2^31-1 would become as many names in memory."""
# Java's `\p{Digit}` are these ten, and its `.` ends at a line end.
_WILDCARD = re.compile(r"([*!])([0-9]+)\1([^\n\r\u0085\u2028\u2029]*)")
# Ids of brokers go up to 2^31-1; some are made of an address.
_PARTITION = re.compile(r"([0-9]{1,10})-([0-9]{1,9})")
_COUNT = re.compile(rb"[0-9]{1,9}")
# The creator is the host and a time. That the host stands there twice tells the colons of an IPv6 address apart.
_BROKER_IPV6 = re.compile(r"(.+)-[0-9]+:\1:([0-9]{1,5})")
_BROKER = re.compile(r"[^:]*:([^:]+):([0-9]{1,5})(?::.*)?")


def topic_broker_path(topic: str, broker_id: int) -> str:
    """Return the path of the ephemeral node that says how many partitions of a topic a broker has."""
    return f"{topic_path(topic)}/{broker_id}"


def partition_names(counts: dict[int, int]) -> tuple[str, ...]:
    """Return the partitions of a topic, `broker-partition`, in the order of Kafka 0.7, that of text.

    Args:
        counts: Broker id -> how many partitions it has.

    >>> partition_names({0: 2, 10: 1, 2: 1})
    ('0-0', '0-1', '10-0', '2-0')
    """
    names = (f"{broker}-{number}" for broker, count in counts.items() for number in range(count))
    return tuple(sort_partitions_07(names))


def broker_and_number(partition: int | str) -> tuple[int, int]:
    """Return broker id and number of a partition that is named `broker-partition`.

    Raises:
        ValueError: It has another name.
    """
    found = _PARTITION.fullmatch(partition) if isinstance(partition, str) else None
    if found is None:
        raise ValueError(f"partition {partition!r}: partitions of Kafka 0.7 are named broker-partition, such as '0-3'")
    return int(found[1]), int(found[2])


def is_partition(value: object) -> bool:
    """Return whether a value can be a partition: a number from 0 on, or a name of Kafka 0.7 such as `0-3`."""
    if isinstance(value, str):
        return _PARTITION.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_partition_count_07(path: str, data: bytes | None) -> int:
    """Return how many partitions of a topic a broker has, from its node below the topic.

    Raises:
        UnreadableNode: Anything but decimal digits of a number up to `MAX_PARTITIONS`.
    """
    if data is None or not _COUNT.fullmatch(data) or int(data) > MAX_PARTITIONS:
        raise UnreadableNode(path, f"not a number of partitions from 0 to {MAX_PARTITIONS}", data)
    return int(data)


def parse_broker_07(broker_id: int, data: bytes | None) -> BrokerNode:
    """Return the address in the registration of a broker, `creator:host:port`.

    Java splits it at each colon and takes the second and third part. A host that is an IPv6 address, which Java cannot
    read, is read here, too.

    Raises:
        Kafka08Node: The text is JSON.
        UnreadableNode: Anything else.
    """
    path = broker_path(broker_id)
    if data and data.lstrip().startswith(b"{"):
        raise Kafka08Node(path, "a broker of Kafka 0.8 or later", data)
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        raise UnreadableNode(path, "not UTF-8", data) from None
    found = _BROKER_IPV6.fullmatch(text) or _BROKER.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 2**16:
        raise UnreadableNode(path, "not creator:host:port (Kafka 0.7 writes that here)", data)
    return BrokerNode(broker_id, found[1].strip("[]"), int(found[2]))


def format_registration_07(registration: Registration) -> bytes:
    r"""Return the registration as Kafka 0.7.2 writes it; it has no time.

    >>> format_registration_07(Registration("static", (("clicks", 2), ("views", 1))))
    b'{ "clicks": 2,"views": 1 }'
    >>> format_registration_07(Registration("black_list", (("test.*", 4),)))
    b'!4!test.*'

    Raises:
        ValueError: An unknown pattern, a count outside 1 to `MAX_STREAMS`, a topic with a quote or a backslash, a
            wildcard with other than one regex, or a regex with a line end: text that stops the Java members of the
            group.
    """
    pattern, subscription = registration.pattern, registration.subscription
    for name, count in subscription:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_STREAMS:
            raise ValueError(f"the number of streams for {name!r} is {count!r}, not 1 to {MAX_STREAMS}")
        if pattern == STATIC and ('"' in name or "\\" in name):
            raise ValueError(f"topic {name!r} has a quote or a backslash, which Kafka 0.7 does not escape here")
    if pattern == STATIC:
        # The blank at each end is Java's, and so is the missing one after a comma.
        return ("{ " + ",".join(f'"{name}": {count}' for name, count in subscription) + " }").encode()
    if pattern not in (WHITE_LIST, BLACK_LIST):
        raise ValueError(f"pattern {pattern!r} is not one of static, white_list, black_list")
    if len(subscription) != 1:
        raise ValueError(f"a {pattern} has one regex, not {len(subscription)}")
    [(regex, streams)] = subscription
    mark = "*" if pattern == WHITE_LIST else "!"
    text = f"{mark}{streams}{mark}{regex}"
    if not _WILDCARD.fullmatch(text):
        raise ValueError(f"filter {regex!r} has a line end, which members of Kafka 0.7 cannot read")
    return text.encode()


def parse_registration_07(data: bytes | None, path: str) -> Registration:
    """Return the registration that a node of Kafka 0.7 holds. The first character decides, as in Java.

    Raises:
        Kafka08Node: The text is that of Kafka 0.8 or later.
        UnreadableNode: Anything else that no reader can use.
    """
    if not data:
        raise UnreadableNode(path, "the node is empty", data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UnreadableNode(path, "not UTF-8", data) from None
    if text[0] in "*!":
        return _parse_wildcard(text, data, path)
    try:
        node = parse_lenient(data)
    except ValueError as error:
        raise UnreadableNode(path, f"not the topics of a consumer of Kafka 0.7 ({error})", data) from error
    if not isinstance(node, dict):
        raise UnreadableNode(path, "not the topics of a consumer of Kafka 0.7", data)
    if isinstance(node.get("subscription"), dict):
        raise Kafka08Node(path, "a registration of Kafka 0.8 or later", data)
    for name, count in node.items():
        _check_streams(name, count, data, path)
    return Registration(STATIC, tuple(node.items()))


def _parse_wildcard(text: str, data: bytes, path: str) -> Registration:
    found = _WILDCARD.fullmatch(text)
    if found is None:
        raise UnreadableNode(path, "not *streams*regex or !streams!regex", data)
    mark, digits, regex = found.groups()
    streams = int(digits) if len(digits) <= 10 else -1
    _check_streams(regex, streams, data, path)
    return Registration(WHITE_LIST if mark == "*" else BLACK_LIST, ((regex, streams),))


def _check_streams(name: str, count: object, data: bytes, path: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_STREAMS:
        raise UnreadableNode(path, f"the number of streams for {name!r} is {count!r}, not 1 to {MAX_STREAMS}", data)


log = logging.getLogger(__name__)


class BrokersReading:
    """One read of one topic.

    Args:
        ask: sends requests.
        topic: which one.
        changed: the watch on the list of its brokers.
        number_changed: the watch on the number of each broker.
        done: called once: `done(partitions, None)`; `done(None, None)` when there is no such topic;
            `done(None, (question, reply))` when a node of it could not be read.

    Threads: the coordinator's alone, but for the watch callbacks.
    """

    def __init__(
        self,
        ask: Ask,
        topic: str,
        changed: Callable[[WatchEvent], None],
        number_changed: Callable[[WatchEvent], None],
        done: Callable[[tuple[str, ...] | None, tuple[GetData | GetChildren, Reply] | None], None],
    ) -> None:
        self._ask = ask
        self._topic = topic
        self._changed = changed
        self._number_changed = number_changed
        self._done = done
        self._counts: dict[int, int] = {}
        self._open = 0
        self._failed: tuple[GetData | GetChildren, Reply] | None = None

    def start(self) -> None:
        """Send the first request."""
        path = znodes.topic_path(self._topic)
        self._ask(GetChildren(path, self._changed), lambda reply: self._listed(GetChildren(path), reply))

    def _listed(self, question: GetChildren, reply: Reply) -> None:
        if reply.fault is Fault.NO_NODE:
            self._done(None, None)
            return
        if reply.fault is not None:
            self._done(None, (question, reply))
            return
        brokers = znodes.broker_ids(reply.value[0])
        if not brokers:
            self._done((), None)
        self._open = len(brokers)
        for broker in brokers:
            read = GetData(topic_broker_path(self._topic, broker), self._number_changed)
            self._ask(read, lambda reply, read=read, broker=broker: self._counted(read, broker, reply))  # type: ignore[misc]

    def _counted(self, question: GetData, broker: int, reply: Reply) -> None:
        self._open -= 1
        if reply.fault is None:
            self._take(question.path, broker, reply.value[0])
        elif reply.fault is not Fault.NO_NODE and (self._failed is None or reply.fault.is_lost):
            self._failed = (question, reply)
        # A broker that is gone by now has set off the watch on the list.
        if self._open == 0:
            self._done(None if self._failed else partition_names(self._counts), self._failed)

    def _take(self, path: str, broker: int, data: bytes | None) -> None:
        try:
            self._counts[broker] = parse_partition_count_07(path, data)
        except UnreadableNode as error:
            log.warning("broker %d counts as a broker without partitions of topic %s: %s", broker, self._topic, error)


class Generation(Protocol):
    """One generation's registrations and topics. It holds no state.

    Attributes:
        name: `0.7` or `0.8`, as in `kafka.generation`.
        has_broker_nodes: Whether the children of a topic are its brokers; else its data lists its partitions.
        strategies: The assignment strategies that its Java members have.
        storages: Where its groups can keep their offsets.
    """

    @property
    def name(self) -> str: ...

    @property
    def has_broker_nodes(self) -> bool: ...

    @property
    def strategies(self) -> tuple[str, ...]: ...

    @property
    def storages(self) -> tuple[str, ...]: ...

    def format_registration(self, registration: Registration) -> bytes:
        """Return the data of a registration node.

        Raises:
            ValueError: Text that would stop the Java members of the group.
        """

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        """Return the registration that a node holds.

        Raises:
            UnreadableNode: No reader can use it; Kafka07Node or Kafka08Node: it is of the other generation.
        """

    def java_refusal(self, data: bytes) -> str | None:
        """Return why a Java member fails on a registration that we can read; None when it does not fail."""


class _Generation08:
    """Kafka 0.8 and later: JSON."""

    name: Final = "0.8"
    has_broker_nodes: Final = False
    strategies: Final = ("range", "roundrobin")
    storages: Final = ("zookeeper", "kafka")

    def format_registration(self, registration: Registration) -> bytes:
        return znodes.format_registration(registration)

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        return znodes.parse_registration(data, path)

    def java_refusal(self, data: bytes) -> str | None:
        return java_refusal(data)


class _Generation07:
    """Kafka 0.7: text."""

    name: Final = "0.7"
    has_broker_nodes: Final = True
    strategies: Final = ("range",)
    storages: Final = ("zookeeper",)

    def format_registration(self, registration: Registration) -> bytes:
        return format_registration_07(registration)

    def parse_registration(self, data: bytes | None, path: str) -> Registration:
        return parse_registration_07(data, path)

    def java_refusal(self, data: bytes) -> str | None:
        return None if data[:1] in (b"*", b"!") else java_refusal(data)


GENERATION_08: Final[Generation] = _Generation08()
GENERATION_07: Final[Generation] = _Generation07()


def other_than(generation: Generation) -> Generation:
    """Return the other generation."""
    return GENERATION_07 if generation is GENERATION_08 else GENERATION_08


class ChosenGeneration:
    """The generation of one member: that of Kafka 0.8 until another one was found.

    Attributes:
        value: The generation.

    Threads: Set once, before the coordinator starts; read by any.
    """

    def __init__(self, value: Generation = GENERATION_08) -> None:
        self.value = value
