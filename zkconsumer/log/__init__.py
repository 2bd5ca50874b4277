"""The logs of brokers on disk, of Kafka 0.7 to 4.3, read without any broker; described in docs/LOG.md."""

from zkconsumer.log.log_folder import DiskLog, open_log
from zkconsumer.log.partition_log import DiskPartition
from zkconsumer.log.reading import LogReading
from zkconsumer.log.record_hash import HASH_VERSION, record_hash
from zkconsumer.log.values import Damage, Gap, GapKind, LogFailed, LogTail

__all__ = [
    "HASH_VERSION",
    "Damage",
    "DiskLog",
    "Gap",
    "GapKind",
    "LogFailed",
    "LogReading",
    "LogTail",
    "DiskPartition",
    "open_log",
    "record_hash",
]
