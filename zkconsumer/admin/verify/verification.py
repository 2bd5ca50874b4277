"""Verifies a group: is each partition owned, by a registered thread, and by the one to which it is assigned?

Pure: nodes in, findings out. Rules, as Kafka's own check tool breaks them (KAFKA-3952):
- Names are compared as the group's members compare them: thread ids as text, partitions as numbers. A consumer id in
  an owner node stands for the only thread of that consumer.
- Members of Kafka 0.7 assign by range alone, partitions sorted as text.
- A node that cannot be understood is reported, and no other member is reported because of it.

Source: kafka.tools.VerifyConsumerRebalance (0.8.2.2); ZookeeperConsumerConnector (0.8.0 to 1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rebalance.errors import UnreadableNode
from rebalance.subscription import consumer_id_of
from rebalance.zookeeper import znodes
from zkconsumer.admin.groups.group_report import (
    ROUNDROBIN,
    STRATEGIES,
    AssignmentPreview,
    Members,
    Place,
    disagreement,
    members_of,
    most_followed,
    previews,
)
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.verify.findings import Finding, Verification, session_text


def verify_group(nodes: GroupNodes, strategies: Sequence[str] = STRATEGIES, least_members: int = 1) -> Verification:
    """Return what is wrong with the members and the owners of a group; its offsets are not verified here.

    Args:
        strategies: The strategies that the group may use; with none, owners are not compared with an assignment.
        least_members: Fewer registered consumers are a finding.
    """
    return _Verifier(nodes, strategies).result(least_members)


class _Verifier:
    """The nodes of one moment, parsed, and the conclusions from them."""

    def __init__(self, nodes: GroupNodes, strategies: Sequence[str]) -> None:
        self.nodes = nodes
        self.members: Members = members_of(nodes)
        self._threads_of: dict[str, set[str]] = {}
        self.partitions, self.unreadable_topics = partitions_of(nodes)
        self.subscribed = self._subscribed()
        self.owners: dict[Place, str] = {
            (topic, number): self._thread_of(topic, znodes.parse_owner(data))
            for (topic, name), (data, _) in nodes.owners.items()
            if (number := nodes.partition_of(name)) in self.partitions.get(topic, ()) and number is not None
        }
        followed = {place: thread for place, thread in self.owners.items() if thread in self._threads(place[0])}
        # A member that cannot be understood has a share of the assignment, but which one is not known.
        candidates = [] if self.members.unclear else previews(
            self.members, nodes.known_topics, self.partitions, _known_to(nodes, strategies)
        )  # fmt: skip
        self.preview: AssignmentPreview | None = most_followed(candidates, followed)
        self.disagreement = disagreement(candidates, followed)
        self._orders = [each for each in candidates if each.strategy in ROUNDROBIN]
        self.holders = {consumer_id_of(thread) for thread in self.owners.values()}
        self.obstacles = self._obstacles()

    def _subscribed(self) -> list[Place]:
        topics = {
            topic for subscription in self.members.subscriptions.values()
            for topic in subscription.topics(self.nodes.known_topics)
        }  # fmt: skip
        return [(topic, number) for topic in sorted(topics) for number in self.partitions.get(topic, ())]

    def _threads(self, topic: str) -> set[str]:
        if topic not in self._threads_of:
            self._threads_of[topic] = self.members.threads(topic, exclude_internal_topics=False)
        return self._threads_of[topic]

    def _thread_of(self, topic: str, owner: str) -> str:
        return self.members.thread_of(owner, self._threads(topic))

    def _is_registered(self, topic: str, thread: str) -> bool:
        """Return True if a thread may own partitions of a topic; any thread of an unclear member may."""
        if self.nodes.hides_members:
            return True
        return consumer_id_of(thread) in self.members.unclear or thread in self._threads(topic)

    def _obstacles(self) -> dict[str, list[str]]:
        """Return the nodes that keep a member from its partitions and that no rebalance deletes: consumer id -> paths.

        An offset that cannot be parsed keeps a Java member from all of its partitions.
        """
        found: dict[str, list[str]] = {}
        for topic, number in self.subscribed:
            assigned = self._assigned((topic, number))
            if assigned is not None and self._has_unreadable_offset(topic, str(number)):
                path = znodes.offset_path(self.nodes.group, topic, number)
                found.setdefault(consumer_id_of(assigned), []).append(path)
        for (topic, number), thread in self.owners.items():
            assigned = self._assigned((topic, number))
            stays = not self.nodes.owners[topic, str(number)][1] or thread not in self._threads(topic)
            if assigned is not None and thread != assigned and stays:
                path = znodes.owner_path(self.nodes.group, topic, number)
                found.setdefault(consumer_id_of(assigned), []).append(path)
        return found

    def _has_unreadable_offset(self, topic: str, name: str) -> bool:
        if (topic, name) not in self.nodes.offsets:
            return False
        try:
            znodes.parse_offset("", self.nodes.offsets[topic, name])
        except UnreadableNode:
            return True
        return False

    def _assigned(self, place: Place) -> str | None:
        """Return the thread to which a partition is assigned, None when that is not known."""
        return self.preview.threads.get(place) if self.preview is not None else None

    def result(self, least_members: int) -> Verification:
        findings = [
            *self._refused(), *self._registrations(least_members), *self.unreadable_topics, *self._subscriptions(),
            *self._owner_nodes(), *self._unowned(), *self._strategies(),
            *self._order_of_java(),
        ]  # fmt: skip
        known = not self.nodes.hides_members
        return Verification(
            self.nodes.group, len(self.members.rows) if known else None, len(self.subscribed) if known else None,
            self.preview.strategy if self.preview is not None and self.owners else None,
            tuple(findings), tuple(sorted(self._wakeable())),
        )  # fmt: skip

    def _refused(self) -> Iterator[Finding]:
        """Yield the nodes that may not be read; members with the same rights cannot read them either."""
        ids = f"{znodes.ids_path(self.nodes.group)}/"
        for path, error in sorted(self.nodes.refused.items()):
            sentence, remedy = f"{error.cause}; members without that right cannot read it either", _ACCESS_LIST
            if path.startswith(ids):
                sentence = (
                    f"{error.cause}; that member may subscribe to any topic, so zkconsumer members that may "
                    "not read it keep their partitions and claim nothing, and Java members fail every "
                    "rebalance"
                )
                remedy = "give all members the same zookeeper.acl and zookeeper.auth, or stop this member"
            yield Finding("refused-node", path, sentence, remedy)

    # -- members -------------------------------------------------------------------------------------------------------

    def _registrations(self, least_members: int) -> Iterator[Finding]:
        count = len(self.members.rows)
        if count < least_members and not self.nodes.hides_members:
            sentence = f"{count} of {least_members} members are registered" if count else "the group has no members"
            yield Finding("too-few-members", znodes.ids_path(self.nodes.group), sentence, "start the consumers")
        for row in self.members.rows:
            path = znodes.registration_path(self.nodes.group, row.consumer_id)
            data = self.nodes.registrations[row.consumer_id]
            if path in self.nodes.refused:
                continue
            if row.problem is not None:
                yield self._unclear(path, row.consumer_id, row.problem, row.pattern is None)
            elif (refusal := self.nodes.generation.java_refusal(data or b"")) is not None:
                yield Finding(
                    "java-unreadable-registration", path,
                    f"{row.consumer_id}: Java members cannot read its registration ({refusal}), and fail every "
                    "rebalance while it is there", f"stop {row.consumer_id} if there are Java members in the group",
                    fault=bool(self._lacking()),
                )  # fmt: skip
            if self.nodes.sessions.get(row.consumer_id, 1) == 0:
                yield Finding(
                    "persistent-registration", path,
                    f"{row.consumer_id}: its registration is persistent, so the member never counts as dead",
                    "if no such consumer runs, delete the node",
                )  # fmt: skip

    def _unclear(self, path: str, member: str, problem: str, unreadable: bool) -> Finding:
        if unreadable:
            remedy = "stop the client that wrote it: no Java member owns anything while it exists"
            return Finding("unreadable-registration", path, f"{member}: {problem}", remedy)
        return Finding(
            "unreadable-filter", path, f"{member}: {problem}, so the right owners are not known",
            "give it a filter that docs/COMPATIBILITY.md lists",
        )  # fmt: skip

    def _subscriptions(self) -> Iterator[Finding]:
        """Yield what a member subscribes to and cannot get; it keeps no other member from anything."""
        for member, subscription in self.members.subscriptions.items():
            path = znodes.registration_path(self.nodes.group, member)
            missing = sorted(set(subscription.topics(self.nodes.known_topics)) - set(self.nodes.known_topics))
            for topic in missing:
                yield Finding("missing-topic", path, f"{member} waits for topic {topic!r}, which does not exist",
                              "create the topic, or correct its name", fault=False)  # fmt: skip
            if subscription.is_wildcard and not subscription.topics(self.nodes.known_topics, False):
                text = f"{subscription.pattern} {subscription.entries[0][0]!r}"
                yield Finding("idle-filter", path, f"{member}: its {text} matches no topic",
                              "correct the filter; Kafka 1.0 and 1.1 escape filters twice (docs/COMPATIBILITY.md)",
                              fault=False)  # fmt: skip

    # -- owner nodes ---------------------------------------------------------------------------------------------------

    def _owner_nodes(self) -> Iterator[Finding]:
        for (topic, name), (data, session) in sorted(self.nodes.owners.items()):
            path = znodes.owner_path(self.nodes.group, topic, name)
            owner = znodes.parse_owner(data)
            held = f"by session {session_text(session)}" if session else "by no session: the node is persistent"
            found = self._owner_node(topic, name, owner, session, held)
            if found is not None:
                kind, what, remedy = found
                # No rebalance deletes a persistent node, unless a Java member finds its own name in it.
                yield Finding(kind, path, f"{topic}-{name} {what}", remedy, passing=bool(session))

    def _owner_node(self, topic: str, name: str, owner: str, session: int, held: str) -> tuple[str, str, str] | None:
        """Return kind, clause and remedy of what is wrong with one owner node."""
        thread = self._thread_of(topic, owner)
        member = consumer_id_of(thread)
        removal = self._removal(topic, name, member, session)
        number = self.nodes.partition_of(name)
        if number is None:
            since = (
                "0.7 does not name partitions in this way"
                if self.nodes.generation.has_broker_nodes
                else ("Kafka 0.8 and later do not name partitions in this way")
            )
            return ("foreign-scheme", f"is owned by {owner!r} ({held}): {since}",
                    "another kind of client reads the topic in this group: give it its own group")  # fmt: skip
        if topic not in self.nodes.known_topics or number not in self.partitions.get(topic, (number,)):
            missing = self._missing(topic, name)
            return "no-such-partition", f"is owned by {owner!r} ({held}), but {missing}", removal
        if not session:
            return "persistent-owner", f"is owned by {owner!r} through a persistent node, which never expires", removal
        if not self._is_registered(topic, thread):
            return ("unregistered-owner",
                    f"is owned by {owner!r} ({held}), which is not a thread of a registered member",
                    removal)  # fmt: skip
        registered = self.nodes.sessions.get(member, session)
        if registered not in (0, session):
            also = session_text(registered)
            return ("other-session", f"is owned by {owner!r} {held}, but that member is registered by session {also}",
                    f"two processes use the consumer id of {member}: stop one of them")  # fmt: skip
        return self._wrong_owner((topic, number), owner, thread)

    def _missing(self, topic: str, name: str) -> str:
        of_07 = self.nodes.topics_07.get(topic)
        return "the partition does not exist" if of_07 is None else of_07.why_missing(name)

    def _removal(self, topic: str, name: str, member: str, session: int) -> str:
        """Return what deletes an owner node that should not exist."""
        release = f"zkconsumer release {self.nodes.group} {topic} {name}"
        if member in self.nodes.registrations:
            # A claim of a registered consumer is not released; ephemeral ones end with its session.
            return f"restart {member}" if session else f"stop {member}, then {release}"
        return f"end the process that holds the session, which {release} names" if session else release

    def _wrong_owner(self, place: Place, owner: str, thread: str) -> tuple[str, str, str] | None:
        assigned = self._assigned(place)
        if self.preview is None or assigned is None or self.preview.assigns(place, thread):
            return None
        return ("wrong-owner", f"is owned by {owner}, but {self.preview.strategy} assigns it to {assigned}",
                self._remedy(consumer_id_of(thread)))  # fmt: skip

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _unowned(self) -> Iterator[Finding]:
        owned = {(topic, name) for topic, name in self.nodes.owners}
        for topic, number in self.subscribed:
            if (topic, str(number)) in owned or self.nodes.hides_owner(topic, str(number)):
                continue
            assigned = self._assigned((topic, number))
            what = f"{topic}-{number} has no owner"
            if assigned is not None and self.preview is not None:
                what += f", but {self.preview.strategy} assigns it to {assigned}{self._idle(consumer_id_of(assigned))}"
            path = znodes.owner_path(self.nodes.group, topic, number)
            yield Finding("unowned", path, what, self._remedy(assigned and consumer_id_of(assigned)), passing=True)

    def _lacking(self) -> set[str]:
        """Return the members that lack a partition that is, or may be, assigned to them."""
        if self.preview is not None:
            return {
                consumer_id_of(thread) for place, thread in self.preview.threads.items()
                if place not in self.owners or not self.preview.assigns(place, self.owners[place])
            }  # fmt: skip
        topics = {topic for topic, number in self.subscribed if (topic, number) not in self.owners}
        return {
            member for member, subscription in self.members.subscriptions.items()
            if any(subscription.matches(topic) for topic in topics)
        }  # fmt: skip

    def _wakeable(self) -> set[str]:
        """Return the members to which another rebalance would give what they lack."""
        # A registration that Java cannot read fails every rebalance of every Java member.
        refusal = self.nodes.generation.java_refusal
        stops_java = any(refusal(data or b"") for data in self.nodes.registrations.values())
        is_unclear = self.nodes.refused or any(row.pattern is None for row in self.members.rows)
        if is_unclear or self.disagreement or stops_java:
            return set()
        return self._lacking() - self.obstacles.keys()

    def _idle(self, member: str) -> str:
        return "" if member in self.holders else f" ({member} is registered and owns nothing)"

    def _remedy(self, member: str | None) -> str:
        """Return what has to be done before that member can own what is assigned to it."""
        if self.members.unclear:
            return f"first fix the registration of {min(self.members.unclear)}"
        if self.disagreement:
            return "first give all members the same strategy"
        in_the_way = self.obstacles.get(member or "", [])
        if in_the_way:
            more = f" and {len(in_the_way) - 1} more" if len(in_the_way) > 1 else ""
            return f"first remove the obstacle, {in_the_way[0]}{more}; then {self._trigger()}"
        return f"{self._trigger()}; if that does not help, see the log of {member or 'the members'}, and restart"

    def _trigger(self) -> str:
        return f"zkconsumer verify {self.nodes.group} --trigger-rebalance"

    def _strategies(self) -> Iterator[Finding]:
        if self.disagreement:
            each = "; ".join(f"{member} by {' or '.join(names)}" for member, names in self.disagreement.items())
            yield Finding(
                "strategies-differ",
                znodes.ids_path(self.nodes.group),
                f"members assign by different strategies: {each}",
                "give all members the same partition.assignment.strategy (and roundrobin.order), and restart them",
                passing=True,
            )

    def _order_of_java(self) -> Iterator[Finding]:
        """Yield the Java members that got nothing from members of this client, perhaps for want of their order."""
        java = self.nodes.java_members
        if self.preview not in self._orders or not self.holders or self.holders & java:
            return
        idle = sorted(
            name
            for name in java
            if any(
                consumer_id_of(thread) == name and any(not each.assigns(place, thread) for each in self._orders)
                for place, thread in self.preview.threads.items()
            )
        )
        if idle:
            more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
            yield Finding(
                "order-of-java",
                znodes.registration_path(self.nodes.group, idle[0]),
                f"{idle[0]}{more} owns nothing, and zkconsumer members own what {self.preview.strategy} assigns to "
                "them: Java 0.8.2 to 0.11 assign by roundrobin, Java 1.0 and 1.1 by roundrobin-1.0",
                "leave roundrobin.order out, or set the order of the Java members, in all zkconsumer members; "
                "restart these, and then the Java members",
                passing=True,
            )


_ACCESS_LIST = (
    "set zookeeper.auth or zookeeper.sasl.* to credentials that it accepts, or change the list (setAcl): all members "
    "and this command have to read the node"
)


def _known_to(nodes: GroupNodes, strategies: Sequence[str]) -> Sequence[str]:
    """Return the strategies that members of the generation can have: those of Kafka 0.7 know `range` alone."""
    if not nodes.generation.has_broker_nodes:
        return strategies
    return [name for name in strategies if name in nodes.generation.strategies] or strategies


def partitions_of(nodes: GroupNodes) -> tuple[dict[str, tuple[int | str, ...]], list[Finding]]:
    """Return the partitions of the topics whose node can be read, and a finding for each other topic."""
    found: dict[str, tuple[int | str, ...]] = {}
    unreadable = []
    for topic, data in sorted(nodes.topics.items()):
        of_07 = nodes.topics_07.get(topic)
        if data is None and of_07 is None:
            continue  # it does not exist
        unreadable += [
            Finding("unreadable-topic", znodes.topic_path(topic), f"topic {topic!r} cannot be read whole: {problem}",
                    "see the log of that broker; its partitions are not assigned")
            for problem in (of_07.problems if of_07 is not None else ())
        ]  # fmt: skip
        try:
            found[topic] = nodes.partitions(topic)
        except UnreadableNode as error:
            unreadable.append(
                Finding("unreadable-topic", znodes.topic_path(topic), f"topic {topic!r} cannot be read: {error.reason}",
                        "see the log of the brokers' controller; Java regards it as a topic without partitions")
            )  # fmt: skip
    return found, unreadable
