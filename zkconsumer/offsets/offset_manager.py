"""A connection to the offset manager of a group: the broker that keeps the group's offsets in Kafka.

Rules, and which failure each prevents:
- Any broker names the offset manager; the addresses of brokers come from ZooKeeper, as metadata may lag.
- After an answer that another broker is the manager, and after a lost connection, the manager is looked up again: the
  broker that leads the group's partition of `__consumer_offsets` moves, restarts and dies.
- An offset is refused or stored for each partition alone: the others of the same request count.
- A commit is sent only while its fence holds, and the fence is checked last before each request: a decision of
  one session must not be stored in the next one. The protocol has no fence of its own for these groups, so a request
  that is on its way when the session ends may still be stored (docs/SEMANTICS.md).
- A negative offset is never stored, although Java members store -1; a stored -1 means no offset. `forget`
  alone stores it, to delete an offset.

Source: kafka.client.ClientUtils.channelToOffsetManager, kafka.consumer.ZookeeperConsumerConnector (0.8.2.2).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from rebalance.rebalance_statistics import Counters
from simpleconsumer.calls.coordinator_client import GroupOffsetClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError, broker_error
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import counting
from simpleconsumer.types import Broker, GenerationMember, OffsetAndMetadata, TopicPartition
from zkconsumer.offsets.commits import CommitNotes
from zkconsumer.wakeup import Latch
from zkconsumer_error import ErrorCode

_LOOKUP_TIMEOUT_S: Final = 3.0
"""Longest wait for one broker to name the offset manager; there are others to ask."""
_MOVED: Final = (15, 16)
"""Error codes that say to look up the offset manager again."""
_GENERATION_OVER: Final = (22, 25, 27, 82)
"""Error codes that say something about the member that commits, and nothing about its offsets."""
_NEXT_GENERATION: Final = (22, 25, 27)
"""Those of them after which the member may be in the group under another generation; its fence says so."""
_PARTITIONS_A_REQUEST: Final = 1000
_FETCH_VERSION: Final = 1
_EXPIRED_MS: Final = 1
"""A commit of this time is older than any retention: the broker deletes it when it looks for expired offsets next."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """How the offset manager is spoken to.

    Attributes:
        client_id: The name under which brokers log and count the requests.
        backoff_s: Wait before the manager is asked, or looked up, again (`offsets.channel.backoff.ms`).
        timeout_s: Longest wait for its answer (`offsets.channel.socket.timeout.ms`).
        max_retries: How often a failed commit is tried again (`offsets.commit.max.retries`).
        ends_at_deadline: The last answer, too, is waited for until the deadline only. For a connection that serves one
            call: its time-out is what was left when it was opened.
        retries_unknown: A partition that the brokers do not know is asked about until the deadline: a member reads it,
            so its topic exists, and the brokers learn of it. Else it is asked about once.
        security: TLS and SASL of its connections; None for neither.
    """

    client_id: str
    backoff_s: float = 1.0
    timeout_s: float = 10.0
    max_retries: int = 5
    ends_at_deadline: bool = False
    retries_unknown: bool = True
    security: Security | None = None


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """The stored offsets of some partitions.

    Attributes:
        offsets: Partition -> offset, or None where nothing is stored.
        unknown: Partition -> why its offset is not known, a clause.
        unled: Those of them that the brokers do not know, as their topic is being deleted or never had a leader. That
            says nothing about other partitions.
        rows: Partition -> its offset, where a text or a leader epoch was stored with it.
    """

    offsets: Mapping[TopicPartition, int | None]
    unknown: Mapping[TopicPartition, str]
    unled: frozenset[TopicPartition] = frozenset()
    rows: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)

    @property
    def unanswered(self) -> str | None:
        """Why the offset manager has not answered about all partitions, a clause; None if it has."""
        return next((reason for name, reason in self.unknown.items() if name not in self.unled), None)


class Committer(Protocol):
    """The member of a group of brokers that commits. Threads: any.

    Attributes:
        notes: The metadata that is stored with its offsets.
    """

    @property
    def notes(self) -> CommitNotes: ...

    def member(self) -> GenerationMember | None:
        """Return the member in its present generation; None while its group is being assigned anew."""

    def refused(self, member: GenerationMember, code: int) -> None:
        """Take note that the coordinator takes no commits of the member."""


class OffsetManager:
    """Reads and stores the offsets of one group in Kafka. Every call has a deadline; `close` ends one under way.

    Attempts are started until the deadline. The last one may take the time-out of an answer beyond it.

    Args:
        group: The group.
        read_brokers: The brokers of the cluster; may raise a ZkConsumerError.
        counters: Counts requests and errors.
        committer: Who commits in a group that brokers coordinate; None for a group in ZooKeeper, of which its brokers
            know no members.

    Threads: One at a time for `commit` and `fetch`; `close` from any thread and from signal handlers.
    """

    def __init__(
        self,
        group: str,
        read_brokers: Callable[[], Sequence[Broker]],
        settings: ChannelSettings,
        counters: Counters | None = None,
        committer: Committer | None = None,
    ) -> None:
        self._group = group
        self._committer = committer
        self._read_brokers = read_brokers
        self._settings = settings
        self._counters = counters or Counters()
        self._closed = Latch()
        self._is_refused = False
        self._consumer: GroupOffsetClient | None = None
        self._commit_version = 1
        self._fetch_version = 0
        self._unknown_partitions: set[TopicPartition] = set()
        self._rows: dict[TopicPartition, OffsetAndMetadata] = {}
        self._rng = random.Random()
        self.reason = "its offset manager was not looked up yet"
        """Why the last request failed, a clause."""

    def close(self) -> None:
        """End the call that is under way, and refuse all later ones."""
        self._closed.set()
        self._drop()

    # -- requests ------------------------------------------------------------------------------------------------------

    def fetch(self, partitions: Iterable[TopicPartition], deadline: float) -> OffsetAnswer:
        """Return the stored offsets, asking until each is known or the deadline is over.

        Args:
            deadline: On the clock `time.monotonic`.
        """
        missing = dict.fromkeys(partitions, "not asked in time")
        found: dict[TopicPartition, int | None] = {}
        unled: dict[TopicPartition, str] = {}
        self._rows = {}
        while missing:
            asked = list(missing)
            while asked:
                offsets, refused = self._fetch_once(asked[:_PARTITIONS_A_REQUEST], deadline)
                found.update(offsets)
                if not self._settings.retries_unknown:
                    unled |= {name: refused[name] for name in self._unknown_partitions & refused.keys()}
                missing = {name: refused.get(name, reason) for name, reason in missing.items() if name not in offsets}
                # One refused partition takes the answer about all others of its request: those are asked about again.
                asked = [name for name in asked if name not in offsets and name not in refused]
                if time.monotonic() >= deadline:
                    break
            missing = {name: reason for name, reason in missing.items() if name not in unled}
            if missing and not self._may_try_again(deadline):
                break
        return OffsetAnswer(found, {**missing, **unled}, frozenset(unled), self._rows)

    def _fetch_once(
        self, names: Sequence[TopicPartition], deadline: float
    ) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, str]]:
        """Return the offsets that came, and of partitions that were refused why; neither, of the rest: ask again."""
        consumer = self._connection(deadline)
        if consumer is None:
            return {}, dict.fromkeys(names, self.reason)
        self._counters.add("broker_requests", "offset_fetch")
        try:
            rows = consumer.fetch_offsets(self._group, names, version=_FETCH_VERSION)
        except BrokerError as error:
            codes = codes_of(error)
            self._unknown_partitions = {
                name for name, code in codes.items() if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            return {}, self._refused(codes)
        except (SimpleConsumerError, AuthenticationFailed) as error:
            return {}, dict.fromkeys(names, self._lost(error))
        self._rows |= {name: row for name, row in rows.items() if row.metadata or row.leader_epoch >= 0}
        if self._committer is not None:
            self._committer.notes.read(rows)
        return {name: None if row.offset < 0 else row.offset for name, row in rows.items()}, {}

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        refusal: Callable[[], str | None],
        deadline: float,
        why_not: Callable[[TopicPartition], str | None] = lambda _: None,
        rows: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
    ) -> dict[TopicPartition, str]:
        """Store offsets; return partition -> why it is not stored, a clause, for failures alone.

        Args:
            offsets: Partition -> next offset to consume, 0 or more.
            refusal: The fence: why the commit may not be sent any more, a clause; None while it may.
            deadline: On the clock `time.monotonic`.
            why_not: The fence of one partition, asked before each attempt.
            rows: The metadata to store with the offsets, see `row`.
        """
        return self._commit(offsets, refusal, deadline, why_not, rows)

    def row(self, partition: TopicPartition, offset: int) -> OffsetAndMetadata | None:
        """Return an offset with the metadata to store with it; None without any. Threads: any."""
        return None if self._committer is None else self._committer.notes.to_store(partition, offset)

    def forget(self, partitions: Iterable[TopicPartition], deadline: float) -> dict[TopicPartition, str]:
        """Delete stored offsets; return partition -> why its offset is not deleted, a clause, for failures alone.

        Brokers before Kafka 2.4 have no request for it. All of them take a commit of -1, which every member takes for
        no offset, with a time so long ago that it has expired: the broker deletes it when it looks for expired offsets
        next (`offsets.retention.check.interval.ms`, 10 minutes).

        Args:
            deadline: On the clock `time.monotonic`.

        Source: kafka.server.OffsetManager (0.8.2.2), kafka.server.KafkaApis.handleOffsetCommitRequest (0.9.0.1, 1.1.1).
        """
        return self._commit(dict.fromkeys(partitions, -1), lambda: None, deadline, is_expired=True)

    def delete_group(self, deadline: float) -> str | None:
        """Delete the group and its offsets, if the offset manager serves that (Kafka 1.1 and later).

        Args:
            deadline: On the clock `time.monotonic`.

        Returns:
            Why it is not deleted, a clause; None if it is, or the manager does not know the group.
        """
        while True:
            consumer = self._connection(deadline)
            if consumer is not None:
                # 0.8 and 0.9 do not answer the question which requests they serve.
                if self._fetch_version < 2:
                    return "its offset manager is older than Kafka 1.1, and cannot delete groups"
                try:
                    if not consumer.dialect.serves_delete_groups(consumer.api_versions()):
                        return "its offset manager is older than Kafka 1.1, and cannot delete groups"
                    consumer.delete_group(self._group)
                    return None
                except BrokerError as error:
                    self.reason = str(error)
                    if not error.retriable:
                        return self.reason
                    self._drop()
                except (SimpleConsumerError, AuthenticationFailed) as error:
                    self._lost(error)
            if not self._may_try_again(deadline):
                return self.reason

    def _commit(
        self,
        offsets: Mapping[TopicPartition, int],
        refusal: Callable[[], str | None],
        deadline: float,
        why_not: Callable[[TopicPartition], str | None] = lambda _: None,
        rows: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({}),
        *,
        is_expired: bool = False,
    ) -> dict[TopicPartition, str]:
        left = dict(offsets)
        failed: dict[TopicPartition, str] = {}
        tries = 0
        while left:
            failed |= {name: why for name in left if (why := why_not(name)) is not None}
            left = {name: at for name, at in left.items() if name not in failed}
            names = list(left)[:_PARTITIONS_A_REQUEST]
            if not names:
                break
            reason = refusal()
            if reason is not None:
                return failed | dict.fromkeys(left, reason)
            codes = self._commit_once({name: left[name] for name in names}, refusal, deadline, rows, is_expired)
            refused = {} if codes is None else self._refused(codes)
            if codes is not None:
                for name in names:
                    if name not in codes:
                        del left[name]
                    elif not self._is_worth_another_try(codes[name]):
                        failed[name] = refused[name]
                        del left[name]
                if not codes:
                    continue
            tries += 1
            if left and (tries > self._settings.max_retries or not self._may_try_again(deadline)):
                return failed | {name: refused.get(name, self.reason) for name in left}
        return failed

    def _is_worth_another_try(self, code: int) -> bool:
        """A member that is still in its group commits under its next generation what it goes on to hold."""
        if self._committer is not None and code in _NEXT_GENERATION:
            return True
        return broker_error(code).retriable

    def _commit_once(
        self,
        offsets: Mapping[TopicPartition, int],
        refusal: Callable[[], str | None],
        deadline: float,
        rows: Mapping[TopicPartition, OffsetAndMetadata],
        is_expired: bool,
    ) -> dict[TopicPartition, int] | None:
        """Return the error codes of partitions that were refused; None when nothing is known."""
        consumer = self._connection(deadline)
        if consumer is None:
            return None
        # Asked before the fence is checked: else a member that was lost and has joined again in between would commit
        # under its new generation what it had decided under an old one.
        committing = None if self._committer is None else self._committer.member()
        if refusal() is not None:
            return None
        if self._committer is not None and committing is None:
            self.reason = "the group is rebalancing, or its coordinator has not confirmed the membership"
            return None
        self._counters.add("broker_requests", "offset_commit")
        try:
            if committing is not None:
                return self._commit_as(committing, consumer, offsets, rows)
            if is_expired:
                consumer.commit_offsets(self._group, offsets, version=1, timestamp_ms=_EXPIRED_MS)
            else:
                consumer.commit_offsets(self._group, offsets, version=self._commit_version)
        except BrokerError as error:
            return codes_of(error)
        except (SimpleConsumerError, AuthenticationFailed) as error:
            self._lost(error)
            return None
        return {}

    def _commit_as(
        self,
        member: GenerationMember,
        consumer: GroupOffsetClient,
        offsets: Mapping[TopicPartition, int],
        rows: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> dict[TopicPartition, int]:
        """Commit as a member of the present generation; what the coordinator does not take from it is reported."""
        committer = self._committer
        assert committer is not None
        wanted = {name: rows.get(name) or committer.notes.to_store(name, offset) for name, offset in offsets.items()}
        codes = {name: code for name, code in consumer.commit_offsets_as(member, wanted).items() if code}
        over = next((code for code in codes.values() if code in _GENERATION_OVER), None)
        if over is not None:
            committer.refused(member, over)
        return codes

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connection(self, deadline: float) -> GroupOffsetClient | None:
        """Return a connection to the offset manager; None, with `reason`, if there is none by now."""
        if self._closed.is_set():
            self.reason = "the consumer has shut down"
            return None
        if self._consumer is not None:
            return self._consumer
        manager = self._look_up(deadline)
        if manager is None:
            return None
        # The connection may serve later calls, too: then its time-out is not what this one has left.
        timeout_s = self._settings.timeout_s
        if self._settings.ends_at_deadline:
            timeout_s = min(timeout_s, max(deadline - time.monotonic(), 0.1))
        self._consumer = self._new_connection(manager, timeout_s)
        if self._closed.is_set():
            self._drop()
            return None
        return self._consumer

    def _new_connection(self, broker: Broker, timeout_s: float) -> GroupOffsetClient:
        settings, dialect = self._settings, dialect_of(broker)
        return GroupOffsetClient(
            broker.host, broker.port, timeout_s, settings.client_id, dialect=dialect, security=settings.security,
            on_throttle=counting(self._counters.add),
        )  # fmt: skip

    def _look_up(self, deadline: float) -> Broker | None:
        """Ask one broker after the other who is the offset manager."""
        brokers = list(self._read_brokers())
        self._rng.shuffle(brokers)
        self.reason = "no broker is registered that could report its offset manager"
        if brokers:
            self.reason = "no broker was asked in time for its offset manager"
        for broker in brokers:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._closed.is_set():
                break
            self._counters.add("broker_requests", "consumer_metadata")
            try:
                timeout_s = min(_LOOKUP_TIMEOUT_S, self._settings.timeout_s, max(left_s, 0.1))
                with self._new_connection(broker, timeout_s) as consumer:
                    named = consumer.consumer_metadata(self._group)
            except BrokerError as error:
                self.reason = f"broker {broker.id} does not report its offset manager: {error}"
            except (SimpleConsumerError, AuthenticationFailed) as error:
                self._counters.add("errors", "broker_connection")
                self.reason = f"broker {broker.id} does not report its offset manager: {error}"
                self._is_refused = isinstance(error, AuthenticationFailed)
                if self._is_refused:
                    break
            else:
                return self._registered(named, brokers)
        return None

    def _registered(self, named: Broker, brokers: Iterable[Broker]) -> Broker | None:
        """Return the named broker with the address and versions that it has registered."""
        for broker in brokers:
            if broker.id == named.id:
                self._commit_version = broker.commit_version
                self._fetch_version = broker.fetch_version
                return broker
        where = "in ZooKeeper" if self._committer is None else "with the cluster"
        self.reason = f"its offset manager, broker {named.id}, is not registered {where}"
        return None

    def _refused(self, codes: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        """Return the reasons for error codes; drop the connection if one says that the manager has moved."""
        if any(code in _MOVED for code in codes.values()):
            self._drop()
        refused = {name: str(BrokerError(code, name.topic, name.partition)) for name, code in codes.items()}
        if refused:
            self._counters.add("errors", "offset_manager", len(refused))
            self.reason = next(iter(refused.values()))
        return refused

    def _lost(self, error: SimpleConsumerError | AuthenticationFailed) -> str:
        self._drop()
        self._is_refused = isinstance(error, AuthenticationFailed)
        self._counters.add("errors", "broker_connection")
        self.reason = f"its offset manager: {error}"
        return self.reason

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _may_try_again(self, deadline: float) -> bool:
        """Wait for the back-off; return False at the deadline, when closed, or if brokers refuse the client."""
        if self._is_refused:
            return False
        if time.monotonic() + self._settings.backoff_s >= deadline:
            return False
        return not self._closed.wait(self._settings.backoff_s)


def codes_of(error: BrokerError) -> dict[TopicPartition, int]:
    """Return the error code of each partition that a request was refused for."""
    return {TopicPartition(str(each.topic), int(each.partition or 0)): each.code for each in (error, *error.also)}
