"""The coordinator of all groups of an embedded cluster: keeps them in a log, and answers requests that waited.

It is on the broker that leads `__consumer_offsets`, and begins with what the log holds: a group that was stable goes on
in the same generation with the same members, whose sessions begin anew. When another broker leads, all who wait are
sent there.

Source: kafka.coordinator.group.GroupCoordinator, GroupMetadataManager (0.9, 1.1, 2.8).

A request of a member that waits for its answer, on the thread of its connection; other connections go on.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from zkconsumer.testing.embedded.broker import NoAnswer
from zkconsumer.testing.embedded.cluster_image import Cluster
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.group import Group
from zkconsumer.testing.embedded.group_values import GroupRules, GroupState, Join, Joined, Reply, Sync, Synced, Who
from zkconsumer.testing.embedded.kafka011.group_log import GroupLog, RecordFormats, now_ms
from zkconsumer.testing.embedded.kafka011.group_records import (
    StoredOffset,
    as_members_see_it,
    record_of,
    restored,
    translated,
)
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode


class Parked:
    """One request.

    Threads: one waits, any other one answers.
    """

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: Joined | Synced | None = None

    def give(self, answer: Joined | Synced | None) -> None:
        """Have the request answered; None: it gets no answer, and its connection is closed."""
        self._answer = answer
        self._done.set()

    def wait(self) -> Joined | Synced:
        """Return the answer, once there is one. A client that is gone meanwhile is noticed when it is sent.

        Raises:
            NoAnswer: there will be none: a later request of the member took its place, and the broker ends now.
        """
        self._done.wait()
        if self._answer is None:
            raise NoAnswer("a later request of the same member has taken its place")
        return self._answer


_log = logging.getLogger(__name__)
_now: Final = time.monotonic


class CoordinatingHost(Protocol):
    """The interface of a broker to its coordinator."""

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""

    def log(self, topic: str, partition: int) -> BatchLog:
        """The log of a partition that is led here; Refusal 3 or 6 otherwise."""


class Leaving(NamedTuple):
    """A member that leaves: its id, empty for a static one that is named by its instance id."""

    member_id: str
    instance_id: str | None = None


class Listed(NamedTuple):
    """A group in a list."""

    name: str
    protocol_type: str
    state: GroupState


class DescribedMember(NamedTuple):
    """A member of a group, as tools see it: its metadata and assignment while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    metadata: bytes
    assignment: bytes


class Described(NamedTuple):
    """A group as tools see it: the assignor while it is stable."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]


class GroupCoordinator:
    """The groups of one broker, as long as it leads their topic.

    Threads: every method from any thread; `join` and `sync` return when the group has an answer. One of its own ends
    sessions and waits that are over.
    """

    def __init__(
        self,
        host: CoordinatingHost,
        rules: GroupRules,
        formats: RecordFormats,
        loading_wait: Callable[[], Callable[[], None] | None],
    ) -> None:
        """Coordinate nothing yet.

        Args:
            rules: how groups are coordinated.
            formats: in which formats they are stored.
            loading_wait: returns what to wait for before groups are loaded; None to load them at once.
        """
        self._host = host
        self._rules = rules
        self._formats = formats
        self._loading_wait = loading_wait
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._log: BatchLog | None = None
        self._stored: GroupLog | None = None
        self._groups: dict[str, Group] = {}
        self._parked: dict[str, list[Parked]] = {}
        self._abandoned: list[Parked] = []

    # ---- what it coordinates

    def take_over(self, log: BatchLog) -> None:
        """Coordinate the groups in a log from now on; does nothing if it is the one of now."""
        with self._lock:
            if self._log is log:
                return
            self.give_up()
            self._log = log
            wait = self._loading_wait()
            if wait is None:
                self._load(log)
            else:
                threading.Thread(target=self._load, args=(log, wait), name="group loader", daemon=True).start()

    def _load(self, log: BatchLog, wait: Callable[[], None] = lambda: None) -> None:
        wait()
        with self._lock:
            if self._log is not log:
                return
            try:
                self._stored = GroupLog(log, self._formats)
            except Refusal as refusal:
                _log.info("groups are coordinated elsewhere: %s", refusal)
                return
            for name in self._stored.names:
                record = self._stored.groups.get(name)
                if record is not None or self._rules.keeps_empty_groups:
                    self._groups[name] = restored(self._new_group(), record, _now())
        threading.Thread(target=self._keep, args=(log,), name="group keeper", daemon=True).start()

    def give_up(self) -> None:
        """Coordinate nothing any more: who waits is sent to another broker."""
        with self._lock:
            groups, self._groups = self._groups, {}
            self._log = self._stored = None
            for name, group in groups.items():
                self._answer(name, group, group.close(ErrorCode.NOT_COORDINATOR))
            for each in self._abandoned:
                each.give(None)
            self._abandoned.clear()
            self._changed.notify_all()

    def _new_group(self) -> Group:
        return Group(self._rules, lambda: str(uuid.uuid4()))

    def _coordinate(self, group: str | None, *, may_be_empty: bool = False) -> GroupLog:
        """Return what is stored.

        Raises:
            Refusal: 24 the name of the group is empty, 16 another broker coordinates, 14 groups are being loaded.
        """
        if not group and not may_be_empty:
            raise Refusal(ErrorCode.INVALID_GROUP_ID, "a group without a name")
        try:
            log = self._host.log(OFFSETS_TOPIC, 0)
        except Refusal as refusal:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"{OFFSETS_TOPIC}/0 is not led here") from refusal
        self.take_over(log)
        if self._stored is None:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "groups are being loaded")
        return self._stored

    # ---- requests of members

    def join(self, name: str, asked: Join) -> Joined:
        """Return the answer to JoinGroup, when the group has one.

        Raises:
            Refusal: 14, 16 and 24 as every request. NoAnswer: the member has asked again meanwhile.
        """
        with self._lock:
            stored = self._coordinate(name)
            group = self._groups.get(name)
            if group is None:
                if asked.member_id:
                    return Joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id=asked.member_id)
                group = self._new_group()
                if self._rules.stores_new_groups:
                    with as_members_see_it():
                        stored.store_group(name, record_of(group, now_ms()))
            request = self._park(name)
            replies = group.join(asked, request, _now())
            if group.members or self._rules.keeps_empty_groups:
                self._groups.setdefault(name, group)
            self._settle(name, group, replies)
        answer = request.wait()
        assert isinstance(answer, Joined)
        return answer

    def sync(self, name: str, asked: Sync) -> Synced:
        """Return the answer to SyncGroup, when the group has one; as for `join`."""
        with self._lock:
            self._coordinate(name)
            group = self._groups.get(name)
            if group is None:
                return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
            request = self._park(name)
            self._settle(name, group, group.sync(asked, request, _now()))
        answer = request.wait()
        assert isinstance(answer, Synced)
        return answer

    def heartbeat(self, name: str, who: Who) -> int:
        """Return the error code of a heartbeat; Refusal as for `join`."""
        with self._lock:
            self._coordinate(name)
            group = self._groups.get(name)
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else group.heartbeat(who, _now())
            self._changed.notify_all()
            return code

    def leave(self, name: str, leaving: Sequence[Leaving]) -> list[int]:
        """Return the error code of each member that leaves; Refusal as for `join`."""
        with self._lock:
            self._coordinate(name)
            group = self._groups.get(name)
            if group is None:
                return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
            codes = []
            for each in leaving:
                code, replies = group.leave(each.member_id, each.instance_id, _now())
                codes.append(code)
                self._settle(name, group, replies)
            return codes

    # ---- offsets

    def commit(self, name: str, who: Who, offsets: Mapping[TopicPartition, StoredOffset]) -> int:
        """Return the error code of a commit; 0: its offsets are stored. Refusal as for `join`."""
        with self._lock:
            stored = self._coordinate(name, may_be_empty=True)
            group = self._groups.get(name)
            if group is None:
                if who.generation >= 0:
                    return ErrorCode.ILLEGAL_GENERATION
                group = self._new_group()
                if self._rules.keeps_empty_groups:
                    self._groups[name] = group
            else:
                code = group.may_commit(who, _now())
                if code:
                    return code
            try:
                if offsets:
                    stored.store_offsets(name, offsets, self._host.cluster.image.topic_ids)
            except Refusal as refusal:
                return translated(refusal.code)
            finally:
                self._changed.notify_all()
            return 0

    def offsets(self, name: str) -> dict[TopicPartition, StoredOffset]:
        """Return the stored offsets of a group; Refusal as for `join`."""
        with self._lock:
            return dict(self._coordinate(name, may_be_empty=True).offsets(name))

    # ---- what tools ask

    def described(self, name: str) -> Described | None:
        """Return a group as it is; None without one. Refusal as for `join`."""
        with self._lock:
            self._coordinate(name, may_be_empty=True)
            group = self._groups.get(name)
            if group is None:
                return None
            protocol = group.protocol if group.state is GroupState.STABLE else ""
            members = tuple(
                DescribedMember(
                    each.member_id, each.instance_id, each.client_id, each.host,
                    each.protocols.get(protocol, b"") if protocol else b"", each.assignment if protocol else b"",
                )
                for each in group.members.values()
            )  # fmt: skip
            return Described(group.state, group.protocol_type, protocol, members)

    def listed(self) -> list[Listed]:
        """Return the groups, in the order of their names; Refusal as for `join`."""
        with self._lock:
            self._coordinate(None, may_be_empty=True)
            return [Listed(name, each.protocol_type, each.state) for name, each in sorted(self._groups.items())]

    def waiting(self, name: str) -> int:
        """Return how many requests of a group wait for their answers."""
        with self._lock:
            return len(self._parked.get(name, ()))

    @property
    def abandoned(self) -> int:
        """How many requests are never answered, since a later one of their member has taken their place."""
        with self._lock:
            return len(self._abandoned)

    def delete(self, name: str) -> int:
        """Return the error code of a group that is to be deleted with its offsets; Refusal as for `join`."""
        with self._lock:
            stored = self._coordinate(name, may_be_empty=True)
            group = self._groups.get(name)
            if group is None:
                return ErrorCode.GROUP_ID_NOT_FOUND
            if group.state is not GroupState.EMPTY:
                return ErrorCode.NON_EMPTY_GROUP
            with as_members_see_it():
                stored.forget_group(name, offsets=list(stored.offsets(name)))
            del self._groups[name]
            self._answer(name, group, group.close(self._rules.dead_code))
            return 0

    # ---- answers

    def _park(self, name: str) -> Parked:
        request = Parked()
        self._parked.setdefault(name, []).append(request)
        return request

    def _settle(self, name: str, group: Group, replies: list[Reply]) -> None:
        """Store what a group has become, and answer those who need not wait any longer."""
        if group.is_changed:
            group.is_changed = False
            try:
                self._store(name, group)
            except Refusal as refusal:
                # The assignments are lost: all members join again.
                code = translated(refusal.code, of_group=True)
                lost = [each._replace(answer=Synced(code)) for each in replies if isinstance(each.answer, Synced)]
                kept = [each for each in replies if not isinstance(each.answer, Synced)]
                replies = [*lost, *kept, *group.not_stored(_now())]
        self._answer(name, group, replies)
        if group.state is GroupState.DEAD:
            self._groups.pop(name, None)
        self._changed.notify_all()

    def _store(self, name: str, group: Group) -> None:
        assert self._stored is not None
        if group.state is GroupState.DEAD:
            self._stored.forget_group(name)
        else:
            self._stored.store_group(name, record_of(group, now_ms()))

    def _answer(self, name: str, group: Group, replies: list[Reply]) -> None:
        for reply in replies:
            assert isinstance(reply.request, Parked)
            reply.request.give(reply.answer)
        answered = {id(reply.request) for reply in replies}
        waiting = {id(each) for member in group.members.values() for each in (member.join, member.sync)}
        left = [each for each in self._parked.pop(name, []) if id(each) not in answered]
        # A request of which a later one has taken the place is never answered, as by Kafka.
        self._abandoned += [each for each in left if id(each) not in waiting]
        still = [each for each in left if id(each) in waiting]
        if still:
            self._parked[name] = still

    # ---- time

    def _keep(self, log: BatchLog) -> None:
        """End sessions and waits that are over, as long as these groups are coordinated here."""
        with self._changed:
            while self._log is log:
                now = _now()
                for name, group in list(self._groups.items()):
                    due = group.due_at()
                    if due is not None and due <= now:
                        self._settle(name, group, group.tick(now))
                times = [due for group in self._groups.values() if (due := group.due_at()) is not None]
                self._changed.wait(max(min(times) - _now(), 0.0) if times else None)
