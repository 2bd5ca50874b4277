"""The paths and payloads of the znodes of groups and brokers, as Kafka 0.8 to 1.1 writes them. Pure.

It handles text and bytes and no connection. Reading is lenient, because a group has to live with whatever others wrote:
a payload that cannot be used raises `UnreadableNode`, which stops no other member. Writing is strict, because one bad
registration stops every Java member of the group.

All paths are relative to the chroot. A partition is a number; Kafka 0.7 names it by the text `broker-partition`,
which the path functions take too. Payloads of 0.7 are recognised and reported as `Kafka07Node`; the names
`parse_registration_07`, `format_registration_07`, `parse_broker_07` and `parse_partition_count_07` belong to them.

Source: kafka/utils/ZkUtils.scala, kafka/consumer/TopicCount.scala, kafka/cluster/Broker.scala (0.8.0 to 1.1.1).

Reads JSON as Kafka's Java members do, and finds what such a member could not read.

Kafka 0.8 and 0.9 parse znodes with Scala's combinator parser. It differs from strict JSON in one way that
matters for reading, a backslash that starts no known escape stays a backslash (0.8.0 and 0.8.1 write the
regex of a whitelist raw), and in one way that matters for writing: every unquoted number goes through
`String.toInt`, so that one number above 2^31-1, or with a fraction or exponent, fails the whole text,
and with it the rebalance of every Java member that reads it. So does a raw newline, or the character U+001A, in a text.

Source: kafka/utils/Json.scala (0.8.0 to 0.9.0.1), scala.util.parsing.json.Lexer.

The payloads of the nodes that create and grow a topic, as Kafka's own tools write them.

Every controller from 0.8.0 to 3.9 reads version 1 of a topic's node, and needs its partitions alone. From 2.4 on the
controller adds fields (`adding_replicas`, `removing_replicas`, from 2.8 on `topic_id`); whoever grows a topic keeps
them, because a topic whose id changes is another topic to such brokers.

Source: kafka.admin.AdminUtils (0.8.0 to 2.0), kafka.zk.TopicZNode, kafka.zk.ConfigEntityZNode (1.1 to 3.9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, TypeGuard

from rebalance.errors import InvalidName, Kafka07Node, NoListener, UnreadableNode

_INT32_MAX = 2**31 - 1
_ESCAPE_OR_BACKSLASH = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ENDS_A_TEXT = "\n\x1a"


def parse_lenient(data: bytes) -> object:
    r"""Return the value of JSON text in UTF-8, with unknown escapes kept as they stand.

    `{"foo\.bar":1}` has the key `foo\.bar`. A known escape is decoded although a regex of 0.8.0 may have
    meant it raw (`\b`): Java readers of that text do the same, and all members must agree.

    Raises:
        ValueError: The text is not UTF-8, not JSON, nested too deep, or holds a number of absurd length.
    """
    return _load(data.decode("utf-8"))


def java_refusal(data: bytes) -> str | None:
    """Return why a Java member of 0.8 or 0.9 fails on JSON that we can read; None when it does not fail.

    One such registration stops every Java member of the group, so a member that finds one logs it.
    """
    text = data.decode("utf-8", "replace")
    try:
        _load(text, parse_int=_java_int, parse_float=_java_float)
    except ValueError as error:
        return str(error)
    for quoted in _QUOTED.findall(text):
        for character in _ENDS_A_TEXT:
            if character in quoted:
                return f"the text {quoted[:50]!r} holds U+{ord(character):04X} without a backslash"
    return None


def escape_as_java(text: str) -> str:
    r"""Return text escaped the way Kafka 0.8.2 escapes a regex before it writes it between quotes.

    `"`, `\`, `/`, `\b \f \n \r \t` get a backslash; other control characters and U+007F to U+009F become
    `\uXXXX`, lower case; everything else stays as it is.

    Source: kafka/utils/Utils.scala#JSONEscapeString (0.8.2.2).
    """
    return text.translate(_JAVA_ESCAPES)


def _load(
    text: str,
    parse_int: Callable[[str], int] | None = None,
    parse_float: Callable[[str], float] | None = None,
) -> object:
    kept = _ESCAPE_OR_BACKSLASH.sub(lambda found: r"\\" if found[0] == "\\" else found[0], text)
    try:
        value: object = json.loads(
            kept, strict=False, parse_constant=_refuse_constant, parse_int=parse_int, parse_float=parse_float
        )
    except RecursionError:
        raise ValueError("JSON nested too deep") from None
    return value


def _java_int(digits: str) -> int:
    value = int(digits)
    if not -_INT32_MAX - 1 <= value <= _INT32_MAX:
        raise ValueError(f"the unquoted number {digits} does not fit into 32 bits")
    return value


def _java_float(text: str) -> float:
    raise ValueError(f"the unquoted number {text} is not an integer")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_JAVA_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord(char): "\\" + letter for char, letter in zip('"\\/\b\f\n\r\t', '"\\/bfnrt', strict=True)
}


CONSUMERS = "/consumers"
BROKERS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
MAX_OFFSET = 2**63 - 1
MAX_BROKER_ID = 2**31 - 1
MAX_STREAMS = 100_000
"""Most streams a registration may ask for; a foreign 2^31-1 would become as many thread ids in memory."""
_OFFSET = re.compile(rb"[0-9]{1,19}")
_PARTITION = re.compile(r"[0-9]{1,9}")
_BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_REGISTRATION_07 = re.compile(rb'([*!])[0-9]+\1|\{ *(?:"[^"]*" *: *[0-9]+ *(?:, *)?)*\}')
_BROKER_07 = re.compile(rb"[^{].*:.*:[0-9]+")
_ENDPOINT = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/]*):(-?[0-9]{1,5})")


# Paths


def group_path(group: str) -> str:
    """Return `/consumers/<group>`, the parent of all nodes of a group."""
    return _join(CONSUMERS, group)


def ids_path(group: str) -> str:
    """Return `/consumers/<group>/ids`, whose children are the live consumers."""
    return _join(CONSUMERS, group, "ids")


def registration_path(group: str, consumer_id: str) -> str:
    """Return the path of one consumer's ephemeral registration."""
    return _join(CONSUMERS, group, "ids", consumer_id)


def owners_path(group: str, topic: str) -> str:
    """Return the path whose children are the claimed partitions of a topic."""
    return _join(CONSUMERS, group, "owners", topic)


def owner_path(group: str, topic: str, partition: int | str) -> str:
    """Return the path of one partition's ephemeral owner node; its data is the owner's thread id."""
    return _join(CONSUMERS, group, "owners", topic, partition)


def offsets_path(group: str, topic: str) -> str:
    """Return the path whose children are the committed partitions of a topic."""
    return _join(CONSUMERS, group, "offsets", topic)


def offset_path(group: str, topic: str, partition: int | str) -> str:
    """Return the path of one partition's committed offset."""
    return _join(CONSUMERS, group, "offsets", topic, partition)


def broker_path(broker_id: int) -> str:
    """Return the path of one broker's ephemeral registration."""
    return _join(BROKERS, broker_id)


def broker_ids(names: Iterable[str]) -> list[int]:
    """Return the broker ids among the names of nodes, in order; nodes with other names are no brokers'."""
    return sorted(int(name) for name in names if _BROKER_ID.fullmatch(name) and int(name) <= MAX_BROKER_ID)


def topic_path(topic: str) -> str:
    """Return the path of a topic; its data lists the partitions and their replicas."""
    return _join(TOPICS, topic)


def partition_state_path(topic: str, partition: int) -> str:
    """Return the path of a partition's leader and in-sync replicas."""
    return _join(TOPICS, topic, "partitions", partition, "state")


def topic_config_path(topic: str) -> str:
    """Return the path of the settings of a topic that differ from those of its brokers."""
    return _join(TOPIC_CONFIGS, topic)


def _join(parent: str, *components: str | int) -> str:
    """Return a path; refuse components that would silently make another path (`b'g'`, `a/b`, an empty name)."""
    for component in components:
        if not isinstance(component, str | int) or isinstance(component, bool):
            raise TypeError(f"a path under {parent} is made of text, not of {component!r}")
        if component in ("", ".", "..") or "/" in str(component):
            raise InvalidName("path component", component, f"is not allowed in a path under {parent}")
    return "/".join((parent, *map(str, components)))


# Consumer registrations


@dataclass(frozen=True, slots=True)
class Registration:
    r"""The registration node of one consumer: its subscription.

    Attributes:
        pattern: `static`, `white_list` or `black_list`; an unknown word is read as `static`, as Java does.
        subscription: (topic, or regex for the other two patterns; streams), in the order of the node. The
            regex is the key as a reader of its version sees it, decoded once. Kafka 1.0 and 1.1 escape it
            twice, so that `t\.1` reads `t\\.1`, a literal backslash, there as here: such a member owns
            nothing, and every member agrees that it does.
        timestamp_ms: When it was registered, milliseconds since 1970; None when missing or not a number.
    """

    pattern: str
    subscription: tuple[tuple[str, int], ...]
    timestamp_ms: int | None = None


def format_registration(registration: Registration) -> bytes:
    """Return the registration as Kafka 0.8.2 writes it.

    One line of JSON, no white space: `version` 1, `subscription`, `pattern`, `timestamp` as a *string*,
    in that order; topics and regexes escaped once.

    Raises:
        ValueError: It has no timestamp, an unknown pattern, a count outside 1 to `MAX_STREAMS`, or a
            wildcard with other than one regex: text that stops the Java members of the group.
    """
    _check_writable(registration)
    entries = ",".join(f'"{escape_as_java(name)}":{count}' for name, count in registration.subscription)
    return (
        f'{{"version":1,"subscription":{{{entries}}},"pattern":"{registration.pattern}",'
        f'"timestamp":"{registration.timestamp_ms}"}}'
    ).encode()


def parse_registration(data: bytes | None, path: str) -> Registration:
    """Return the registration that a node holds, of any version from 0.8.0 to 1.1.

    Tolerated, since no reader stumbles over it: unknown keys, any `version` and `timestamp`, an empty
    subscription, an unknown pattern. Unquoted numbers above 2^31-1 are tolerated here but stop every Java
    reader; see `rebalance.zookeeper.znodes.java_refusal`.

    Raises:
        Kafka07Node: The text is that of Kafka 0.7.
        UnreadableNode: Anything else that no reader can use.
    """
    if data and _REGISTRATION_07.match(data) and data.strip() != b"{}":
        raise Kafka07Node(path, "a registration of Kafka 0.7", data)
    node = _json_object(path, data)
    pattern, subscription = node.get("pattern"), node.get("subscription")
    if not isinstance(pattern, str):
        raise UnreadableNode(path, "no pattern, or a pattern that is not text", data)
    if not isinstance(subscription, dict):
        raise UnreadableNode(path, "no subscription, or a subscription that is not an object", data)
    for name, count in subscription.items():
        if not _is_integer(count) or not 1 <= count <= MAX_STREAMS:
            raise UnreadableNode(path, f"the number of streams for {name!r} is {count!r}, not 1 to {MAX_STREAMS}", data)
    if pattern not in (WHITE_LIST, BLACK_LIST) or not subscription:
        pattern = STATIC
    return Registration(pattern, tuple(subscription.items()), _timestamp_ms(node.get("timestamp")))


def _check_writable(registration: Registration) -> None:
    if registration.pattern not in (STATIC, WHITE_LIST, BLACK_LIST):
        raise ValueError(f"pattern {registration.pattern!r} is not one of static, white_list, black_list")
    if registration.pattern != STATIC and len(registration.subscription) != 1:
        raise ValueError(f"a {registration.pattern} has one regex, not {len(registration.subscription)}")
    if not _is_integer(registration.timestamp_ms) or not 0 <= registration.timestamp_ms <= MAX_OFFSET:
        raise ValueError(f"timestamp {registration.timestamp_ms!r} is not a number of milliseconds")
    for name, count in registration.subscription:
        if not _is_integer(count) or not 1 <= count <= MAX_STREAMS:
            raise ValueError(f"the number of streams for {name!r} is {count!r}, not 1 to {MAX_STREAMS}")


def _timestamp_ms(value: object) -> int | None:
    if isinstance(value, str) and _OFFSET.fullmatch(value.encode("utf-8", "replace")):
        return int(value)
    return value if _is_integer(value) else None


# Owners and offsets


def parse_owner(data: bytes | None) -> str:
    """Return the thread id that an owner node holds; empty for a node without data.

    Never raises: whatever it holds is somebody else's name, fit to be shown and compared.
    """
    return (data or b"").decode("utf-8", "replace")


def parse_offset(path: str, data: bytes | None) -> int:
    """Return a committed offset, 0 to 2^63-1: the next one to read (0.7: a byte position).

    Raises:
        UnreadableNode: The node holds anything but 1 to 19 decimal digits of such a number.
    """
    if data is None or not _OFFSET.fullmatch(data) or int(data) > MAX_OFFSET:
        raise UnreadableNode(path, "not an offset from 0 to 2^63-1 in decimal digits", data)
    return int(data)


def format_offset(offset: int) -> bytes:
    """Return the data of an offset node: decimal digits, nothing else.

    Raises:
        ValueError: The offset is not an integer from 0 to 2^63-1.
    """
    if not _is_integer(offset) or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"offset {offset!r} is not an integer from 0 to 2^63-1")
    return b"%d" % offset


# Brokers and topics


PLAINTEXT: Final = "PLAINTEXT"
"""The protocol of listeners without TLS and SASL."""


class BrokerNode(NamedTuple):
    """A live broker and its address. An IPv6 host stands without brackets.

    `registration_version` depends on the age of the broker: 1 up to 0.8.2, 2 in 0.9, 3 and more from 0.10.0.
    """

    id: int
    host: str
    port: int
    registration_version: int = 1


class PartitionState(NamedTuple):
    """The leader of a partition (-1: none), its epoch, and the in-sync replicas."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


def parse_broker(broker_id: int, data: bytes | None, protocol: str = PLAINTEXT) -> BrokerNode:
    """Return the address in a broker's registration of any version from 0.8.0.

    The plain one is `host` and `port` where they are usable; from 0.9 they may be null and -1. Any other is
    the first of `endpoints` (`PROTOCOL://host:port`) whose protocol, by way of
    `listener_security_protocol_map` from 0.10.2, is the wanted one.

    Args:
        protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.

    Raises:
        Kafka07Node: The text is `creator:host:port`.
        NoListener: The broker has addresses, none of them of this protocol.
        UnreadableNode: Anything else.
    """
    path = broker_path(broker_id)
    if data and _BROKER_07.fullmatch(data):
        raise Kafka07Node(path, "a broker of Kafka 0.7", data)
    node = _json_object(path, data)
    plain = _usable_address(node.get("host"), node.get("port"))
    address = plain if protocol == PLAINTEXT else None
    endpoints = node.get("endpoints")
    if address is None and isinstance(endpoints, list):
        address = _endpoint(endpoints, node.get("listener_security_protocol_map"), protocol)
    if address is None and (isinstance(endpoints, list) or plain is not None):
        raise NoListener(path, f"the broker has no {protocol} listener", data)
    if address is None:
        raise UnreadableNode(path, "no host and port", data)
    version = node.get("version")
    return BrokerNode(broker_id, *address, version if _is_integer(version) else 1)


def parse_topic(topic: str, data: bytes | None) -> tuple[int, ...]:
    """Return the partitions of a topic, in order of their numbers.

    Raises:
        UnreadableNode: The node does not list them. Java takes that, and a missing node, as no partitions.
    """
    return tuple(sorted({int(name) for name in _partitions(topic, data)}))


def parse_replicas(topic: str, data: bytes | None) -> dict[int, tuple[int, ...]]:
    """Return the broker ids that keep each partition, the preferred leader first, in order of the partitions.

    Raises:
        UnreadableNode: The node does not list the partitions, or not the replicas of each.
    """
    partitions = _partitions(topic, data)
    found: dict[int, tuple[int, ...]] = {}
    for name, replicas in partitions.items():
        if not isinstance(replicas, list) or not all(map(_is_integer, replicas)):
            raise UnreadableNode(topic_path(topic), f"partition {name} has no list of broker ids", data)
        found[int(name)] = tuple(replicas)
    return dict(sorted(found.items()))


def _partitions(topic: str, data: bytes | None) -> dict[str, object]:
    path = topic_path(topic)
    partitions = _json_object(path, data).get("partitions")
    if not isinstance(partitions, dict):
        raise UnreadableNode(path, "no partitions", data)
    for name in partitions:
        if not _PARTITION.fullmatch(name):
            raise UnreadableNode(path, f"partition {name!r} is not a number", data)
    return partitions


def parse_topic_config(path: str, data: bytes | None) -> dict[str, str]:
    """Return the settings of a topic by name; none for a node that holds none.

    Raises:
        UnreadableNode: No JSON object.
    """
    settings = _json_object(path, data).get("config")
    return {str(name): str(value) for name, value in settings.items()} if isinstance(settings, dict) else {}


def parse_partition_state(path: str, data: bytes | None) -> PartitionState:
    """Return leader, leader epoch and in-sync replicas of a partition.

    Raises:
        UnreadableNode: One of the three is missing or not made of integers.
    """
    node = _json_object(path, data)
    leader, epoch, isr = node.get("leader"), node.get("leader_epoch"), node.get("isr")
    if not (_is_integer(leader) and _is_integer(epoch) and isinstance(isr, list) and all(map(_is_integer, isr))):
        raise UnreadableNode(path, "leader, leader_epoch or isr is missing", data)
    return PartitionState(leader, epoch, tuple(isr))


def _endpoint(endpoints: list[object], protocols: object, wanted: str) -> tuple[str, int] | None:
    for endpoint in endpoints:
        found = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
        if found:
            listener, host, port = found.groups()
            protocol = protocols.get(listener, listener) if isinstance(protocols, dict) else listener
            address = _usable_address(host, int(port))
            if protocol == wanted and address is not None:
                return address
    return None


def _usable_address(host: object, port: object) -> tuple[str, int] | None:
    if isinstance(host, str) and host.strip("[]") and _is_integer(port) and 0 < port < 2**16:
        return host.strip("[]"), port
    return None


def _json_object(path: str, data: bytes | None) -> dict[str, object]:
    if not data:
        raise UnreadableNode(path, "the node is empty (Kafka 0.8 writes JSON here)", data)
    try:
        value = parse_lenient(data)
    except ValueError as error:
        _refuse(path, data, error)
    if not isinstance(value, dict):
        raise UnreadableNode(path, "not a JSON object", data)
    return value


def _refuse(path: str, data: bytes, error: ValueError) -> NoReturn:
    reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else f"not JSON ({error})"
    raise UnreadableNode(path, reason, data) from error


def _is_integer(value: object) -> TypeGuard[int]:
    """True for 1, not for True: JSON's `true` is no number."""
    return isinstance(value, int) and not isinstance(value, bool)


def format_topic(replicas: Mapping[int, Sequence[int]]) -> bytes:
    """Return the data of a new topic's node.

    Args:
        replicas: Partition -> ids of the brokers that keep it, the preferred leader first.
    """
    return _json({"version": 1, "partitions": {str(number): list(ids) for number, ids in sorted(replicas.items())}})


def format_grown_topic(topic: str, data: bytes | None, added: Mapping[int, Sequence[int]]) -> bytes:
    """Return the data of a topic's node with more partitions; all other fields stay as they are.

    Raises:
        UnreadableNode: The node does not list its partitions.
    """
    present = parse_replicas(topic, data)
    fields = parse_lenient(data or b"")
    if not isinstance(fields, dict):
        raise UnreadableNode(topic_path(topic), "not a JSON object", data)
    partitions = {str(number): list(ids) for number, ids in {**present, **added}.items()}
    return _json({**fields, "partitions": partitions})


def format_topic_config(settings: Mapping[str, object]) -> bytes:
    """Return the data of the node of a topic's settings."""
    return _json({"version": 1, "config": {name: str(value) for name, value in settings.items()}})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
