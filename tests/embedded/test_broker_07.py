"""What a broker of Kafka 0.7 does: what it stores and drops, when messages are seen, how it is registered.

Run on the embedded broker, and on a real one where its jar is given.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from broker_wire_07 import Wire07, entries, entry, gzipped, produce_body, several
from kafka_07 import BOTH_07, cluster_07, log_files

from zkconsumer.testing import Cluster, EmbeddedCluster, KafkaCluster, end_session
from zkconsumer.testing.kafka.topics_07 import partitions_of
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=BOTH_07)
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster | KafkaCluster]:
    with cluster_07(request.param) as made:
        yield made


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire07]:
    with Wire07(cluster.port(0)) as connection:
        yield connection


def wait_topic(cluster: Cluster, topic: str, names: list[str]) -> None:
    # A session may end while a test stops ZooKeeper.
    found = lambda: cluster.client.retry(partitions_of, cluster.client, topic)  # noqa: E731
    wait_until(lambda: found() == names, 20, f"{topic} as {names}")


# -- produce ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [entry(b"wrong", crc=1), entries(b"good") + entry(b"wrong", crc=1), gzipped(entry(b"wrong", crc=1)),
     entry(b"none", attributes=1), b"\0\0\0\x64short"],
    ids=["crc", "second-crc", "inner-crc", "no-gzip", "cut"],
)  # fmt: skip
def test_a_set_that_cannot_be_stored_closes_the_connection_and_makes_the_topic(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str], data: bytes
) -> None:
    topic = fresh_topic()
    wire.put(topic, 0, data)
    assert wire.is_closed()
    wait_topic(cluster, topic, ["0-0", "0-1"])
    with Wire07(cluster.port(0)) as again:
        assert again.get(topic, 0, 0) == (0, b"")


def test_a_wrong_partition_closes_the_connection_and_makes_no_topic(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]
) -> None:
    topic, other = fresh_topic(), fresh_topic()
    wire.put(topic, 7, entries(b"lost"))
    assert wire.is_closed()
    with Wire07(cluster.port(0)) as again:
        again.put(other, 0, entries(b"kept"))
        wait_topic(cluster, other, ["0-0", "0-1"])
    assert cluster.client.exists(f"/brokers/topics/{topic}") is None


def test_a_message_that_is_too_large_is_dropped_without_a_sign(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    wire.put(topic, 0, entries(b"before", bytes(1_000_001)))
    wire.put(topic, 0, entries(b"after"))
    wire.wait_end(topic, 0, 15)
    assert wire.get(topic, 0, 0) == (0, entries(b"after"))
    wire.put(topic, 0, entries(bytes(1_000_000)))
    wire.wait_end(topic, 0, 15 + 1_000_010)


def test_the_parts_of_a_multiproduce_stand_for_themselves(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    parts = [produce_body(topic, 0, entries(b"one")), produce_body(topic, 1, entries(bytes(1_000_001))),
             produce_body(topic, 1, entries(b"two"))]  # fmt: skip
    wire.send(several(3, parts))
    wire.wait_end(topic, 1, 13)
    assert wire.get(topic, 0, 0).data + wire.get(topic, 1, 0).data == entries(b"one", b"two")
    wire.send(several(3, [parts[0], produce_body(topic, 1, entry(b"x", crc=1)), parts[0]]))
    assert wire.is_closed()
    with Wire07(cluster.port(0)) as again:
        again.wait_end(topic, 0, 26)
        assert again.end(topic, 1) == 13


def test_what_is_behind_the_last_whole_entry_is_left_out(wire: Wire07, fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    wire.put(topic, 0, entries(b"whole", b"cut")[:-1])
    wire.put(topic, 0, entries(b"next"))
    wire.wait_end(topic, 0, 29)
    assert wire.get(topic, 0, 0).data == entries(b"whole", b"next")


def test_a_fetch_makes_no_topic(cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]) -> None:
    topic, other = fresh_topic(), fresh_topic()
    assert wire.get(topic, 1, 5) == (0, b"")
    assert wire.positions(topic, 1, -2) == [0]
    wire.put(other, -1, b"")
    wait_topic(cluster, other, ["0-0", "0-1"])
    assert cluster.client.exists(f"/brokers/topics/{topic}") is None


# -- registration -----------------------------------------------------------------------------------------------------


def test_broker_and_topics_are_registered_as_text(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    port = cluster.port(0)
    before = time.time_ns() // 1_000_000
    text, stat = cluster.client.get("/brokers/ids/0")
    found = re.fullmatch(rf"127\.0\.0\.1-(\d+):127\.0\.0\.1:{port}", text.decode())
    assert found is not None
    assert before - 600_000 < int(found[1]) <= before
    wire.put(topic, 1, b"")
    wait_topic(cluster, topic, ["0-0", "0-1"])
    assert not cluster.client.get(f"/brokers/topics/{topic}")[0]
    assert cluster.client.get_children(f"/brokers/topics/{topic}") == ["0"]
    data, child = cluster.client.get(f"/brokers/topics/{topic}/0")
    assert (data, child.ephemeralOwner) == (b"2", stat.ephemeralOwner)


def test_after_the_end_of_its_session_everything_is_registered_again(
    cluster: Cluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    text, stat = cluster.client.get("/brokers/ids/1")
    end_session(cluster.zookeeper_hosts, stat.ephemeralOwner)

    def is_back() -> bool:
        node = cluster.client.exists("/brokers/ids/1")
        return node is not None and node.ephemeralOwner != stat.ephemeralOwner

    wait_until(is_back, 30, "broker 1 to be registered again")
    wait_topic(cluster, topic, ["0-0", "0-1", "1-0", "1-1"])
    again, new = cluster.client.get("/brokers/ids/1")
    assert again != text
    assert again.split(b":")[1:] == text.split(b":")[1:]
    assert cluster.client.exists(f"/brokers/topics/{topic}/1").ephemeralOwner == new.ephemeralOwner


def test_a_broker_takes_its_partitions_along_and_brings_its_log_back(
    cluster: EmbeddedCluster | KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    [place] = cluster.produce(topic, [b"kept"], partition="1-1")
    assert place.offset == 0
    cluster.stop(1)
    wait_topic(cluster, topic, ["0-0", "0-1"])
    [log] = log_files(cluster, 1, f"{topic}-1")
    assert log.read_bytes() == entries(b"kept")
    assert (log.parent.parent / ".kafka_cleanshutdown").exists()
    cluster.start(1)
    wait_topic(cluster, topic, ["0-0", "0-1", "1-0", "1-1"])
    [place] = cluster.produce(topic, [b"more"], partition="1-1")
    assert place.offset == len(entries(b"kept"))


def test_a_killed_broker_cuts_its_log_at_the_first_bad_entry(
    cluster: EmbeddedCluster | KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    cluster.produce(topic, [b"one", b"two"], partition="1-0")
    cluster.kill(1, expire=True)
    [log] = log_files(cluster, 1, f"{topic}-0")
    log.write_bytes(entries(b"one", b"two") + entry(b"bad", crc=7) + entries(b"behind"))
    cluster.start(1)
    with Wire07(cluster.port(1)) as wire:
        assert wire.end(topic, 0) == 26
        assert wire.get(topic, 0, 0).data == entries(b"one", b"two")


def test_a_paused_broker_answers_nothing_and_then_everything(
    cluster: Cluster, wire: Wire07, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.produce(topic, [b"one"], partitions=2)
    wire.socket.settimeout(0.5)
    cluster.pause(0)
    try:
        with pytest.raises(TimeoutError):
            wire.positions(topic, 0, -1)
    finally:
        cluster.resume(0)
    wire.socket.settimeout(20)
    assert wire.receive()[4:] == b"\0\0" + b"\0\0\0\2" + (13).to_bytes(8, "big") + bytes(8)


def test_a_broker_comes_back_before_the_session_of_its_killed_process_ends(
    cluster: Cluster, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    cluster.create_topic(topic)
    before = cluster.client.exists("/brokers/ids/1").ephemeralOwner
    cluster.kill(1)
    assert cluster.client.exists("/brokers/ids/1").ephemeralOwner == before
    cluster.start(1)
    wait_topic(cluster, topic, ["0-0", "0-1", "1-0", "1-1"])
    owner = cluster.client.exists("/brokers/ids/1").ephemeralOwner
    assert owner != before
    wait_until(lambda: cluster.client.exists(f"/brokers/topics/{topic}/1").ephemeralOwner == owner, 20, "a new node")


def test_a_topic_that_is_made_without_zookeeper_is_registered_when_it_is_back(fresh_topic: Callable[[], str]) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(2, generation="0.7", chroot="/old/kafka") as cluster, Wire07(cluster.port(1)) as wire:
        cluster.create_topic("before")
        cluster.zookeeper.kill()
        wire.put(topic, 1, entries(b"kept"))
        wire.wait_end(topic, 1, 14)
        cluster.zookeeper.start()
        wait_topic(cluster, topic, ["1-0", "1-1"])
        wait_topic(cluster, "before", ["0-0", "0-1", "1-0", "1-1"])
        assert wire.get(topic, 1, 0).data == entries(b"kept")


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH_07)
def test_messages_are_seen_when_they_are_flushed(kind: str) -> None:
    settings = {"log.flush.interval": 4, "log.default.flush.interval.ms": 2000,
                "log.default.flush.scheduler.interval.ms": 50, "topic.partition.count.map": "few:1,many:3"}  # fmt: skip
    with cluster_07(kind, 1, settings=settings) as cluster, Wire07(cluster.port(0)) as wire:
        assert cluster.create_topic("many") == {"0-0": 0, "0-1": 0, "0-2": 0}
        wire.put("few", 0, entries(b"a", b"b", b"c"))
        assert wire.end("few", 0) == 0
        assert wire.get("few", 0, 0) == (0, b"")
        assert wire.get("few", 0, 11) == (1, b"")
        wire.put("few", 0, entries(b"d"))
        assert wire.end("few", 0) == 44
        wire.put("few", 0, gzipped(entries(b"e", b"f", b"g")))
        assert wire.end("few", 0) == 44
        started = time.monotonic()
        wait_until(lambda: wire.end("few", 0) > 44, 10, "the flush by time")
        assert time.monotonic() - started < 4
        assert wire.get("few", 1, 0) == (3, b"")


@pytest.mark.parametrize("kind", BOTH_07)
def test_segments_and_positions_by_time(kind: str) -> None:
    with cluster_07(kind, 1, settings={"log.file.size": 20}) as cluster, Wire07(cluster.port(0)) as wire:
        ends, times = [], []
        for value in (b"a" * 15, b"b" * 15, b"c" * 15):
            wire.put("clicks", 0, entries(value))
            ends.append(wire.end("clicks", 0))
            times.append(time.time_ns() // 1_000_000)
            time.sleep(1.1)  # a Java of that age knows whole seconds of a file
        assert ends == [25, 50, 75]
        assert wire.positions("clicks", 0, -1) == [75, 50, 25, 0]
        assert wire.positions("clicks", 0, -1, 2) == [75, 50]
        assert wire.positions("clicks", 0, -2) == [0]
        assert wire.positions("clicks", 0, times[0] + 1050)[-1:] == [0]
        assert wire.positions("clicks", 0, times[0] - 5000) == []
        assert wire.get("clicks", 0, 0).data == entries(b"a" * 15)
        assert wire.get("clicks", 0, 30).data == entries(b"b" * 15)[5:]
        assert [path.name for path in log_files(cluster, 0, "clicks-0")] == [
            f"{start:020d}.kafka" for start in (0, 25, 50)
        ]


def test_retention_takes_whole_segments_while_the_broker_runs() -> None:
    settings = {"log.file.size": 20, "log.retention.size": 60}
    made = EmbeddedCluster(1, generation="0.7", zookeeper=False, settings=settings)
    with made as cluster, Wire07(cluster.port(0)) as wire:
        for value in (b"a" * 15, b"b" * 15, b"c" * 15, b"d" * 15):
            wire.put("clicks", 0, entries(value))
        wait_until(lambda: wire.positions("clicks", 0, -2) == [25], 10, "one segment to go")
        assert wire.get("clicks", 0, 0) == (1, b"")
        assert cluster.log("clicks", "0-0").size_bytes == 75


def test_what_a_killed_broker_has_not_flushed_may_be_gone_and_is_never_seen_before() -> None:
    with EmbeddedCluster(1, generation="0.7", settings={"log.flush.interval": 100,
                         "log.default.flush.interval.ms": 60_000}) as cluster:  # fmt: skip
        with Wire07(cluster.port(0)) as wire:
            wire.put("clicks", 0, entries(b"a"))
            assert wire.end("clicks", 0) == 0
            assert cluster.log("clicks", "0-0").written_end == 11
            cluster.kill(0, expire=True)
        cluster.start(0)
        with Wire07(cluster.port(0)) as wire:
            assert wire.end("clicks", 0) in (0, 11)
        cluster.stop(0)
        cluster.start(0)
