"""The ZooKeeper-coordinated Kafka high-level consumer for Python: the public names."""

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
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import (
    CommitFailed,
    ConcurrentStreamUse,
    ConfigError,
    ConnectorClosed,
    ConsumerTimeout,
    DecoderFailed,
    ForkedConnector,
    ListenerRefused,
    MessageStreamsExist,
    NotSupported,
    PartitionStopped,
    PauseFailed,
    ReadFailed,
    StreamFailed,
    UnknownSetting,
    ZkConsumerError,
    ZooKeeperRefused,
    ZooKeeperUnavailable,
)
from zkconsumer.filters import Blacklist, Whitelist
from zkconsumer.member.listening import RebalanceListener
from zkconsumer.statistics import ConnectorStatistics
from zkconsumer.status import BlockedClaim, ConnectorStatus, OwnedPartition
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
    "CommitFailed",
    "ConcurrentStreamUse",
    "ConfigError",
    "ConnectionFailed",
    "ConnectorClosed",
    "ConnectorStatistics",
    "ConnectorStatus",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIdInUse",
    "ConsumerTimeout",
    "DecoderFailed",
    "ForkedConnector",
    "GroupRefused",
    "KafkaStream",
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
    "ReadFailed",
    "RebalanceError",
    "RebalanceListener",
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
]
