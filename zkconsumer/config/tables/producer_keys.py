"""The table of a producer's settings: names, types, defaults, ranges, meanings.

`ProducerConfig` has one attribute for each row.

Source: kafka.producer.ProducerConfig, SyncProducerConfig, async.AsyncProducerConfig (0.7.2, 0.8.2.2); keys of our own
are marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rebalance.subscription import check_client_id
from simpleconsumer.types import MAX_INT64
from zkconsumer.config.tables.foreign_names import nearest_name
from zkconsumer.config.tables.keys import SHARED_KEYS
from zkconsumer.config.tables.kinds import INT32_MAX, Boolean, Choice, Integer, Text
from zkconsumer.config.tables.producer_kinds import BrokerList, Codec, NameList
from zkconsumer.config.tables.setting_table import Key, SettingTable
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address

_MIB: Final = 1024 * 1024

# fmt: off
_CLUSTER = (
    Key("metadata.broker.list", BrokerList(), None,
        "Some brokers of the cluster, through which the others are found; also called `bootstrap.servers`. Not "
        "together with `zookeeper.connect`.",
        name_07="broker.list", default_text="none", aliases=("bootstrap.servers",)),
    Key("zookeeper.connect", Text("host:port,host:port/chroot", parse_zookeeper_address), None,
        "ZooKeeper's servers and the chroot of the cluster; the brokers are found there instead.",
        name_07="zk.connect", default_text="none", section="own"),
    Key("zookeeper.session.timeout.ms", Integer(1), 6000, "The requested ZooKeeper session time-out.",
        name_07="zk.sessiontimeout.ms"),
    Key("zookeeper.connection.timeout.ms", Integer(1), None, "Longest wait for the first connection to ZooKeeper.",
        name_07="zk.connectiontimeout.ms", derive=lambda settings: settings["zookeeper.session.timeout.ms"],
        default_text="as `zookeeper.session.timeout.ms`"),
    Key("client.id", Text("up to 255 of [a-zA-Z0-9._-]", check_client_id), "zkconsumer-producer",
        "Name under which requests are sent to brokers."),
    Key("topic.metadata.refresh.interval.ms", Integer(-1), 600_000,
        "Time between two look-ups of partitions and leaders. After each one, messages without a key go to another "
        "partition. -1: only after a failure."),
)
# fmt: on

# fmt: off
_DELIVERY = (
    Key("producer.type", Choice(("sync", "async")), "sync",
        "`sync`: `send` returns when the message is acknowledged. `async`: `send` returns at once, and messages are "
        "sent in batches."),
    Key("request.required.acks", Integer(-1, 1), None,
        "Who acknowledges a message: 1 the leader, -1 all in-sync replicas, 0 nobody. With 0, messages can be lost "
        "without an error. Kafka's default was 0.",
        derive=lambda settings: -1 if settings["enable.idempotence"] or settings["transactional.id"] is not None else 1,
        default_text="`1`; `-1` with `enable.idempotence`"),
    Key("request.timeout.ms", Integer(1), 10_000,
        "Longest wait of the leader for replicas. The answer may take the same time again.",
        name_07="socket.timeout.ms", default_07=30_000),
    Key("message.send.max.retries", Integer(0), 3, "How often a failed batch is sent again.", name_07="num.retries"),
    Key("retry.backoff.ms", Integer(0), 100, "Wait before a batch is sent again and leaders are looked up."),
    Key("unknown.topic.timeout.ms", Integer(0), 10_000,
        "How long to look up a topic that the brokers do not know, because it may be about to be created. After that "
        "its messages fail, whatever `message.send.max.retries` is.", section="own"),
    Key("retry.unanswered.batches", Boolean(), True,
        "Whether a batch is sent again if no answer came, so that it may be stored. `false`: the batch fails, and no "
        "message is stored twice. Batches that a broker rejected are sent again in any case.", section="own"),
    Key("enable.idempotence", Boolean(), None,
        "Whether brokers store each message exactly once, even if an acknowledgement was lost. Needs Kafka 0.11 or "
        "later and `request.required.acks=-1`.", derive=lambda settings: settings["transactional.id"] is not None,
        default_text="`false`; `true` with `transactional.id`"),
    Key("transactional.id", Text("a name", str), None,
        "Names a producer that sends in transactions. A new producer of the same name fences the earlier one.",
        default_text="none"),
    Key("transaction.timeout.ms", Integer(1), 60_000,
        "How long a transaction may be open before the coordinator aborts it and fences its producer. Brokers have a "
        "limit, 15 minutes by default."),
    Key("message.max.bytes", Integer(1), 1_000_000,
        "Most bytes of a message, key and value together. `send` refuses larger messages.",
        name_07="max.message.size", section="own"),
)
# fmt: on

# fmt: off
_QUEUE = (
    Key("queue.buffering.max.ms", Integer(0), 5000, "Longest wait of a message for others of its batch (`async`).",
        name_07="queue.time"),
    Key("queue.buffering.max.messages", Integer(1), 10_000, "Most messages that wait or are not acknowledged yet.",
        name_07="queue.size"),
    Key("queue.buffering.max.bytes", Integer(1, MAX_INT64), 32 * _MIB,
        "Most bytes of messages that wait or are not acknowledged yet.", section="own"),
    Key("queue.enqueue.timeout.ms", Integer(-INT32_MAX - 1), -1,
        "How `send` reacts to a full queue: with 0 it raises at once, with a positive number it waits that long, "
        "with a negative number it waits without a limit.", name_07="queue.enqueueTimeout.ms", default_07=0),
    Key("batch.num.messages", Integer(1), 200, "Most messages of a batch.", name_07="batch.size"),
    Key("batch.max.bytes", Integer(1), 512 * 1024, "Most bytes of a batch of several messages.", section="own"),
    Key("request.max.bytes", Integer(1), _MIB, "Most bytes of a request of several batches.", section="own"),
)
# fmt: on

# fmt: off
_ENCODING = (
    Key("compression.codec", Codec(), "none",
        "Codec of batches; lz4 needs brokers of 0.8.2 or later, zstd of 2.1 or later."),
    Key("compressed.topics", NameList(), (), "The topics whose batches are compressed.", default_text="all"),
    Key("serializer.class", Text("a class of kafka.serializer, or module:name"), "kafka.serializer.DefaultEncoder",
        "The encoder of values: `DefaultEncoder` accepts only bytes, `StringEncoder` text."),
    Key("key.serializer.class", Text("a class of kafka.serializer, or module:name"), None,
        "The encoder of keys.", derive=lambda settings: settings["serializer.class"],
        default_text="as `serializer.class`"),
    Key("serializer.encoding", Text("a character set"), "UTF8", "The character set of `StringEncoder`."),
    Key("partitioner.class", Text("a name of zkconsumer.producer.PARTITIONERS, or module:name"),
        "kafka.producer.DefaultPartitioner", "The partitioner: it chooses the partition of a key."),
)
# fmt: on

# fmt: off
_HANDLERS = (
    Key("event.handler", Text("module:name of a class"), None,
        "Class that receives the batches instead of the brokers; see "
        "docs/PRODUCING.md.", default_text="none", section="0.7"),
    Key("event.handler.props", NameList(), (), "`name=value`, separated by commas: the argument of its method `init`.",
        default_text="none", section="0.7"),
    Key("callback.handler", Text("module:name of a class"), None,
        "Class whose methods are called with messages on their way; see "
        "docs/PRODUCING.md.", default_text="none", section="0.7"),
    Key("callback.handler.props", NameList(), (),
                                               "`name=value`, separated by commas: the argument of its method `init`.",
        default_text="none", section="0.7"),
)
# fmt: on

# fmt: off
_CONNECTIONS = (
    Key("send.buffer.bytes", Integer(0), 102_400, "Send buffer of a broker connection; 0 leaves it to the system.",
        name_07="buffer.size"),
    Key("connect.timeout.ms", Integer(1), 5000, "Longest wait for a connection to a broker."),
    Key("kafka.generation", Choice(("auto", "0.7", "0.8")), "auto",
        "The generation of the brokers; `auto` finds it in ZooKeeper, or by the broker ids in "
        "`broker.list`.", section="own"),
)
# fmt: on

# fmt: off
_WITHOUT_EFFECT = (
    Key("zk.read.num.retries", Integer(0), 3, "No effect: ZooKeeper is read again before every retry.",
        section="0.7"),
    Key("reconnect.interval", Integer(-INT32_MAX - 1), 30_000, "No effect: connections are kept.",
        section="0.7"),
    Key("reconnect.time.interval.ms", Integer(-INT32_MAX - 1), 10_000_000,
        "No effect: connections are kept.", section="0.7"),
    Key("zookeeper.sync.time.ms", Integer(0), 2000, "No effect on producers.", name_07="zk.synctime.ms"),
)
# fmt: on

PRODUCER_KEYS: Final = (
    *_CLUSTER,
    *_DELIVERY,
    *_QUEUE,
    *_ENCODING,
    *_HANDLERS,
    *_CONNECTIONS,
    *_WITHOUT_EFFECT,
    *SHARED_KEYS,
)

# fmt: off
_OF_NEWER_PRODUCERS: Final[Mapping[str, str]] = {
    "acks": "request.required.acks",
    "retries": "message.send.max.retries",
    "linger.ms": "queue.buffering.max.ms",
    "buffer.memory": "queue.buffering.max.bytes",
    "max.block.ms": "queue.enqueue.timeout.ms",
    "compression.type": "compression.codec",
    "max.request.size": "message.max.bytes",
    "key.serializer": "key.serializer.class",
    "value.serializer": "serializer.class",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "delivery.timeout.ms": "message.send.max.retries",
}
# fmt: on
_OF_CONSUMERS: Final = frozenset(("group.id", "groupid", "auto.offset.reset", "auto.commit.enable"))


def _hint_for_name(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of an unknown setting, a clause; empty if nothing is known about it."""
    dotted = name.strip().replace("_", ".")
    ours = _OF_NEWER_PRODUCERS.get(dotted.lower())
    if ours is not None:
        return f"it is a setting of newer producers; here it is called {ours!r}"
    if dotted.lower() in _OF_CONSUMERS:
        return "it is a setting of consumers"
    nearest = nearest_name(dotted, known, 0.7)
    return f"did you mean {nearest!r}?" if nearest else ""


PRODUCER_SETTINGS: Final = SettingTable(PRODUCER_KEYS, _hint_for_name)


def contradiction(values: Mapping[str, Any]) -> tuple[str, object, str] | None:
    """Return the setting, its value and the allowed values, if two settings contradict each other; None if none do."""
    brokers, zookeeper = values["metadata.broker.list"], values["zookeeper.connect"]
    if brokers is None and zookeeper is None:
        return "metadata.broker.list", None, "given, unless zookeeper.connect is"
    if brokers is not None and zookeeper is not None:
        return "zookeeper.connect", zookeeper, "left out, because metadata.broker.list is given"
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        return "enable.idempotence", False, "true, because transactional.id is given"
    if values["enable.idempotence"]:
        if values["request.required.acks"] != -1:
            return "request.required.acks", values["request.required.acks"], "-1, because enable.idempotence is true"
        if values["kafka.generation"] == "0.7" or (brokers is not None and brokers[0].id is not None):
            return "enable.idempotence", True, "false with Kafka 0.7"
    if values["transactional.id"] is not None and (values["callback.handler"] or values["event.handler"]):
        return "transactional.id", values["transactional.id"], "left out with callback.handler or event.handler"
    if values["batch.num.messages"] > values["queue.buffering.max.messages"]:
        allowed = f"at most queue.buffering.max.messages, which is {values['queue.buffering.max.messages']}"
        return "batch.num.messages", values["batch.num.messages"], allowed
    if brokers is not None and brokers[0].id is not None and values["kafka.generation"] == "0.8":
        return "metadata.broker.list", BrokerList().format(brokers), "host:port: only Kafka 0.7 has ids in this list"
    return None
