"""Reads the group from ZooKeeper: members and topics, each node with a watch, and only what may have changed.

It knows which nodes the assignment depends on, and which of them are stale. Rules, and which failure each prevents:
- A watch is set by the same read whose result it guards; its callback only posts. A change cannot come in between.
- Registrations are cached by name and trusted only while the `cversion` of `ids` has advanced by exactly the joins and
  leaves that were seen: a member with a fixed id can leave and return with another subscription in between.
- A node that ZooKeeper refuses to let this member read does not end the read: the refusal is part of the result, and
  `rebalance.zookeeper.refused_nodes` asks for the node again.

Source: docs/SEMANTICS.md, "Quiet on ZooKeeper"; docs/REBALANCE.md, "What cannot be read".
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rebalance.errors import RefusedNode, UnreadableNode, UnsupportedFilter
from rebalance.loop import Loop
from rebalance.subscription import Partition, Subscription
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask
from rebalance.zookeeper.events import RegisteredMember
from rebalance.zookeeper.owner_audit import JAVA_VERSION, OwnerReading
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, GetData, Reply, WatchEvent
from rebalance.zookeeper.refused_nodes import RefusedNodes
from rebalance.zookeeper.snapshot import GroupSnapshot, OwnerNode, TopicNode
from rebalance.zookeeper.znodes_07 import BrokersReading

log = logging.getLogger(__name__)

MOST_DOUBTED: Final = 10
"""Topics that one round of the self-audit has read again; the next round goes on with the others."""

Done = Callable[[GroupSnapshot | None, str], None]


class GroupReader:
    """The nodes of one group as one member last read them.

    Args:
        ask: sends requests.
        loop: where watch callbacks post to.
        member: its group; its subscription says which topics matter, its strategy whether those of others do, and its
            times when nodes that may not be read are asked for again.
        changed: called on the coordinator's thread with the reason when something read before is stale.
        rng: source of jitter.
        needs_owners: whether the owner nodes are to be read, too, by the snapshot of the group.

    Threads: the coordinator's alone, but for the watch callbacks, which only post.
    """

    def __init__(
        self,
        ask: Ask,
        loop: Loop,
        member: RegisteredMember,
        changed: Callable[[str], None],
        rng: random.Random,
        needs_owners: Callable[[GroupSnapshot], bool] = lambda _: False,
    ) -> None:
        self._ask = ask
        self._loop = loop
        self._ids = znodes.ids_path(member.group)
        self._group = member.group
        self._subscription = member.subscription
        self._strategy = member.strategy
        self._generation = member.generation
        self._changed = changed
        self._fresh: set[str] = set()
        self._members: dict[str, Subscription | UnreadableNode | UnsupportedFilter | RefusedNode] = {}
        self._created_ms: dict[str, int] = {}
        self._java_members: set[str] = set()
        self._needs_owners = needs_owners
        self._cversion = -1
        self._group_version = 0
        self._known_topics: frozenset[str] | None = None
        self._topics: dict[str, TopicNode] = {}
        self._refused: dict[str, RefusedNode] = {}  # of lists and topics, by path
        self._refusals = RefusedNodes(ask, loop, member.times, rng, changed)
        self._read: _Read | None = None
        self._doubted = 0

    def read(self, done: Done) -> None:
        """Read the list of members and whatever is stale; `done(snapshot, "")`, or `done(None, reason)`.

        A later call makes an earlier one fall silent.
        """
        self.stop()
        self._refusals.hurry()
        self._read = _Read(self, done)
        self._read.start()

    def forget_watches(self) -> None:
        """Take everything for stale: the connection was lost, and the ZooKeeper client has dropped all watches."""
        self._fresh.clear()
        self._refusals.clear()
        if self._read is not None:
            self._read.silent = True

    def doubt(self) -> None:
        """Read some topics again with the next read, and for a filter the list of topics, in case a watch was lost.

        ZooKeeper from 3.9.2 on reports no change of a node to a watcher that may not read it at that moment.
        """
        self._fresh.discard(znodes.TOPICS)
        topics = self._my_topics()
        first = self._doubted if self._doubted < len(topics) else 0
        self._doubted = first + MOST_DOUBTED
        for topic in topics[first : self._doubted]:
            self._fresh.discard(znodes.topic_path(topic))

    def session_over(self) -> None:
        """Read every registration again: a ZooKeeper that lost its data counts changes from zero.

        The list and its `cversion` may then be the same, and the registrations different.
        """
        self._cversion = -1

    def stop(self) -> None:
        """Report nothing of a read that is under way: its caller wants something else by now."""
        if self._read is not None and not self._read.silent:
            # Its answers will be dropped, so none of its requests may count as answered.
            self.forget_watches()

    # -- watches: any thread ---------------------------------------------------------------------------------------

    def _node_changed(self, event: WatchEvent) -> None:
        self._loop.post(self._stale, event.path)

    def _number_changed(self, event: WatchEvent) -> None:
        """Read a topic of Kafka 0.7 again: the node of one of its brokers has changed."""
        self._loop.post(self._stale, event.path.rpartition("/")[0])

    def _stale(self, path: str) -> None:
        if path in self._fresh:
            self._fresh.discard(path)
            self._changed(path)

    # -- the inputs of the assignment ------------------------------------------------------------------------------

    def _needs_topic_list(self) -> bool:
        if self._subscription.is_wildcard:
            return True
        # roundrobin has a precondition over every topic that any member subscribes to.
        others = (member for member in self._members.values() if isinstance(member, Subscription))
        return self._strategy.name == "roundrobin" and any(member.is_wildcard for member in others)

    def _my_topics(self) -> list[str]:
        known = self._known_topics if self._known_topics is not None else frozenset[str]()
        return self._subscription.topics(known, self._strategy.exclude_internal_topics)

    def snapshot(self) -> GroupSnapshot:
        """The group as last read."""
        good: dict[str, Subscription] = {}
        refused: dict[str, RefusedNode] = {}
        unreadable: dict[str, str] = {}
        untranslatable: dict[str, str] = {}
        for name, member in self._members.items():
            if isinstance(member, RefusedNode):
                refused[name] = member
            elif isinstance(member, UnreadableNode):
                unreadable[name] = str(member)
            elif isinstance(member, UnsupportedFilter):
                untranslatable[name] = str(member)
            else:
                good[name] = member
        mine = set(self._my_topics())
        refused_topics = {
            topic: self._refused[path] for topic in mine if (path := znodes.topic_path(topic)) in self._refused
        }
        return GroupSnapshot(
            members=good,
            topics={topic: node for topic, node in self._topics.items() if topic in mine - refused_topics.keys()},
            known_topics=self._known_topics,
            unreadable=unreadable,
            untranslatable=untranslatable,
            group_version=self._group_version,
            refused_members=refused,
            refused_topics=refused_topics,
            refused_members_list=self._refused.get(self._ids),
            refused_topics_list=self._refused.get(znodes.TOPICS),
            created_ms={name: self._created_ms[name] for name in self._members if name in self._created_ms},
            java_members=frozenset(self._java_members & good.keys()),
        )


class _Read:
    """One pass over the stale nodes; an answer may lead to further requests."""

    def __init__(self, reader: GroupReader, done: Done) -> None:
        self.silent = False
        self._reader = reader
        self._done = done
        self._open = 0

    def start(self) -> None:
        reader = self._reader
        self._opened()
        self._read_members()
        if reader._subscription.is_wildcard:
            self._read_topic_list()
        else:
            self._read_topics()
        self._closed()

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self._open += 1

    def _closed(self) -> None:
        self._open -= 1
        if self._open == 0 and not self.silent:
            reader = self._reader
            snapshot = reader.snapshot()
            if reader._needs_owners(snapshot):
                OwnerReading(reader._ask, reader._group, snapshot, self._owners_read, self._fail).start()
            else:
                self._finish(snapshot)

    def _owners_read(self, owners: dict[Partition, OwnerNode] | None, java_members: frozenset[str]) -> None:
        if not self.silent:
            self._reader._java_members &= java_members
            self._finish(replace(self._reader.snapshot(), owners=owners))

    def _finish(self, snapshot: GroupSnapshot) -> None:
        self.silent = True
        self._done(snapshot, "")

    def _fail(self, path: str, reply: Reply) -> None:
        if not self.silent:
            # Answers that are still to come will be dropped: their nodes must be read again.
            self._reader.forget_watches()
            fault = reply.fault.value if reply.fault else ""
            self._done(None, f"{path} could not be read: {fault} {reply.reason}".strip())

    def _get(self, path: str, watched: bool, handle: Callable[[Reply], None]) -> None:
        """Read the data of a node; `handle` gets an answer, `NO_NODE` or a refusal; a lost answer ends the pass."""
        reader = self._reader
        self._opened()
        if watched:
            reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is not None and reply.fault is not Fault.NO_NODE:
                reader._fresh.discard(path)
                if reply.fault.is_lost:
                    self._fail(path, reply)
                    return
            handle(reply)
            self._closed()

        reader._ask(GetData(path, reader._node_changed if watched else None), answered)

    def _refuse(self, question: GetData | GetChildren, reply: Reply) -> None:
        """Keep that a list or a topic may not be read, until it can be, or is gone."""
        reader = self._reader
        reader._fresh.discard(question.path)
        reader._refused[question.path] = reader._refusals.add(question, reply)

    # -- members ---------------------------------------------------------------------------------------------------

    def _read_members(self) -> None:
        reader = self._reader
        if reader._ids in reader._refusals:
            return
        self._opened()
        reader._fresh.add(reader._ids)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is not None and reply.fault.is_refusal:
                self._refuse(GetChildren(reader._ids), reply)
                self._closed()
                return
            if reply.fault is not None:
                reader._fresh.discard(reader._ids)
                self._fail(reader._ids, reply)
                return
            reader._refused.pop(reader._ids, None)
            names, stat = reply.value
            self._members_listed(set(names), stat.cversion)
            reader._group_version = stat.pzxid
            self._closed()

        reader._ask(GetChildren(reader._ids, reader._node_changed), answered)

    def _members_listed(self, names: set[str], cversion: int) -> None:
        reader = self._reader
        known = set(reader._members)
        moved = len(names - known) + len(known - names)
        if reader._cversion < 0 or cversion != reader._cversion + moved:
            known = set()
        for gone in set(reader._members) - (names & known):
            del reader._members[gone]
            reader._refusals.discard(znodes.registration_path(reader._group, gone))
            reader._created_ms.pop(gone, None)
            reader._java_members.discard(gone)
        reader._cversion = cversion
        for name in sorted(names - known | names & self._rewritten()):
            self._read_member(name)
        self._topic_list_if_needed()

    def _rewritten(self) -> set[str]:
        """The members whose registration may be readable by now."""
        reader = self._reader
        found = set()
        for name, member in reader._members.items():
            path = znodes.registration_path(reader._group, name)
            if (isinstance(member, UnreadableNode) and path not in reader._fresh) or (
                isinstance(member, RefusedNode) and path not in reader._refusals
            ):
                found.add(name)
        return found

    def _read_member(self, name: str, watched: bool = False) -> None:
        """Read a registration. Only an unreadable one is watched: some clients create it empty and fill it later."""
        reader = self._reader
        path = znodes.registration_path(reader._group, name)

        def handle(reply: Reply) -> None:
            if reply.fault is not None and reply.fault.is_refusal:
                reader._members[name] = reader._refusals.add(GetData(path), reply)
                return
            if reply.fault is not None:
                # Gone between the list and the read: the watch on the list has fired. The name must not count as
                # one that was read.
                reader._cversion = -1
                reader._fresh.discard(path)
                return
            stat = reply.value[1]
            reader._created_ms[name] = stat.created_ms
            (reader._java_members.add if stat.version == JAVA_VERSION else reader._java_members.discard)(name)
            try:
                registration = reader._generation.value.parse_registration(reply.value[0], path)
                member = Subscription.from_registration(registration)
            except (UnreadableNode, UnsupportedFilter) as error:
                if isinstance(error, UnreadableNode) and not watched:
                    self._read_member(name, watched=True)
                    return
                log.warning("member %s of group %s: %s", name, reader._group, error)
                reader._members[name] = error
            else:
                reader._members[name] = member
                if refusal := reader._generation.value.java_refusal(reply.value[0]):
                    log.warning("member %s of group %s stops every Java member of it: %s", name, reader._group, refusal)
            self._topic_list_if_needed()

        self._get(path, watched, handle)

    # -- topics ----------------------------------------------------------------------------------------------------

    def _topic_list_if_needed(self) -> None:
        reader = self._reader
        if reader._subscription.is_wildcard or znodes.TOPICS in reader._fresh:
            return
        if reader._needs_topic_list():
            self._read_topic_list()

    def _read_topic_list(self) -> None:
        reader = self._reader
        path = znodes.TOPICS
        is_known = path in reader._fresh and reader._known_topics is not None
        if is_known or path in reader._refusals:
            if reader._subscription.is_wildcard:
                self._read_topics()
            return
        self._opened()
        reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is Fault.NO_NODE:
                # No broker has ever registered: wait for the node itself.
                reader._known_topics = frozenset()
                reader._refused.pop(path, None)
                self._watch_creation(GetChildren(path))
            elif reply.fault is not None and reply.fault.is_refusal:
                self._refuse(GetChildren(path), reply)
            elif reply.fault is not None:
                reader._fresh.discard(path)
                self._fail(path, reply)
                return
            else:
                reader._known_topics = frozenset(reply.value[0])
                reader._refused.pop(path, None)
            if reader._subscription.is_wildcard:
                self._read_topics()
            self._closed()

        reader._ask(GetChildren(path, reader._node_changed), answered)

    def _read_topics(self) -> None:
        reader = self._reader
        for topic in reader._my_topics():
            path = znodes.topic_path(topic)
            if path not in reader._fresh and path not in reader._refusals:
                self._read_topic(topic, path)

    def _read_topic(self, topic: str, path: str) -> None:
        reader = self._reader
        if reader._generation.value.has_broker_nodes:
            self._read_brokers_of(topic, path)
            return

        def handle(reply: Reply) -> None:
            if reply.fault is not None and reply.fault.is_refusal:
                self._refuse(GetData(path), reply)
                return
            reader._refused.pop(path, None)
            if reply.fault is not None:
                reader._topics.pop(topic, None)
                self._watch_creation(GetData(path))
                return
            data, stat = reply.value
            try:
                partitions = znodes.parse_topic(topic, data)
            except UnreadableNode as error:
                log.warning("topic %s counts as a topic without partitions: %s", topic, error)
                partitions = ()
            reader._topics[topic] = TopicNode(partitions, stat.czxid)

        self._get(path, True, handle)

    def _read_brokers_of(self, topic: str, path: str) -> None:
        """Read a topic of Kafka 0.7, whose brokers are its children. It has no incarnations: they come and go."""
        reader = self._reader
        self._opened()
        reader._fresh.add(path)

        def read(partitions: tuple[str, ...] | None, failed: tuple[GetData | GetChildren, Reply] | None) -> None:
            if self.silent:
                return
            if failed is not None:
                question, reply = failed
                reader._fresh.discard(path)
                if reply.fault is not None and reply.fault.is_lost:
                    self._fail(question.path, reply)
                    return
                reader._refused[path] = reader._refusals.add(question, reply)
                self._closed()
                return
            reader._refused.pop(path, None)
            if partitions is None:
                reader._topics.pop(topic, None)
                self._watch_creation(GetChildren(path))
            else:
                reader._topics[topic] = TopicNode(partitions)
            self._closed()

        BrokersReading(reader._ask, topic, reader._node_changed, reader._number_changed, read).start()

    def _watch_creation(self, question: GetData | GetChildren) -> None:
        """Watch for the creation of a node: `exists` sets a watch on a missing node, a read does not."""
        reader = self._reader
        path = question.path
        self._opened()
        reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is not None and reply.fault.is_lost:
                reader._fresh.discard(path)
                self._fail(path, reply)
                return
            if reply.fault is not None:
                self._refuse(question, reply)
            elif reply.value is not None:
                reader._stale(path)
            self._closed()

        reader._ask(Exists(path, reader._node_changed), answered)
