"""Reads brokers, topics and leaders in the metadata of the brokers alone: for clusters of which no ZooKeeper is given.

Rules, and which failure each prevents:
- Some addresses are given. Brokers that an answer lists are asked from then on; when none of them answers, the given
  addresses are asked again: all brokers may have moved.
- The broker with the fewest requests under way is asked first, and the next one if it does not answer (`AskingOrder`).
- A given address is probed first, as brokers of 0.8, 0.9 and later speak differently; so is each that an answer names
  (`Spoken`).
- Nothing that is asked creates a topic (KAFKA-1087).

Source: kafka.client.ClientUtils (0.8.2.2).

Remembers which incarnations of topics the brokers told of, by topic id: Kafka 2.8 and later.

A topic that was deleted and created again has another id; the offsets of a reader then belong to other messages.

Looks up partition leaders in the metadata of the brokers alone.

A broker that has just denied leading a partition is taken for its leader only if a second broker names it, too: the
metadata of one broker may be old (KAFKA-1367). Where no second broker answers, the word of the first one counts.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from rebalance.errors import GroupRefused, RebalanceError
from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation
from simpleconsumer.connection import Address
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.probe import has_no_older_peers, probed_broker
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, ClusterMetadata, TopicMetadata, TopicPartition
from zkconsumer.cluster.generation import AUTO
from zkconsumer.cluster.leaders import AskingOrder, leader_epochs, usable_leaders
from zkconsumer.cluster.spoken import Spoken
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer_error import ErrorCode, first_few

__all__ = ["Address", "BrokersSilent", "MetadataDirectory", "MetadataReader", "TopicIds", "TopicRefused"]


class TopicIds:
    """The ids of topics that were seen, and which topics have had more than one.

    Threads: Any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, set[str]] = {}
        self._replaced: set[str] = set()

    def note(self, topics: Mapping[str, TopicMetadata]) -> bool:
        """Take note of what a broker says; topics without an id are not looked at.

        Returns:
            Whether a topic has an id that it did not have before, when it had another one. A broker with outdated
            metadata may still give the former one.
        """
        has_new = False
        with self._lock:
            for name, topic in topics.items():
                seen = self._seen.setdefault(name, set())
                if topic.topic_id is None or topic.topic_id in seen:
                    continue
                seen.add(topic.topic_id)
                if len(seen) > 1:
                    self._replaced.add(name)
                    has_new = True
        return has_new

    def why_gone(self, topic: str) -> str:
        """Return why a topic is not the one that was seen first, a clause; empty while it is, or is not known."""
        with self._lock:
            return f"topic {topic!r} was deleted and created again" if topic in self._replaced else ""


log = logging.getLogger(__name__)
LONGEST_ANSWER_S: Final = 10.0
"""Longest wait for one broker's metadata; there are other brokers to ask."""
_NO_SUCH_TOPIC: Final = (3, 17)
"""Codes of topics that do not exist, and of names that no topic can have."""
_NO_ID: Final = -1


class BrokersSilent(ClusterSilent):
    """No known broker answers a metadata request."""

    remedy = ("check that the brokers run, that bootstrap.servers has their addresses, and that security.protocol "
              "fits these ports")  # fmt: skip


class TopicRefused(RebalanceError):  # noqa: N818 - like its siblings, it says what happened
    """The brokers answer a question about a topic with an error that does not mean that the topic is missing."""


class MetadataReader:
    """Asks the brokers of one cluster.

    It has the methods of `zkconsumer.cluster.registry.ClusterReader` that readers of topics need.

    Args:
        addresses: Some brokers of the cluster, at least one.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one broker, in seconds; ten seconds are the most that is used.
        counters: Counts requests and errors.
        rng: Chooses the order in which brokers are asked.
        pins_topics: A topic that was created again has no leaders: it is not the one that is read.
        security: TLS and SASL of connections to brokers; None for neither.
        on_recreated: Called when an answer shows that a topic was deleted and created again, on the asking thread.

    Attributes:
        refused, left_out: Empty: brokers name no broker that cannot be asked.
        topic_ids: The incarnations of topics that any answer named.
        cluster_id: The name of the cluster, once an answer had it (Kafka 0.10.1 and later).

    Threads: Any; each call blocks its caller alone.
    """

    refused: Mapping[str, str] = MappingProxyType({})
    left_out: Mapping[int, str] = MappingProxyType({})

    def __init__(
        self,
        addresses: Sequence[Address],
        client_id: str,
        timeout_s: float,
        counters: Counters | None = None,
        rng: random.Random | None = None,
        *,
        pins_topics: bool = False,
        security: Security | None = None,
        on_recreated: Callable[[], None] | None = None,
    ) -> None:
        self._security = security
        self._on_recreated = on_recreated
        self._pins_topics = pins_topics
        self._addresses = tuple(addresses)
        self._client_id = client_id
        self._timeout_s = min(timeout_s, LONGEST_ANSWER_S)
        self._counters = counters or Counters()
        self.topic_ids = TopicIds()
        self.cluster_id: str | None = None
        self._order = AskingOrder(rng)
        self._spoken = Spoken(client_id, self._timeout_s, security)
        self._lock = threading.Lock()  # of what follows
        self._known: Mapping[int, Broker] = {}
        self._asking: set[SimpleConsumer] = set()
        self._is_closed = False

    def close(self) -> None:
        """End the questions that are under way, and ask no more: nobody waits for the answers. Threads: any."""
        with self._lock:
            self._is_closed = True
            asking = list(self._asking)
        for consumer in asking:
            consumer.close()

    def metadata(self, topics: Collection[str] | None, *, besides: Collection[int] = ()) -> tuple[ClusterMetadata, int]:
        """Return what a broker says of some topics, and its id (-1 where only its address is known).

        A topic that does not exist has the error code 3 or 17.

        Args:
            topics: Their names; None for all, and none of them for the brokers alone.
            besides: Ids of brokers that are not to be asked.

        Raises:
            BrokersSilent: No broker answers.
        """
        failures: dict[Address, str] = {}
        with self._lock:
            known = {(each.host, each.port): each for each in self._known.values() if each.id not in besides}
        for address in self._order.of(known):
            found = self._ask(address, known[address], topics, failures)
            if found is not None:
                return found, known[address].id
        for address in self._order.of(self._addresses) if not besides else ():
            found = self._ask(address, None, topics, failures)
            if found is not None:
                return found, _NO_ID
        shown = first_few(*failures.values(), most=3, between="; ", rest="; and {} more")
        raise BrokersSilent(f"no broker answers a metadata request ({shown})")

    # -- what callers of the ZooKeeper registry ask --------------------------------------------------------------------

    def brokers(self) -> list[Broker]:
        """Return the brokers that are alive, by id.

        Raises:
            BrokersSilent: No broker answers.
        """
        found, _ = self.metadata(())
        return [found.brokers[number] for number in sorted(found.brokers)]

    def usable_brokers(self, group: str) -> list[Broker]:
        """Return the brokers that are alive, as `brokers` does."""
        return self.brokers()

    def find_generation(self, group: str, forced: str) -> Generation:
        """Return the generation of names and positions, which is that of 0.8 wherever there is metadata.

        Raises:
            GroupRefused: `kafka.generation` says 0.7, whose brokers have no metadata.
        """
        if forced in (GENERATION_08.name, AUTO):
            return GENERATION_08
        raise GroupRefused(group, f"kafka.generation is {forced}, and brokers of Kafka {forced} are only found "
                                  "through ZooKeeper")  # fmt: skip

    def topics(self) -> list[str]:
        """Return the topics, sorted.

        Raises:
            BrokersSilent: No broker answers.
        """
        return sorted(self.metadata(None)[0].topics)

    def partitions(self, topics: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        """Return the partitions of those of the topics that exist.

        Raises:
            BrokersSilent: No broker answers.
            TopicRefused: The brokers let nobody see one of the topics, or cannot say.
        """
        found = self.existing_topics(topics)
        return {name: tuple(sorted(row.partition for row in topic.partitions)) for name, topic in found.items()}

    def existing(self, topics: Sequence[str]) -> set[str]:
        """Return those of the topics that exist; errors are those of `partitions`."""
        return set(self.existing_topics(topics))

    def topic_exists(self, topic: str) -> bool:
        """Return True if the topic exists; errors are those of `partitions`."""
        return topic in self.existing([topic])

    def existing_topics(self, topics: Sequence[str]) -> dict[str, TopicMetadata]:
        """Return what is known of those of the topics that exist; errors are those of `partitions`."""
        found = self.metadata(topics)[0].topics if topics else {}
        existing: dict[str, TopicMetadata] = {}
        for name in topics:
            code = found[name].error_code
            if code in _NO_SUCH_TOPIC:
                continue
            if code not in (0, ErrorCode.LEADER_NOT_AVAILABLE) and not found[name].partitions:
                raise TopicRefused(str(BrokerError(code, name, None)))
            existing[name] = found[name]
        return existing

    def leaders(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the broker ids of leaders, without partitions that have no leader; errors are those of `metadata`."""
        found = usable_leaders(self.metadata({name.topic for name in partitions})[0]) if partitions else {}
        return {name: found[name] for name in partitions if name in found}

    def is_pinned_away(self, topic: str) -> bool:
        """Return True for a topic that was created again, if topics are pinned."""
        return self._pins_topics and bool(self.topic_ids.why_gone(topic))

    # -- questions to brokers ------------------------------------------------------------------------------------------

    def _ask(
        self,
        address: Address,
        broker: Broker | None,
        topics: Collection[str] | None,
        failures: dict[Address, str],
    ) -> ClusterMetadata | None:
        """Return the metadata of one broker; None, and the reason in `failures`, if it does not answer."""
        if self._is_closed:
            failures[address] = "{}:{} is no longer asked".format(*address)
            return None
        self._counters.add("broker_requests", "metadata")
        try:
            if broker is None:
                broker = probed_broker(*address, self._timeout_s, self._client_id, security=self._security)
                self._spoken.know([broker])
            found = self._metadata_of(broker, topics)
        except SimpleConsumerError as error:
            self._counters.add("errors", "broker_connection")
            where = "{}:{}".format(*address)
            failures[address] = str(error) if where in str(error) else f"{where}: {error}"
            self._spoken.forget(address)
            if self._order.failed(address) and not self._is_closed:
                log.warning("%s:%d does not answer a metadata request: %s", *address, error)
            return None
        self._order.answered(address)
        with self._lock:
            if found.brokers:
                self._known = found.brokers
        if self.topic_ids.note(found.topics) and self._on_recreated is not None:
            self._on_recreated()
        self.cluster_id = found.cluster_id or self.cluster_id
        return found

    @contextmanager
    def _ended_by_close(self, consumer: SimpleConsumer) -> Iterator[None]:
        """Have `close` end what is asked meanwhile."""
        with self._lock:
            self._asking.add(consumer)
            is_closed = self._is_closed
        if is_closed:
            consumer.close()
        try:
            yield
        finally:
            with self._lock:
                self._asking.discard(consumer)

    def _metadata_of(self, broker: Broker, topics: Collection[str] | None) -> ClusterMetadata:
        """Return the answer of one broker about some topics."""
        dialect = dialect_of(broker)
        with (
            SimpleConsumer(
                broker.host, broker.port, self._timeout_s, self._client_id, dialect=dialect, security=self._security
            ) as consumer,
            self._ended_by_close(consumer),
        ):
            if dialect is KAFKA011:
                found = consumer.ask(KAFKA011.cluster_metadata(topics))
                alike = has_no_older_peers(consumer.served_versions())
                return replace(found, brokers=self._spoken.of(found.brokers, are_alike=alike))
            # These brokers may create what is named, so nothing is named; and none of them lists versions.
            found = consumer.all_topic_metadata()
        version = broker.commit_version
        named = {number: each._replace(commit_version=version) for number, each in found.brokers.items()}
        brokers = self._spoken.of(named, are_alike=False)
        names = found.topics if topics is None else topics
        missing = {name: TopicMetadata(name, _NO_SUCH_TOPIC[0], ()) for name in names}
        return replace(found, brokers=brokers, topics={name: found.topics.get(name, missing[name]) for name in names})


class MetadataDirectory:
    """Finds the leaders of partitions; see `zkconsumer.cluster.leaders.LeaderDirectory`.

    Args:
        reader: Asks the brokers.

    Threads: One at a time.
    """

    def __init__(self, reader: MetadataReader) -> None:
        self._reader = reader
        self.reported: dict[TopicPartition, Broker] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.brokers: Mapping[int, Broker] = {}

    def leaders(self, wanted: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, Broker]:
        """Return the leaders that could be found, by one request, or two where a broker has denied leading.

        Raises:
            BrokersSilent: No broker answers.
        """
        self.reported, self.epochs = {}, {}
        if not wanted:
            return {}
        metadata, asked = self._reader.metadata({name.topic for name in wanted})
        self.epochs, self.brokers = leader_epochs(metadata), metadata.brokers
        self.reported = {
            name: broker for name, broker in _leaders_in(metadata).items()
            if not self._reader.is_pinned_away(name.topic)
        }  # fmt: skip
        denied = {name for name, denied_by in wanted.items()
                  if name in self.reported and self.reported[name].id == denied_by}  # fmt: skip
        confirmed = self._of_another_broker(denied, asked) if denied else {}
        return {
            name: confirmed.get(name, self.reported[name]) for name in wanted
            if name in self.reported and (name not in denied or name in confirmed)
        }  # fmt: skip

    def _of_another_broker(self, names: set[TopicPartition], asked: int) -> dict[TopicPartition, Broker]:
        """Return the leaders as another broker names them; as the first one did if there is no other one."""
        try:
            metadata, _ = self._reader.metadata({name.topic for name in names}, besides=[asked])
        except BrokersSilent:
            return {name: self.reported[name] for name in names}
        found = _leaders_in(metadata)
        self.epochs |= {name: epoch for name, epoch in leader_epochs(metadata).items() if name in names}
        return {name: found[name] for name in names if name in found}


def _leaders_in(metadata: ClusterMetadata) -> dict[TopicPartition, Broker]:
    return {
        name: metadata.brokers[leader] for name, leader in usable_leaders(metadata).items()
        if leader in metadata.brokers
    }  # fmt: skip
