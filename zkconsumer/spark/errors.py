"""What the Spark source raises.

    SparkSourceError
    ├── OptionRefused        an option that is unknown, has a value that is not allowed, or contradicts another
    ├── ColumnsRefused       `.schema(...)` names columns that there are not, or with other types
    ├── RequirementMissing   Java, pyspark, pyarrow or numpy is missing or too old
    ├── TopicMissing         a topic or partition that was named is not there
    ├── GroupHasNoOffsets    a group that was named to begin at has none
    ├── NoMessageAtTime      a query is to begin at a time, and no message is that young
    ├── PlanningFailed       the driver could not learn leaders or offsets in time
    ├── DataLoss             offsets that were wanted are not in the log (any more)
    ├── MessagesLost         a stream lost messages (`stream_driver`)
    ├── AnotherCluster       a stream's checkpoint is of another cluster (`stream_driver`)
    ├── GroupHasMembers      the offsets of a group with members are not written (`group_offsets`)
    ├── OffsetsNotStored     ZooKeeper did not take offsets of a group (`group_offsets`)
    └── PartitionUnreadable  an executor cannot read on, or met a message that cannot be delivered

Spark hands on the text and drops the type, so each text names topic, partition, offset and broker itself.
"""

# The names say what happened; an "Error" behind each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from simpleconsumer.types import Broker
from zkconsumer.errors import ZkConsumerError


class SparkSourceError(ZkConsumerError):
    """Root of what the Spark source raises of its own."""


class OptionRefused(SparkSourceError, ValueError):
    """An option that cannot be taken; the text names it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"option {self.name}: {self.reason}"


class ColumnsRefused(SparkSourceError, ValueError):
    """A schema that the source cannot fill."""


class RequirementMissing(SparkSourceError):
    """Something has to be installed first; the text says what."""


class TopicMissing(SparkSourceError):
    """A topic, or a partition of one, that was named and is not in ZooKeeper."""


class GroupHasNoOffsets(SparkSourceError):
    """A query is to begin, or to end, at the offsets of a group, and there are none: its name may be misspelt."""


class NoMessageAtTime(SparkSourceError):
    """A query is to begin at a time, and partitions have no message at or after it."""


class PlanningFailed(SparkSourceError):
    """Leaders or offsets could not be learnt before the deadline."""


class DataLoss(SparkSourceError):
    """Offsets that were wanted and are not in the log.

    Attributes:
        first, behind: The offsets that are lost: from `first` on, up to but without `behind`.
    """

    def __init__(self, topic: str, partition: int, first: int, behind: int, reason: str) -> None:
        super().__init__(topic, partition, first, behind, reason)
        self.topic = topic
        self.partition = partition
        self.first = first
        self.behind = behind
        self.reason = reason

    def __str__(self) -> str:
        count = self.behind - self.first
        return (
            f"{self.topic}/{self.partition}: {count} offsets from {self.first} to {self.behind - 1} are not there: "
            f"{self.reason}; with failOnDataLoss=false they are left out"
        )


class PartitionUnreadable(SparkSourceError):
    """Reading one partition cannot go on.

    Attributes:
        offset: Offset that was to be read next, or of the message that cannot be delivered.
        broker: Who was asked last; None before anybody was.
    """

    def __init__(self, topic: str, partition: int, offset: int, broker: Broker | None, reason: str) -> None:
        super().__init__(topic, partition, offset, broker, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.broker = broker
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} at {self.offset} ({shown_broker(self.broker)}): {self.reason}"


def shown_broker(broker: Broker | None) -> str:
    """Return `broker 1 at host:port`."""
    return "no broker" if broker is None else f"broker {broker.id} at {broker.host}:{broker.port}"
