"""A Kafka client for every release from 0.7.0 to 4.3: consumers, on groups in ZooKeeper or of brokers, and producers.

    with ConsumerConnector(ConsumerConfig("zk1:2181,zk2:2181/kafka", "billing")) as connector:
        [stream] = connector.create_message_streams({"clicks": 1})["clicks"]
        for message in stream:
            print(message.value)

    with KafkaConsumer("clicks", bootstrap_servers="kafka1:9092", group_id="billing") as consumer:
        for record in consumer:
            print(record.value)

    with Producer(ProducerConfig(zookeeper_connect="zk1:2181,zk2:2181/kafka")) as producer:
        producer.send("clicks", b"a value", key=b"a key")

Other modules for applications: `zkconsumer.producer`, `zkconsumer.aio` (asyncio), `zkconsumer.prometheus`,
`zkconsumer.config`, `zkconsumer.errors`, `zkconsumer.admin`, `zkconsumer.log`, `zkconsumer.spark`,
`zkconsumer.testing`. The remaining ones are internal.
"""

from typing import TYPE_CHECKING

from simpleconsumer.lazy_names import lazy_names

if TYPE_CHECKING:
    from rebalance.brokers.assignor import SimpleAssignor
    from rebalance.errors import (
        AccessRefused,
        ConsumerIdInUse,
        GroupRefused,
        NamespaceMissing,
        RebalanceError,
        UnsupportedFilter,
    )
    from simpleconsumer.errors import BrokenFraming, BrokerError, ConnectionFailed, MessageError, SimpleConsumerError
    from simpleconsumer.types import Message, TopicPartition
    from zkconsumer.cluster.metadata_reader import BrokersSilent
    from zkconsumer.config import ConsumerConfig, ProducerConfig
    from zkconsumer.config.kafka_consumer_config import KafkaConsumerConfig
    from zkconsumer.connector import Consumer, ConsumerConnector
    from zkconsumer.errors import (
        CommitFailed,
        ConcurrentStreamUse,
        ConfigError,
        ConnectorClosed,
        ConsumerTimeout,
        DecoderFailed,
        ForeignEventLoop,
        ForkedConnector,
        ListenerRefused,
        MessageStreamsExist,
        NotSupported,
        PartitionStopped,
        PauseFailed,
        ReadFailed,
        SettingsNotUsable,
        StreamFailed,
        UnknownSetting,
        ZkConsumerError,
        ZooKeeperRefused,
        ZooKeeperUnavailable,
    )
    from zkconsumer.filters import Blacklist, Whitelist
    from zkconsumer.kafka_consumer import KafkaConsumer
    from zkconsumer.member.broker_coordination import CoordinatorSilent
    from zkconsumer.member.listening import RebalanceListener
    from zkconsumer.polling.errors import (
        ConcurrentConsumerUse,
        ConsumerClosed,
        ConsumerWokenUp,
        LogTruncated,
        NoOffsetForPartition,
        NotAssigned,
        NotSubscribed,
        OffsetOutOfRange,
        PollingError,
        PollTimeout,
        SubscriptionConflict,
    )
    from zkconsumer.polling.group_events import RebalanceCallbacks
    from zkconsumer.polling.records import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        ConsumerRecords,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TimestampType,
    )
    from zkconsumer.producer import KeyedMessage, Producer
    from zkconsumer.status import BlockedClaim, ConnectorStatistics, ConnectorStatus, OwnedPartition
    from zkconsumer.streams.batches import MessageBatch
    from zkconsumer.streams.stream import KafkaStream
    from zkconsumer.topic_reader.topic_reader import TopicReader, read_topic

__version__ = "0.1.0"

__all__ = [
    "AccessRefused",
    "Blacklist",
    "BlockedClaim",
    "BrokenFraming",
    "BrokerError",
    "BrokersSilent",
    "CommitFailed",
    "ConcurrentStreamUse",
    "ConfigError",
    "ConnectionFailed",
    "ConnectorClosed",
    "CoordinatorSilent",
    "ConnectorStatistics",
    "ConnectorStatus",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIdInUse",
    "ConsumerTimeout",
    "DecoderFailed",
    "ForeignEventLoop",
    "ForkedConnector",
    "GroupRefused",
    "KafkaStream",
    "KeyedMessage",
    "ListenerRefused",
    "Message",
    "MessageBatch",
    "MessageError",
    "MessageStreamsExist",
    "NamespaceMissing",
    "NotSupported",
    "OwnedPartition",
    "PartitionStopped",
    "PauseFailed",
    "Producer",
    "ProducerConfig",
    "ReadFailed",
    "SettingsNotUsable",
    "RebalanceError",
    "RebalanceListener",
    "SimpleAssignor",
    "SimpleConsumerError",
    "StreamFailed",
    "TopicPartition",
    "TopicReader",
    "UnknownSetting",
    "UnsupportedFilter",
    "Whitelist",
    "ZkConsumerError",
    "ZooKeeperRefused",
    "ZooKeeperUnavailable",
    "__version__",
    "read_topic",
    "ConcurrentConsumerUse",
    "ConsumerClosed",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ConsumerRecords",
    "ConsumerWokenUp",
    "KafkaConsumer",
    "KafkaConsumerConfig",
    "LogTruncated",
    "NoOffsetForPartition",
    "NotAssigned",
    "NotSubscribed",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "PollTimeout",
    "PollingError",
    "RebalanceCallbacks",
    "SubscriptionConflict",
    "TimestampType",
]

if not TYPE_CHECKING:  # mypy would take every name for one of the package
    __getattr__ = lazy_names(
        __name__,
        {
            "zkconsumer.errors": __all__,
            "rebalance.brokers.assignor": ["SimpleAssignor"],
            "rebalance.errors": [
                "AccessRefused", "ConsumerIdInUse", "GroupRefused", "NamespaceMissing", "RebalanceError",
                "UnsupportedFilter",
            ],
            "simpleconsumer.errors": [
                "BrokenFraming", "BrokerError", "ConnectionFailed", "MessageError", "SimpleConsumerError",
            ],
            "simpleconsumer.types": ["Message", "TopicPartition"],
            "zkconsumer.cluster.metadata_reader": ["BrokersSilent"],
            "zkconsumer.config": ["ConsumerConfig", "ProducerConfig"],
            "zkconsumer.connector": ["ConsumerConnector", "Consumer"],
            "zkconsumer.filters": ["Blacklist", "Whitelist"],
            "zkconsumer.member.broker_coordination": ["CoordinatorSilent"],
            "zkconsumer.member.listening": ["RebalanceListener"],
            "zkconsumer.kafka_consumer": ["KafkaConsumer"],
            "zkconsumer.config.kafka_consumer_config": ["KafkaConsumerConfig"],
            "zkconsumer.polling.group_events": ["RebalanceCallbacks"],
            "zkconsumer.polling.records": [
                "ConsumerGroupMetadata",
                "ConsumerRecord",
                "ConsumerRecords",
                "OffsetAndMetadata",
                "OffsetAndTimestamp",
                "TimestampType",
            ],
            "zkconsumer.polling.errors": [
                "LogTruncated",
                "NoOffsetForPartition",
                "NotAssigned",
                "NotSubscribed",
                "OffsetOutOfRange",
                "PollingError",
                "SubscriptionConflict",
                "ConcurrentConsumerUse",
                "ConsumerClosed",
                "ConsumerWokenUp",
                "PollTimeout",
            ],
            "zkconsumer.producer": ["KeyedMessage", "Producer"],
            "zkconsumer.status": ["ConnectorStatistics", "BlockedClaim", "ConnectorStatus", "OwnedPartition"],
            "zkconsumer.streams.batches": ["MessageBatch"],
            "zkconsumer.streams.stream": ["KafkaStream"],
            "zkconsumer.topic_reader.topic_reader": ["TopicReader", "read_topic"],
        },
        modules=["config", "errors", "producer"],
    )  # fmt: skip

_MODULES = frozenset({"admin", "aio", "config", "errors", "producer", "prometheus", "spark", "testing"})


def __dir__() -> list[str]:
    """The names for applications; the internal modules stay out of completions."""
    loaded = globals()
    return sorted({*__all__, *(name for name in loaded if name in _MODULES or name.startswith("__"))})
