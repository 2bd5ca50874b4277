"""Says what to use instead of a setting that the legacy consumer does not have.

Pure. Names of newer Kafka consumers, of librdkafka, of producers, brokers and other tools stand in many files. The
hint names the setting of the same meaning, or says why there is none. For any other unknown name the hint is the most
similar known name.

Source: org.apache.kafka.clients.consumer.ConsumerConfig (0.9 to 3.9); kafka.producer.ProducerConfig,
kafka.server.KafkaConfig (0.8.2.2); CONFIGURATION.md of librdkafka.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

_NEWER: Final = "it is a setting of newer Kafka consumers; "
_BROKERS_IN_ZOOKEEPER: Final = "set 'zookeeper.connect' for a group in ZooKeeper, or 'bootstrap.servers'"
_DECODERS: Final = "give 'key_decoder' and 'value_decoder' to create_message_streams"
_OTHER_SECURITY: Final = (
    "certificates are read from PEM files, and SASL is PLAIN, SCRAM or OAUTHBEARER: 'ssl.truststore.location', "
    "'ssl.keystore.location', 'ssl.key.password', 'sasl.mechanism'; docs/SECURITY.md lists all settings"
)
_STATISTICS: Final = "see 'statistics.interval.ms' and zkconsumer.prometheus for figures"


def _called(name: str, note: str = "") -> str:
    return f"{_NEWER}here it is called {name!r}" + (f" ({note})" if note else "")


# fmt: off
_OF_NEWER_CONSUMERS: Final[Mapping[str, str]] = {
    "enable.auto.commit": _called("auto.commit.enable"),
    "max.partition.fetch.bytes": _called("fetch.message.max.bytes"),
    "fetch.max.wait.ms": _called("fetch.wait.max.ms"),
    "fetch.max.bytes": _called("queued.max.bytes",
        "it limits the fetched bytes of all streams; 'fetch.message.max.bytes' limits one fetch of a partition"),
    "request.timeout.ms": _called("socket.timeout.ms"),
    "default.api.timeout.ms": _NEWER + "here 'socket.timeout.ms' limits one request",
    "receive.buffer.bytes": _called("socket.receive.buffer.bytes"),
    "retry.backoff.ms": _NEWER + "here 'refresh.leader.backoff.ms' and 'rebalance.backoff.ms' set the waits",
    "max.poll.interval.ms": _called("max.processing.interval.ms", "off unless it is set"),
    "key.deserializer": _NEWER + _DECODERS,
    "value.deserializer": _NEWER + _DECODERS,
    "max.poll.records": _NEWER + "a stream delivers one message at a time; 'queued.max.message.chunks' and "
                        "'queued.max.bytes' limit the fetched messages",
    "check.crcs": _NEWER + "here checksums are always checked",
    "allow.auto.create.topics": _NEWER + "this consumer creates no topics",
    "group.protocol": _NEWER + "this client supports groups in ZooKeeper, and the protocol 'classic'",
    "group.remote.assignor": _NEWER + "the members assign the partitions: see 'partition.assignment.strategy'",
    "interceptor.classes": _NEWER + "change messages where they are read from the stream",
    "metric.reporters": _NEWER + _STATISTICS,
    "enable.metrics.push": _NEWER + _STATISTICS,
}
# fmt: on
# fmt: off
_OF_OTHER_CLIENTS: Final[Mapping[str, str]] = {
    "metadata.broker.list": "it is a setting of producers and of librdkafka; " + _BROKERS_IN_ZOOKEEPER,
    "broker.list": "it is a setting of producers of Kafka 0.7; " + _BROKERS_IN_ZOOKEEPER,
    "enable.auto.offset.store": "it is a setting of librdkafka; here offsets are stored when messages are done, and "
                                "'auto.commit.enable' commits them",
    "enable.partition.eof": "it is a setting of librdkafka; 'consumer.timeout.ms' ends a wait for messages",
    "consumer.group": "it is a setting of other clients; here it is called 'group.id'",
    "shallow.iterator.enable": "the name of the setting of Kafka 0.7 is 'shallowiterator.enable'",
    "backoff.increment.ms": "only the documentation of Kafka 0.7 has it; the wait after empty fetches is "
                            "'fetcher.backoff.ms' with brokers of 0.7, and 'fetch.wait.max.ms' with later ones",
    "mirror.topics.whitelist": "Kafka 0.7 documents it but does not use it; give a Whitelist to "
                               "create_message_streams_by_filter",
    "mirror.topics.blacklist": "Kafka 0.7 documents it but does not use it; give a Blacklist to "
                               "create_message_streams_by_filter",
    "mirror.consumer.numthreads": "Kafka 0.7 documents it but does not use it; give the number of streams to "
                                  "create_message_streams",
    "print.key": "it is a property of the console consumer's formatter: `zkconsumer consume --key`",
    "print.timestamp": "it is a property of the console consumer's formatter: `zkconsumer consume --timestamp`",
    "print.partition": "it is a property of the console consumer's formatter: `zkconsumer consume --print-partition`",
    "print.offset": "it is a property of the console consumer's formatter: `zkconsumer consume --print-offset`",
    "key.separator": "it is a property of the console consumer's formatter: `zkconsumer consume --key-separator`",
    "zookeeper.clientcnxnsocket": "it is a setting of ZooKeeper's Java client; 'zookeeper.use.ssl' alone turns TLS "
                                  "on here",
    "zookeeper.ssl.client.enable": "it is a setting of Kafka's tools; here it is called 'zookeeper.use.ssl'",
    "zookeeper.client.secure": "it is a setting of ZooKeeper's Java client; here it is called 'zookeeper.use.ssl'",
    "zookeeper.set.acl": "it is a setting of Kafka's brokers; here it is called 'zookeeper.acl', such as "
                         "zookeeper.acl=creator",
}
# fmt: on
# fmt: off
_PRODUCER_NAMES: Final = frozenset((
    "acks", "batch.num.messages", "batch.size", "buffer.memory", "compressed.topics", "compression.codec",
    "compression.type", "delivery.timeout.ms", "enable.idempotence", "key.serializer", "key.serializer.class",
    "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.message.size", "max.request.size",
    "message.send.max.retries", "num.retries", "partitioner.class", "producer.type", "queue.buffering.max.messages",
    "queue.buffering.max.ms", "queue.enqueue.timeout.ms", "queue.size", "queue.time", "request.required.acks",
    "retries", "send.buffer.bytes", "serializer.class", "topic.metadata.refresh.interval.ms", "transactional.id",
    "value.serializer",
))
# fmt: on
# fmt: off
_BROKER_NAMES: Final = frozenset((
    "advertised.host.name", "advertised.listeners", "auto.create.topics.enable", "broker.id", "brokerid",
    "default.replication.factor", "delete.topic.enable", "host.name", "hostname", "inter.broker.protocol.version",
    "listeners", "log.cleaner.enable", "log.dir", "log.dirs", "log.file.size", "log.message.format.version",
    "log.retention.bytes", "log.retention.hours", "log.segment.bytes", "message.max.bytes", "num.io.threads",
    "num.network.threads", "num.partitions", "offsets.topic.replication.factor", "replica.fetch.max.bytes",
    "socket.request.max.bytes", "socket.send.buffer.bytes", "zookeeper.session.timeout",
))
# fmt: on
# fmt: off
_PREFIXES: Final = (
    (("ssl.", "sasl.", "security."), _NEWER + _OTHER_SECURITY),
    (("metrics.",), _NEWER + _STATISTICS),
    (("reconnect.backoff.", "connections.max.idle.", "socket.connection.setup."),
     _NEWER + "here connections to brokers are opened again after 'refresh.leader.backoff.ms'"),
    (("zookeeper.ssl.keystore.", "zookeeper.ssl.truststore."),
     "Java keystores are not supported; give PEM files as 'zookeeper.ssl.cafile' and 'zookeeper.ssl.certfile' "
     "(openssl pkcs12 converts a PKCS12 keystore)"),
)
# fmt: on
_LONGEST_NAME: Final = 100
_MISSPELLED: Final = 0.91
"""A name this similar to a known one is a slip of the pen; Kafka's own names of TLS and SASL are less similar."""
_RESETS: Final = {
    "earliest": "smallest", "beginning": "smallest", "latest": "largest", "end": "largest", "-2": "smallest",
    "-1": "largest",
}  # fmt: skip


def hint_for_name(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of an unknown setting, a clause; empty if nothing is known about it.

    Args:
        name: Written with dots or underscores.
        known: All known names, with dots.
    """
    dotted = name.strip().replace("_", ".")
    lower = dotted.lower()
    found = _OF_NEWER_CONSUMERS.get(lower) or _OF_OTHER_CLIENTS.get(lower)
    if found:
        return found
    if lower in _PRODUCER_NAMES:
        return "it is a setting of producers"
    if lower in _BROKER_NAMES:
        return "it is a setting of brokers"
    names = list(known)
    if by_prefix := _hint_by_prefix(lower, names):
        return by_prefix
    prefixed = _hint_without_prefix(dotted, _by_letters(names))
    if prefixed:
        return prefixed
    nearest = nearest_name(dotted, names, 0.7)
    if nearest:
        nearest = _by_letters(names)[_plain(nearest)]
    return f"did you mean {nearest!r}?" if nearest else ""


def newer_name(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of a setting of newer Kafka consumers; empty for any other name.

    Args:
        known: All known names, with dots.
    """
    lower = name.lower()
    return _OF_NEWER_CONSUMERS.get(lower) or _hint_by_prefix(lower, known)


def _hint_by_prefix(lower: str, known: Iterable[str]) -> str:
    hint = next((hint for prefixes, hint in _PREFIXES if lower.startswith(prefixes)), "")
    misspelled = nearest_name(lower, known, _MISSPELLED) if hint else None
    return f"did you mean {misspelled!r}?" if misspelled else hint


def _hint_without_prefix(dotted: str, known: Mapping[str, str]) -> str:
    """Return the hint for a name after a prefix, as in files of Flume and Atlas; empty if it has none.

    Args:
        dotted: With dots.
        known: The known names by their letters and digits.
    """
    parts = dotted.split(".")
    for count in range(1, len(parts)):
        rest = ".".join(parts[count:])
        if _plain(rest) in known:
            return f"it ends with the known name {known[_plain(rest)]!r}: here names have no prefix"
        if rest.lower() in _OF_NEWER_CONSUMERS:
            return _OF_NEWER_CONSUMERS[rest.lower()]
    return ""


def nearest_name(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """Return the most similar of the known names, None if none is similar; case and punctuation do not count.

    Args:
        name: The unknown name.
        known: All known names.
        likeness: How similar a name must be, from 0 to 1, as `difflib.get_close_matches` has it.
    """
    if len(name) > _LONGEST_NAME:  # comparing takes time with the square of the length
        return None
    names = list(known)
    same = _by_letters(names).get(_plain(name))
    if same is not None:
        return same
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=likeness)
    return near[0] if near else None


def hint_for_value(name: str, value: object) -> str:
    """Return what a refused value of a setting means elsewhere, or why it was refused; empty if nothing is known.

    Args:
        name: The name of the setting in 0.8.
        value: As it was given.
    """
    if not isinstance(value, str):
        return ""
    word = value.strip()
    if name == "auto.offset.reset" and word.lower() in _RESETS:
        return f"{word!r} of other consumers is {_RESETS[word.lower()]!r} here"
    if name == "auto.offset.reset" and word.lower() in ("raise", "fail", "disable"):
        return f"{word!r} is only possible with kafka.generation=0.7: it stops a partition that has no valid offset"
    if name == "auto.offset.reset" and word.lower() in ("none", "error"):
        return f"{word!r} of newer consumers does not exist here: reading always starts at one of the two offsets"
    if name == "partition.assignment.strategy" and "assignor" in word.lower():
        return f"{word!r} does not exist here; for a group of brokers you can give an assignor object"
    if name == "kafka.generation" and re.fullmatch(r"0\.([89]|1[01])(\..*)?|[1-4](\..*)?", word):
        return "0.8 stands for all brokers of 0.8 to 4.3"
    if word[:1] in "\"'" and word[:1] == word[-1:] and len(word) > 1:
        return "the quotes are part of the value; leave them out"
    if re.search(r"\s[#!]", value):
        return "a comment has a line of its own; here it is part of the value"
    return ""


def _by_letters(names: Iterable[str]) -> dict[str, str]:
    """Return the names by their letters and digits; of two that have the same ones, the first, which is that of 0.8."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(_plain(name), name)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
