"""Brokers that die, move, fall silent, and logs that shrink: consumption goes on, in order, without a rebalance."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from consuming import (
    PATIENCE_S,
    BackgroundReader,
    member,
    offsets_of,
    owner_node_transactions,
    position,
    preset_offset,
    produce,
    produce_each,
    read,
    read_available,
    stored,
    texts,
)

from simpleconsumer.consumer import EARLIEST, SimpleConsumer
from simpleconsumer.errors import MessageTooLarge, SimpleConsumerError
from zkconsumer import ConsumerConnector
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@dataclass
class Site:
    """Two brokers, each behind a proxy that clients are sent to."""

    cluster: KafkaCluster
    proxies: list[TcpProxy]


@pytest.fixture(scope="module")
def started_site() -> Iterator[Site]:
    cluster = KafkaCluster("0.8.2.2", brokers=2, settings={"log.retention.check.interval.ms": 200})
    proxies = [TcpProxy(("127.0.0.1", cluster.port(number))) for number in (0, 1)]
    for number, proxy in enumerate(proxies):
        cluster.advertise(number, proxy.port)
    try:
        with cluster:
            yield Site(cluster, proxies)
    finally:
        for proxy in proxies:
            proxy.close()


@pytest.fixture
def site(started_site: Site) -> Site:
    """Both brokers running, nothing in the way, whatever the test before did."""
    for proxy in started_site.proxies:
        proxy.clear()
    for number, broker in started_site.cluster.brokers.items():
        if not broker.running:
            started_site.cluster.start(number)
    return started_site


class AckedLoad:
    """Produces numbers one by one to whoever leads a partition; `acked` are those that all replicas have."""

    def __init__(self, cluster: KafkaCluster, topic: str, partition: int) -> None:
        self.acked: list[str] = []
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> AckedLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            leader = self._cluster.leader(self._topic, self._partition)
            if leader is None or leader < 0:
                self._ended.wait(0.05)
                continue
            try:
                with SimpleConsumer("127.0.0.1", self._cluster.port(leader), timeout_s=5) as broker:
                    while not self._ended.wait(0.002):
                        number += 1
                        broker.produce(self._topic, self._partition, [b"%d" % number], acks=-1, timeout_ms=3000)
                        self.acked.append(str(number))
            except SimpleConsumerError:
                self._ended.wait(0.05)

    def wait(self, more: int) -> None:
        """Returns when `more` further messages were acknowledged."""
        target = len(self.acked) + more
        wait_until(lambda: len(self.acked) >= target, PATIENCE_S, f"{more} more messages to be acknowledged")


def wait_all_acked(reader: BackgroundReader, load: AckedLoad) -> None:
    """Every acknowledged message came, and each offset exactly once and in order."""
    wait_until(
        lambda: set(load.acked) <= set(texts(reader.messages)),
        PATIENCE_S,
        "all acknowledged messages",
        state=lambda: (len(load.acked), len(reader.messages), reader.errors),
    )
    seen = offsets_of(reader.messages, 0)
    assert seen == list(range(len(seen)))
    assert reader.errors == []


def kill_leader(site: Site, topic: str) -> None:
    site.cluster.kill(0, expire=True)
    wait_until(lambda: site.cluster.leader(topic, 0) == 1, PATIENCE_S, "broker 1 to lead")


def move_leader(site: Site, topic: str) -> None:
    site.cluster.move_leader(topic, 0, 1)


@pytest.mark.catalogue("F3")
@pytest.mark.parametrize("change", [kill_leader, move_leader])
def test_another_leader_costs_no_message_no_order_and_no_rebalance(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str], change: Callable[[Site, str], None]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0, 1]})
    with member(site.cluster, fresh_group) as consumer, AckedLoad(site.cluster, topic, 0) as load:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        reader.wait(50)
        transactions = owner_node_transactions(site.cluster, fresh_group, topic)
        generation = consumer.status().generation
        change(site, topic)
        load.wait(100)
        load.__exit__()
        wait_all_acked(reader, load)
        assert owner_node_transactions(site.cluster, fresh_group, topic) == transactions
        assert consumer.status().generation == generation


def test_the_partitions_of_the_other_broker_do_not_notice(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [1], 1: [0]})
    with member(site.cluster, fresh_group) as consumer:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        produce_each(site.cluster, topic, 2, 1)
        reader.wait(2)
        site.cluster.kill(0, expire=True)
        with AckedLoad(site.cluster, topic, 0) as load:
            load.wait(100)
        wait_all_acked(reader, load)
        wait_until(lambda: error_of(consumer, topic, 1), PATIENCE_S, "the other partition to say what is wrong")
        assert error_of(consumer, topic, 0) is None


def error_of(consumer: ConsumerConnector, topic: str, partition: int) -> str | None:
    """What holds a partition up, by the member's own account."""
    [found] = [each for each in consumer.status().owned if (each.topic, each.partition) == (topic, partition)]
    return found.error


@pytest.mark.catalogue("F4")
def test_a_broker_that_comes_back_on_another_port_is_found_there(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]})
    with member(site.cluster, fresh_group) as consumer:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        sent = produce(site.cluster, topic, 0, ["before"])
        reader.wait(1)
        transactions = owner_node_transactions(site.cluster, fresh_group, topic)
        site.cluster.stop(0)
        before = site.proxies[0].port
        site.cluster.advertise(0, site.proxies[0].move())
        assert site.proxies[0].port != before
        site.cluster.start(0)
        site.cluster.wait_leaders(topic, [0])
        sent += produce(site.cluster, topic, 0, ["after"])
        assert texts(reader.wait(2)) == sent
        assert owner_node_transactions(site.cluster, fresh_group, topic) == transactions


@pytest.mark.catalogue("F2")
def test_all_brokers_gone_for_a_while_is_only_a_pause(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0], 1: [1]})
    with member(site.cluster, fresh_group) as consumer:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        sent = produce_each(site.cluster, topic, 2, 5, tag="before")
        reader.wait(10)
        transactions = owner_node_transactions(site.cluster, fresh_group, topic)
        for number in (0, 1):
            site.cluster.kill(number, expire=True)
        for partition in (0, 1):
            wait_until(lambda p=partition: error_of(consumer, topic, p), PATIENCE_S, "the status to say so")
        consumer.commit_offsets()  # ZooKeeper is there
        site.cluster.start_all()
        site.cluster.wait_leaders(topic, [0, 1])
        sent += produce_each(site.cluster, topic, 2, 5, tag="after")
        assert set(texts(reader.wait(20))) == set(sent)
        assert len(reader.messages) == 20
        assert reader.errors == []
        assert owner_node_transactions(site.cluster, fresh_group, topic) == transactions


def test_a_broker_that_keeps_silent_about_leaders_delays_but_does_not_stop_the_others(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [1]})
    sent = produce(site.cluster, topic, 0, ["one"])
    site.proxies[0].stall()
    silent = site.proxies[0]
    asked_before = silent.accepted

    def read_it() -> bool:
        with member(site.cluster, fresh_group, auto_commit_enable=False) as consumer:
            assert texts(read(consumer.create_message_streams({topic: 1})[topic], 1)) == sent
        return silent.accepted > asked_before

    # Brokers are asked in random order: until the silent one was first.
    wait_until(read_it, PATIENCE_S, "the silent broker to be asked")


@pytest.mark.catalogue("F2")
def test_a_connection_that_is_reset_again_and_again_loses_and_repeats_nothing(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]})
    with member(site.cluster, fresh_group) as consumer, AckedLoad(site.cluster, topic, 0) as load:
        reader = BackgroundReader(*consumer.create_message_streams({topic: 1})[topic])
        transactions = owner_node_transactions(site.cluster, fresh_group, topic)
        for _ in range(5):
            load.wait(20)
            seen = len(reader.messages)
            site.proxies[0].drop()
            reader.wait(seen + 20)
        load.__exit__()
        wait_all_acked(reader, load)
        assert owner_node_transactions(site.cluster, fresh_group, topic) == transactions


# -- ranges ------------------------------------------------------------------------------------------------------------


# Brokers look at retention 30 s after their start for the first time: these two are slow.


@pytest.fixture
def shrunk(site: Site, fresh_topic: Callable[[], str]) -> tuple[str, int, int]:
    """A topic whose first segments were deleted by retention; its earliest and its next offset."""
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]}, config={"segment.bytes": 2000, "retention.bytes": 4000})
    for number in range(40):
        produce(site.cluster, topic, 0, [f"{number}".rjust(500)])
    with SimpleConsumer("127.0.0.1", site.cluster.port(0)) as broker:
        earliest = 0

        def settled() -> bool:
            nonlocal earliest
            before, earliest = earliest, broker.get_offsets_before(topic, 0, EARLIEST)[0]
            return before == earliest > 0

        wait_until(settled, 30 + PATIENCE_S, "retention to delete segments", interval_s=0.5)
    return topic, earliest, 40


@pytest.mark.slow
def test_below_the_log_smallest_goes_on_at_its_beginning(
    site: Site, fresh_group: str, shrunk: tuple[str, int, int]
) -> None:
    topic, earliest, end = shrunk
    preset_offset(site.cluster, fresh_group, topic, 0, b"1")
    with member(site.cluster, fresh_group, auto_offset_reset="smallest") as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert offsets_of(read(stream, end - earliest), 0) == list(range(earliest, end))
        consumer.commit_offsets()
        assert stored(site.cluster, fresh_group, topic, 0) == str(end).encode()


@pytest.mark.slow
def test_below_the_log_largest_goes_on_at_its_end(site: Site, fresh_group: str, shrunk: tuple[str, int, int]) -> None:
    topic, _, end = shrunk
    preset_offset(site.cluster, fresh_group, topic, 0, b"1")
    with member(site.cluster, fresh_group, auto_offset_reset="largest") as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        wait_until(lambda: not read_available(stream) and position(consumer, topic, 0) == end, PATIENCE_S, "the end")
        produce(site.cluster, topic, 0, ["later"])
        assert offsets_of(read(stream, 1), 0) == [end]


def test_an_offset_above_the_log_is_reset_and_the_lower_position_is_committed(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]})
    produce(site.cluster, topic, 0, ["a", "b", "c"])
    preset_offset(site.cluster, fresh_group, topic, 0, b"1000")
    with member(site.cluster, fresh_group, auto_commit_interval_ms=20) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert texts(read(stream, 3)) == ["a", "b", "c"]
    assert stored(site.cluster, fresh_group, topic, 0) == b"3"


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_a_message_larger_than_the_fetch_size_is_fetched_by_itself(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]})
    sizes = [100, 50_000, 100, 900_000, 100]
    for size in sizes:
        produce(site.cluster, topic, 0, [b"x" * size])
    with member(site.cluster, fresh_group, fetch_message_max_bytes=500) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert [len(message.value) for message in read(stream, 5)] == sizes


@pytest.mark.catalogue("G1")
def test_a_message_larger_than_the_budget_is_told_once_and_passed_over(
    site: Site, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    site.cluster.create_topic(topic, assignment={0: [0]})
    for value in (b"small", b"x" * 100_000, b"next"):
        produce(site.cluster, topic, 0, [value])
    with member(site.cluster, fresh_group, fetch_message_max_bytes=500, queued_max_bytes=20_000) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        assert texts(read(stream, 1)) == ["small"]
        with pytest.raises(MessageTooLarge, match=f"{topic}.* 1.*100026 bytes") as raised:
            read(stream, 1)
        assert (raised.value.offset, raised.value.next_offset) == (1, 2)
        assert texts(read(stream, 1)) == ["next"]
