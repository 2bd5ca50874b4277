"""Asks the coordinator of a group of brokers, on two connections: JoinGroup and SyncGroup wait for other members.

A broker answers one connection in order. A heartbeat sent after a JoinGroup would come too late, so heartbeats and
LeaveGroup have a connection of their own; offsets have a third one (`zkconsumer.offsets.offset_manager`).

Source: groups that brokers coordinate: docs/REBALANCE.md; NetworkClient, AbstractCoordinator (Kafka 3.9).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from rebalance.brokers.events import Fence, Joined, JoinedMember, NamedMember, Refused, Synced
from rebalance.brokers.group_member import BrokerGroupMember
from rebalance.errors import GroupRefused
from rebalance.lease import lease_clock
from rebalance.rebalance_statistics import Counters
from simpleconsumer.calls.coordinator_client import CoordinatorClient, GroupOffsetClient
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError, VersionNotServed
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import counting
from simpleconsumer.types import Broker, GenerationMember, JoinedGroup, JoiningMember, LeavingMember
from zkconsumer.errors import ZkConsumerError
from zkconsumer.member.request_thread import RequestThread
from zkconsumer_error import ErrorCode

log = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_UP_S: Final = 5.0
"""Longest wait for one broker to name the coordinator; there are others to ask."""
_BEYOND_REBALANCE_S: Final = 5.0
"""How much longer than the rebalance time-out the answer to JoinGroup is waited for."""
_TOO_OLD: Final = (
    "no broker of the cluster is of Kafka 0.9 or later, and older brokers coordinate no groups: give "
    "zookeeper.connect instead of bootstrap.servers"
)
_NO_BROKERS: Final = (
    "the cluster reports no brokers: it has just started, or it is of Kafka 0.8 and has no topics yet; Kafka 0.8 "
    "coordinates no groups, so give zookeeper.connect instead of bootstrap.servers"
)
_REBALANCE_TIMEOUT_VERSION: Final = 1
_NAMES_MEMBERS_VERSION: Final = 4
"""The first version of JoinGroup in which a new member is answered at once, with the id that it is to join with."""
_JOIN_GROUP_KEY: Final = 11


class BrokerGroupPort:
    """The requests of one member; see `rebalance.brokers.events.GroupPort`.

    Args:
        member: Who asks.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for answers that wait for nobody.
        read_brokers: The brokers of the cluster; may raise a ZkConsumerError.
        failed: Called with an error that ends the member for good: refused credentials, and brokers that are too old.
        died: Called with the name of a thread that has ended by a fault of this library, and the fault.

    Threads: Any.
    """

    def __init__(
        self,
        member: BrokerGroupMember,
        client_id: str,
        timeout_s: float,
        read_brokers: Callable[[], Sequence[Broker]],
        counters: Counters,
        failed: Callable[[Exception], None],
        died: Callable[[str, BaseException], None],
        security: Security,
    ) -> None:
        self._member = member
        self._client_id = client_id
        # A heartbeat that is not answered for a third of the session is not waited for: another one may still help.
        self._timeout_s = min(timeout_s, max(member.session_s / 3, 1.0))
        self._join_timeout_s = member.rebalance_s + _BEYOND_REBALANCE_S
        self._read_brokers = read_brokers
        self._counters = counters
        self._failed = failed
        self._security = security
        self._rng = random.Random()
        self._coordinator: Broker | None = None
        self._was_coordinated = False
        self.rebalance_is_session = False
        self._names_members = False
        self._lock = threading.Lock()  # of what follows
        self._is_joining_unnamed = self._has_left_unnamed = False
        self._left_unnamed: Callable[[], None] | None = None
        name = f"zkconsumer-{member.consumer_id}"
        self._joins = RequestThread(
            f"{name}-join", lambda: self._client(self._join_timeout_s), lambda error: died("the joining thread", error)
        )
        self._beats = RequestThread(
            f"{name}-heartbeat", lambda: self._client(self._timeout_s),
            lambda error: died("the heartbeat thread", error),
        )  # fmt: skip

    def end_heartbeats(self) -> None:
        """End the heartbeat under way, so that a LeaveGroup does not wait for its answer."""
        self._beats.give_up_present()

    def close(self, timeout_s: float) -> None:
        """End both connections and threads, and wait for that."""
        until = lease_clock() + timeout_s
        self._joins.close(0.0)
        self._beats.close(timeout_s)
        self._joins.close(until - lease_clock())

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def find_coordinator(self, done: Callable[[Refused | None], None]) -> None:
        """Ask one broker after the other who coordinates the group."""
        self._coordinator = None
        self._joins.restart()
        self._beats.restart()

        def find() -> None:
            refused = self._find()
            done(refused)

        self._beats.ask(lambda client: find(), find)  # no connection is there, and none is needed

    def _client(self, timeout_s: float) -> CoordinatorClient | None:
        broker = self._coordinator
        if broker is None:
            return None
        return CoordinatorClient(
            broker.host, broker.port, timeout_s, self._client_id, dialect=dialect_of(broker), security=self._security,
            connect_timeout_s=self._timeout_s, on_throttle=counting(self._counters.add),
        )  # fmt: skip

    def _find(self) -> Refused | None:
        """Look the coordinator up; return why it is not known, None if it is."""
        try:
            brokers = list(self._read_brokers())
        except ZkConsumerError as error:
            return Refused(None, str(error))
        if brokers and not self._was_coordinated and not any(map(coordinates_groups, brokers)):
            self._failed(GroupRefused(self._member.group, _TOO_OLD))
            return Refused(None, _TOO_OLD)
        self._rng.shuffle(brokers)
        refused = Refused(None, _NO_BROKERS)
        for broker in brokers:
            self._counters.add("broker_requests", "find_coordinator")
            try:
                with GroupOffsetClient(
                    broker.host, broker.port, min(_LOOK_UP_S, self._timeout_s), self._client_id,
                    dialect=dialect_of(broker), security=self._security,
                ) as client:  # fmt: skip
                    named = client.consumer_metadata(self._member.group)
            except BrokerError as error:
                refused = Refused(error.code, f"broker {broker.id} does not report the coordinator: {error}")
                if error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    return refused
            except AuthenticationFailed as error:
                self._failed(error)
                return Refused(None, str(error))
            except SimpleConsumerError as error:
                self._counters.add("errors", "broker_connection")
                refused = Refused(None, f"broker {broker.id} does not report the coordinator: {error}")
            else:
                found = next((each for each in brokers if each.id == named.id), None)
                if found is None:
                    return Refused(
                        ErrorCode.COORDINATOR_NOT_AVAILABLE,
                        f"the coordinator, broker {named.id}, is not known to the cluster",
                    )
                return self._use(found)
        return refused

    def _use(self, broker: Broker) -> Refused | None:
        """Find out whether the coordinator knows rebalance time-outs; take it as such."""
        dialect = dialect_of(broker)
        self.rebalance_is_session, self._names_members = True, False
        if dialect.chooses_versions:
            try:
                with CoordinatorClient(
                    broker.host, broker.port, self._timeout_s, self._client_id, dialect=dialect,
                    security=self._security,
                ) as client:  # fmt: skip
                    served = client.served_versions().get(_JOIN_GROUP_KEY, range(1))
            except AuthenticationFailed as error:
                self._failed(error)
                return Refused(None, str(error))
            except SimpleConsumerError as error:
                return Refused(None, f"the coordinator, broker {broker.id}, does not answer: {error}")
            self.rebalance_is_session = _REBALANCE_TIMEOUT_VERSION not in served
            self._names_members = _NAMES_MEMBERS_VERSION in served
        self._coordinator = broker
        self._was_coordinated = True
        log.debug(
            "group %s is coordinated by broker %d at %s:%d", self._member.group, broker.id, broker.host, broker.port
        )
        return None

    # -- requests ------------------------------------------------------------------------------------------------------

    def join_group(
        self,
        member_id: str,
        protocols: Sequence[tuple[str, bytes]],
        done: Callable[[Joined | NamedMember | Refused], None],
    ) -> None:
        """Join the next generation; a JoinGroup that is under way is given up."""
        member = self._member
        who = JoiningMember(member.group, member_id, member.instance_id)

        def ask(client: CoordinatorClient) -> None:
            is_unnamed = not member_id and member.instance_id is None and self._names_members
            if is_unnamed:
                with self._lock:
                    self._is_joining_unnamed = not self._has_left_unnamed
                    if self._has_left_unnamed:
                        return
            session_ms, rebalance_ms = round(member.session_s * 1000), round(member.rebalance_s * 1000)
            answer = self._answer("join_group", lambda: client.join_group(who, protocols, session_ms, rebalance_ms))
            if is_unnamed:
                self._leave_if_wanted(client, "" if isinstance(answer, Refused) else answer.member_id)
            done(answer if isinstance(answer, Refused) else _joined(answer))

        self._joins.give_up_present()
        self._joins.ask(ask, lambda: done(_UNKNOWN))

    def sync_group(
        self, fence: Fence, assignments: Mapping[str, bytes], done: Callable[[float, Synced | Refused], None]
    ) -> None:
        """Ask for the assignment."""

        def ask(client: CoordinatorClient) -> None:
            sent_at = lease_clock()
            answer = self._answer("sync_group", lambda: client.sync_group(self.member_of(fence), assignments))
            if isinstance(answer, Refused):
                done(sent_at, answer)
                return
            code, data = answer
            done(sent_at, Refused(code, _shown(code)) if code else Synced(bytes(data)))

        self._joins.ask(ask, lambda: done(lease_clock(), _UNKNOWN))

    def heartbeat(self, fence: Fence, done: Callable[[float, Refused | None], None]) -> None:
        """Tell the coordinator that the member is alive."""

        def ask(client: CoordinatorClient) -> None:
            sent_at = lease_clock()
            answer = self._answer("heartbeat", lambda: client.heartbeat(self.member_of(fence)))
            if isinstance(answer, Refused):
                done(sent_at, answer)
            else:
                done(sent_at, Refused(answer, _shown(answer)) if answer else None)

        self._beats.ask(ask, lambda: done(lease_clock(), _UNKNOWN))

    def leave_group(self, member_id: str, reason: str, done: Callable[[], None]) -> None:
        """Take the member out of the group.

        Without an id, take out the member that a JoinGroup in flight creates, as soon as the answer names it: the group
        would wait for that member until the end of its session.
        """
        if not member_id:
            with self._lock:
                self._has_left_unnamed = True
                if self._is_joining_unnamed:
                    self._left_unnamed = done
                    return
            done()
            return
        who = LeavingMember(member_id, self._member.instance_id)

        def ask(client: CoordinatorClient) -> None:
            self._answer("leave_group", lambda: client.leave_group(self._member.group, who))
            done()

        self._beats.ask(ask, done)

    def _leave_if_wanted(self, client: CoordinatorClient, member_id: str) -> None:
        """Leave the group under the id that JoinGroup has just named, if the member has left meanwhile."""
        with self._lock:
            self._is_joining_unnamed = False
            left, self._left_unnamed = self._left_unnamed, None
        if left is None:
            return
        if member_id:
            who = LeavingMember(member_id)
            self._answer("leave_group", lambda: client.leave_group(self._member.group, who))
        left()

    def member_of(self, fence: Fence) -> GenerationMember:
        """Return the member in a generation, as requests name it."""
        return GenerationMember(self._member.group, fence.generation, fence.member_id, self._member.instance_id)

    def _answer(self, kind: str, ask: Callable[[], T]) -> T | Refused:
        """Return the answer to a request, or why there is none."""
        self._counters.add("broker_requests", kind)
        try:
            return ask()
        except BrokerError as error:
            return Refused(error.code, str(error))
        except AuthenticationFailed as error:
            self._failed(error)
            return Refused(None, str(error))
        except VersionNotServed as error:
            return Refused(ErrorCode.UNSUPPORTED_VERSION, str(error))
        except SimpleConsumerError as error:
            self._counters.add("errors", "broker_connection")
            return Refused(None, str(error))


_UNKNOWN: Final = Refused(None, "no coordinator is known")


def _joined(answer: JoinedGroup) -> Joined | NamedMember | Refused:
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return NamedMember(answer.member_id)
    if answer.error_code:
        return Refused(answer.error_code, _shown(answer.error_code))
    members = tuple(JoinedMember(each.member_id, each.metadata, each.instance_id) for each in answer.members)
    return Joined(Fence(answer.generation, answer.member_id), answer.protocol, answer.leader, members)


def _shown(code: int) -> str:
    return str(BrokerError(code, None, None))
