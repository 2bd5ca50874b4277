"""The stage of the fault tests: a cluster, a steady load, members behind links, and the figures of each fault."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from fault_players import CASTS, COMMIT_S, KINDS, JavaPlayer, Player
from fault_servers import KAFKA_08, PARTITIONS, AnyCluster, Servers
from fault_verdict import Write, blame
from kazoo.exceptions import KazooException

from rebalance.zookeeper.snapshot import Strategy
from rebalance.zookeeper.znodes_07 import GENERATION_07
from zkconsumer.testing.errors import WaitTimeout
from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.checks import Figures, Limits, figures_of
from zkconsumer.testing.history.events import partition_of
from zkconsumer.testing.history.groups import rightful_owners
from zkconsumer.testing.history.limits import NS
from zkconsumer.testing.kafka import topics_07
from zkconsumer.testing.loads import LastingLoad
from zkconsumer.testing.proxy.zookeeper_exchanges import ZooKeeperRequest
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.group_watch import GroupWatch, Owner, owners

RATE_PER_S = 200.0
# What was delivered since the last commit may come again: one interval, and the time between deciding and writing.
UNGRACEFUL = Limits(repeat_before_end_s=COMMIT_S + 1.0, zombie_slack_s=0.05)
FULL_S = 30.0
STRATEGY = Strategy("range")
QUIET_S = 8.0
BUSY_S = 3.0  # what a machine that does other things, too, may take longer


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    servers: str
    scenario: str
    cast: str
    figures: Figures
    owned_s: float | None
    requests: int
    note: str

    HEAD = (
        f"{'servers':16} {'fault':44} {'members':14} {'acked':>6} {'lost':>5} {'twice':>5} {'by same':>7} "
        f"{'put back':>8} {'gap':>7} {'owned':>7} {'requests':>8}  note"
    )

    def __str__(self) -> str:
        owned = "never" if self.owned_s is None else "kept" if self.owned_s == 0.0 else f"{self.owned_s:.2f} s"
        each = self.figures
        return (
            f"{self.servers:16} {self.scenario:44} {self.cast:14} {each.acked:6} {each.lost:5} {each.repeated:5} "
            f"{each.repeated_by_same:7} {each.put_back:8} {each.longest_gap_s:5.2f} s {owned:>7} {self.requests:8}  "
            f"{self.note}"
        )


@dataclass(frozen=True)
class Setup:
    """What a scenario needs beside two members and a topic.

    own_cluster: it breaks brokers or ZooKeeper.
    broker: settings of the brokers of a cluster of its own.
    broker_07: the same of brokers of Kafka 0.7.
    topic: settings of the topic.
    replication, acks, padding_bytes: of the topic and its load.
    member: settings of the members, on top of those that all have.
    work_ms: how long the application takes for a message.
    """

    own_cluster: bool = False
    broker: Mapping[str, object] = field(default_factory=dict)
    broker_07: Mapping[str, object] = field(default_factory=dict)
    topic: Mapping[str, object] = field(default_factory=dict)
    replication: int = 1
    acks: int = 1
    padding_bytes: int = 0
    member: Mapping[str, object] = field(default_factory=dict)
    work_ms: int = 0


@dataclass
class Stage:
    """A group under load that something is done to.

    A scenario calls `mark()` when it acts, and `wait_full()` for the moment at which every partition has its rightful
    owner again. It may widen `limits`, and add what else it saw to `notes`.
    """

    servers: Servers
    cast: str
    cluster: AnyCluster
    group: str
    topic: str
    places: Sequence[Place]
    watches: list[GroupWatch]
    load: LastingLoad
    setup: Setup
    _stack: ExitStack
    players: list[Player] = field(default_factory=list)
    limits: Limits = UNGRACEFUL
    in_hand: int = 0
    marked_ns: int = 0
    begun_ns: int = 0
    owned_s: float | None = None
    requests: int = 0
    most_repeats: int | None = None  # of our members among themselves
    notes: list[str] = field(default_factory=list)
    operator_events: list[Event] = field(default_factory=list)
    foreign: set[str] = field(default_factory=set)  # registrations of no member
    writes: list[Write] = field(default_factory=list)
    strategy: Strategy = STRATEGY
    at_first: dict[Place, Owner] = field(default_factory=dict)
    _is_measured: bool = False

    # ---- members

    @property
    def is_07(self) -> bool:
        """Whether partitions come and go with their broker, and positions count bytes."""
        return self.servers.generation is GENERATION_07

    @property
    def is_java_alone(self) -> bool:
        """Whether only figures are wanted."""
        return set(CASTS[self.cast]) == {"java"}

    @property
    def hit(self) -> Player:
        """The members that the fault hits."""
        return self.players[0]

    @property
    def other(self) -> Player:
        """The members that the fault does not hit."""
        return self.players[1]

    @property
    def java(self) -> list[JavaPlayer]:
        """The Java members."""
        return [player for player in self.players if isinstance(player, JavaPlayer)]

    def prepare(self, name: str, like: Player | None = None) -> Player:
        """A member-to-be with its link, of the kind of another one (of the one that is hit)."""
        return self._prepare(name, (like or self.hit).kind)

    def _prepare(self, name: str, kind: str) -> Player:
        player = KINDS[kind](self.cluster, self.group, name)
        self.players.append(player)
        player.link.add_listener(self._writes_of(player))
        return player

    def launch(self, player: Player) -> None:
        """Have it join, without waiting."""
        player.launch({"topics": {self.topic: 1}}, self.setup.work_ms, self.settings_of(player))

    def settings_of(self, player: Player) -> dict[str, object]:
        """The settings of a member, on top of those that all have."""
        return dict(self.setup.member)

    def _writes_of(self, player: Player) -> Callable[[ZooKeeperRequest], None]:
        prefix = f"/consumers/{self.group}/offsets/"

        def see(request: ZooKeeperRequest) -> None:
            if request.kind in ("set_data", "create") and request.path.startswith(prefix):
                topic, _, partition = request.path.removeprefix(prefix).partition("/")
                if partition:
                    self.writes.append(Write(time.monotonic_ns(), player.name, (topic, partition_of(partition))))

        return see

    def gather(self) -> None:
        """The two members of the cast, sharing the partitions, with commits behind them."""
        hit, other = CASTS[self.cast]
        for name, kind in (("hit", hit), ("other", other)):
            self.launch(self._prepare(name, kind))
        for player in self.players:
            player.wait_ready()
        self.wait_full()
        self.wait_committed()
        self.load.grow(100)
        self.at_first = self._owners()

    def watch_again(self) -> None:
        """Look at the group with another ZooKeeper client: after a loss of data no older one is let in any more."""
        self.watches.append(
            self._stack.enter_context(GroupWatch(self.cluster.zookeeper_connect, self.group, self.places))
        )

    # ---- the fault, and the recovery of the group

    def mark(self) -> None:
        """Now it happens: times and requests are counted from here, and gaps from the first mark."""
        self.marked_ns = time.monotonic_ns()
        self.begun_ns = self.begun_ns or self.marked_ns
        self._is_measured = False
        for player in self.players:
            player.link.forget_requests()

    def since_s(self) -> float:
        """Seconds since the mark."""
        return (time.monotonic_ns() - self.marked_ns) / NS

    def is_full(self) -> bool:
        """Whether exactly the expected members are registered, and every partition has its rightful owner."""
        base = f"/consumers/{self.group}/ids"
        registrations: dict[str, tuple[bytes, int]] = {}
        try:
            for name in self.cluster.client.get_children(base):
                data, stat = self.cluster.client.get(f"{base}/{name}")
                registrations[name] = data, stat.ephemeralOwner
        except KazooException:
            return False
        expected = self.foreign | {player.id for player in self.players if player.expected}
        if set(registrations) != expected:
            return False
        data = {name: data for name, (data, _) in registrations.items()}
        try:
            found = self._owners()
            wanted = rightful_owners(data, self._registered(), self.strategy, self.servers.generation)
        except KazooException:
            return False
        return {place: owner.thread_id for place, owner in found.items()} == wanted and all(
            owner.session_id == registrations[owner.member_id][1] for owner in found.values()
        )

    def _registered(self) -> dict[str, list[int | str]]:
        """The partitions that can be owned now, by topic: in Kafka 0.7 those of the brokers that are registered."""
        topics = dict.fromkeys(topic for topic, _ in self.places)
        if self.is_07:
            return {topic: [*topics_07.partitions_of(self.cluster.client, topic)] for topic in topics}
        return {topic: [number for name, number in self.places if name == topic] for topic in topics}

    def wait_full(self, timeout_s: float = FULL_S) -> float | None:
        """Seconds from the mark to full ownership; None if it never came and only Java members are there.

        The first call after a mark gives the row its figure.

        Raises:
            WaitTimeout: it never came, and members of ours are there.
        """
        took_s: float | None = None
        try:
            wait_until(self.is_full, timeout_s, "full ownership", interval_s=0.05, state=self.owner_names)
            took_s = self.since_s()
        except WaitTimeout:
            if not self.is_java_alone:
                raise
        if not self._is_measured:
            self._is_measured, self.owned_s, self.requests = True, took_s, self.spent()
        return took_s

    def aim(self, target_s: float) -> None:
        """Record whether full ownership came in time; far too late is a failure, unless only Java members were slow."""
        took_s = self.owned_s or 0.0
        self.notes.append(f"target {target_s:g} s {'kept' if took_s <= target_s else 'missed'}")
        assert self.is_java_alone or took_s <= target_s + BUSY_S, f"{took_s:.2f} s, the target is {target_s:g} s"

    def assert_kept(self) -> None:
        """Every owner node of ours is the one that it was before the fault; Java members may make theirs anew."""
        now = self._owners()
        moved = [place for place, owner in self.at_first.items() if now.get(place) != owner]
        java = {player.id for player in self.java}
        lost = [place for place in moved if self.at_first[place].member_id not in java]
        assert not lost, f"{lost} have other owner nodes: {now}, before {self.at_first}"
        self._is_measured, self.requests = True, self.spent()
        self.owned_s = self.since_s() if moved else 0.0
        if moved:
            self.notes.append(f"{len(moved)} owner nodes created again by Java")

    def _owners(self) -> dict[Place, Owner]:
        return owners(self.cluster.client, self.group, self.places)

    def owner_names(self) -> dict[Place, str]:
        """Partition -> thread that owns it."""
        return {place: each.thread_id for place, each in self._owners().items()}

    def owned_by(self, player: Player) -> list[Place]:
        """The partitions whose owner node names a member."""
        return [place for place, thread in self.owner_names().items() if thread.rpartition("-")[0] == player.id]

    def spent(self) -> int:
        """ZooKeeper requests of all members since the mark."""
        return sum(player.link.request_count for player in self.players)

    def stored(self) -> dict[Place, int]:
        """The stored offsets as they were seen last."""
        return {event.place: event.offset for event in self._seen() if event.kind == "offset_node"}

    def messages_from(self, place: Place, offset: int, count: int) -> int:
        """The offset so many messages behind another one, or before it; beyond what is acknowledged it is guessed."""
        if not self.is_07:
            return offset + count
        starts = sorted({event.offset for event in list(self.load.acked) if event.place == place})
        index = bisect_left(starts, offset) + count
        beyond = index - len(starts) + 1
        if beyond > 0:
            return starts[-1] + beyond * (starts[-1] - starts[-2])
        return starts[max(0, index)]

    def _seen(self) -> list[Event]:
        return [event for watch in self.watches for event in list(watch.events)]

    def wait_committed(self, timeout_s: float = 20.0) -> None:
        """Return when the offset of every partition has been stored once more; Java alone need not."""
        before = self.stored()
        try:
            wait_until(
                lambda: all(self.stored().get(place, -1) > before.get(place, -1) for place in self.places),
                timeout_s, "every offset node to move on", state=self.stored,
            )  # fmt: skip
        except WaitTimeout:
            if not self.is_java_alone:
                raise

    # ---- the end

    def history(self) -> list[Event]:
        """What members, load and watcher wrote down.

        A Java member gives up everything in each rebalance, so of its owner nodes nothing is concluded.
        """
        java = {player.name for player in self.java}
        seen = [event for event in self._seen() if event.member not in java]
        played = [event for player in self.players for event in player.events()]
        return [*list(self.load.acked), *seen, *played, *list(self.operator_events)]

    def settle(self, timeout_s: float = 30.0) -> None:
        """A second more of the load, then its end; returns when all is delivered, or nothing has come for long."""
        if self.load.running:
            self.load.grow(int(RATE_PER_S))
        self.load.stop()
        wanted = {(event.place, event.offset) for event in self.load.acked}
        wanted -= {key for key in wanted if key[1] < self._floor(key[0])}
        missing = len(wanted)
        moved_ns = time.monotonic_ns()

        def is_over() -> bool:
            nonlocal missing, moved_ns
            seen = {(event.place, event.offset) for each in self.players for event in each.events()
                    if event.kind == "deliver"}  # fmt: skip
            left = len(wanted - seen)
            if left < missing:
                missing, moved_ns = left, time.monotonic_ns()
            return missing == 0 or time.monotonic_ns() - moved_ns > QUIET_S * NS

        wait_until(is_over, timeout_s * 4, "deliveries to come to their end", interval_s=0.2, state=lambda: missing)

    def _floor(self, place: Place) -> int:
        return max((event.offset for event in self.operator_events if event.place == place), default=0)

    def log_starts(self) -> dict[Place, Event]:
        """The last start that was seen of each log."""
        return {event.place: event for event in self.operator_events if event.kind == "log_start"}

    def row(self, scenario: str) -> Row:
        """The figures of it all."""
        gave_up = sum(player.gave_up for player in self.java)
        notes = [*self.notes, *([f"Java gave up {gave_up} times"] if gave_up else [])]
        if self.load.unsure:
            notes.append(f"{self.load.unsure} refused by brokers")
        figures = figures_of(self.history(), self.begun_ns)
        return Row(self.servers.name, scenario, self.cast, figures, self.owned_s, self.requests, "; ".join(notes))

    def assert_promises(self) -> None:
        """Fail with the proof of each violation by our members."""
        found = blame(self.history(), self.writes, {player.name for player in self.java}, self.limits, self.in_hand)
        assert not found, f"{len(found)} findings:\n" + "\n".join(map(str, found[:15]))
        if self.most_repeats is not None and not self.java:
            repeated = figures_of(self.history()).repeated
            assert repeated <= self.most_repeats, f"{repeated} messages came twice, {self.most_repeats} may"

    def close(self) -> None:
        """End all members."""
        for player in self.players:
            player.close()


_Stage = TypeVar("_Stage", bound=Stage)


@contextmanager
def open_stage(
    cluster: AnyCluster, cast: str, group: str, topic: str, setup: Setup, kind: type[_Stage],
    servers: Servers = KAFKA_08,
) -> Iterator[_Stage]:  # fmt: skip
    """A new topic under load, without members yet."""
    count = None if servers.generation is GENERATION_07 else PARTITIONS
    cluster.create_topic(topic, count, setup.replication, config=setup.topic)
    places = [(topic, partition) for partition in cluster.partitions(topic)]
    with ExitStack() as stack:
        watch = stack.enter_context(GroupWatch(cluster.zookeeper_connect, group, places))
        load = stack.enter_context(
            LastingLoad(cluster, [topic], PARTITIONS, RATE_PER_S, acks=setup.acks, padding_bytes=setup.padding_bytes)
        )
        stage = kind(servers, cast, cluster, group, topic, places, [watch], load, setup, stack)
        try:
            yield stage
        except BaseException:
            for player in stage.players:
                player.complain()
            raise
        finally:
            stage.close()
