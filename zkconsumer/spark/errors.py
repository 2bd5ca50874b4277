"""The errors of the Spark source and sink. Pure.

    SparkSourceError
    ├── OptionRefused        an option is unknown, has a value that is not allowed, or contradicts another one
    ├── ColumnsRefused       `.schema(...)` names columns that do not exist, or with other types
    ├── RequirementMissing   Java, pyspark, pyarrow or numpy is missing or too old
    ├── TopicMissing         a topic or partition that was named does not exist
    ├── GroupHasNoOffsets    a query starts at the offsets of a group that has none
    ├── NoMessageAtTime      a query starts at a time, and no message is that recent
    ├── PlanningFailed       the driver could not find leaders or offsets in time
    ├── DataLoss             offsets that were asked for are not in the log (any more)
    ├── MessagesLost         a stream lost messages
    ├── AnotherCluster       the checkpoint of a stream belongs to another cluster
    ├── RowRefused           a row that is written has no topic, or no partition that could be one
    ├── RowsNotWritten       a task of a sink failed: brokers have not acknowledged some rows
    ├── GroupHasMembers      the offsets of a group with members are not written (`group_offsets`)
    ├── OffsetsNotStored     ZooKeeper did not accept offsets of a group (`group_offsets`)
    └── PartitionUnreadable  an executor cannot continue, or found a message that cannot be delivered

Spark passes on the text of an error and drops its type, so each text names topic, partition, offset and broker itself.
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rebalance.zookeeper import znodes
from simpleconsumer.types import Broker
from zkconsumer.errors import ZkConsumerError, shown_broker
from zkconsumer.spark.streaming.stream_offsets import cluster_id_of, is_id
from zkconsumer_error import first_few

if TYPE_CHECKING:
    from zkconsumer.spark.streaming.log_changes import Loss


class RemediedError(ZkConsumerError):
    """An error whose text ends with what to do about it, where there is something to do.

    Attributes:
        remedy: The advice, as a clause; empty where the message says it all.
    """

    def __init__(self, *parts: object, remedy: str = "") -> None:
        super().__init__(*parts)
        if remedy:
            self.remedy = remedy

    def __str__(self) -> str:
        return f"{self._sentence()}; {self.remedy}" if self.remedy else self._sentence()

    def _sentence(self) -> str:
        return str(self.args[0]) if len(self.args) == 1 else str(self.args)


class SparkSourceError(RemediedError):
    """Root of the errors that the Spark source raises on purpose."""


class OptionRefused(SparkSourceError, ValueError):
    """An option is refused; the text names it."""

    def __init__(self, name: str, reason: str, remedy: str = "") -> None:
        super().__init__(name, reason, remedy=remedy)
        self.name = name
        self.reason = reason

    def _sentence(self) -> str:
        return f"option {self.name}: {self.reason}"

    def __reduce__(self) -> tuple[type[OptionRefused], tuple[str, str, str]]:
        return type(self), (self.name, self.reason, self.remedy)


class ColumnsRefused(SparkSourceError, ValueError):
    """The source cannot fill a schema, or the sink cannot write it."""


class RowRefused(SparkSourceError, ValueError):
    """A row cannot be written; the text names it by its number in the task, from 0."""


class RowsNotWritten(SparkSourceError):
    """A task of a sink failed: brokers have not acknowledged some rows; others may be stored."""


class RequirementMissing(SparkSourceError):
    """A package or Java is missing or too old; the text says what to install."""


class TopicMissing(SparkSourceError):
    """A topic or partition that was named is not in ZooKeeper."""


class GroupHasNoOffsets(SparkSourceError):
    """A query starts or ends at the offsets of a group, but the group has none: its name may be misspelt."""


class NoMessageAtTime(SparkSourceError):
    """A query starts at a time, but partitions have no message at or after it."""


class PlanningFailed(SparkSourceError):
    """Leaders or offsets could not be found before the deadline.

    Attributes:
        is_lasting: Waiting does not help: something is wrong with the log.
    """

    is_lasting = False


class NoEntryFound(PlanningFailed):
    """No entry starts around a byte position of Kafka 0.7: it belongs to another log, or the log is damaged."""

    is_lasting = True


class DataLoss(SparkSourceError):
    """The log does not have requested offsets.

    Attributes:
        first, behind: The lost offsets: from `first` to `behind - 1`.
    """

    remedy = "with failOnDataLoss=false they are left out"

    def __init__(self, topic: str, partition: int | str, first: int, behind: int, reason: str) -> None:
        super().__init__(topic, partition, first, behind, reason)
        self.topic = topic
        self.partition = partition
        self.first = first
        self.behind = behind
        self.reason = reason

    def _sentence(self) -> str:
        count = self.behind - self.first
        unit = "bytes" if isinstance(self.partition, str) else "offsets"
        return (
            f"{self.topic}/{self.partition}: {count} {unit} from {self.first} to {self.behind - 1} are not in the "
            f"log: {self.reason}"
        )


class MessagesLost(SparkSourceError):
    """Messages that the stream should have read no longer exist, and `failOnDataLoss` is true.

    Attributes:
        losses: what and why.
    """

    def __init__(self, losses: Sequence[Loss]) -> None:
        super().__init__(losses)
        self.losses = list(losses)

    remedy = "with failOnDataLoss=false the stream continues after them"

    def _sentence(self) -> str:
        return f"messages are lost: {first_few(*self.losses, between='; ', rest='; and {} more')}"


class AnotherCluster(SparkSourceError):
    """The checkpoint is of a cluster that is not the one the options name."""

    def __init__(self, connect: str, then_ms: int | None, now_ms: int | None) -> None:
        super().__init__(connect, then_ms, now_ms)
        self.connect = connect
        self.then_ms = then_ms
        self.now_ms = now_ms

    remedy = "use another checkpoint for a query on this cluster, with startingOffsets"

    def _sentence(self) -> str:
        if is_id(self.then_ms or 0):
            then, now = [cluster_id_of(at or 0) for at in (self.then_ms, self.now_ms)]
            return f"the checkpoint belongs to the cluster {then}, but the cluster {self.connect} is {now}"
        then, now = [f"{datetime.fromtimestamp((at or 0) / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
                     for at in (self.then_ms, self.now_ms)]  # fmt: skip
        return (
            f"the checkpoint is of another cluster: its {znodes.TOPICS} in ZooKeeper was created at {then}, that "
            f"of {self.connect.removeprefix('in ZooKeeper at ')} at {now}"
        )


class PartitionUnreadable(SparkSourceError):
    """One partition cannot be read further.

    Attributes:
        offset: Next offset to read, or that of the message that cannot be delivered.
        broker: The broker that was asked last; None before the first request.
    """

    def __init__(self, topic: str, partition: int | str, offset: int, broker: Broker | None, reason: str) -> None:
        super().__init__(topic, partition, offset, broker, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.broker = broker
        self.reason = reason

    def _sentence(self) -> str:
        return f"{self.topic}/{self.partition} at {self.offset} ({shown_broker(self.broker)}): {self.reason}"
