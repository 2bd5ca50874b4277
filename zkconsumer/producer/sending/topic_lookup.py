"""Looks up the partitions of topics and their leaders, in the metadata of the brokers.

Rules, and which failure each prevents:

- The broker with the fewest requests under way is asked first, and the next one if it does not answer (`AskingOrder`);
  when no broker that an answer has named does, the given ones are asked again.
- A metadata request names topics. Brokers create a topic that does not exist if `auto.create.topics.enable` is on, as
  for Java's producers.
- A given address is probed first, as brokers of 0.8, 0.9 and later speak differently; so is each that an answer names
  (`Spoken`).
- An answer that lists no broker of a partition's leader counts as no leader: 0.8.0 lists only some brokers.

Threads: one at a time; any for `brokers`.

Source: kafka.producer.BrokerPartitionInfo, kafka.client.ClientUtils (0.8.2.2).

Looks up partitions and leaders of a cluster whose brokers are found in ZooKeeper.

With brokers of 0.8 and later, ZooKeeper names the brokers, and these name partitions and leaders. With Kafka 0.7,
ZooKeeper names everything: a partition belongs to the broker in its name, and a topic that does not exist is made by
its first message, in partition 0 of any broker.

Threads: one at a time; reads of ZooKeeper have a deadline.

Source: kafka.producer.ZKBrokerPartitionInfo (0.7.2).

Watches the brokers and topics of Kafka 0.7 in ZooKeeper, so that a producer learns of changes at once.

Requests of one session are served in their order. So what is read after a watch was asked for is not older than the
watch, and no change is missed between the two.

Threads: any; ZooKeeper's callbacks only mark a path, and call what was given, which must not wait.

Source: kafka.producer.ZKBrokerPartitionInfo (0.7.2) watches the same nodes.

LookupThread: looks up the partitions and leaders of topics when they are not known, or not any more.

Threads: one runs `_run`. The layout belongs to whoever holds the lock, which nobody does during a look-up.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from rebalance.errors import RebalanceError
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, Fault, GetChildren, Reply, WatchEvent, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import broker_and_number
from simpleconsumer.connection import Address
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, SimpleConsumerError
from simpleconsumer.probe import has_no_older_peers, probed_broker
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicMetadata
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.leaders import AskingOrder
from zkconsumer.cluster.spoken import Spoken
from zkconsumer.producer.batching.batch_queues import Limits
from zkconsumer.producer.sending.layout import Layout
from zkconsumer_error import ErrorCode, shown

log = logging.getLogger(__name__)
_LONGEST_ANSWER_S: Final = 3.0
_USABLE_CODES: Final = (0, 9)  # 9: a replica is down; the leader serves all the same


class FoundTopic(NamedTuple):
    """The result of a look-up of a topic.

    Attributes:
        leaders: Partition -> broker that leads it, or None; in order; empty if the topic is not there.
        reason: Why it is not there; empty if it is.
        is_final: Another look-up would find the same.
        is_absent: A broker answered that the topic does not exist: not yet, or not any more.
    """

    leaders: Mapping[int | str, Broker | None]
    reason: str = ""
    is_final: bool = False
    is_absent: bool = False


class TopicLookup:
    """Asks brokers about topics.

    Args:
        addresses: Returns the brokers to start from; brokers that were found later are asked, too.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds; three seconds are the most that is used.
        rng: Chooses the order in which brokers are asked.
        security: TLS and SASL of connections to brokers; None for neither.
        hint: The advice if a broker takes connections, and none has ever answered; a clause.
    """

    def __init__(
        self, addresses: Callable[[], Sequence[Address]], client_id: str, timeout_s: float,
        rng: random.Random | None = None, security: Security | None = None, hint: str = "",
    ) -> None:  # fmt: skip
        self._security = security
        self._hint = hint
        self._addresses = addresses
        self._client_id = client_id
        self._timeout_s = min(timeout_s, _LONGEST_ANSWER_S)
        self._order = AskingOrder(rng)
        self._spoken = Spoken(client_id, self._timeout_s, security)
        self._known: Mapping[int, Broker] = {}

    def know(self, brokers: Iterable[Broker]) -> None:
        """Take over what brokers speak, so that they are not probed."""
        self._spoken.know(brokers)

    def brokers(self) -> list[Broker]:
        """Return the brokers that the last answer named, and those at given addresses, in the order to ask them."""
        return [known or Broker(-1, *address, 2, KAFKA011.name, 2) for address, known in self._in_order()]

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics."""
        failures: list[SimpleConsumerError] = []
        for (host, port), known in self._in_order():
            try:
                found = known or probed_broker(host, port, self._timeout_s, self._client_id, security=self._security)
                with SimpleConsumer(
                    host, port, self._timeout_s, self._client_id, dialect=dialect_of(found), security=self._security
                ) as broker:
                    metadata = broker.topic_metadata(topics)
                    are_alike = has_no_older_peers(broker.served_versions())
            except AuthenticationFailed as error:
                return dict.fromkeys(topics, FoundTopic({}, str(error), is_final=True))
            except SimpleConsumerError as error:
                self._spoken.forget((host, port))  # another one may come back there
                if self._order.failed((host, port)):
                    log.warning("%s:%d does not answer a metadata request of a producer: %s", host, port, error)
                failures.append(error)
                continue
            self._order.answered((host, port))
            self.know([found])
            brokers = self._spoken.of(metadata.brokers, are_alike=are_alike)
            self._known = brokers or self._known
            return {topic: _found(metadata.topics[topic], brokers) for topic in topics}
        reason = f"no broker answers a request about it ({'; '.join(map(str, failures[:3]))})"
        if not self._known and any(isinstance(each, ConnectionFailed) and each.is_sent for each in failures):
            reason += self._hint and f"; {self._hint}"
        return dict.fromkeys(topics, FoundTopic({}, reason))

    def _in_order(self) -> list[tuple[Address, Broker | None]]:
        """Return the addresses to ask, with the broker where it is known what it speaks."""
        known = {(each.host, each.port): each for each in self._known.values()}
        given = [each for each in self._order.of(self._addresses()) if each not in known]
        in_order = [*self._order.of(known), *given]
        return [(each, known.get(each) or self._spoken.at(each)) for each in in_order]


def _found(topic: TopicMetadata, brokers: Mapping[int, Broker]) -> FoundTopic:
    if topic.error_code and not topic.partitions:
        error = BrokerError(topic.error_code, topic.topic, None)
        # A broker that has just started, knows no topic yet, and counts not even itself as alive says so, too.
        is_final = not error.retriable and topic.error_code != ErrorCode.INVALID_REPLICATION_FACTOR
        return FoundTopic({}, str(error), is_final, error.retriable)
    leaders: dict[int | str, Broker | None] = {}
    for each in sorted(topic.partitions, key=lambda each: each.partition):
        is_led = each.error_code in _USABLE_CODES and each.leader is not None
        leaders[each.partition] = brokers.get(each.leader or 0) if is_led else None
    return FoundTopic(leaders, "" if leaders else "it has no partitions", is_absent=not leaders)


class Watches07:
    """The watches of one producer.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
    """

    def __init__(self, port: ZooKeeperPort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._watched: set[str] = set()
        self._changed: Callable[[], None] | None = None

    def notify(self, changed: Callable[[], None]) -> None:
        """Have this called at every change from now on."""
        self._changed = changed

    def watch(self, topics: Iterable[str]) -> None:
        """Watch the brokers, and the brokers of each of the topics; topics that are watched already are left out."""
        if self._changed is None:
            return
        for path in (znodes.BROKERS, *map(znodes.topic_path, topics)):
            with self._lock:
                if path in self._watched:
                    continue
                self._watched.add(path)
            self._watch_children(path)

    def _watch_children(self, path: str) -> None:
        def fired(event: WatchEvent) -> None:
            self._forget(path)
            if self._changed is not None:
                self._changed()

        def answered(reply: Reply) -> None:
            if reply.fault is Fault.NO_NODE:
                self._port.send(Exists(path, fired), lost)
            else:
                lost(reply)

        def lost(reply: Reply) -> None:
            if reply.fault is not None:
                self._forget(path)

        self._port.send(GetChildren(path, fired), answered)

    def _forget(self, path: str) -> None:
        with self._lock:
            self._watched.discard(path)


class ZooKeeperLookup:
    """Asks the brokers that are registered in ZooKeeper.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds.
        rng: Chooses the order in which brokers are asked.
        security: TLS and SASL of connections to brokers; None for neither.
    """

    def __init__(
        self, port: ZooKeeperPort, client_id: str, timeout_s: float, rng: random.Random | None = None,
        security: Security | None = None,
    ) -> None:  # fmt: skip
        self._cluster = Cluster(port, client_id, timeout_s, security=security)
        self._registered: dict[int, Broker] = {}
        self._lookup = TopicLookup(self._addresses, client_id, timeout_s, rng, security)

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics."""
        try:
            self._registered = {broker.id: broker for broker in self._cluster.brokers()}
        except RebalanceError as error:
            return dict.fromkeys(topics, FoundTopic({}, f"the brokers are not known: {error}"))
        if not self._registered:
            return dict.fromkeys(topics, FoundTopic({}, "no broker is registered in ZooKeeper"))
        self._lookup.know(self._registered.values())
        return {topic: self._with_addresses(found) for topic, found in self._lookup.look_up(topics).items()}

    def brokers(self) -> list[Broker]:
        """Return the brokers that are registered; those of the last look-up while ZooKeeper does not answer."""
        try:
            return list(self._cluster.brokers())
        except RebalanceError:
            return list(self._registered.values())

    def _addresses(self) -> list[tuple[str, int]]:
        return [(broker.host, broker.port) for broker in self._registered.values()]

    def _with_addresses(self, found: FoundTopic) -> FoundTopic:
        """Return leaders with the addresses under which they are registered: other brokers may report older ones."""
        registered = self._registered
        return found._replace(leaders={
            number: leader and registered.get(leader.id, leader) for number, leader in found.leaders.items()
        })  # fmt: skip


class Lookup07:
    """Reads topics and brokers of Kafka 0.7 in ZooKeeper.

    Args:
        port: A connected ZooKeeper port; it stays the caller's.
        client_id: For the log.
        timeout_s: Longest wait for the reads, in seconds.

    Attributes:
        notify: Has a function called when brokers, or partitions of topics that were looked up, change.
    """

    def __init__(self, port: ZooKeeperPort, client_id: str, timeout_s: float) -> None:
        self._cluster = Cluster(port, client_id, timeout_s, security=None)
        self._watches = Watches07(port)
        self.notify = self._watches.notify

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return the partitions of each of the topics, sorted by broker and number, and watch them."""
        self._watches.watch(topics)
        try:
            brokers = {broker.id: broker for broker in self._cluster.brokers()}
            partitions = self._cluster.partitions(topics)
        except RebalanceError as error:
            return dict.fromkeys(topics, FoundTopic({}, f"the brokers are not known: {error}"))
        if not brokers:
            return dict.fromkeys(topics, FoundTopic({}, "no broker is registered in ZooKeeper"))
        found: dict[str, FoundTopic] = {}
        for topic in topics:
            names = [str(name) for name in partitions.get(topic, ())] or [f"{broker}-0" for broker in brokers]
            ordered = sorted(names, key=broker_and_number)
            found[topic] = FoundTopic({name: brokers.get(broker_and_number(name)[0]) for name in ordered})
        return found


_LONGEST_SLEEP_S: Final = 60.0


class Lookup(Protocol):
    """Finds partitions and leaders."""

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        """Return what is known about each of the topics; it has a deadline, and raises nothing."""


class LookupThread:
    """The look-ups of one producer.

    Args:
        lookup: Finds partitions and leaders.
        lock: Guards the layout.
        layout: The known partitions and leaders.
        limits: How often a look-up is tried, and when again.
        refresh_s: Time between two look-ups of all topics; None: only after a failure.
        take_over: Called with what a look-up found, without the lock; wakes `layouts`.

    Attributes:
        wake: Notified when something may have to be looked up.
        layouts: Notified when a look-up has ended, and when `check_open` may have changed its mind.

    Threads: any, for all methods.
    """

    def __init__(
        self,
        lookup: Lookup,
        lock: threading.Lock,
        layout: Layout,
        limits: Limits,
        refresh_s: float | None,
        take_over: Callable[[Mapping[str, FoundTopic]], None],
    ) -> None:
        self.wake = threading.Condition(lock)
        self.layouts = threading.Condition(lock)
        self._lookup = lookup
        self._lock = lock
        self._layout = layout
        self._limits = limits
        self._refresh_s = refresh_s
        self._refresh_at = None if refresh_s is None else time.monotonic() + refresh_s
        self._take_over = take_over
        self._looked_up: dict[str, float] = {}  # topic -> when the last look-up began that has ended
        self._in_vain: dict[str, float] = {}  # topic -> when `look_for` last asked for one, and did not find it
        self._has_sent = False
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="zkconsumer-producer-lookup", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Look nothing up any more. The lock is held."""
        self._has_ended = True
        self.wake.notify()

    def sent(self) -> None:
        """Take over that something was sent: until the first time no look-up is due. The lock is held."""
        if not self._has_sent:
            self._has_sent = True
            self.wake.notify()

    def again(self) -> None:
        """Have the partitions of all topics looked up: something has changed. Waits for nothing but the lock."""
        with self._lock:
            for topic in self._layout.known_topics():
                self._layout.want(topic, time.monotonic())
            self.wake.notify()

    def partitions(
        self, topic: str, wait_s: float | None, check_open: Callable[[], None]
    ) -> Mapping[int | str, int | None] | str:
        """Return the partitions of a topic with their leaders; or, as text, why they are not known.

        It waits until a look-up has found them, as often as a batch is tried. A topic that brokers do not know is
        looked up for `Limits.absence_s`, since it may be about to be created.

        Args:
            topic: The topic.
            wait_s: Longest wait; None for no other limit.
            check_open: Called before each wait; its error ends the wait.
        """
        layout = self._layout
        deadline = None if wait_s is None else time.monotonic() + wait_s
        with self._lock:
            earlier = layout.searches(topic).failures
            while not (known := layout.partitions(topic)):
                check_open()
                failed = layout.searches(topic)
                tried = failed.failures - earlier
                is_over = tried > self._limits.retries and failed.absent_since is None
                if tried and (failed.is_final or is_over or layout.is_absent(topic)):
                    return failed.reason
                if layout.was_just_absent(topic, time.monotonic(), self._limits.backoff_s):
                    return failed.reason
                layout.want(topic, time.monotonic() + (self._limits.backoff_s if tried else 0.0))
                self.wake.notify()
                left_s = _LONGEST_SLEEP_S if deadline is None else deadline - time.monotonic()
                if left_s <= 0.0:
                    return failed.reason or f"no broker has answered a request about it within {wait_s:g} s"
                self.layouts.wait(min(left_s, _LONGEST_SLEEP_S))
            return known

    def look_for(self, topic: str, partition: int | str, check_open: Callable[[], None]) -> str:
        """Look a topic up once more, unless this was just in vain; return why it was not found, empty if it was.

        Args:
            topic: A topic whose partitions are known.
            partition: One that it did not have.
            check_open: As for `partitions`.
        """
        now = time.monotonic()
        with self._lock:
            wanted_at = self._in_vain.get(topic, 0.0)
            if wanted_at + self._limits.backoff_s <= now:
                wanted_at = self._in_vain[topic] = now
            while self._looked_up.get(topic, 0.0) < wanted_at:
                check_open()
                left_s = now + _LONGEST_SLEEP_S - time.monotonic()
                if left_s <= 0.0:
                    return f"no look-up has ended within {_LONGEST_SLEEP_S:g} s"
                self._layout.want(topic, now)
                self.wake.notify()
                self.layouts.wait(left_s)
            if partition in (self._layout.partitions(topic) or ()):
                self._in_vain.pop(topic, None)
            return self._layout.searches(topic).reason

    def _run(self) -> None:
        while (topics := self._due_topics()) is not None:
            began_at = time.monotonic()
            try:
                found = self._lookup.look_up(topics)
            except Exception as error:
                log.exception("a bug in the look-up of topics")
                found = dict.fromkeys(topics, FoundTopic({}, f"a bug in the look-up: {shown(error)}"))
            with self._lock:
                self._looked_up.update(dict.fromkeys(topics, began_at))
            self._take_over(found)

    def _due_topics(self) -> list[str] | None:
        """Wait until leaders have to be looked up; None when nothing follows."""
        with self._lock:
            while not self._has_ended:
                now = time.monotonic()
                if self._refresh_at is not None and now >= self._refresh_at and self._has_sent:
                    self._has_sent = False
                    self._refresh_at = now + (self._refresh_s or 0.0)
                    return self._layout.known_topics()
                at = self._layout.lookup_at()
                if at is not None and at <= now:
                    return sorted(self._layout.stale)
                waits = [each for each in (at, self._refresh_at if self._has_sent else None) if each is not None]
                self.wake.wait(min(waits, default=now + _LONGEST_SLEEP_S) - now)
        return None
