"""Watches a group's owner and offset nodes in ZooKeeper, and records their changes as events."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history.events import Event, Place, partition_of
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.client import KitClient, connected_client
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

if TYPE_CHECKING:
    from zkconsumer.testing.cluster import Cluster

SESSION_S = 30.0
CONNECT_S = 30.0


@dataclass(frozen=True)
class Owner:
    """An owner node: the thread in it, the transaction that created it, the session it belongs to."""

    thread_id: str
    czxid: int
    session_id: int

    @property
    def member_id(self) -> str:
        """The id of the member that the thread belongs to."""
        return self.thread_id.rpartition("-")[0]


def owners(client: KazooClient, group: str, places: Sequence[Place]) -> dict[Place, Owner]:
    """The owner nodes that are there."""
    asked = {place: client.get_async(f"/consumers/{group}/owners/{place[0]}/{place[1]}") for place in places}
    found = {}
    for place, answer in asked.items():
        try:
            data, stat = answer.get(timeout=10)
        except NoNodeError:
            continue
        found[place] = Owner(data.decode(), stat.czxid, stat.ephemeralOwner)
    return found


def owned_by(client: KazooClient, group: str, member_id: str) -> list[Place]:
    """The partitions of all topics whose owner nodes name a thread of this member, in order."""
    root = f"/consumers/{group}/owners"
    try:
        topics = client.get_children(root)
    except NoNodeError:
        return []
    places = []
    for answer in [(topic, client.get_children_async(f"{root}/{topic}")) for topic in topics]:
        try:
            places += [(answer[0], partition_of(partition)) for partition in answer[1].get(timeout=10)]
        except NoNodeError:  # deleted in the meantime
            continue
    return sorted(place for place, owner in owners(client, group, places).items() if owner.member_id == member_id)


def wait_owned(
    client: KazooClient, group: str, places: Sequence[Place], shares: Mapping[str, int], timeout_s: float = 30.0
) -> dict[Place, Owner]:
    """The owner nodes, once every partition has one and each member (by its id) has its share of them."""

    def as_shared() -> dict[Place, Owner] | None:
        found = owners(client, group, places)
        counts = Counter(owner.member_id for owner in found.values())
        return found if len(found) == len(places) and counts == Counter(shares) else None

    found = wait_until(
        as_shared, timeout_s, f"group {group} to share {len(places)} partitions as {dict(shares)}",
        state=lambda: {place: owner.thread_id for place, owner in owners(client, group, places).items()},
    )  # fmt: skip
    assert found is not None
    return found


class GroupWatch:
    """Records when an owner node is deleted or replaced, and each value of an offset node (-1: no number).

    A look that comes late, as after an outage, sees what is there then: a member that has lost a node and made it anew
    in the meantime has it, and nothing is written down.

    Attributes:
        events: The observed events, in order.
        refusals: Sentences about nodes that were closed while they were watched; events of theirs are missing.

    Threads: events come from the client's threads; a list's `append` is atomic.
    """

    def __init__(
        self, connect: Cluster | str, group: str, places: Sequence[Place], *, login: ZooKeeperLogin | None = None
    ) -> None:
        """Prepare; nothing is watched before the `with` block.

        Args:
            connect: A cluster, or a connect string for consumers.
            group: Its `group.id`.
            places: The partitions to watch.
            login: How to authenticate to ZooKeeper; None takes the cluster's.
        """
        self.events: list[Event] = []
        self._group = group
        self._places = list(places)
        where = connect if isinstance(connect, str) else connect.zookeeper_connect
        chosen = login if login is not None or isinstance(connect, str) else connect.login
        self._where, self._login = where, chosen
        self._client: KitClient | None = None
        self.refusals: list[str] = []
        self._holders: dict[Place, str] = {}

    def __enter__(self) -> Self:
        """Start to watch.

        Raises:
            NoSession: ZooKeeper did not answer, or refused the login.
            NodeRefused: A node may not be read.
        """
        self._client = connected_client(self._where, self._login, session_s=SESSION_S, timeout_s=CONNECT_S)
        self.refusals = self._client.refusals
        try:
            for topic, partition in self._places:
                self._watch_owner(self._client, (topic, partition))
                self._watch_offset(self._client, (topic, partition))
        except BaseException:
            self._end()  # or its threads would go on
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to watch.

        Raises:
            KitError: A node was closed in the meantime, so that events are missing; not over another error.
        """
        if self._client is not None and error is None:
            self._client.check_readable(path for place in self._places for path in self._paths(place))
        self._end()
        if self.refusals and error is None:
            raise KitError(f"the watch of group {self._group} misses events: {self.refusals[0]}")

    def _end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.stop()
            client.close()

    def owner(self, place: Place) -> str | None:
        """The name (`consumer.id`) of the member that owns a partition."""
        holder = self._holders.get(place)
        return None if holder is None else self._name(holder)

    def _name(self, member_id: str) -> str:
        return member_id.removeprefix(f"{self._group}_")

    def _watch_owner(self, client: KitClient, place: Place) -> None:
        def seen(data: bytes | None, stat: Any) -> None:
            before = self._holders.pop(place, None)
            after = None if data is None else data.decode().rpartition("-")[0]
            if before is not None and before != after:
                self.events.append(Event(time.monotonic_ns(), "owner_gone", self._name(before), *place))
            if after is not None:
                self._holders[place] = after

        client.DataWatch(self._paths(place)[0], seen)

    def _watch_offset(self, client: KitClient, place: Place) -> None:
        def seen(data: bytes | None, stat: Any) -> None:
            if data is not None:
                value = int(data) if data.isdigit() else -1
                self.events.append(Event(time.monotonic_ns(), "offset_node", "", *place, value))

        client.DataWatch(self._paths(place)[1], seen)

    def _paths(self, place: Place) -> tuple[str, str]:
        """The owner node and the offset node of a partition."""
        topic, partition = place
        group = f"/consumers/{self._group}"
        return f"{group}/owners/{topic}/{partition}", f"{group}/offsets/{topic}/{partition}"
