"""The errors of the consumer: settings, streams, commits, and access to ZooKeeper.

    ZkConsumerError          the root of all errors (`zkconsumer_error`), those of the packages below included
    ├── ConfigError          a setting with a value that is not allowed (a ValueError)
    │   └── UnknownSetting   a setting that does not exist
    ├── SettingsNotUsable    a file, profile or environment variable with settings (a ValueError)
    ├── ListenerRefused      a rebalance listener whose methods would never be called (a TypeError)
    ├── NotSupported         a legal setting, or a cluster, that this release does not serve
    ├── ZooKeeperUnavailable no ZooKeeper within zookeeper.connection.timeout.ms
    │   └── ZooKeeperRefused ZooKeeper refuses the credentials, or keeps a node from them
    ├── ConsumerTimeout      no message within consumer.timeout.ms; iterating again continues
    ├── MessageStreamsExist  streams were created once already
    ├── ConcurrentStreamUse  two threads, or two asyncio tasks, read one stream at the same time
    ├── ForeignEventLoop     a connector of zkconsumer.aio was used in another event loop
    ├── DecoderFailed        the application's decoder raised on one message; iterating again continues
    ├── PartitionStopped     one partition cannot be read further; iterating again continues with the others
    ├── ReadFailed           a topic cannot be read as it was asked for (without a group)
    ├── StreamFailed         the stream has ended by a fault; status() names the same error
    ├── CommitFailed         some partitions could not be committed; the others were
    ├── PauseFailed          a partition could not be paused or resumed; none of the call was
    ├── ForkedConnector      a connector was used in a process that was forked from its own
    └── ConnectorClosed      the call came after shutdown

Errors of the packages below are raised as they are: `simpleconsumer.errors.MessageError` for one bad message,
`rebalance.errors.RebalanceError` for the group, `rebalance.errors.AccessRefused` among them.
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from simpleconsumer.types import Broker
from zkconsumer_error import RemediedError, ZkConsumerError, first_few

__all__ = [
    "CommitFailed",
    "ConcurrentStreamUse",
    "ConfigError",
    "ConnectorClosed",
    "ConsumerTimeout",
    "DecoderFailed",
    "ForeignEventLoop",
    "ForkedConnector",
    "ListenerRefused",
    "MessageStreamsExist",
    "NotSupported",
    "Obstacle",
    "PartitionStopped",
    "PauseFailed",
    "ReadFailed",
    "SettingsNotUsable",
    "StreamFailed",
    "UnknownSetting",
    "ZkConsumerError",
    "ZooKeeperRefused",
    "ZooKeeperUnavailable",
    "shown_broker",
]


class ConfigError(ZkConsumerError, ValueError):
    """A setting that is missing, given twice, or has a value that is not allowed.

    Attributes:
        key: Name of the setting, as in Kafka 0.8.
        value: The given value; None without one; `***` for a secret.
        allowed: The allowed values, such as `an integer from 1 to 65535`.
        place: File and line that give the value; empty if it comes from no file.
    """

    place: str = ""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(key, value, allowed)
        self.remedy = f"it must be {allowed}"
        self.key = key
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        place = f" ({self.place})" if self.place else ""
        if self.value is None:
            return f"{self.key} is not set{place}; {self.remedy}"
        return f"{self.key} is {self.value!r}{place}; {self.remedy}"


class UnknownSetting(ConfigError):
    """A setting that does not exist. Its value is not kept: it may be a secret under a misspelled name.

    Attributes:
        key: The name as it was given.
        hint: The name to use instead, a clause; empty if nothing is known about it.
    """

    def __init__(self, key: str, hint: str = "") -> None:
        super().__init__(key, None, "left out")
        self.args = (key, hint)
        self.hint = hint
        self.remedy = hint or "docs/CONFIGURATION.md lists all settings"

    def __str__(self) -> str:
        return f"unknown setting {self.key!r}; {self.remedy}"


class SettingsNotUsable(RemediedError, ValueError):
    """A file, a profile or an environment variable with settings cannot be used."""


class ListenerRefused(ZkConsumerError, TypeError):
    """A rebalance listener with methods that would never be called, or that fail when they are called.

    Attributes:
        reason: The fault, as a clause.
        remedy: The advice, as a clause.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"the rebalance listener {self.reason}; {self.remedy}"


class NotSupported(ZkConsumerError):
    """A feature of Kafka that this release does not support.

    Attributes:
        what: The object that was asked for.
        reason: Why it is not there.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(what, reason)
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.what} is not supported: {self.reason}"


class Obstacle(NamedTuple):
    """The reason why a session with one ZooKeeper server failed.

    Attributes:
        server: `host:port`.
        cause: the reason; follows the name of the server.
        remedy: the advice, as a clause; empty when nothing there answers as ZooKeeper.
    """

    server: str
    cause: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.server}{self.cause}"


class ZooKeeperUnavailable(ZkConsumerError):
    """No server of the ensemble opened a session in time.

    Attributes:
        hosts: The connection string.
        timeout_s: How long was waited.
        obstacles: The reason at each server.
        remedy: The advice, as a clause; the things to check where nothing answered as ZooKeeper.
    """

    def __init__(self, hosts: str, timeout_s: float, obstacles: Iterable[Obstacle] = ()) -> None:
        self.hosts = hosts
        self.timeout_s = timeout_s
        self.obstacles = tuple(obstacles)
        remedies = dict.fromkeys(each.remedy for each in self.obstacles if each.remedy)
        self.remedy = "; ".join(remedies) or "check that ZooKeeper runs there"
        super().__init__(hosts, timeout_s, self.obstacles)

    def __str__(self) -> str:
        causes = "; ".join(map(str, self.obstacles))
        if any(each.remedy for each in self.obstacles):
            return f"no session with ZooKeeper within {self.timeout_s:g} s: {causes}; {self.remedy}"
        found = f" ({causes})" if causes else ""
        return f"no ZooKeeper server answered at {self.hosts} within {self.timeout_s:g} s; is it running there?{found}"


class ZooKeeperRefused(ZooKeeperUnavailable):
    """ZooKeeper refused the credentials, or access to a node; trying again does not help.

    Attributes:
        reason: The refused request and the advice, as a sentence.
        remedy: The advice, as a clause; part of `reason`.
    """

    def __init__(self, hosts: str, reason: str, remedy: str = "") -> None:
        super().__init__(hosts, 0.0)
        self.args = (hosts, reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.reason} ({self.hosts})"


class ConsumerTimeout(ZkConsumerError):
    """No message came within `consumer.timeout.ms`; the stream is intact and can be iterated again.

    Attributes:
        timeout_ms: How long the stream has waited.
    """

    def __init__(self, timeout_ms: int) -> None:
        super().__init__(timeout_ms)
        self.timeout_ms = timeout_ms

    def __str__(self) -> str:
        return f"no message within consumer.timeout.ms = {self.timeout_ms}"


class MessageStreamsExist(ZkConsumerError):
    """A connector was asked for streams again; it creates them once."""

    remedy = "create another connector for other streams"

    def __str__(self) -> str:
        return f"this connector has created its streams already; {self.remedy}"


class ConcurrentStreamUse(ZkConsumerError):
    """Two threads, or asyncio tasks, used one stream at the same time.

    Attributes:
        stream: Its `thread_id`.
        by: The kind of its reader: `thread` or `task`.
    """

    def __init__(self, stream: str, by: str = "thread") -> None:
        super().__init__(stream, by)
        self.stream = stream
        self.by = by
        if by == "task":
            self.remedy = "create a stream for each task; another task may read this stream when that task has ended"

    def __str__(self) -> str:
        if self.by == "task":
            return f"stream {self.stream} is being read by another task, which would lose its message; {self.remedy}"
        return f"stream {self.stream} is being read by another thread"


class ForeignEventLoop(ZkConsumerError):
    """A connector of `zkconsumer.aio`, or one of its streams, was used in another event loop than its own.

    Attributes:
        what: The object that was used.
    """

    remedy = "create a connector in each event loop"

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what} belongs to another event loop; {self.remedy}"


class DecoderFailed(ZkConsumerError):
    """A key or value decoder raised on one message; its exception is the `__cause__`.

    Attributes:
        topic: Of the message.
        partition: Of the message.
        offset: Of the message.
        key, value: the bytes as they came, to store such messages elsewhere.
    """

    def __init__(
        self, topic: str, partition: int | str, offset: int, key: bytes | None = None, value: bytes | None = None
    ) -> None:
        super().__init__(topic, partition, offset, key, value)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value

    def __str__(self) -> str:
        cause = "" if self.__cause__ is None else f": {type(self.__cause__).__name__}: {self.__cause__}"
        return f"{self.topic}/{self.partition} at {self.offset}: the decoder failed{cause}"


class PartitionStopped(ZkConsumerError):
    """One partition cannot be read further; it is raised once, and status() names it from then on.

    Attributes:
        topic: Of the partition.
        partition: Its number.
        offset: Where reading stopped.
        reason: The fault there.
    """

    def __init__(self, topic: str, partition: int | str, offset: int, reason: str, remedy: str = "") -> None:
        super().__init__(topic, partition, offset, reason, remedy)
        self.remedy = remedy
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.topic}/{self.partition} at {self.offset}: stopped: {self.reason}{remedy}"


class ReadFailed(RemediedError):
    """A topic cannot be read without a group, for example because a partition or an offset does not exist."""


class StreamFailed(ZkConsumerError):
    """A stream has ended by a fault, which is also its `__cause__`.

    Attributes:
        reason: The failure.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the stream has ended: {self.reason}"


class CommitFailed(ZkConsumerError):
    """The offsets of some partitions could not be committed; all others were committed.

    Attributes:
        reasons: (topic, partition) -> why, a clause or the error itself.
    """

    def __init__(self, reasons: Mapping[tuple[str, int | str], object]) -> None:
        self.reasons = dict(reasons)
        super().__init__(self.reasons)

    def __str__(self) -> str:
        return f"not committed: {_rows(self.reasons)}"


class PauseFailed(ZkConsumerError):
    """Some partitions could not be paused or resumed, so no partition of the call was.

    Attributes:
        wanted: The state that was asked for: `paused` or `resumed`.
        reasons: (topic, partition) -> why, a clause.
    """

    def __init__(self, wanted: str, reasons: Mapping[tuple[str, int | str], str]) -> None:
        super().__init__(wanted, reasons)
        self.wanted = wanted
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        return f"not {self.wanted}: {_rows(self.reasons)}"


class ConnectorClosed(ZkConsumerError):
    """The connector was shut down before, or during, the call."""

    def __str__(self) -> str:
        return "the connector is shut down"


class ForkedConnector(ZkConsumerError):
    """A connector was used in a process that was forked after the connector was created.

    Attributes:
        owner_pid: The process that made the connector.
        pid: The process that used it.
    """

    remedy = "create a connector in the process that uses it"

    def __init__(self, owner_pid: int, pid: int) -> None:
        super().__init__(owner_pid, pid)
        self.owner_pid = owner_pid
        self.pid = pid

    def __str__(self) -> str:
        return (
            f"this connector belongs to process {self.owner_pid}, and process {self.pid} was forked from it; "
            f"{self.remedy}"
        )


def shown_broker(broker: Broker | None) -> str:
    """Return `broker 1 at host:port`."""
    return "no broker" if broker is None else f"broker {broker.id} at {broker.host}:{broker.port}"


def _rows(reasons: Mapping[tuple[str, int | str], object]) -> str:
    rows = [f"{topic}/{part}: {why}" for (topic, part), why in reasons.items()]
    return first_few(*rows, between="; ", rest="; and {} more")
