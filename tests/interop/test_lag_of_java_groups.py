"""The exporter beside real Java members that join, leave and are killed, and a real broker that dies and returns.

Each scrape of a running exporter has to add up: a partition of a group that exists has a lag, or counts as unknown, and
a sum is that of the lags that are shown. No scrape waits longer than a scraper does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from scrapes import Samples, scraped, value, values

from zkconsumer.admin import Admin
from zkconsumer.lag_exporter import ExporterSettings, LagExporter
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

WAIT_S = 60.0
PARTITIONS = 4
COMMITS = {"auto.commit.interval.ms": 200, "zookeeper.session.timeout.ms": 4000, "rebalance.backoff.ms": 500}
STORAGES = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """Two brokers, as each of the tests kills one."""
    with KafkaCluster("0.8.2.2", 2, settings={"offsets.topic.num.partitions": 4}) as running:
        yield running


@pytest.fixture
def topic(cluster: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """Partitions 0 and 2 on broker 0, 1 and 3 on broker 1, with ten messages each."""
    name = fresh_topic()
    cluster.create_topic(name, assignment={number: [number % 2] for number in range(PARTITIONS)})
    load(cluster, name, 10)
    return name


class Watched:
    """Scrapes an exporter all the time, and keeps what does not add up."""

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.port = port
        self.group, self.topic = group, topic
        self.faults: list[str] = []
        self.scrapes = 0
        self.slowest_s = 0.0
        self.seen = False
        self.deleted = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            started_at = time.monotonic()
            try:
                found = scraped(self.port)
            except OSError as error:
                self.faults.append(f"a scrape failed: {error}")
                continue
            self.slowest_s = max(self.slowest_s, time.monotonic() - started_at)
            self.scrapes += 1
            self._check(found)

    def _check(self, found: Samples) -> None:
        unknown = value(found, "group_unknown_lag_partitions", group=self.group)
        if unknown is None:  # the group does not exist, or the first round is not over
            if self.seen and not self.deleted:
                self.faults.append(f"the group is not shown: {found}")
            return
        self.seen = True
        lags = values(found, "group_lag_messages", group=self.group)
        total = value(found, "group_topic_lag_messages", group=self.group, topic=self.topic)
        owned = values(found, "group_partition_owned", group=self.group)
        ends = values(found, "topic_log_end_offset", topic=self.topic)
        if len(lags) + unknown != len(owned):
            self.faults.append(f"{len(lags)} lags and {unknown} unknown of {len(owned)} partitions")
        if total != (sum(lags.values()) if lags else None):
            self.faults.append(f"the sum is {total}, the lags are {lags}")
        for at, number in lags.items():
            place = dict(at)
            end = ends.get(frozenset({("topic", self.topic), ("partition", place["partition"])}))
            offsets = values(found, "group_committed_offset", **place)
            if end is None or number not in [end - offset for offset in offsets.values()]:
                self.faults.append(f"lag {number} at {place}, with the end {end} and the offsets {offsets}")
        if value(found, "exporter_up") != 1:
            self.faults.append("the exporter is down")

    def wait(self, what: str, condition: Callable[[Samples], bool]) -> Samples:
        found: Samples = {}

        def is_so() -> bool:
            found.clear()
            found.update(scraped(self.port))
            return condition(found)

        wait_until(is_so, WAIT_S, what, state=lambda: {at: n for at, n in found.items() if at[0].startswith("group")})
        return found

    def wait_group(self, **figures: float) -> Samples:
        """Wait until figures of the group are so, by the ends of their names."""
        return self.wait(str(figures), lambda found: figures == {
            name: value(found, f"group_{name}", group=self.group) for name in figures
        })  # fmt: skip

    def wait_lag(self, *lags: float | None) -> Samples:
        """Wait until the partitions have these lags."""
        return self.wait(f"the lags {lags}", lambda found: lags == tuple(
            value(found, "group_lag_messages", group=self.group, topic=self.topic, partition=str(number))
            for number in range(PARTITIONS)
        ))  # fmt: skip

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)


@contextmanager
def watched(cluster: KafkaCluster, group: str, topic: str) -> Iterator[Watched]:
    settings = ExporterSettings(interval_s=1.0)
    with (
        LagExporter(cluster.zookeeper_connect, settings=settings) as running,
        running.serve(0) as server,
        Watched(server.port, group, topic) as found,
    ):
        yield found
        assert found.faults == []
        assert found.scrapes > 20
        assert found.slowest_s < 5.0


def java_member(cluster: KafkaCluster, group: str, topic: str, name: str, storage: str) -> JavaMember:
    settings = {**COMMITS, **STORAGES[storage]}
    return JavaMember(cluster, group, topics={topic: 1}, consumer_id=name, settings=settings)


@pytest.mark.parametrize("storage", STORAGES)
def test_members_that_join_leave_and_are_killed(
    cluster: KafkaCluster, fresh_group: str, topic: str, storage: str
) -> None:
    with watched(cluster, fresh_group, topic) as exporter:
        with java_member(cluster, fresh_group, topic, "a", storage) as first:
            exporter.wait_group(registered_members=1, owned_partitions=4, unowned_partitions=0, problems=0)
            read = exporter.wait_lag(0, 0, 0, 0)
            assert value(read, "group_committed_offset", group=fresh_group, topic=topic, partition="3",
                         store=storage) == 10  # fmt: skip
            with java_member(cluster, fresh_group, topic, "b", storage) as second:
                exporter.wait_group(registered_members=2, owned_partitions=4, unowned_partitions=0)
                load(cluster, topic, 5)
                exporter.wait_lag(0, 0, 0, 0)
                second.kill()
                exporter.wait_group(registered_members=1, owned_partitions=4, unowned_partitions=0)
            first.stop()
        exporter.wait_group(registered_members=0, owned_partitions=0, unowned_partitions=0)
        load(cluster, topic, 7)
        alone = exporter.wait_lag(7, 7, 7, 7)
        assert value(alone, "group_topic_lag_messages", group=fresh_group, topic=topic) == 28
        exporter.deleted = True  # its end is no fault
        with Admin(cluster.zookeeper_connect) as admin:
            admin.delete_groups(fresh_group)
        exporter.wait("the series of the deleted group to end", lambda found: not any(
            dict(labels).get("group") == fresh_group for _, labels in found
        ))  # fmt: skip


@pytest.mark.parametrize("storage", [pytest.param("zookeeper", marks=pytest.mark.slow), "kafka"])
def test_a_broker_that_dies_and_returns(cluster: KafkaCluster, fresh_group: str, topic: str, storage: str) -> None:
    with watched(cluster, fresh_group, topic) as exporter:
        with java_member(cluster, fresh_group, topic, "a", storage):
            exporter.wait_lag(0, 0, 0, 0)
        exporter.wait_group(registered_members=0)
        load(cluster, topic, 3)
        exporter.wait_lag(3, 3, 3, 3)
        cluster.kill(1, expire=True)
        try:
            exporter.wait("lags to be unknown", lambda found: (
                value(found, "group_topic_unknown_lag_partitions", group=fresh_group, topic=topic) in (2, 4)
                and value(found, "group_lag_messages", group=fresh_group, topic=topic, partition="1") is None
            ))  # fmt: skip
            # Offsets in Kafka are not known either while their manager is the dead broker.
            sums = {2: 6} if storage == "zookeeper" else {2: 6, 4: None}
            found = exporter.wait("a sum of two partitions, or none at all", lambda found: (
                (value(found, "group_unknown_lag_partitions", group=fresh_group),
                 value(found, "group_topic_lag_messages", group=fresh_group, topic=topic)) in sums.items()
            ))  # fmt: skip
            assert (value(found, "exporter_figures_age_seconds") or 0.0) < 20.0
        finally:
            cluster.start(1)
        exporter.wait_lag(3, 3, 3, 3)
        exporter.wait_group(unknown_lag_partitions=0, problems=0)
