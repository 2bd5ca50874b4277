"""Asks ZooKeeper and the leaders where reading of each partition starts and ends.

Rules, and which failure each prevents:
- Nothing is read on a part of the answers. A partition whose leader does not answer is asked about again until the
  deadline; then the error names it.
- The ends of the logs are asked for after the offsets at a time, and the ends after the starts, so that a start is
  never after its end.
- Topics are looked up in ZooKeeper before a broker is asked about them: brokers create a topic that they are asked
  about.

Watches the node of a topic in ZooKeeper: a topic that is deleted, or deleted and created again, is not read on.

Rules, and which failure each prevents:
- The incarnation of the topic is compared (`created_zxid`), not only its existence: the offsets of a topic that was
  created again belong to other messages.
- The node is looked up again after each reconnection: a watch does not outlive its session.
- Nothing is concluded from an answer that did not come: reading goes on while ZooKeeper is away.

Threads: The port's callback thread sets `reason`; any thread reads it.
"""

from __future__ import annotations

import difflib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rebalance.errors import GroupRefused, UnreadableNode
from rebalance.subscription import sort_partitions
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Exists, Reply, SessionChange, Stat, WatchEvent, ZooKeeperPort
from simpleconsumer.consumer import EARLIEST, LATEST, SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.registry import no_partition
from zkconsumer.cluster.time_search import SearchLimits, TimeSearch, connect, find_entry, log_segments
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.errors import ReadFailed, shown_broker
from zkconsumer.topic_reader.start_at import StartAt, is_exact, start_offset, time_of
from zkconsumer_error import first_few

_BACKOFF: Final = Backoff(0.1, 2.0, 1.5)


class ReadBounds(NamedTuple):
    """Where reading of a partition starts and ends.

    Attributes:
        start: First offset.
        end: Offset after the last one; None to read without end.
        is_exact: The start was named as an offset; others may move if the start of the log moves.
    """

    start: int
    end: int | None
    is_exact: bool


@dataclass(frozen=True)
class Wanted:
    """The partitions and bounds that are read.

    Attributes:
        topic: Its name.
        partitions: Their numbers, in Kafka 0.7 their names; None for all.
        start: Where reading starts.
        is_bounded: Reading ends where the logs end now.
    """

    topic: str
    partitions: tuple[int | str, ...] | None
    start: StartAt
    is_bounded: bool


class BoundsSearch:
    """One search for the bounds of a topic's partitions.

    Args:
        cluster: Where to ask.
        timeout_s: Longest time without an answer about all partitions, in seconds.
    """

    def __init__(self, wanted: Wanted, cluster: Cluster, config: ConsumerConfig, timeout_s: float) -> None:
        self._wanted = wanted
        self._cluster = cluster
        self._config = config
        self._is_read_committed = config.isolation_level == READ_COMMITTED
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s

    def find(self) -> dict[TopicPartition, ReadBounds]:
        """Return the bounds of each partition.

        Raises:
            ReadFailed: The topic, a partition or an offset does not exist, or a leader does not answer in time.
            RebalanceError: ZooKeeper does not answer, or refuses a node.
        """
        wanted = self._wanted
        names = self._partitions()
        time_ms = time_of(wanted.start)
        at_time = {} if time_ms is None else self._at_time(names, time_ms)
        ends = self._log_ends(names)
        found: dict[TopicPartition, ReadBounds] = {}
        for name in names:
            earliest, latest = ends[name]
            start = start_offset(
                wanted.start, name, earliest, latest, at_time.get(name), read_committed=self._is_read_committed
            )
            found[name] = ReadBounds(start, latest if wanted.is_bounded else None, is_exact(wanted.start))
        return self._at_entries(found, ends) if isinstance(wanted.start, int) and wanted.start < 0 else found

    def _at_entries(
        self, bounds: dict[TopicPartition, ReadBounds], ends: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, ReadBounds]:
        """Return the bounds with starts that were counted back moved to the starts of entries (Kafka 0.7).

        A start whose entry is not found stays: the fetcher looks for it again, and says so.
        """
        inside = [name for name, each in bounds.items()
                  if isinstance(name.partition, str) and ends[name][0] < each.start < ends[name][1]]  # fmt: skip
        for name, broker in self._cluster.leaders(inside).items() if inside else ():
            with connect(broker, self._config.client_id, security=self._config.security) as consumer:
                entry = find_entry(consumer, name, bounds[name].start, SearchLimits(self._deadline))
            if not isinstance(entry, str):
                bounds[name] = bounds[name]._replace(start=entry.start)
        return bounds

    # -- topics and partitions -----------------------------------------------------------------------------------------

    def _partitions(self) -> list[TopicPartition]:
        topic, where = self._wanted.topic, self._config.where
        try:
            self._cluster.reader.usable_brokers("")
            existing = self._cluster.partitions([topic]).get(topic)
        except GroupRefused as error:
            raise ReadFailed(f"the topic cannot be read {where}: {error.reason}") from error
        except UnreadableNode as error:
            raise ReadFailed(str(error)) from error
        if existing is None:
            known = self._cluster.topics()
            if topic in known:
                sentence = f"topic {topic!r} is listed, but does not exist {where}"
                raise ReadFailed(sentence, "it is being created or deleted: try again")
            near = difflib.get_close_matches(topic, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`zkconsumer topics` lists the existing topics"
            raise ReadFailed(f"topic {topic!r} does not exist {where}", hint)
        if not existing:
            raise ReadFailed(f"topic {topic!r} {where} has no partitions now: no broker that has it is registered",
                             "start its brokers first; their partitions are then back")  # fmt: skip
        chosen = self._chosen()
        unknown = sort_partitions(set(chosen or ()) - set(existing))
        if unknown:
            raise ReadFailed(no_partition(topic, unknown[:5], existing), f"it has {_ranges(existing)}")
        return [TopicPartition(topic, number) for number in sort_partitions(existing if chosen is None else chosen)]

    def _chosen(self) -> set[int | str] | None:
        """Return the partitions that were named, None for all."""
        start, partitions = self._wanted.start, self._wanted.partitions
        if not isinstance(start, Mapping):
            return None if partitions is None else set(partitions)
        if partitions is not None and set(partitions) != set(start):
            raise ReadFailed(
                f"the partitions are {sort_partitions(partitions)}, and the start names offsets of "
                f"{sort_partitions(start)}",
                "name the same partitions in both, or leave `partitions` out",
            )
        return set(start)

    # -- questions to leaders ------------------------------------------------------------------------------------------

    def _log_ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        found: dict[TopicPartition, tuple[int, int]] = {}
        reasons: dict[TopicPartition, str] = {}
        failures = 0
        while missing := [name for name in names if name not in found]:
            left_s = max(1.0, self._deadline - time.monotonic())
            answers = self._cluster.log_ends(
                missing, (EARLIEST, LATEST), left_s, read_committed=self._is_read_committed
            )
            for name, answer in answers.items():
                if isinstance(answer, str):
                    reasons[name] = answer
                    continue
                earliest, latest = answer
                if earliest is None or latest is None or latest < 0:
                    reasons[name] = "its leader reports no offset"
                else:
                    # The log may have been truncated between the two requests; then the later answer counts.
                    found[name] = min(earliest, latest), latest
            failures = self._pause(names, found, reasons, failures)
        return found

    def _at_time(self, names: Sequence[TopicPartition], time_ms: int) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after the time, None where no message is that recent."""
        search = TimeSearch(dict.fromkeys(names, time_ms), False, self._config.fetch_message_max_bytes)
        reasons: dict[TopicPartition, str] = {}
        failures = 0
        while missing := [name for name in names if name not in search.found]:
            by_leader: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
            leaders = self._cluster.leaders(missing)
            for name, broker in leaders.items():
                by_leader[broker].append(name)
            reasons = self._cluster.why_unled([name for name in missing if name not in leaders])
            for broker, led in by_leader.items():
                reasons.update(self._ask(search, broker, led))
            failures = self._pause(names, search.found, reasons, failures)
        log_segments(search.by_segment)
        return {name: answer.offset for name, answer in search.found.items()}

    def _ask(self, search: TimeSearch, broker: Broker, names: Sequence[TopicPartition]) -> dict[TopicPartition, str]:
        """Ask one leader for offsets at a time; return why some partitions have no answer."""
        timeout_s = min(self._config.socket_timeout_ms / 1000, max(1.0, self._deadline - time.monotonic()))
        dialect = dialect_of(broker)
        with SimpleConsumer(
            broker.host, broker.port, timeout_s, self._config.client_id, dialect=dialect, security=self._config.security
        ) as consumer:
            try:
                refused = search.ask(consumer, broker, names)
            except SimpleConsumerError as error:
                return dict.fromkeys(names, f"{shown_broker(broker)}: {error}")
        return {name: str(BrokerError(code, name.topic, name.partition)) for name, code in refused.items()}

    def _pause(
        self,
        names: Sequence[TopicPartition],
        found: Mapping[TopicPartition, object],
        reasons: Mapping[TopicPartition, str],
        failures: int,
    ) -> int:
        """Wait before partitions without an answer are asked about again; return how many waits there were.

        Raises:
            ReadFailed: The deadline is over.
        """
        missing = [name for name in names if name not in found]
        if not missing:
            return failures
        wait_s = _BACKOFF.wait_s(failures)
        if time.monotonic() + wait_s > self._deadline:
            rows = [f"{name.topic}/{name.partition}: {reasons[name]}" for name in missing]
            shown = first_few(*rows, between="; ", rest="; and {} more partitions")
            answered = [name.partition for name in names if name in found]
            instead = f"; the leaders of {_ranges(answered)} answered: you can read only these" if answered else ""
            raise ReadFailed(
                f"the leaders did not report the ends of the logs within {self._timeout_s:g} s ({shown})",
                f"`zkconsumer topics --check` shows which partitions have no leader{instead}",
            )
        time.sleep(wait_s)
        return failures + 1


def _ranges(partitions: Sequence[int | str]) -> str:
    """Return `partition 0`, `partitions 0 to 7`, or the numbers if some are missing in between."""
    numbers = sort_partitions(partitions)
    if not numbers:
        return "no partitions"
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    if isinstance(numbers[0], int) and isinstance(numbers[-1], int) and len(numbers) == numbers[-1] - numbers[0] + 1:
        return f"partitions {numbers[0]} to {numbers[-1]}"
    return f"partitions {', '.join(map(str, numbers[:20]))}{' and more' if len(numbers) > 20 else ''}"


class TopicWatch:
    """Notices that a topic has gone.

    Args:
        topic: Its name.
        gone: Called once, on the port's callback thread; must return at once.

    Attributes:
        reason: Why the topic that was there at first is not there any more, a clause; empty while it is.
    """

    def __init__(self, topic: str, gone: Callable[[], None]) -> None:
        self.reason = ""
        self._topic = topic
        self._gone = gone
        self._port: ZooKeeperPort | None = None
        self._created_zxid: int | None = None
        self._round = 0

    def start(self, port: ZooKeeperPort, created_zxid: int) -> None:
        """Watch the incarnation of the topic that was created by this transaction."""
        self._port = port
        self._created_zxid = created_zxid
        self._look()

    def session_changed(self, change: SessionChange) -> None:
        """Look again after a reconnection."""
        if change.what == "connected":
            self._look()

    def _look(self) -> None:
        if self._port is None or self.reason:
            return
        self._round += 1
        this_round = self._round

        def changed(event: WatchEvent) -> None:
            if self._round == this_round:
                self._look()

        self._port.send(Exists(znodes.topic_path(self._topic), changed), self._answered)

    def _answered(self, reply: Reply) -> None:
        if reply.fault is not None or self.reason:
            return
        if reply.value is None:
            self.reason = f"topic {self._topic!r} was deleted"
        elif isinstance(reply.value, Stat) and reply.value.czxid != self._created_zxid:
            self.reason = f"topic {self._topic!r} was deleted and created again"
        if self.reason:
            self._gone()
