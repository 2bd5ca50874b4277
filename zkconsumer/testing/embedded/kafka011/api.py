"""An API as an embedded broker serves it: how a request is read, what it is answered, which faults may befall it.

How brokers of one version of Kafka differ from others in requests of the same version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from simpleconsumer.messages.api import Api
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.cluster_image import ClusterImage, Codes, Host
from zkconsumer.testing.embedded.disk.log import LogSettings
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.embedded.group_values import GroupRules
from zkconsumer.testing.embedded.kafka011.fetch_sessions import FetchSessions
from zkconsumer.testing.embedded.kafka011.group_coordinator import GroupCoordinator
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka011.transaction_coordinator import TransactionCoordinator
from zkconsumer.testing.embedded.offsets import OffsetStorage
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode


class Habits(NamedTuple):
    """Of one version of Kafka.

    Attributes:
        log_magic: the newest format of entries in its logs: 0, 1, or 2 for record batches.
        is_before_2: whether it answers as brokers before 2.0 do.
        is_since_3: whether it does as brokers of 3.9 and later: a fetch brings no part of an entry that is too large,
            an empty list of aborted transactions where the partition is unknown, and null in place of what it cannot
            convert; a batch of a transaction is taken where the partition was added to it.
        drops_headers: whether clients that do not know headers get messages without them; 0.11 answers error -1.
        is_silent: whether it says nothing to a request that it does not know; others close the connection.
        offset_record: the version of values of offsets in `__consumer_offsets`.
        group_record: the same of groups.
        forwards_changes: whether every broker takes changes of topics, and not the controller alone.
        groups: how groups are coordinated; times and sizes are settings.
        completing: the name of the state in which a group waits for its leader.
        remembered_batches: so many batches of a producer are known when they come again.
        unknown_producer_code: the answer to a batch that is not the first one of a producer of which nothing is known;
            0: it is stored.
        checks_added_partitions: whether AddPartitionsToTxn takes only partitions that there are; 1.1 looks at topics.
    """

    log_magic: int = 2
    is_before_2: bool = False
    is_since_3: bool = False
    drops_headers: bool = True
    is_silent: bool = False
    remembered_batches: int = 5
    unknown_producer_code: int = 0
    checks_added_partitions: bool = True
    forwards_changes: bool = False
    offset_record: int = 3
    group_record: int = 3
    groups: GroupRules = GroupRules()
    completing: str = "CompletingRebalance"


Body = TypeVar("Body")


class Host011(Host, Protocol):
    """What the answers need of their broker."""

    @property
    def served(self) -> Mapping[int, range]:
        """The versions that it lists, by API key."""

    @property
    def habits(self) -> Habits:
        """How its version of Kafka differs from others in requests of the same version."""

    @property
    def log_settings(self) -> LogSettings:
        """The settings of its logs where their topics have none."""

    @property
    def offset_storage(self) -> OffsetStorage:
        """The committed offsets of groups in the registry."""

    @property
    def groups(self) -> GroupCoordinator:
        """The groups that it coordinates, and their committed offsets."""

    @property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of its clients."""

    @property
    def transactions(self) -> TransactionCoordinator:
        """The transactions that it coordinates."""

    def log(self, topic: str, partition: int) -> BatchLog:
        """The log of a partition that is led here; Refusal 3 or 6 otherwise."""


@dataclass(frozen=True)
class Asked(Generic[Body]):
    """A request that is to be answered.

    Attributes:
        version: of the request.
        body: what it asks.
        host: the broker.
        errors: codes that are answered for partitions (-1: the topic, or the group) without doing anything.
        take: takes a fault of a kind that befalls a partition, None without one.
        client_id: of the client.
    """

    version: int
    body: Body
    host: Host011
    errors: Codes
    take: Callable[[str, TopicPartition], Fault | None]
    client_id: str = ""


def _no_partition(body: object) -> list[TopicPartition]:
    return [("", -1)]


def _as_it_is(host: Host011, body: Body) -> Body:
    return body


def _nothing_fetched(body: object, image: ClusterImage) -> list[tuple[TopicPartition, int]]:
    return []


@dataclass(frozen=True)
class ServedApi(Generic[Body]):
    """One API.

    Attributes:
        api: its number and encodings.
        name: by which faults know it.
        versions: those that are served here; a broker lists those of them that its generation has.
        read: returns the body of a request, from its version and the values of its fields. An API without a schema gets
            a reader of the bytes instead.
        answer: returns the values of an answer, or the parts of its body, None for no answer; slices in it must be
            closed. It may wait, and it may raise BadRequest or NoAnswer to close the connection.
        partitions: those of a request, by which faults go; -1 means a whole topic.
        fetched: partition and offset of each message set in an answer (`mishaps.Befallen`).
        prepare: what the broker makes of a body before anything else sees it.
    """

    api: Api
    name: str
    versions: range
    read: Callable[[Any, int], Body]
    answer: Callable[[Asked[Body]], Values | list[Part] | None]
    partitions: Callable[[Body], Sequence[TopicPartition]] = _no_partition
    fetched: Callable[[Body, ClusterImage], Sequence[tuple[TopicPartition, int]]] = _nothing_fetched
    prepare: Callable[[Host011, Body], Body] = _as_it_is


AnyApi = ServedApi[Any]


def refuse(errors: Codes, where: TopicPartition) -> None:
    """Raise Refusal if a fault wants it for a partition."""
    code = errors.get(where, 0)
    if code:
        raise Refusal(code, f"{where[0]}/{where[1]}: on purpose")


def refuse_all(asked: Asked[Any]) -> None:
    """Raise Refusal if a fault wants it for the whole request."""
    refuse(asked.errors, ("", -1))


def fenced_code(code: int, knows_fenced: bool) -> int:
    """Return an error code as the version of a request has it: older ones only know that an epoch is invalid."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED and not knows_fenced else code
