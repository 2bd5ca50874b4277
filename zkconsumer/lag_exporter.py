"""A Prometheus exporter of the lag of all groups of a cluster, Java groups included, without joining any.

    with LagExporter("zk1:2181,zk2:2181/kafka") as exporter, exporter.serve(port=9308):
        ...

Needs the extra: pip install 'zkconsumer[prometheus]'. `zkconsumer exporter` is the same as a command.
docs/OPERATIONS.md explains each metric, and has rules for alerts.

Rules, and which failure each prevents:
- The cluster is read on a thread of its own, and a scrape returns what was read last: a scrape never waits for a
  broker, and many scrapes cost the cluster nothing.
- Every scrape says how old its figures are. Figures that are too old are left out: an alert on their absence fires,
  where old figures would look as if all was well.
- An unknown value has no figure: a sum of which no part is known would be 0, as if all was well. How many parts are
  not known is a figure of its own.
- An outage of ZooKeeper or of brokers ends nothing: it is counted, and the next round reads again.
- Brokers that refuse the exporter (a wrong password, a certificate) are asked again after a minute, then after twice as
  long each time, up to ten minutes: a try in each round would have the user locked out.
- Partitions are limited, so that a cluster with more of them than expected does not flood the monitoring; the sums by
  topic and group go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from zkconsumer.prometheus import MetricsServer, serve_collectors  # isort: skip - says what to install

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from simpleconsumer.closing import Closing
from simpleconsumer.errors import AuthenticationFailed
from zkconsumer.admin import Admin, BrokerAdmin, GroupLag, LagChoice, LagReader, LagReport, PartitionRow, TopicLag
from zkconsumer.admin.admin import connection_options
from zkconsumer.backoff import Backoff
from zkconsumer.errors import ConfigError, ZkConsumerError

__all__ = ["ExporterSettings", "LagCollector", "LagExporter"]

log = logging.getLogger(__name__)

_CLOSE_S: Final = 1.0
"""Longest wait for a round that is under way when the exporter is closed: it has written nothing, and may be left."""
REFUSED: Final = Backoff(60.0, 600.0)
"""Waits after rounds in which brokers have refused the exporter, if the interval is not longer."""
_GROUP: Final = ("group",)
_TOPIC: Final = ("group", "topic")
_PARTITION: Final = ("group", "topic", "partition")

_OF_GROUP: Final[tuple[tuple[str, str, Callable[[GroupLag], float | None]], ...]] = (
    ("registered_members", "Registered consumers.", lambda each: each.member_count),
    ("owned_partitions", "Partitions that have an owner.", lambda each: each.owned),
    ("unowned_partitions", "Partitions to which a member subscribes and that have no "
                           "owner.", lambda each: each.unowned),
    ("unknown_lag_partitions", "Partitions whose lag is not known.", lambda each: each.lag_unknown),
    ("problems", "Problems of the group, which `zkconsumer lag GROUP` lists.", lambda each: len(each.problems)),
)  # fmt: skip
_OF_TOPIC: Final[tuple[tuple[str, str, Callable[[TopicLag], float | None]], ...]] = (
    ("topic_lag_messages", "Sum of the known lags of a topic, in Kafka 0.7 in bytes; none while no lag is known.",
     lambda each: each.lag),
    ("topic_unknown_lag_partitions", "Partitions of a topic whose lag is not known.", lambda each: each.lag_unknown),
)  # fmt: skip
_OF_PARTITION: Final[tuple[tuple[str, str, Callable[[PartitionRow], float | None]], ...]] = (
    ("lag_messages", "Log end minus stored offset, in Kafka 0.7 in bytes; none while it is not known.",
     lambda row: row.lag),
    ("partition_owned", "1 while it has an owner; none while the owner cannot be read.",
     lambda row: None if row.owner_is_hidden else row.owner is not None),
)  # fmt: skip
_STORES: Final[tuple[tuple[str, Callable[[PartitionRow], int | None]], ...]] = (
    ("zookeeper", lambda row: row.offset_in_zookeeper),
    ("kafka", lambda row: row.offset_in_kafka),
)


@dataclass(frozen=True)
class ExporterSettings:
    """How an exporter reads, and the rows that it exports.

    Attributes:
        interval_s: Seconds from the start of a round to that of the next one.
        stale_after_s: Figures older than so many seconds are left out; None: three intervals, at least 90 s.
        max_partitions: Most partitions of groups with metrics of their own, in the order of groups, topics and numbers.
        with_owners: Also export the owner of each partition, as a label: a new time series at each change.
        client_id: The name under which brokers log and count the requests.
    """

    interval_s: float = 30.0
    stale_after_s: float | None = None
    max_partitions: int = 20_000
    with_owners: bool = False
    client_id: str = "zkconsumer-exporter"

    def __post_init__(self) -> None:
        for name, value, least in (("interval_s", self.interval_s, 1.0), ("stale_after_s", self.stale_after_s, 1.0),
                                   ("max_partitions", self.max_partitions, 0)):  # fmt: skip
            if value is not None and not value >= least:
                raise ConfigError(name, value, f"at least {least:g}")

    @property
    def oldest_s(self) -> float:
        """The age in seconds from which figures are left out."""
        return max(90.0, 3 * self.interval_s) if self.stale_after_s is None else self.stale_after_s


class _State(NamedTuple):
    """The data of a scrape.

    Attributes:
        report: The last report; None before the first round.
        read_at: When that round started, on the clock `time.monotonic`.
        is_up: The last round succeeded.
        reads: Rounds so far.
        errors: Kind -> rounds that failed.
        duration_s: How long the last round took.
    """

    report: LagReport | None = None
    read_at: float = 0.0
    is_up: bool = False
    reads: int = 0
    errors: Mapping[str, int] = {}
    duration_s: float = 0.0


class LagExporter(Closing):
    """Reads the lag of all groups of a cluster again and again, and exports it.

    The first connection may fail as any later one: the exporter starts, reports it and tries again. Reading starts with
    `start`, or at the start of a `with` block.

    Args:
        zookeeper: `host:port,host:port/chroot`: groups there, and groups that brokers of the cluster coordinate.
        brokers: Some brokers, `host:port,host:port`, instead of `zookeeper`: only groups that they coordinate.
        properties: Settings of the consumer by their names in Kafka; those of `zookeeper.*`, TLS and SASL are used.
        choice: Which groups and topics are read; all without one.
        settings: How it reads, and the rows that it exports.

    Raises:
        ConfigError: A property has a value that is not allowed.
        TypeError: Not one of `zookeeper` and `brokers` is given.

    Threads: Any.
    """

    def __init__(
        self,
        zookeeper: str | None = None,
        *,
        brokers: str | None = None,
        properties: Mapping[str, object] | None = None,
        choice: LagChoice | None = None,
        settings: ExporterSettings | None = None,
    ) -> None:
        if (zookeeper is None) == (brokers is None):
            raise TypeError("give either zookeeper or brokers")
        self._zookeeper = zookeeper
        self._brokers = brokers
        self._properties = properties
        self._choice = choice or LagChoice()
        self.settings = settings or ExporterSettings()
        self._state = _State()
        self._ended = threading.Event()
        self._said: str | None = None
        self._thread: threading.Thread | None = None
        # A wrong setting is reported at once, not in each round.
        if zookeeper is not None:
            connection_options(zookeeper, properties)
        else:
            self._open().close()

    def start(self) -> Self:
        """Start reading on a thread of its own; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lag-exporter", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop reading; a running round that waits for a broker is abandoned after a second."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def serve(self, port: int, host: str = "127.0.0.1") -> MetricsServer:
        """Return a server of the metrics at `http://host:port/metrics`, on a thread of its own.

        Args:
            port: 0 takes a free one; see `MetricsServer.port`.
            host: The address to listen on; "0.0.0.0" for all addresses.

        Raises:
            OSError: The port is taken, or may not be used.
        """
        return serve_collectors([LagCollector(self)], port, host)

    def state(self) -> _State:
        """Return the last figures, and how the last round went."""
        return self._state

    def __enter__(self) -> Self:
        return self.start()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        admin: Admin | BrokerAdmin | None = None
        monitor: LagReader | None = None
        refusals = 0
        while not self._ended.is_set():
            started_at, wait_s = time.monotonic(), self.settings.interval_s
            try:
                if admin is None or monitor is None:
                    admin = self._open()
                    monitor = admin.lag_monitor(self._choice)
                self._succeeded(monitor.read(), started_at)
                refusals = 0
            except AuthenticationFailed as error:
                wait_s = max(wait_s, REFUSED.wait_s(refusals))
                refusals += 1
                self._refused(error, started_at, wait_s)
            except ZkConsumerError as error:
                self._failed(error, started_at)
            except Exception as error:  # an exporter goes on, and its metrics say that something is wrong
                log.exception("the lag could not be read: this is a bug in zkconsumer")
                self._failed(error, started_at)
            self._ended.wait(max(0.0, wait_s - (time.monotonic() - started_at)))
        if admin is not None:
            admin.close()

    def _open(self) -> Admin | BrokerAdmin:
        client_id = self.settings.client_id
        if self._brokers is not None:
            return BrokerAdmin(self._brokers, properties=self._properties, client_id=client_id)
        assert self._zookeeper is not None
        return Admin(self._zookeeper, properties=self._properties, client_id=client_id)

    def _succeeded(self, report: LagReport, started_at: float) -> None:
        before = self._state
        self._state = _State(report, started_at, True, before.reads + 1, before.errors, report.duration_s)
        if self._said is not None:
            log.warning("the lag of the groups is read again")
            self._said = None

    def _refused(self, error: AuthenticationFailed, started_at: float, wait_s: float) -> None:
        self._count(error, started_at)
        self._said = type(error).__name__
        log.warning("a broker rejects the exporter: %s; the lag of the groups is not read; the next attempt is in %d "
                    "s, because more attempts may lock the user out", error, wait_s)  # fmt: skip

    def _failed(self, error: Exception, started_at: float) -> None:
        self._count(error, started_at)
        if type(error).__name__ != self._said:  # once for each kind in a row, not once a round
            log.warning("the lag of the groups cannot be read: %s; trying again", error)
            self._said = type(error).__name__

    def _count(self, error: Exception, started_at: float) -> None:
        before = self._state
        errors = Counter(before.errors)
        errors[type(error).__name__] += 1
        duration_s = time.monotonic() - started_at
        self._state = before._replace(is_up=False, reads=before.reads + 1, errors=dict(errors), duration_s=duration_s)


class LagCollector(Collector):
    """The metrics of an exporter, to be registered: `REGISTRY.register(LagCollector(exporter))`.

    Threads: Any.
    """

    def __init__(self, exporter: LagExporter) -> None:
        self._exporter = exporter

    def describe(self) -> Iterable[Metric]:
        """Return the metrics, without figures."""
        return list(_metrics(_State(), ExporterSettings(with_owners=True), 0.0))

    def collect(self) -> Iterable[Metric]:
        """Return the metrics with what was read last; without figures of groups when these are too old."""
        return list(_metrics(self._exporter.state(), self._exporter.settings, time.monotonic()))


def _metrics(state: _State, settings: ExporterSettings, now: float) -> Iterator[Metric]:
    age_s = None if state.report is None else now - state.read_at
    fresh = state.report if age_s is not None and age_s <= settings.oldest_s else None
    groups = () if fresh is None else fresh.groups
    rows = [(group, row) for group in groups for row in group.partitions]
    kept = rows[: settings.max_partitions]
    yield from _of_exporter(state, age_s, len(groups), len(rows) - len(kept))
    for name, meaning, of_group in _OF_GROUP:
        yield _gauge(f"group_{name}", meaning, _GROUP, (((each.group,), of_group(each)) for each in groups))
    topics = [(group, each) for group in groups for each in group.topics_lag][: settings.max_partitions]
    for name, meaning, of_topic in _OF_TOPIC:
        found = (((group.group, each.topic), of_topic(each)) for group, each in topics)
        yield _gauge(f"group_{name}", meaning, _TOPIC, found)
    for name, meaning, of_row in _OF_PARTITION:
        yield _gauge(f"group_{name}", meaning, _PARTITION, ((_labels(at, row), of_row(row)) for at, row in kept))
    yield _gauge(
        "group_committed_offset", "Stored offset, in each store that has one.", (*_PARTITION, "store"),
        (((*_labels(at, row), store), of_store(row)) for at, row in kept for store, of_store in _STORES),
    )  # fmt: skip
    ends = {(row.topic, str(row.partition)): row.log_end for _, row in kept}
    meaning = "Offset that the next message will get, in Kafka 0.7 a byte position."
    yield _gauge("topic_log_end_offset", meaning, ("topic", "partition"), ends.items())
    if settings.with_owners:
        owned = (((*_labels(at, row), row.owner), 1.0) for at, row in kept if row.owner is not None)
        yield _gauge("group_partition_owner", "1 for the thread that owns it.", (*_PARTITION, "owner"), owned)


def _of_exporter(state: _State, age_s: float | None, groups: int, dropped: int) -> Iterator[Metric]:
    single: tuple[tuple[str, str, float | None], ...] = (
        ("up", "1 while the last round of reading succeeded.", state.is_up),
        ("figures_age_seconds", "Time since the figures of the groups were read; none before the first time.", age_s),
        ("read_duration_seconds", "How long the last round took.", state.duration_s if state.reads else None),
        ("groups", "Groups with figures.", groups),
        (
            "dropped_partitions",
            "Partitions of groups without metrics of their own, because there are too many.",
            dropped,
        ),
    )
    for name, meaning, value in single:
        yield _gauge(f"exporter_{name}", meaning, (), [((), value)])
    reads = CounterMetricFamily("zkconsumer_exporter_reads", "Rounds of reading.")
    reads.add_metric([], state.reads)
    yield reads
    errors = CounterMetricFamily("zkconsumer_exporter_read_errors", "Rounds that failed.", labels=("kind",))
    for kind, count in state.errors.items():
        errors.add_metric([kind], count)
    yield errors


def _gauge(name: str, meaning: str, labels: tuple[str, ...], rows: Iterable[tuple[Any, float | None]]) -> Metric:
    gauge = GaugeMetricFamily(f"zkconsumer_{name}", meaning, labels=labels)
    for values, value in rows:
        if value is not None:
            gauge.add_metric(list(values), float(value))
    return gauge


def _labels(group: GroupLag, row: PartitionRow) -> tuple[str, str, str]:
    return (group.group, row.topic, str(row.partition))
