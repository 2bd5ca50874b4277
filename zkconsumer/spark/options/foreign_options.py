"""Says what to set here instead of an option of Spark's own Kafka source and sink, or of Kafka's newer clients.

Pure. Programs for `format("kafka")` bring these names along. Each hint names options that are taken here, or says why
there is none.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider (Spark 4.3); org.apache.kafka.clients.consumer.ConsumerConfig,
org.apache.kafka.clients.producer.ProducerConfig (0.9 to 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Foreign:
    """Names that are not options here.

    Attributes:
        names: As Spark or Kafka writes them; one that ends with a dot stands for all that begin so.
        options: The options to set instead, if any.
        why: A clause; empty if one of our options is the same under another name.
    """

    names: tuple[str, ...]
    options: tuple[str, ...] = ()
    why: str = ""

    @property
    def hint(self) -> str:
        """The advice, as a clause."""
        options = " or ".join(self.options)
        if not self.why:
            return f"it is called {options} here"
        return f"{self.why}: set {options}" if options else self.why


_NO_GROUP: Final = "Spark assigns partitions to tasks, which join no group"
_FIGURES: Final = "the progress of a query has the figures"
_ROWS: Final = "change the rows with Spark"
_ADDRESSES: Final = "all addresses of a name are tried"
_OPENED: Final = "connections are opened when they are needed"

# fmt: off
READING: Final = (
    Foreign(("groupIdPrefix", "kafka.group.id"), ("group.id",),
            "the source reads without a group; to store offsets for a group in ZooKeeper"),
    Foreign(("fetchOffset.numRetries", "kafka.default.api.timeout.ms"), ("kafkaConsumer.pollTimeoutMs",),
            "leaders are asked again until a time-out"),
    Foreign(("fetchOffset.retryIntervalMs", "kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms",
             "kafka.reconnect.backoff.ms", "kafka.reconnect.backoff.max.ms"), ("refresh.leader.backoff.ms",)),
    Foreign(("maxBytesPerTrigger", "maxFilesPerTrigger"), ("maxOffsetsPerTrigger",), "batches are limited by offsets"),
    Foreign(("kafka.max.partition.fetch.bytes",), ("fetch.message.max.bytes",)),
    Foreign(("kafka.fetch.max.bytes",), ("fetch.message.max.bytes",), "a task fetches one partition at a time"),
    Foreign(("kafka.fetch.max.wait.ms",), ("fetch.wait.max.ms",)),
    Foreign(("kafka.fetch.min.bytes",), (), "a task reads up to a known end"),
    Foreign(("kafka.request.timeout.ms", "kafka.socket.connection.setup.timeout.ms",
             "kafka.socket.connection.setup.timeout.max.ms"), ("socket.timeout.ms",)),
    Foreign(("kafka.receive.buffer.bytes",), ("socket.receive.buffer.bytes",)),
    Foreign(("kafka.send.buffer.bytes",), (), "requests of the source are small"),
    Foreign(("kafka.max.poll.records",), ("maxRecordsPerPartition",),
            "a task reads as many messages as a fetch returns; to have it read fewer offsets in total"),
    Foreign(("kafka.max.poll.interval.ms", "kafka.session.timeout.ms", "kafka.heartbeat.interval.ms",
             "kafka.group.instance.id", "kafka.group.protocol", "kafka.group.remote.assignor",
             "kafka.partition.assignment.strategy"), (), _NO_GROUP),
    Foreign(("kafka.enable.auto.commit", "kafka.auto.commit.interval.ms", "auto.commit.enable"), ("commitOffsets",),
            "the source stores the ends of finished batches"),
    Foreign(("kafka.auto.offset.reset",), ("startingOffsets", "failOnDataLoss"), "Spark knows where to continue"),
    Foreign(("kafka.key.deserializer", "kafka.value.deserializer"), (), "key and value are bytes: cast the columns"),
    Foreign(("kafka.interceptor.classes",), (), _ROWS),
    Foreign(("kafka.check.crcs",), (), "checksums are always checked"),
    Foreign(("kafka.client.rack",), (), "the source reads from leaders"),
    Foreign(("kafka.client.dns.lookup",), (), _ADDRESSES),
    Foreign(("kafka.connections.max.idle.ms",), (), _OPENED),
    Foreign(("kafka.metadata.max.age.ms", "kafka.metadata.recovery."), (),
            "topics and leaders are looked up for each batch"),
    Foreign(("kafka.allow.auto.create.topics",), (), "the source creates no topics"),
    Foreign(("kafka.metric.reporters", "kafka.metrics.", "kafka.enable.metrics.push", "kafka.auto.include.jmx."), (),
            f"{_FIGURES}: zkconsumer.spark.source_metrics"),
    Foreign(("topic", "topics"), ("subscribe",)),
    Foreign(("whitelist",), ("subscribePattern",)),
    Foreign(("path",), ("subscribe",), "call load() without an argument, and name the topic"),
    Foreign(("zk.connect",), ("zookeeper.connect",)),
    Foreign(("metadata.broker.list",), ("bootstrap.servers",)),
)
# fmt: on
"""For what reads."""

# fmt: off
WRITING: Final = (
    Foreign(("kafka.transactional.id", "kafka.transaction.timeout.ms"), (),
            "rows are written at least once, outside transactions: Spark may run a task again"),
    Foreign(("kafka.key.serializer", "kafka.value.serializer", "key.serializer.class", "serializer.class",
             "serializer.encoding"), (), "columns key and value are bytes or text, and are written unchanged"),
    Foreign(("kafka.linger.ms", "producer.type", "queue.buffering.max.ms", "queue.time"), (),
            "a task sends its rows as soon as a batch is full, and waits for the acknowledgements"),
    Foreign(("kafka.max.block.ms", "queue.enqueue.timeout.ms", "queue.enqueueTimeout.ms"), ("delivery.timeout.ms",),
            "a task waits for room in its queue"),
    Foreign(("kafka.batch.size",), ("batch.num.messages", "batch.max.bytes"),
            "it counts messages in Kafka 0.7, and bytes in newer producers"),
    Foreign(("kafka.max.in.flight.requests.per.connection",), (), "a task has one request in flight to each broker"),
    Foreign(("kafka.compression.gzip.level", "kafka.compression.lz4.level", "kafka.compression.zstd.level"), (),
            "codecs use their default levels"),
    Foreign(("kafka.partitioner.ignore.keys", "kafka.partitioner.adaptive.partitioning.enable",
             "kafka.partitioner.availability.timeout.ms"), ("partitioner.class",),
            "the column partition decides; without it"),
    Foreign(("kafka.reconnect.backoff.ms", "kafka.reconnect.backoff.max.ms", "kafka.retry.backoff.max.ms"),
            ("retry.backoff.ms",)),
    Foreign(("kafka.socket.connection.setup.timeout.ms", "kafka.socket.connection.setup.timeout.max.ms"),
            ("connect.timeout.ms",)),
    Foreign(("kafka.metadata.max.idle.ms", "kafka.metadata.recovery."), (), "a producer lives as long as its task"),
    Foreign(("kafka.receive.buffer.bytes",), (), "answers to a producer are small"),
    Foreign(("kafka.connections.max.idle.ms",), (), _OPENED),
    Foreign(("kafka.client.dns.lookup",), (), _ADDRESSES),
    Foreign(("kafka.interceptor.classes",), (), _ROWS),
    Foreign(("kafka.metric.reporters", "kafka.metrics.", "kafka.enable.metrics.push", "kafka.auto.include.jmx."), (),
            _FIGURES),
    Foreign(("path",), ("topic",), "call save() or start() without an argument, and name the topic"),
    Foreign(("topics",), ("topic",)),
    Foreign(("codec",), ("compression.codec",)),
    Foreign(("subscribe", "subscribePattern", "blacklist", "assign"), (),
            "it is for reading; rows are written to the topic of option topic, or of the column topic"),
    Foreign(("group.id",), (), "it is a setting of consumers"),
)
# fmt: on
"""For what writes."""


def hint_of(name: str, table: Iterable[Foreign]) -> str:
    """Return what to do about a name, a clause; empty if the table does not know it. `kafka.` may be missing.

    >>> hint_of("Kafka.Fetch.Max.Wait.Ms", READING), hint_of("metrics.num.samples", WRITING), hint_of("zzz", READING)
    ('it is called fetch.wait.max.ms here', 'the progress of a query has the figures', '')
    """
    plain = _plain(name)
    for row in table:
        for known in map(_plain, row.names):
            if plain == known or (known.endswith(".") and plain.startswith(known)):
                return row.hint
    return ""


def _plain(name: str) -> str:
    return name.lower().removeprefix("kafka.")
