"""The table of the settings of KafkaConsumer: names, types, defaults, ranges, meanings. Pure.

`KafkaConsumerConfig` has one attribute for each row, and docs/CONFIGURATION.md is printed from it.

Source: org.apache.kafka.clients.consumer.ConsumerConfig (3.9); keys of our own are marked.

The types of settings that KafkaConsumer alone has: reset policies, and objects of Python.

The deserializers that Kafka's clients bring along, as Python functions by the names of their Java classes.

Source: org.apache.kafka.common.serialization (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final, cast

from rebalance.subscription import check_any_group, check_client_id, check_group, client_id_of
from zkconsumer.config.tables.foreign_names import hint_for_name
from zkconsumer.config.tables.keys import CONSUMER_SETTINGS, READ_COMMITTED, ZOOKEEPER_KEYS
from zkconsumer.config.tables.kinds import AssignorList, Boolean, Choice, Integer, Text
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS
from zkconsumer.config.tables.producer_kinds import BrokerList
from zkconsumer.config.tables.security_keys import SECURITY_KEYS
from zkconsumer.config.tables.setting_table import Key, SettingTable
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address

Deserializer = Callable[[bytes], object]
"""Turns the bytes of a key or value into what the application wants; it is not called for null."""
PACKAGE: Final = "org.apache.kafka.common.serialization."


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # as Java's `new String(data, UTF_8)` does


def _number(layout: str) -> Deserializer:
    numbers = Struct(layout)

    def deserialize(data: bytes) -> object:
        if len(data) != numbers.size:
            raise ValueError(f"{len(data)} bytes, not {numbers.size}")
        return numbers.unpack(data)[0]

    return deserialize


# fmt: off
DESERIALIZERS: Final[Mapping[str, Deserializer]] = {
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "StringDeserializer": _text,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
}
# fmt: on
"""By the name of the class, without its package."""


_POLICIES: Final[Mapping[str, str]] = {
    "earliest": "earliest", "latest": "latest", "none": "none", "smallest": "earliest", "largest": "latest",
}  # fmt: skip


@dataclass(frozen=True)
class AnyValue:
    """Whatever is given, as text: for settings without effect."""

    allowed: str = "anything"

    def convert(self, value: object) -> str:
        return str(value)

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class ResetPolicy:
    """earliest, latest or none; the words of Kafka 0.8 mean the first two."""

    allowed: str = "earliest (or smallest), latest (or largest) or none"

    @property
    def words(self) -> tuple[str, ...]:
        """All words that are accepted."""
        return tuple(_POLICIES)

    def convert(self, value: object) -> str:
        word = value.strip() if isinstance(value, str) else ""
        if word.startswith("by_duration"):
            raise ValueError("by_duration of Kafka 4.0 is not supported: use offsets_for_times and seek")
        if word not in _POLICIES:
            raise ValueError
        return _POLICIES[word]

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class GroupProtocol:
    """classic, the protocol of JoinGroup and SyncGroup."""

    allowed: str = "classic"

    def convert(self, value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word == "consumer":
            raise ValueError("the protocol of KIP-848 is not supported; brokers of Kafka 4 also serve classic members")
        if word != "classic":
            raise ValueError
        return word

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class DeserializerFunction:
    """A function of Python, or the name of one of Kafka's own deserializers."""

    allowed: str = "a function of bytes, or one of Kafka's deserializers of text, bytes or numbers"

    def convert(self, value: object) -> Deserializer:
        if isinstance(value, str):
            name = value.strip().removeprefix(PACKAGE)
            if name not in DESERIALIZERS:
                raise ValueError("Java classes cannot be loaded: give a Python function as a keyword argument")
            return DESERIALIZERS[name]
        if not callable(value):
            raise ValueError("it is not callable")
        return cast("Deserializer", value)

    def format(self, value: object) -> str:
        named = {function: name for name, function in DESERIALIZERS.items()}
        return PACKAGE + named[cast("Deserializer", value)]


@dataclass(frozen=True)
class InterceptorList:
    """Objects of Python with the methods `on_consume` and `on_commit`."""

    allowed: str = "objects with the methods on_consume and on_commit, as a keyword argument"

    def convert(self, value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            if value.strip():
                raise ValueError("Java classes cannot be loaded: give Python objects as a keyword argument")
            return ()
        found = tuple(value) if isinstance(value, Iterable) else (value,)
        for each in found:
            if isinstance(each, type):
                raise ValueError(f"{each.__name__} is a class; give an instance")
            lacks = [method for method in ("on_consume", "on_commit") if not callable(getattr(each, method, None))]
            if lacks:
                raise ValueError(f"{type(each).__name__} has no method {lacks[0]}")
        return found

    def format(self, value: object) -> str:
        raise ValueError("objects of Python have no text")


_MIB: Final = 1024 * 1024
_CLIENT_ID: Final = "zkconsumer"
# fmt: off
_CLUSTER = (
    Key("bootstrap.servers", BrokerList("host:port, or several separated by commas", has_ids=False), None,
        "Some brokers of the cluster, through which the others are found. Either this or `zookeeper.connect` is "
        "required.",
        default_text="none"),
    Key("zookeeper.connect", Text("host:port,host:port/chroot", parse_zookeeper_address), None,
        "ZooKeeper's servers and the chroot of the cluster, once, after the last server. The brokers are found "
        "there, and ZooKeeper coordinates the group. If `bootstrap.servers` is also given, set `group.coordination`.",
        default_text="none", section="own"),
    Key("group.coordination", Choice(("auto", "brokers", "zookeeper")), "auto",
        "Who coordinates the group: `zookeeper`, as for consumers of Kafka 0.7 and 0.8, or `brokers`. `auto`: "
        "ZooKeeper if `zookeeper.connect` is given, otherwise the brokers.", section="own"),
)
# fmt: on
# fmt: off
_GROUP = (
    Key("group.id", Text("1 to 255 of [a-zA-Z0-9._-], not '.' or '..'", check_any_group), None,
        "Name of the consumer group; any text if brokers coordinate it. Without a group, the application assigns "
        "partitions, and nothing is committed.",
        default_text="none"),
    Key("group.instance.id", Text("1 to 255 of [a-zA-Z0-9._-], not '.' or '..'", check_group), None,
        "Name of a static member: it keeps its partitions over a restart that is shorter than `session.timeout.ms` "
        "(brokers of Kafka 2.3 and later).", default_text="none"),
    Key("group.protocol", GroupProtocol(), "classic", "The protocol of the group."),
    Key("client.id", Text("up to 255 of [a-zA-Z0-9._-]", check_client_id), None,
        "Name under which requests are sent to brokers.",
        derive=lambda settings: client_id_of(settings["group.id"] or _CLIENT_ID),
        default_text=f"as `group.id`, or `{_CLIENT_ID}`"),
    Key("client.rack", Text("up to 255 characters"), None,
        "The rack of this consumer. From Kafka 2.4 on, brokers may name a replica in this rack; the consumer then "
        "fetches from it instead of the leader.", default_text="none"),
    Key("session.timeout.ms", Integer(1), 45_000,
        "The coordinator removes a member that sends no heartbeat for this time. By default brokers allow 6 s to 30 "
        "min."),
    Key("heartbeat.interval.ms", Integer(1), 3000,
        "Time between two heartbeats, less than `session.timeout.ms`. It can take this long to notice a rebalance."),
    Key("max.poll.interval.ms", Integer(1), 300_000,
        "Longest time between two polls. A member that takes longer leaves the group, and joins again with the next "
        "poll. In a rebalance the other members wait this long for it."),
    Key("partition.assignment.strategy", AssignorList(), ("range", "cooperative-sticky"),
        "The assignors that the member supports, in order of preference. The group uses one that all members "
        "support. In a group in ZooKeeper the first one counts, which must be `range` or `roundrobin`."),
    Key("auto.offset.reset", ResetPolicy(), "latest",
        "Where to start without a valid committed offset; `none`: `poll` raises an error."),
    Key("enable.auto.commit", Boolean(), None, "Commit the positions of earlier polls every `auto.commit.interval.ms`.",
        derive=lambda settings: settings["group.id"] is not None, default_text="`true` with `group.id`, else `false`"),
    Key("auto.commit.interval.ms", Integer(1), 5000, "Time between two automatic commits."),
)
# fmt: on
# fmt: off
_POLLING = (
    Key("max.poll.records", Integer(1), 500, "Most records that one poll returns."),
    Key("key.deserializer", DeserializerFunction(), None,
        "Deserializer of keys: a function of bytes, or the name of one of Kafka's "
        "deserializers.", default_text="none: bytes"),
    Key("value.deserializer", DeserializerFunction(), None, "Deserializer of values.", default_text="none: bytes"),
    Key("interceptor.classes", InterceptorList(), (),
        "Objects that receive records before `poll` returns them, and offsets after they were "
        "committed.", default_text="none"),
    Key("isolation.level", Choice(("read_uncommitted", READ_COMMITTED), any_case=True), "read_uncommitted",
        "`read_committed` leaves out records of aborted transactions, and reads up to the first open transaction "
        "(brokers of Kafka 0.11 and later; older brokers have no transactions)."),
    Key("exclude.internal.topics", Boolean(), True, "Patterns never match internal topics."),
    Key("allow.auto.create.topics", Boolean(), True,
        "Brokers may create a topic that is subscribed to, if auto.create.topics.enable allows it."),
)
# fmt: on
# fmt: off
_FETCHING = (
    Key("fetch.min.bytes", Integer(0), 1, "A broker waits until it has this many bytes before it answers."),
    Key("fetch.max.bytes", Integer(1), 50 * _MIB,
        "Most bytes of an answer; a larger first batch is sent anyway (brokers of Kafka 0.10.1 and later)."),
    Key("fetch.max.wait.ms", Integer(0), 500,
        "Longest wait of a broker for `fetch.min.bytes`; at most `request.timeout.ms`."),
    Key("max.partition.fetch.bytes", Integer(1), _MIB,
        "Most bytes of a partition in an answer; a larger record is fetched by itself."),
    Key("check.crcs", Boolean(), True, "Check checksums. `false` has no effect: they are always checked."),
)
# fmt: on
# fmt: off
_REQUESTS = (
    Key("request.timeout.ms", Integer(1), 30_000,
        "Longest wait for a broker's answer; JoinGroup may also wait for `max.poll.interval.ms`."),
    Key("default.api.timeout.ms", Integer(1), 60_000, "Longest wait of calls that have no time-out of their own."),
    Key("retry.backoff.ms", Integer(0), 100,
        "Wait before a failed request is sent again; it doubles with each failure."),
    Key("retry.backoff.max.ms", Integer(0), 1000, "Longest wait of this kind."),
    Key("reconnect.backoff.ms", Integer(0), 50,
        "Wait before connecting to a broker again; it doubles with each failure."),
    Key("reconnect.backoff.max.ms", Integer(0), 1000, "Longest wait of this kind."),
    Key("connections.max.idle.ms", Integer(-1), 540_000,
        "Idle connections are closed after this time; -1: never."),
    Key("metadata.max.age.ms", Integer(0), 300_000,
        "Time between two look-ups of topics and leaders: new topics of a pattern are found by them."),
    Key("receive.buffer.bytes", Integer(-1), -1,
        "Receive buffer of a broker connection; -1 lets the system choose, and grow it (Kafka's 65536 is slower)."),
    Key("send.buffer.bytes", Integer(-1), 131_072, "Send buffer of a broker connection; -1 leaves it to the system."),
)
# fmt: on


def _of_consumers(*names: str) -> tuple[Key, ...]:
    """Return settings that `ConsumerConfig` has, too; here they have no names of Kafka 0.7."""
    return tuple(replace(key, name_07=None, section="own") for key in CONSUMER_SETTINGS.keys if key.name in names)


_OWN = _of_consumers("zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms", "offsets.storage",
                     "dual.commit.enabled", "offsets.intent", "decoded.max.bytes")  # fmt: skip
# fmt: off
WITHOUT_EFFECT: Final = (
    "auto.include.jmx.reporter", "client.dns.lookup", "enable.metrics.push", "group.remote.assignor",
    "metadata.recovery.strategy", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "security.providers", "socket.connection.setup.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)
# fmt: on
"""Names of Kafka that are accepted, and mean nothing here."""
_IDLE = tuple(
    Key(name, AnyValue(), None, "No effect; accepted with a warning.", default_text="none", section="idle")
    for name in WITHOUT_EFFECT
)
KAFKA_CONSUMER_KEYS: Final = (
    *_CLUSTER,
    *_GROUP,
    *_POLLING,
    *_FETCHING,
    *_REQUESTS,
    *_OWN,
    *_IDLE,
    *ZOOKEEPER_KEYS,
    *SECURITY_KEYS,
)
# fmt: off
_OLDER_NAMES: Final[Mapping[str, str]] = {
    "auto.commit.enable": "enable.auto.commit",
    "autocommit.enable": "enable.auto.commit",
    "autocommit.interval.ms": "auto.commit.interval.ms",
    "autooffset.reset": "auto.offset.reset",
    "consumer.id": "group.instance.id",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.size": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "groupid": "group.id",
    "queued.max.bytes": "fetch.max.bytes",
    "refresh.leader.backoff.ms": "retry.backoff.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "zk.connect": "zookeeper.connect",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
}
# fmt: on
# fmt: off
_OF_STREAMS: Final[Mapping[str, str]] = {
    "key.decoder": "it is an argument of create_message_streams; here the function is called 'key.deserializer'",
    "max.processing.interval.ms": "it is a setting of ConsumerConfig; here it is called 'max.poll.interval.ms'",
    "rebalance.timeout.ms": "it is a setting of ConsumerConfig; here 'max.poll.interval.ms' applies",
    "value.decoder": "it is an argument of create_message_streams; here the function is called 'value.deserializer'",
}
# fmt: on
# fmt: off
_OF_OTHER_CLIENTS: Final[Mapping[str, str]] = {
    "api.version": "it is a setting of kafka-python; here each broker is asked for the versions that it serves",
    "consumer.timeout.ms": "it is a setting of consumers of Kafka 0.8 and of kafka-python; here poll() has a time-out",
    "enable.auto.offset.store": "it is a setting of librdkafka; here 'enable.auto.commit' commits the positions of "
                                "earlier polls",
    "enable.partition.eof": "it is a setting of librdkafka; here poll() returns no records at the end of a partition",
    "message.max.bytes": "it is a setting of librdkafka; here 'fetch.max.bytes' limits an answer",
    "metadata.broker.list": "it is a setting of librdkafka; here it is called 'bootstrap.servers'",
    "queued.max.messages.kbytes": "it is a setting of librdkafka; here 'fetch.max.bytes' limits an answer",
    "socket.send.buffer.bytes": "it is a setting of librdkafka; here it is called 'send.buffer.bytes'",
    "topic.metadata.refresh.interval.ms": "it is a setting of librdkafka; here it is called 'metadata.max.age.ms'",
}
# fmt: on


def _hint_for_name(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of an unknown setting, a clause; empty if nothing is known about it."""
    dotted = name.strip().replace("_", ".")
    lower = dotted.lower()
    if lower in _OF_OTHER_CLIENTS:
        return _OF_OTHER_CLIENTS[lower]
    if lower in _OF_STREAMS:
        return _OF_STREAMS[lower]
    if lower in _OLDER_NAMES:
        return f"it is a setting of consumers of Kafka 0.7 and 0.8; here it is called {_OLDER_NAMES[lower]!r}"
    if CONSUMER_SETTINGS.find(dotted) is not None:
        return "it is a setting of ConsumerConfig, for streams"
    if PRODUCER_SETTINGS.find(dotted) is not None:
        return "it is a setting of producers"
    return hint_for_name(name, known)


KAFKA_CONSUMER_SETTINGS: Final = SettingTable(KAFKA_CONSUMER_KEYS, _hint_for_name)
