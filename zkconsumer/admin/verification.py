"""Whether a group is as it should be: each partition owned, by a registered thread, by the one it is dealt to.

Pure: nodes in, findings out. Rules, as Kafka's own check tool breaks them (KAFKA-3952):
- Names are compared as the group's members compare them: thread ids as text, partitions as numbers. A consumer id in
  an owner node stands for its one thread.
- What cannot be understood is named, and nobody else is blamed for it.

Source: kafka.tools.VerifyConsumerRebalance (0.8.2.2); ZookeeperConsumerConnector (0.8.0 to 1.1.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rebalance import znodes
from rebalance.errors import UnreadableNode
from rebalance.lenient_json import java_refusal
from rebalance.subscription import consumer_id_of
from zkconsumer.admin.assignment_preview import STRATEGIES, Place, Table, disagreement, most_followed, tables
from zkconsumer.admin.findings import Finding, Verdict, session_text
from zkconsumer.admin.group_report import GroupNodes, Members, members_of

__all__ = ["partition_number", "partitions_of", "verify_group"]


def verify_group(nodes: GroupNodes, strategies: Sequence[str] = STRATEGIES, least_members: int = 1) -> Verdict:
    """What is wrong with the members and the owners of a group; of its offsets nothing is said.

    Args:
        strategies: those that the group may use; none: who owns what is not compared.
        least_members: fewer registered consumers are a finding.
    """
    return _Look(nodes, strategies).verdict(least_members)


class _Look:
    """The nodes of one moment, understood."""

    def __init__(self, nodes: GroupNodes, strategies: Sequence[str]) -> None:
        self.nodes = nodes
        self.members: Members = members_of(nodes)
        self._threads_of: dict[str, set[str]] = {}
        self.partitions, self.unreadable_topics = partitions_of(nodes)
        self.subscribed = self._subscribed()
        self.owners: dict[Place, str] = {
            (topic, number): self._thread_of(topic, znodes.parse_owner(data))
            for (topic, name), (data, _) in nodes.owners.items()
            if (number := partition_number(name)) in self.partitions.get(topic, ()) and number is not None
        }
        followed = {
            place: thread for place, thread in self.owners.items() if thread in self._threads(place[0])
        }
        # A member that cannot be understood has its share of the table, but which one is not known.
        candidates = [] if self.members.unclear else tables(
            self.members, nodes.known_topics, self.partitions, strategies
        )  # fmt: skip
        self.table: Table | None = most_followed(candidates, followed)
        self.disagreement = disagreement(candidates, followed)
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
        """Whether a thread id may own partitions of a topic; of a member that cannot be understood all may."""
        if znodes.ids_path(self.nodes.group) in self.nodes.refused:
            return True
        return consumer_id_of(thread) in self.members.unclear or thread in self._threads(topic)

    def _obstacles(self) -> dict[str, list[str]]:
        """Consumer id -> paths of nodes that keep its partitions from it, and that no rebalance takes away.

        An offset that is none keeps a Java member from all of its partitions.
        """
        found: dict[str, list[str]] = {}
        for topic, number in self.subscribed:
            dealt = self._dealt((topic, number))
            if dealt is not None and self._has_unreadable_offset(topic, str(number)):
                path = znodes.offset_path(self.nodes.group, topic, number)
                found.setdefault(consumer_id_of(dealt), []).append(path)
        for (topic, number), thread in self.owners.items():
            dealt = self._dealt((topic, number))
            stays = not self.nodes.owners[topic, str(number)][1] or thread not in self._threads(topic)
            if dealt is not None and thread != dealt and stays:
                path = znodes.owner_path(self.nodes.group, topic, number)
                found.setdefault(consumer_id_of(dealt), []).append(path)
        return found

    def _has_unreadable_offset(self, topic: str, name: str) -> bool:
        if (topic, name) not in self.nodes.offsets:
            return False
        try:
            znodes.parse_offset("", self.nodes.offsets[topic, name])
        except UnreadableNode:
            return True
        return False

    def _dealt(self, place: Place) -> str | None:
        """The thread that a partition is dealt to, `None` when that is not known."""
        return self.table.threads.get(place) if self.table is not None else None

    def verdict(self, least_members: int) -> Verdict:
        findings = [
            *self._refused(), *self._registrations(least_members), *self.unreadable_topics, *self._subscriptions(),
            *self._owner_nodes(), *self._unowned(), *self._strategies(),
        ]  # fmt: skip
        return Verdict(
            self.nodes.group, len(self.members.rows), len(self.subscribed),
            self.table.strategy if self.table is not None and self.owners else None,
            tuple(findings), tuple(sorted(self._wakeable())),
        )  # fmt: skip

    def _refused(self) -> Iterator[Finding]:
        """What this command may not read. Who reads the group with its rights sees as little."""
        ids = f"{znodes.ids_path(self.nodes.group)}/"
        for path, error in sorted(self.nodes.refused.items()):
            sentence, remedy = f"{error.cause}; members without the right to read it do not know more", _ACCESS_LIST
            if path.startswith(ids):
                sentence = (f"{error.cause}; that member may ask for any topic, so members of ours without the right "
                            "to read it keep what they hold and claim nothing, and Java members fail every rebalance")
                remedy = "give all members the same zookeeper.acl and zookeeper.auth, or stop this one"
            yield Finding("refused-node", path, sentence, remedy)

    # -- members -------------------------------------------------------------------------------------------------------

    def _registrations(self, least_members: int) -> Iterator[Finding]:
        count = len(self.members.rows)
        if count < least_members and znodes.ids_path(self.nodes.group) not in self.nodes.refused:
            sentence = f"of {least_members} members {count} are registered" if count else "nobody is in the group"
            yield Finding("too-few-members", znodes.ids_path(self.nodes.group), sentence, "start the consumers")
        for row in self.members.rows:
            path = znodes.registration_path(self.nodes.group, row.consumer_id)
            data = self.nodes.registrations[row.consumer_id]
            if path in self.nodes.refused:
                continue
            if row.problem is not None:
                yield self._unclear(path, row.consumer_id, row.problem, row.pattern is None)
            elif (refusal := java_refusal(data or b"")) is not None:
                yield Finding(
                    "java-unreadable-registration", path,
                    f"{row.consumer_id}: Java members cannot read its registration ({refusal}), and fail every "
                    "rebalance while it is there", f"stop {row.consumer_id} if there are Java members in the group",
                    fault=bool(self._lacking()),
                )  # fmt: skip
            if self.nodes.sessions.get(row.consumer_id, 1) == 0:
                yield Finding(
                    "persistent-registration", path,
                    f"{row.consumer_id}: its registration is persistent, so the member counts as alive for ever",
                    "if no such consumer runs, delete the node",
                )  # fmt: skip

    def _unclear(self, path: str, member: str, problem: str, unreadable: bool) -> Finding:
        if unreadable:
            remedy = "stop the client that wrote it: no Java member owns anything while it is there"
            return Finding("unreadable-registration", path, f"{member}: {problem}", remedy)
        return Finding(
            "unreadable-filter", path, f"{member}: {problem}, so who should own what is not known",
            "give it a filter that docs/COMPATIBILITY.md lists",
        )  # fmt: skip

    def _subscriptions(self) -> Iterator[Finding]:
        """What a member asks for and cannot get; nobody else is kept from anything by it."""
        for member, subscription in self.members.subscriptions.items():
            path = znodes.registration_path(self.nodes.group, member)
            missing = sorted(set(subscription.topics(self.nodes.known_topics)) - set(self.nodes.known_topics))
            for topic in missing:
                yield Finding("missing-topic", path, f"{member} waits for topic {topic!r}, which is not there",
                              "create the topic, or correct its name", fault=False)  # fmt: skip
            if subscription.is_wildcard and not subscription.topics(self.nodes.known_topics, False):
                text = f"{subscription.pattern} {subscription.entries[0][0]!r}"
                yield Finding("idle-filter", path, f"{member}: its {text} lets no topic through",
                              "correct the filter; Kafka 1.0 and 1.1 escape theirs twice (docs/COMPATIBILITY.md)",
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
                # A persistent node goes by no rebalance, unless a Java member finds its own name in it.
                yield Finding(kind, path, f"{topic}-{name} {what}", remedy, passing=bool(session))

    def _owner_node(
        self, topic: str, name: str, owner: str, session: int, held: str
    ) -> tuple[str, str, str] | None:
        """Kind, clause and remedy of what is wrong with one owner node."""
        thread = self._thread_of(topic, owner)
        member = consumer_id_of(thread)
        removal = self._removal(topic, name, member, session)
        number = partition_number(name)
        if number is None:
            return ("foreign-scheme", f"is owned by {owner!r} ({held}): no Kafka from 0.8 on names a partition so",
                    "a client of another kind reads the topic beside this group: give it its own group")  # fmt: skip
        if topic not in self.nodes.known_topics or number not in self.partitions.get(topic, (number,)):
            return "no-such-partition", f"is owned by {owner!r} ({held}), and there is no such partition", removal
        if not session:
            return "persistent-owner", f"is owned by {owner!r} for ever: its owner node is persistent", removal
        if not self._is_registered(topic, thread):
            return ("unregistered-owner", f"is owned by {owner!r} ({held}), which is no thread of a registered member",
                    removal)  # fmt: skip
        registered = self.nodes.sessions.get(member, session)
        if registered not in (0, session):
            also = session_text(registered)
            return ("other-session", f"is owned by {owner!r} {held}, and that member is registered by session {also}",
                    f"two processes use the consumer id of {member}: stop one")  # fmt: skip
        return self._not_dealt((topic, number), owner, thread)

    def _removal(self, topic: str, name: str, member: str, session: int) -> str:
        """What takes an owner node away that should not be there."""
        release = f"zkconsumer release {self.nodes.group} {topic} {name}"
        if member in self.nodes.registrations:
            # What is a registered consumer's is not released; what is its session's goes with it.
            return f"restart {member}" if session else f"stop {member}, then {release}"
        return f"end the process that holds the session, which {release} names" if session else release

    def _not_dealt(self, place: Place, owner: str, thread: str) -> tuple[str, str, str] | None:
        dealt = self._dealt(place)
        if self.table is None or dealt is None or self.table.deals(place, thread):
            return None
        return ("wrong-owner", f"is owned by {owner}, and {self.table.strategy} deals it to {dealt}",
                self._blame(consumer_id_of(thread)))  # fmt: skip

    # -- partitions ----------------------------------------------------------------------------------------------------

    def _unowned(self) -> Iterator[Finding]:
        owned = {(topic, name) for topic, name in self.nodes.owners}
        for topic, number in self.subscribed:
            if (topic, str(number)) in owned or self.nodes.hides_owner(topic, str(number)):
                continue
            dealt = self._dealt((topic, number))
            what = f"{topic}-{number} is owned by nobody"
            if dealt is not None and self.table is not None:
                what += f", and {self.table.strategy} deals it to {dealt}{self._idle(consumer_id_of(dealt))}"
            path = znodes.owner_path(self.nodes.group, topic, number)
            yield Finding("unowned", path, what, self._blame(dealt and consumer_id_of(dealt)), passing=True)

    def _lacking(self) -> set[str]:
        """The members that lack a partition that is theirs, or may be."""
        if self.table is not None:
            return {
                consumer_id_of(thread) for place, thread in self.table.threads.items()
                if place not in self.owners or not self.table.deals(place, self.owners[place])
            }  # fmt: skip
        topics = {topic for topic, number in self.subscribed if (topic, number) not in self.owners}
        return {
            member for member, subscription in self.members.subscriptions.items()
            if any(subscription.matches(topic) for topic in topics)
        }  # fmt: skip

    def _wakeable(self) -> set[str]:
        """The members to whom another rebalance would give what they lack."""
        # What Java cannot read, text that is no JSON included, fails each rebalance of each Java member.
        stops_java = any(java_refusal(data or b"") for data in self.nodes.registrations.values())
        is_unclear = self.nodes.refused or any(row.pattern is None for row in self.members.rows)
        if is_unclear or self.disagreement or stops_java:
            return set()
        return self._lacking() - self.obstacles.keys()

    def _idle(self, member: str) -> str:
        return "" if member in self.holders else f" ({member} is registered and owns nothing)"

    def _blame(self, member: str | None) -> str:
        """What has to be done before that member can own what is its."""
        if self.members.unclear:
            return f"see to the registration of {min(self.members.unclear)}"
        if self.disagreement:
            return "see to the strategies of the members"
        in_the_way = self.obstacles.get(member or "", [])
        if in_the_way:
            more = f" and {len(in_the_way) - 1} more" if len(in_the_way) > 1 else ""
            return f"see to what is in the way, {in_the_way[0]}{more}; then {self._nudge()}"
        return f"{self._nudge()}; if that does not help, see the log of {member or 'the members'}, and restart"

    def _nudge(self) -> str:
        return f"zkconsumer verify {self.nodes.group} --nudge"

    def _strategies(self) -> Iterator[Finding]:
        if self.disagreement:
            each = "; ".join(f"{member} by {' or '.join(names)}" for member, names in self.disagreement.items())
            yield Finding(
                "strategies-differ", znodes.ids_path(self.nodes.group),
                f"members deal by different strategies: {each}",
                "give all the same partition.assignment.strategy (and roundrobin.order), and restart them",
                passing=True,
            )


_ACCESS_LIST = "see to its access list: all members have to read it, and this command"


def partition_number(name: str) -> int | None:
    """The partition that an owner's or offset's node is named after, `None` for any other name."""
    return int(name) if re.fullmatch(r"0|[1-9][0-9]{0,8}", name) else None


def partitions_of(nodes: GroupNodes) -> tuple[dict[str, tuple[int, ...]], list[Finding]]:
    """Topic -> partitions, for the topics whose node can be read; and what cannot be."""
    found: dict[str, tuple[int, ...]] = {}
    unreadable = []
    for topic, data in sorted(nodes.topics.items()):
        if data is None:
            continue  # it is not there
        try:
            found[topic] = znodes.parse_topic(topic, data)
        except UnreadableNode as error:
            unreadable.append(
                Finding("unreadable-topic", znodes.topic_path(topic), f"topic {topic!r} cannot be read: {error.reason}",
                        "look what the brokers' controller says; Java takes it for a topic without partitions")
            )  # fmt: skip
    return found, unreadable
