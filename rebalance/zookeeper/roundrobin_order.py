"""Learns the order of roundrobin from the owner nodes of Java members, before this member claims what depends on it.

Java 0.8.2 to 0.11 sort the partitions by another hash than Java 1.0 and 1.1, and no node says which. Pure: it takes
snapshots and moments, and returns assignments. Rules, and which failure each prevents:
- A partition that the two orders give to different threads, one of them a Java member's, is left to the Java members
  until their owner nodes show the order. A Java member that meets one foreign owner node gives up all its claims, and
  then shows nothing.
- An order other than 0.8 is kept as long as Java members show it, with time for their rebalances. All members of this
  client read the same nodes, so that one that joins later takes the same order, or all fall back to 0.8.
- Where no Java member's share depends on the order, it is 0.8 at once: a member that remembered 1.0 from Java members
  that have left would differ from one that never met them.
- Owner nodes count only if they were created after the last join or leave, and are the same at a later look: a Java
  member in the middle of a rebalance still owns the partitions of the assignment before.
- Owner nodes of members of this client show no order: a partition that one of them still drains looks like a part of
  its share by another order. A contrary order is only named, after longer than any drain takes.

Source: docs/REBALANCE.md, "The order of roundrobin"; kafka.consumer.PartitionAssignor (0.8.2.2, 1.1.1).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from rebalance.subscription import Assignment, Partition, Subscription, consumer_id_of
from rebalance.zookeeper.snapshot import GroupSnapshot, Strategy, assign
from zkconsumer_error import first_few

ORDERS: Final = ("0.8", "1.0")
AUTO: Final = "auto"

_LOOKS_S: Final = (0.2, 0.4, 0.8, 1.6)
"""Waits between looks at owner nodes, while Java members rebalance; the last one is repeated."""

_VERSIONS: Final = {"0.8": "Java 0.8.2 to 0.11", "1.0": "Java 1.0 and 1.1"}

Tables = Mapping[str, Mapping[Partition, str]]
"""Order -> partition -> thread id."""

Nodes = Mapping[Partition, str]


class _Shown(NamedTuple):
    """The owner nodes of one member, since when they are so, and which orders explain them."""

    nodes: Hashable
    since: float
    orders: frozenset[str]

    @property
    def proves(self) -> str | None:
        """The only order that explains them. A member that owns nothing proves none: both orders leave it idle."""
        return min(self.orders) if len(self.orders) == 1 else None


class RoundrobinOrder:
    """The order by which one member assigns, and the evidence that it has seen of the others.

    Args:
        consumer_id: this member.
        subscription: its topics or filter.
        strategy: its `roundrobin_order` is "auto", "0.8" or "1.0".
        confirm_s: owner nodes count as evidence when they are unchanged for so long.
        wait_s: how long, after a change of the group, partitions are left to Java members that show no order; and how
            long an order is kept that they show no more.
        dissent_s: a member of this client is named for another order when its nodes are unchanged for so long: longer
            than it drains.

    Attributes:
        decided: the order that Java members show, `None` before that and with an explicit setting.
    """

    def __init__(
        self,
        consumer_id: str,
        subscription: Subscription,
        strategy: Strategy,
        confirm_s: float,
        wait_s: float,
        dissent_s: float,
    ) -> None:
        self.decided: str | None = None
        self._me = consumer_id
        self._subscription = subscription
        self._strategies = {order: replace(strategy, roundrobin_order=order) for order in ORDERS}
        self._explicit = None if strategy.roundrobin_order == AUTO else strategy.roundrobin_order
        self._is_used = strategy.name == "roundrobin"
        self._confirm_s = confirm_s
        self._wait_s = wait_s
        self._dissent_s = dissent_s
        self._assumed = ORDERS[0]
        self._shown_by: tuple[str, ...] = ()
        self._shown: dict[str, _Shown] = {}
        self._contrary: dict[str, str] = {}  # Java members that have shown the other order, and that order
        self._disputed: frozenset[Partition] = frozenset()  # left to Java members until they show their order
        self._missing_since: float | None = None  # the first look at which no Java member shows `order`
        self._used: tuple[str, float] = (self._explicit or ORDERS[0], float("-inf"))  # the order, and since when
        self._dissenters: tuple[str, ...] = ()  # members of this client that assign by another order
        self._window: tuple[Hashable, float] = ((), 0.0)
        self._looks = 0
        self._next_look: float | None = None
        self._is_look_due = True

    @property
    def order(self) -> str:
        """The order of the assignment: as set, as shown by Java members, or the assumption before that."""
        return self._explicit or self.decided or self._assumed

    def next_look(self) -> float | None:
        """When the owner nodes should be read again, `None` if no change of the group or audit comes."""
        return self._next_look

    def look_again(self) -> None:
        """Have the owner nodes read with the next read of the group."""
        self._is_look_due = True

    def needs_owners(self, snapshot: GroupSnapshot) -> bool:
        """Whether the owner nodes have to be read for `assign`."""
        if not self._is_used:
            return False
        is_learning = self._explicit is None and self.decided is None and bool(snapshot.java_members)
        if not is_learning and not self._is_look_due:
            return False
        tables = self._tables(snapshot)
        if tables is None or tables[ORDERS[0]] == tables[ORDERS[1]]:
            return False
        return self._is_look_due or bool(_disputed_with_java(snapshot, tables))

    def assign(self, snapshot: GroupSnapshot, now: float) -> Assignment:
        """The partitions that this member should hold according to `snapshot`, and the warnings about the order.

        A partition that is left to Java members is in `owners`, and not in `mine`.
        """
        if not self._is_used:
            return assign(snapshot, self._me, self._subscription, self._strategies[ORDERS[0]])
        both = {order: self._assign(snapshot, order) for order in ORDERS}
        self._next_look = None
        frozen = both[ORDERS[0]]
        if frozen.frozen is not None:
            return frozen
        tables = {order: each.owners for order, each in both.items()}
        self._contrary = {name: order for name, order in self._contrary.items() if name in snapshot.members}
        self._disputed = _disputed_with_java(snapshot, tables)
        if not self._disputed:
            self._contrary.clear()
            self._forget()
        self._look(snapshot, tables, now)
        return self._result(snapshot, both, now)

    def _assign(self, snapshot: GroupSnapshot, order: str) -> Assignment:
        return assign(snapshot, self._me, self._subscription, self._strategies[order])

    def _tables(self, snapshot: GroupSnapshot) -> Tables | None:
        both = {order: self._assign(snapshot, order) for order in ORDERS}
        return None if both[ORDERS[0]].frozen is not None else {order: each.owners for order, each in both.items()}

    # -- evidence ------------------------------------------------------------------------------------------------------

    def _look(self, snapshot: GroupSnapshot, tables: Tables, now: float) -> None:
        """Take up the evidence of the owner nodes, and set when they are looked at again."""
        if tables[ORDERS[0]] == tables[ORDERS[1]]:
            self._shown.clear()
            self._dissenters = ()
            return
        group = (snapshot.group_version, frozenset(tables[ORDERS[0]]))
        if group != self._window[0]:
            self._window, self._looks, self._dissenters = (group, now), 0, ()
        if snapshot.owners is not None:
            self._is_look_due = False
            self._update_shown(snapshot, tables, now)
            self._learn(snapshot, now)
            self._find_dissenters(snapshot, now)
        self._plan_look(snapshot, now)

    def _update_shown(self, snapshot: GroupSnapshot, tables: Tables, now: float) -> None:
        owners = snapshot.owners or {}
        held: dict[str, dict[Partition, str]] = {name: {} for name in snapshot.members if name != self._me}
        oldest: dict[str, int] = {}
        for partition, node in owners.items():
            name = consumer_id_of(node.thread_id)
            held.setdefault(name, {})[partition] = node.thread_id
            oldest[name] = min(node.czxid, oldest.get(name, node.czxid))
        former, self._shown = self._shown, {}
        for name in snapshot.members:
            if name == self._me:
                continue
            nodes = (
                self._window[0],
                frozenset(
                    (partition, node) for partition, node in owners.items() if consumer_id_of(node.thread_id) == name
                ),
            )
            if name in snapshot.java_members:
                # Java deletes and creates all its owner nodes in each rebalance.
                is_older = oldest.get(name, snapshot.group_version + 1) <= snapshot.group_version
                orders = frozenset() if is_older else _explaining(name, held[name], tables)
            else:
                orders = _allowing(held[name], tables)
            since = former[name].since if name in former and former[name].nodes == nodes else now
            self._shown[name] = _Shown(nodes, since, orders)

    def _is_confirmed(self, shown: _Shown, now: float) -> bool:
        return now - shown.since >= self._confirm_s

    def _learn(self, snapshot: GroupSnapshot, now: float) -> None:
        java = {name: shown for name, shown in self._shown.items() if name in snapshot.java_members}
        confirmed = {name for name, shown in java.items() if self._is_confirmed(shown, now)}
        proofs = {name: proved for name in confirmed if (proved := java[name].proves) is not None}
        if self._explicit is None:
            self._keep_or_forget(java, confirmed, now)
            self._take(java, confirmed, proofs, now)
        self._contrary = {name: order for name, order in proofs.items() if order != self.order} | {
            name: order for name, order in self._contrary.items() if name in java and name not in confirmed
        }

    def _keep_or_forget(self, java: Mapping[str, _Shown], confirmed: set[str], now: float) -> None:
        """Give up an order that no Java member shows any more: a member that joins now cannot learn it."""
        showing = {name for name, shown in java.items() if shown.proves == self.order}
        if not self._is_taken() or showing & confirmed:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif not showing and now >= self._end_of_missing(self._missing_since):
            self._forget()

    def _is_taken(self) -> bool:
        """Whether the order comes from Java members."""
        return self.decided is not None or self._assumed != ORDERS[0]

    def _end_of_missing(self, since: float) -> float:
        return max(since, self._window[1]) + self._wait_s

    def _forget(self) -> None:
        self.decided, self._shown_by, self._assumed, self._missing_since = None, (), ORDERS[0], None

    def _take(self, java: Mapping[str, _Shown], confirmed: set[str], proofs: Mapping[str, str], now: float) -> None:
        """Take the one order that Java members show, if none leaves a doubt or the others have had their time."""
        if self.decided is not None or len(set(proofs.values())) != 1:
            return
        order = min(proofs.values())
        if all(name in confirmed and order in shown.orders for name, shown in java.items()):
            self.decided, self._shown_by = order, tuple(sorted(proofs))
        elif now >= self._window[1] + self._wait_s:
            self._assumed = order

    def _find_dissenters(self, snapshot: GroupSnapshot, now: float) -> None:
        """Find members of this client with another order. Their partitions change nothing: the log only names them."""
        if self.order != self._used[0]:
            self._used = (self.order, now)
        self._dissenters = tuple(
            sorted(
                name
                for name, shown in self._shown.items()
                if self._is_dissenting(name, shown, snapshot) and now >= self._end_of_drains(shown)
            )
        )

    def _is_dissenting(self, name: str, shown: _Shown, snapshot: GroupSnapshot) -> bool:
        return name not in snapshot.java_members and bool(shown.orders) and self.order not in shown.orders

    def _end_of_drains(self, shown: _Shown) -> float:
        return max(shown.since, self._used[1]) + self._dissent_s

    def _is_waiting(self, snapshot: GroupSnapshot, now: float) -> bool:
        """Whether Java members still get the time to show their order."""
        is_open = self._explicit is None and self.decided is None and bool(self._disputed)
        return is_open and now < self._window[1] + self._wait_s

    def _plan_look(self, snapshot: GroupSnapshot, now: float) -> None:
        unconfirmed = {
            name: shown for name, shown in self._shown.items() if shown.orders and not self._is_confirmed(shown, now)
        }
        due = [
            shown.since + self._confirm_s
            for name, shown in unconfirmed.items()
            if name in snapshot.java_members and (self.order not in shown.orders or self._missing_since is not None)
        ]
        due += [
            end_s
            for name, shown in self._shown.items()
            if self._is_dissenting(name, shown, snapshot) and (end_s := self._end_of_drains(shown)) > now
        ]
        if self._missing_since is not None:
            due.append(max(self._end_of_missing(self._missing_since), now + _LOOKS_S[-1]))
        end = self._window[1] + self._wait_s
        if self._is_waiting(snapshot, now):
            java = [shown.since for name, shown in unconfirmed.items() if name in snapshot.java_members]
            if java and not self._unsettled(snapshot):
                due.append(max(java) + self._confirm_s)
            else:
                due.append(now + _LOOKS_S[min(self._looks, len(_LOOKS_S) - 1)])
                self._looks += 1
            due.append(end)
        elif now < end and (self.decided is not None or self._unsettled(snapshot)):
            due.append(end)
        self._next_look = min(due, default=None)

    # -- the assignment ------------------------------------------------------------------------------------------------

    def _result(self, snapshot: GroupSnapshot, both: Mapping[str, Assignment], now: float) -> Assignment:
        chosen = both[self.order]
        warnings = list(dict.fromkeys(warning for each in both.values() for warning in each.warnings))
        left: frozenset[Partition] = self._disputed if self._is_waiting(snapshot, now) else frozenset()
        warnings += self._notes(snapshot, both, left, now)
        if self._contrary and self._explicit is None and self.decided is not None:
            reason = (
                f"{self._contradiction()}: this member keeps its partitions and claims no others until they "
                "agree; restart this member, or set the same roundrobin.order in all members"
            )
            return Assignment({}, {}, reason, tuple(warnings))
        mine = {partition: thread for partition, thread in chosen.mine.items() if partition not in left}
        return Assignment(mine, chosen.owners, None, tuple(warnings))

    def _notes(
        self, snapshot: GroupSnapshot, both: Mapping[str, Assignment], left: frozenset[Partition], now: float
    ) -> list[str]:
        notes: list[str] = []
        if both[ORDERS[0]].owners == both[ORDERS[1]].owners:
            return notes
        if left:
            notes.append(
                f"the order of roundrobin is not known yet: the Java members are given {self._wait_s:g} s "
                f"to claim {len(left)} partitions, and their owner nodes then show it; set roundrobin.order "
                "to avoid the wait"
            )
        if self.decided == ORDERS[1]:
            names = first_few(*self._shown_by, most=3)
            notes.append(
                f"roundrobin.order is {self.decided}, because {names} assigned in that order "
                f"({_VERSIONS[self.decided]}); set it in all members of the group"
            )
        if self._contrary and self._explicit is not None:
            notes.append(f"{self._contradiction()}; the setting of this member counts")
        elif len(set(self._contrary.values()) | {self.order}) > 1 and self.decided is None and not left:
            notes.append(f"{self._contradiction()}; no common order is known")
        unsettled = self._unsettled(snapshot)
        if unsettled and now >= self._window[1] + self._wait_s:
            other = next(order for order in ORDERS if order != self.order)
            names = first_few(*unsettled, most=3)
            notes.append(f"{names} did not claim the partitions that roundrobin.order {self.order} assigns within "
                         f"{self._wait_s:g} s of the last change of the group; {_VERSIONS[other]} need "
                         f"roundrobin.order {other} in all zkconsumer members, and a restart of the Java "
                         "members")  # fmt: skip
        if self._dissenters:
            names = first_few(*self._dissenters, most=3)
            notes.append(f"{names} of zkconsumer has another roundrobin.order than {self.order}; set the same in all "
                         "members")  # fmt: skip
        return notes

    def _contradiction(self) -> str:
        names = "; ".join(f"{name} by {order}" for name, order in sorted(self._contrary.items()))
        return f"Java members assign in another order of roundrobin than {self.order} ({names})"

    def _unsettled(self, snapshot: GroupSnapshot) -> list[str]:
        """The Java members whose owner nodes are explained by no order."""
        return sorted(name for name, shown in self._shown.items() if name in snapshot.java_members and not shown.orders)


def _disputed_with_java(snapshot: GroupSnapshot, tables: Tables) -> frozenset[Partition]:
    """The partitions over which the orders differ, and which one of them gives to a Java member."""
    one, other = (tables[order] for order in ORDERS)
    return frozenset(
        partition
        for partition, thread in one.items()
        if thread != other[partition]
        and not snapshot.java_members.isdisjoint((consumer_id_of(thread), consumer_id_of(other[partition])))
    )


def _explaining(member: str, held: Nodes, tables: Tables) -> frozenset[str]:
    """The orders that assign to a member exactly the partitions that it holds."""
    return frozenset(
        order
        for order, table in tables.items()
        if held == {partition: thread for partition, thread in table.items() if consumer_id_of(thread) == member}
    )


def _allowing(held: Nodes, tables: Tables) -> frozenset[str]:
    """The orders that assign to a member all that it holds, and perhaps more."""
    return frozenset(
        order
        for order, table in tables.items()
        if all(table.get(partition) == thread for partition, thread in held.items())
    )
