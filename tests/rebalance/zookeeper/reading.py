"""A reader of a group without the rest of a member, members that come and go beside it, and nodes closed to it."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator

from asking import Asker
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.group_reader import GroupReader
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy
from rebalance.zookeeper.znodes_07 import GENERATION_08, ChosenGeneration, Generation
from zkconsumer.testing.waiting import wait_until

__all__ = ["Reading", "closed_to_readers", "join", "leave"]


class Reading:
    """A reader with a member's subscription; counts what it asks for and hears of changes."""

    def __init__(
        self,
        connect: str,
        group: str,
        subscription: Subscription,
        strategy: Strategy | None = None,
        session_s: float = 10.0,
        needs_owners: Callable[[GroupSnapshot], bool] = lambda _: False,
        generation: Generation = GENERATION_08,
    ) -> None:
        self.asker = Asker(connect, session_s)
        self.group = group
        self.changes: list[str] = []
        member = RegisteredMember(
            group, "me", subscription, strategy=strategy or Strategy(), generation=ChosenGeneration(generation)
        )
        self.reader = GroupReader(
            self.asker.ask, self.asker.loop, member, self.changes.append, random.Random(group), needs_owners
        )

    def read(self) -> GroupSnapshot:
        before = len(self.asker.sent)
        snapshot, reason = self.asker.outcome(self.reader.read)
        assert snapshot is not None, reason
        self.asked = Counter(type(request) for request in self.asker.sent[before:])
        assert isinstance(snapshot, GroupSnapshot)
        return snapshot

    def changed(self, path: str) -> None:
        wait_until(lambda: path in self.changes, 5.0, f"word of {path}", state=lambda: self.changes)
        self.changes.clear()


def join(
    client: KazooClient, group: str, name: str, subscription: Subscription, generation: Generation = GENERATION_08
) -> None:
    data = generation.format_registration(subscription.to_registration(1))
    client.create(znodes.registration_path(group, name), data, ephemeral=True)


def leave(client: KazooClient, group: str, name: str) -> None:
    client.delete(znodes.registration_path(group, name))


@contextlib.contextmanager
def closed_to_readers(client: KazooClient, path: str) -> Iterator[None]:
    """Let nobody read a node; open again behind it, as other tests read all topics and groups of this server."""
    client.set_acls(path, [make_acl("world", "anyone", delete=True, admin=True)])
    try:
        yield
    finally:
        client.retry(client.set_acls, path, OPEN_ACL_UNSAFE)
