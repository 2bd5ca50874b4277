"""Reads the group, each node together with a watch, and nothing twice that cannot have changed.

Knows which nodes the assignment depends on and which of them are stale. Rules: a watch is armed by the very read
whose result it guards; its callback only posts; registrations are cached by name and trusted only while the
`cversion` of `ids` advanced by exactly the joins and leaves that were seen, because a member with a fixed id can
leave and come back with another subscription in between.

Source: docs/SEMANTICS.md, "Quiet on ZooKeeper".
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rebalance import znodes
from rebalance.claims import Ask
from rebalance.errors import UnreadableNode, UnsupportedFilter
from rebalance.lenient_json import java_refusal
from rebalance.loop import Loop
from rebalance.requests import Exists, Fault, GetChildren, GetData, Reply, WatchEvent
from rebalance.snapshot import GroupSnapshot, Strategy, TopicNode
from rebalance.subscription import Subscription

__all__ = ["GroupReader"]

log = logging.getLogger(__name__)

Done = Callable[[GroupSnapshot | None, str], None]


class GroupReader:
    """The nodes of one group as one member last read them.

    Args:
        ask: sends requests.
        loop: where watch callbacks post to.
        group: the group's name.
        subscription: mine: which topics matter.
        strategy: whether other members' topics matter too.
        changed: called on the coordinator's thread with the reason when something read before is stale.

    Threads: the coordinator's alone, but for the watch callbacks, which only post.
    """

    def __init__(
        self,
        ask: Ask,
        loop: Loop,
        group: str,
        subscription: Subscription,
        strategy: Strategy,
        changed: Callable[[str], None],
    ) -> None:
        self._ask = ask
        self._loop = loop
        self._ids = znodes.ids_path(group)
        self._group = group
        self._subscription = subscription
        self._strategy = strategy
        self._changed = changed
        self._fresh: set[str] = set()
        self._members: dict[str, Subscription | UnreadableNode | UnsupportedFilter] = {}
        self._cversion = -1
        self._generation = 0
        self._known_topics: frozenset[str] | None = None
        self._topics: dict[str, TopicNode] = {}
        self._read: _Read | None = None

    def read(self, done: Done) -> None:
        """Read the list of members and whatever is stale; `done(snapshot, "")`, or `done(None, reason)`.

        A later call makes an earlier one fall silent.
        """
        self.stop()
        self._read = _Read(self, done)
        self._read.start()

    def forget_watches(self) -> None:
        """The connection was lost: ZooKeeper's client has dropped every watch, so nothing is known to be current."""
        self._fresh.clear()
        if self._read is not None:
            self._read.silent = True

    def session_over(self) -> None:
        """Read every registration again: a ZooKeeper that lost its data counts changes from the beginning.

        The list and its `cversion` may then be what they were, and the registrations others.
        """
        self._cversion = -1

    def stop(self) -> None:
        """Tell nothing of a read that is under way: who asked for it wants something else by now."""
        if self._read is not None and not self._read.silent:
            # What it has asked for will be thrown away, so none of it may count as known.
            self.forget_watches()

    # -- watches: any thread ---------------------------------------------------------------------------------------

    def _node_changed(self, event: WatchEvent) -> None:
        self._loop.post(self._stale, event.path)

    def _stale(self, path: str) -> None:
        if path in self._fresh:
            self._fresh.discard(path)
            self._changed(path)

    # -- what the assignment depends on ----------------------------------------------------------------------------

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
        """What was read last, as a value."""
        good: dict[str, Subscription] = {}
        unreadable: dict[str, str] = {}
        untranslatable: dict[str, str] = {}
        for name, member in self._members.items():
            if isinstance(member, UnreadableNode):
                unreadable[name] = str(member)
            elif isinstance(member, UnsupportedFilter):
                untranslatable[name] = str(member)
            else:
                good[name] = member
        mine = set(self._my_topics())
        return GroupSnapshot(
            members=good,
            topics={topic: node for topic, node in self._topics.items() if topic in mine},
            known_topics=self._known_topics,
            unreadable=unreadable,
            untranslatable=untranslatable,
            generation=self._generation,
        )


class _Read:
    """One pass over the stale nodes; every answer may bring further questions."""

    def __init__(self, reader: GroupReader, done: Done) -> None:
        self.silent = False
        self._reader = reader
        self._done = done
        self._open = 0

    def start(self) -> None:
        reader = self._reader
        self._begin()
        self._read_members()
        if reader._subscription.is_wildcard:
            self._read_topic_list()
        else:
            self._read_topics()
        self._end()

    # -- bookkeeping -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._open += 1

    def _end(self) -> None:
        self._open -= 1
        if self._open == 0 and not self.silent:
            self.silent = True
            self._done(self._reader.snapshot(), "")

    def _fail(self, path: str, reply: Reply) -> None:
        if not self.silent:
            # Answers that are still on their way will be thrown away: what they tell of must be asked for again.
            self._reader.forget_watches()
            fault = reply.fault.value if reply.fault else ""
            self._done(None, f"{path} could not be read: {fault} {reply.reason}".strip())

    def _get(self, path: str, watched: bool, handle: Callable[[Reply], None]) -> None:
        """Ask for the data of a node; `handle` gets an answer or `NO_NODE`, everything else ends the pass."""
        reader = self._reader
        self._begin()
        if watched:
            reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault not in (None, Fault.NO_NODE):
                reader._fresh.discard(path)
                self._fail(path, reply)
                return
            handle(reply)
            self._end()

        reader._ask(GetData(path, reader._node_changed if watched else None), answered)

    # -- members ---------------------------------------------------------------------------------------------------

    def _read_members(self) -> None:
        reader = self._reader
        self._begin()
        reader._fresh.add(reader._ids)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is not None:
                reader._fresh.discard(reader._ids)
                self._fail(reader._ids, reply)
                return
            names, stat = reply.value
            self._members_listed(set(names), stat.cversion)
            reader._generation = stat.pzxid
            self._end()

        reader._ask(GetChildren(reader._ids, reader._node_changed), answered)

    def _members_listed(self, names: set[str], cversion: int) -> None:
        reader = self._reader
        known = set(reader._members)
        moved = len(names - known) + len(known - names)
        if reader._cversion < 0 or cversion != reader._cversion + moved:
            known = set()
            reader._members.clear()
        for gone in set(reader._members) - names:
            del reader._members[gone]
        reader._cversion = cversion
        for name in sorted(names - known | names & self._rewritten()):
            self._read_member(name)
        self._topic_list_if_needed()

    def _rewritten(self) -> set[str]:
        """The unreadable members whose data may have changed since."""
        reader = self._reader
        unreadable = (name for name, member in reader._members.items() if isinstance(member, UnreadableNode))
        return {name for name in unreadable if znodes.registration_path(reader._group, name) not in reader._fresh}

    def _read_member(self, name: str, watched: bool = False) -> None:
        """Read a registration. Only an unreadable one is watched: some clients create it empty and fill it then."""
        reader = self._reader
        path = znodes.registration_path(reader._group, name)

        def handle(reply: Reply) -> None:
            if reply.fault is not None:
                # Gone between the list and the read: the list's watch has fired, and the arithmetic must not
                # take the name for one that was read.
                reader._cversion = -1
                reader._fresh.discard(path)
                return
            try:
                member = Subscription.from_registration(znodes.parse_registration(reply.value[0], path))
            except (UnreadableNode, UnsupportedFilter) as error:
                if isinstance(error, UnreadableNode) and not watched:
                    self._read_member(name, watched=True)
                    return
                log.warning("member %s of group %s: %s", name, reader._group, error)
                reader._members[name] = error
            else:
                reader._members[name] = member
                if refusal := java_refusal(reply.value[0]):
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
        if path in reader._fresh and reader._known_topics is not None:
            if reader._subscription.is_wildcard:
                self._read_topics()
            return
        self._begin()
        reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is Fault.NO_NODE:
                # No broker has ever been here: wait for the node itself.
                reader._known_topics = frozenset()
                self._watch_creation(path)
            elif reply.fault is not None:
                reader._fresh.discard(path)
                self._fail(path, reply)
                return
            else:
                reader._known_topics = frozenset(reply.value[0])
            if reader._subscription.is_wildcard:
                self._read_topics()
            self._end()

        reader._ask(GetChildren(path, reader._node_changed), answered)

    def _read_topics(self) -> None:
        reader = self._reader
        for topic in reader._my_topics():
            path = znodes.topic_path(topic)
            if path not in reader._fresh:
                self._read_topic(topic, path)

    def _read_topic(self, topic: str, path: str) -> None:
        reader = self._reader

        def handle(reply: Reply) -> None:
            if reply.fault is not None:
                reader._topics.pop(topic, None)
                self._watch_creation(path)
                return
            data, stat = reply.value
            try:
                partitions = znodes.parse_topic(topic, data)
            except UnreadableNode as error:
                log.warning("topic %s counts as having no partitions: %s", topic, error)
                partitions = ()
            reader._topics[topic] = TopicNode(partitions, stat.czxid)

        self._get(path, True, handle)

    def _watch_creation(self, path: str) -> None:
        """A read of a missing node arms no watch; `exists` does. If it is there by now, it is stale already."""
        reader = self._reader
        self._begin()
        reader._fresh.add(path)

        def answered(reply: Reply) -> None:
            if self.silent:
                return
            if reply.fault is not None:
                reader._fresh.discard(path)
                self._fail(path, reply)
                return
            if reply.value is not None:
                reader._stale(path)
            self._end()

        reader._ask(Exists(path, reader._node_changed), answered)
