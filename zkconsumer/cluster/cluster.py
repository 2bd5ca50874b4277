"""The brokers, topics, partitions, leaders and log ends of a cluster, for everybody who needs them.

Topics, partitions and brokers are read in ZooKeeper, or where none is given in the metadata of the brokers. Leaders and
log ends are asked of the brokers.

Opens the way to the cluster that the settings of a consumer name: by its ZooKeeper, or by some of its brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import SessionChange, ZooKeeperPort
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation, broker_and_number
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.generation import AUTO, generation_named, generation_of_cluster, refuse_other_brokers
from zkconsumer.cluster.leaders import BrokerDirectory, LeaderDirectory
from zkconsumer.cluster.log_ends import LogOffsets, ask_leaders
from zkconsumer.cluster.metadata_reader import MetadataDirectory, MetadataReader
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S, configured_connection
from zkconsumer.config import ConsumerConfig

_DEADLINE_S: Final = 30.0


class Cluster:
    """One Kafka cluster.

    Args:
        source: A started ZooKeeper port, which stays the caller's; or a reader that asks the brokers alone.
        client_id: The name under which brokers log and count the requests.
        timeout_s: Longest wait for one answer of a broker, in seconds.
        read_timeout_s: Longest wait for five hundred reads of ZooKeeper, in seconds.
        counters: Counts requests and errors.
        forced_generation: The value of `kafka.generation`.
        security: TLS and SASL of connections to brokers; None for neither.

    Attributes:
        security: The same.
        reader: Reads brokers, topics and leaders: in ZooKeeper, or in metadata of the brokers.
        directory: Looks up leaders; remembers which brokers did not answer.

    Threads: One at a time for `leaders` and `log_ends`, any for the other methods.
    """

    def __init__(
        self,
        source: ZooKeeperPort | MetadataReader,
        client_id: str,
        timeout_s: float,
        read_timeout_s: float = READ_TIMEOUT_S,
        counters: Counters | None = None,
        forced_generation: str = AUTO,
        *,
        security: Security | None,
    ) -> None:
        self.security = security or Security()
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._read_timeout_s = read_timeout_s
        self._forced_generation = forced_generation
        self._port = None if isinstance(source, MetadataReader) else source
        self.reader: ClusterReader | MetadataReader
        self.directory: LeaderDirectory
        if isinstance(source, MetadataReader):
            self.reader, self.directory = source, MetadataDirectory(source)
        else:
            reader = self.reader = ClusterReader(source, read_timeout_s, self.security.protocol)
            self.directory = BrokerDirectory(
                client_id,
                timeout_s,
                reader.brokers,
                reader.existing,
                reader.leaders,
                counters=counters,
                security=self.security,
                read_epochs=lambda: reader.epochs,
            )

    def generation(self, registrations: Mapping[str, bytes] = MappingProxyType({})) -> Generation:
        """Return the generation of the cluster: what `kafka.generation` says, else what is found in ZooKeeper.

        Args:
            registrations: Path -> data of the registrations of a group, which decide if nothing else does.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        forced = generation_named(self._forced_generation)
        if forced is not None or self._port is None:
            return forced or GENERATION_08
        return generation_of_cluster(self._port, registrations, self._read_timeout_s)

    def refuse_other_generation(self) -> None:
        """Raise if the brokers are of another generation than `kafka.generation` says.

        Raises:
            ConfigError: Names one of them.
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        if self._forced_generation != AUTO:
            refuse_other_brokers(self._forced_generation, self.brokers())

    def brokers(self) -> list[Broker]:
        """Return the brokers that are registered and have a listener of `security.protocol`, by id.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        return self.reader.brokers()

    def topics(self) -> list[str]:
        """Return the topics, sorted.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
            AccessRefused: The list of topics may not be read.
        """
        return self.reader.topics()

    def partitions(self, topics: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        """Return the partitions of those of the topics that exist: numbers, or in Kafka 0.7 `broker-partition`.

        Raises:
            UnreadableNode: The node of a topic cannot be understood.
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
            AccessRefused: The node of a topic may not be read.
        """
        return self.reader.partitions(topics)

    def leaders(
        self, partitions: Sequence[TopicPartition] | Mapping[TopicPartition, int | None]
    ) -> dict[TopicPartition, Broker]:
        """Return the leaders that are known now; partitions without a leader are left out.

        Args:
            partitions: The partitions; in a mapping with the broker id that has just denied leading each, or None.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        wanted = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        return self.directory.leaders(wanted)

    def log_ends(
        self,
        partitions: Sequence[TopicPartition],
        times_ms: Sequence[int],
        deadline_s: float = _DEADLINE_S,
        *,
        read_committed: bool = False,
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the offsets of each partition at each of the times: of each leader by one request a time.

        Args:
            partitions: Partitions of topics that exist.
            times_ms: `EARLIEST`, `LATEST`, or milliseconds since 1970, which stand for the first message at or after
                then; as far as brokers or messages have no times, for the start of a segment that is not after it.
            deadline_s: Longest wait for all brokers together, in seconds.
            read_committed: Logs end at the first open transaction (Kafka 0.11 and later).

        Returns:
            Partition -> one offset for each time, None if no message is that recent; or, as text, why its offsets are
            not known.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        if not partitions:
            return {}
        leaders = self.leaders(partitions)
        found = ask_leaders(
            leaders, times_ms, self._client_id, self._timeout_s, deadline_s, self.security,
            read_committed=read_committed,
        )  # fmt: skip
        unled = self.why_unled([name for name in partitions if name not in found])
        return {name: found[name] if name in found else unled[name] for name in partitions}

    def why_unled(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Return why `leaders` found no leader of each of these partitions, or who leads it now; a clause.

        Raises:
            ClusterSilent: Neither ZooKeeper nor a broker answers in time.
        """
        of_07 = {name: broker_and_number(name.partition)[0] for name in partitions if isinstance(name.partition, str)}
        found = {name: self._why_away(broker) for name, broker in of_07.items()}
        numbered = [name for name in partitions if name not in found]
        leaders = self.reader.leaders(numbered) if numbered else {}
        return found | {name: self._why_unled(name, leaders.get(name)) for name in numbered}

    def _why_away(self, broker: int) -> str:
        """Return why the broker that has a partition of Kafka 0.7 cannot be asked."""
        if broker in self.reader.left_out:
            return f"broker {broker} cannot be used: {self.reader.left_out[broker]}"
        return f"broker {broker} is not registered"

    def _why_unled(self, name: TopicPartition, leader: int | None) -> str:
        if leader is not None and leader in self.reader.left_out:
            return f"its leader, broker {leader}, cannot be used: {self.reader.left_out[leader]}"
        if leader is not None:  # it was elected meanwhile, or leads and does not answer as it should
            return f"broker {leader} leads it"
        refused = self.reader.refused.get(znodes.partition_state_path(name.topic, int(name.partition)))
        return "no broker leads it" if refused is None else f"its leader is not known: {refused}"


class OpenCluster(NamedTuple):
    """A cluster that can be asked.

    Attributes:
        cluster: Its brokers, topics and leaders.
        port: The connection to its ZooKeeper; None where the brokers alone are asked.
    """

    cluster: Cluster
    port: ZooKeeperPort | None


def metadata_reader(config: ConsumerConfig, timeout_s: float, *, pins_topics: bool = False) -> MetadataReader | None:
    """Return what asks the brokers of `bootstrap.servers`; None where `zookeeper.connect` is given."""
    if config.zookeeper_connect is not None or config.bootstrap_servers is None:
        return None
    addresses = [(each.host, each.port) for each in config.bootstrap_servers]
    return MetadataReader(addresses, config.client_id, timeout_s, pins_topics=pins_topics, security=config.security)


@contextmanager
def open_cluster(
    config: ConsumerConfig,
    timeout_s: float,
    on_change: Callable[[SessionChange], None] | None = None,
    *,
    pins_topics: bool = False,
) -> Iterator[OpenCluster]:
    """Yield the cluster that the settings name; a connection to ZooKeeper is closed at the end of the block.

    Args:
        config: The settings.
        timeout_s: Longest wait for one answer of a broker, in seconds.
        on_change: Called with each change of the session with ZooKeeper, if there is one, on the port's thread.
        pins_topics: As for `MetadataReader`.

    Raises:
        What `configured_connection` raises. Brokers are first asked when something is wanted of them.
    """
    reader = metadata_reader(config, timeout_s, pins_topics=pins_topics)
    if reader is not None:
        yield OpenCluster(_cluster(reader, config, timeout_s), None)
        return
    with configured_connection(config, on_change) as port:
        cluster = _cluster(port, config, timeout_s)
        yield OpenCluster(cluster, port)


def _cluster(source: ZooKeeperPort | MetadataReader, config: ConsumerConfig, timeout_s: float) -> Cluster:
    return Cluster(
        source, config.client_id, timeout_s, forced_generation=config.kafka_generation, security=config.security
    )
