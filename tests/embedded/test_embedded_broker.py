"""The embedded broker on the wire: what Kafka 0.8.2.2 promises its clients, without ZooKeeper."""

from __future__ import annotations

import os
import select
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_wire import (
    Wire,
    entry,
    fetch_request,
    message_set,
    offsets_and_values,
    one,
    produce_request,
    request,
    string,
)

from simpleconsumer import EARLIEST, LATEST, BrokerError, FetchRequest, SimpleConsumer, TopicPartition
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, zookeeper=False, settings={"num.partitions": 2}) as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[Wire]:
    with Wire(cluster.port(0)) as connection:
        yield connection


def metadata_errors(answer: bytes) -> tuple[int, list[tuple[int, str]]]:
    """Number of brokers, and error and name of the topics (which have no partitions)."""
    (brokers,) = struct.unpack_from(">i", answer, 8)
    at = 12
    for _ in range(brokers):
        at += 4 + 2 + struct.unpack_from(">h", answer, at + 4)[0] + 4
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    topics = []
    for _ in range(count):
        error, length = struct.unpack_from(">hh", answer, at)
        topics.append((error, answer[at + 4 : at + 4 + length].decode()))
        at += 4 + length + 4
    return brokers, topics


class TestProduce:
    def test_without_acknowledgement_there_is_no_answer(self, wire: Wire) -> None:
        wire.send(produce_request("t", 0, message_set(b"a"), acks=0))
        assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a")]

    def test_a_refused_set_without_acknowledgement_closes_the_connection(self, wire: Wire) -> None:
        wire.send(produce_request("t", 7, message_set(b"a"), acks=0))
        assert wire.is_closed()

    @pytest.mark.parametrize("acks", [1, -1])
    def test_an_acknowledged_set_is_there(self, wire: Wire, acks: int) -> None:
        assert wire.produce("t", 0, message_set(b"a", b"b"), acks=acks) == (0, 0)
        assert wire.produce("t", 0, message_set(b"c"), acks=acks) == (0, 2)
        assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a"), (1, b"b"), (2, b"c")]

    def test_more_acknowledgements_than_replicas_time_out_though_the_set_is_stored(self, wire: Wire) -> None:
        assert wire.produce("t", 0, message_set(b"a"), acks=2, timeout_ms=50) == (7, 0)
        assert wire.fetch("t", 0, 0).high_watermark == 1

    def test_errors_of_one_partition_do_not_touch_another(self, wire: Wire) -> None:
        sets = [message_set(b"good"), entry(0, b"bad")[:-1] + b"X"]
        body = struct.pack(">hii", 1, 1000, 1) + string("t") + struct.pack(">i", 3)
        for partition, data in [(0, sets[0]), (1, sets[1]), (5, sets[0])]:
            body += struct.pack(">ii", partition, len(data)) + data
        answer = wire.ask(request(0, body))
        results = [struct.unpack_from(">ihq", answer, 8 + 4 + 3 + 4 + 14 * n) for n in range(3)]
        assert results == [(0, 0, 0), (1, 2, -1), (5, 3, -1)]


class TestFetch:
    def test_a_fetch_at_the_end_waits_for_its_time(self, wire: Wire) -> None:
        started = time.monotonic()
        assert wire.fetch("t", 0, 0, wait_ms=300) == (0, 0, b"")
        assert time.monotonic() - started >= 0.3

    def test_a_waiting_fetch_is_answered_by_the_message_it_waits_for(self, cluster: EmbeddedCluster) -> None:
        with Wire(cluster.port(0)) as consumer, Wire(cluster.port(0)) as producer:
            consumer.send(fetch_request("t", 0, 0, wait_ms=60_000))
            producer.produce("t", 0, message_set(b"a"))
            assert consumer.receive().endswith(b"a")

    def test_a_fetch_waits_for_its_minimum_over_all_sets(self, cluster: EmbeddedCluster) -> None:
        one_message = len(entry(0, b"a"))
        with Wire(cluster.port(0)) as consumer, Wire(cluster.port(0)) as producer:
            consumer.send(fetch_request("t", 0, 0, wait_ms=60_000, min_bytes=3 * one_message))
            for _ in range(2):
                producer.produce("t", 0, message_set(b"a"))
            assert not select.select([consumer.socket], [], [], 0.3)[0]
            producer.produce("t", 0, message_set(b"a"))
            assert consumer.receive().endswith(entry(2, b"a"))

    def test_a_waiting_fetch_burns_no_processor(self, cluster: EmbeddedCluster) -> None:
        with Wire(cluster.port(0)) as consumer:
            before = time.process_time()
            consumer.fetch("t", 0, 0, wait_ms=1000)
            assert time.process_time() - before < 0.5

    def test_an_error_in_one_partition_answers_at_once(self, wire: Wire) -> None:
        assert wire.fetch("t", 0, 99, wait_ms=60_000).error == 1
        assert wire.fetch("t", 9, 0, wait_ms=60_000).error == 3

    def test_a_waiting_fetch_ends_when_the_leader_moves(self) -> None:
        with EmbeddedCluster(2, zookeeper=False) as cluster:
            cluster.create_topic("t", assignment={0: [0]})
            with Wire(cluster.port(0)) as wire:
                wire.send(fetch_request("t", 0, 0, wait_ms=60_000))
                wait_until(lambda: cluster.brokers[0].connections == 1, 10, "the connection")
                cluster.move_leader("t", 0, 1)
                assert struct.unpack_from(">h", wire.receive(), 8 + 4 + 3 + 4 + 4)[0] == 6

    def test_a_fetch_of_nothing_is_answered_with_nothing(self, wire: Wire) -> None:
        assert wire.ask(request(1, struct.pack(">iiii", -1, 60_000, 1, 0)))[8:] == struct.pack(">i", 0)

    def test_large_sets_arrive_whole(self, cluster: EmbeddedCluster) -> None:
        values = [os.urandom(100_000) for _ in range(60)]
        with Wire(cluster.port(0)) as wire:
            for value in values:
                wire.produce("t", 0, message_set(value))
            found = offsets_and_values(wire.fetch("t", 0, 0, 100 << 20).data)
        assert found == list(enumerate(values))

    def test_a_system_without_sendfile_sends_the_same(
        self, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> int:
            raise OSError(22, "not on this socket")

        value = os.urandom(900_000)
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(value))
            monkeypatch.setattr(os, "sendfile", refuse)
            assert offsets_and_values(wire.fetch("t", 0, 0, 1 << 20).data) == [(0, value)]

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc, which is Linux's")
    def test_fetches_that_wait_fail_or_break_off_leak_no_descriptor(self, cluster: EmbeddedCluster) -> None:
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(b"x" * 50_000))
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(50):
                assert wire.fetch("t", 0, 0, wait_ms=1, min_bytes=1 << 30).error == 0
                assert wire.fetch("t", 0, 0).error == 0
                assert wire.fetch("t", 0, 9).error == 1
            for _ in range(10):
                with Wire(cluster.port(0)) as leaver:
                    leaver.send(fetch_request("t", 0, 0, wait_ms=50, min_bytes=1 << 30))
            wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, 10, "all descriptors to be given back")


class TestOffsetsAndMetadata:
    def test_offsets_of_partitions_that_are_not_here_are_error_3(self, wire: Wire) -> None:
        assert wire.offsets("t", 9, LATEST, 1) == (3, ())
        assert wire.offsets("nowhere", 0, EARLIEST, 1) == (3, ())

    def test_a_negative_number_of_offsets_is_an_unknown_error(self, wire: Wire) -> None:
        assert wire.offsets("t", 0, LATEST, -1) == (-1, ())

    def test_all_topics_are_those_that_exist(self, cluster: EmbeddedCluster) -> None:
        cluster.create_topic("u", 3)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
            metadata = consumer.all_topic_metadata()
        assert {name: len(topic.partitions) for name, topic in metadata.topics.items()} == {"t": 2, "u": 3}

    def test_a_name_that_no_topic_may_have_fails_the_whole_request(self, wire: Wire) -> None:
        answer = wire.ask(request(3, struct.pack(">i", 2) + string("t") + string("a/b")))
        assert metadata_errors(answer) == (0, [(17, "t"), (17, "a/b")])

    def test_without_automatic_creation_an_unknown_topic_is_error_3(self) -> None:
        settings = {"auto.create.topics.enable": False}
        with EmbeddedCluster(1, zookeeper=False, settings=settings) as cluster, Wire(cluster.port(0)) as wire:
            for _ in range(2):
                answer = wire.ask(request(3, struct.pack(">i", 1) + string("nowhere")))
                assert metadata_errors(answer) == (1, [(3, "nowhere")])

    def test_a_dead_replica_is_told_apart_from_a_dead_leader(self) -> None:
        with EmbeddedCluster(2, zookeeper=False) as cluster:
            cluster.create_topic("t", assignment={0: [0, 1], 1: [1]})
            cluster.stop(1)
            with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
                alive, dead = consumer.topic_metadata(["t"]).topics["t"].partitions
        assert (alive.error_code, alive.leader, alive.replicas, alive.isr) == (9, 0, (0,), (0,))
        assert (dead.error_code, dead.leader, dead.replicas, dead.isr) == (5, None, (), ())


class TestCommittedOffsets:
    def test_an_unknown_topic_takes_no_offset(self, cluster: EmbeddedCluster) -> None:
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer, pytest.raises(BrokerError) as refused:
            consumer.commit_offsets("g", {TopicPartition("nowhere", 0): 1})
        assert refused.value.code == 3

    def test_too_much_metadata_is_refused(self, wire: Wire) -> None:
        rest = struct.pack(">q", 1) + string("x" * 4097)
        answer = wire.ask(request(8, string("g") + one("t", 0, rest)))
        assert struct.unpack_from(">ih", answer, 8 + 4 + 3 + 4) == (0, 12)

    def commit_in_kafka(self, wire: Wire, offset: int, metadata: str) -> int:
        rest = struct.pack(">qq", offset, -1) + string(metadata)
        body = string("g") + struct.pack(">i", -1) + string("") + one("t", 0, rest)
        return int(struct.unpack_from(">h", wire.ask(request(8, body, version=1)), 8 + 4 + 3 + 4 + 4)[0])

    def committed_in_kafka(self, wire: Wire) -> tuple[int, str, int]:
        answer = wire.ask(request(9, string("g") + one("t", 0, b""), version=1))
        at = 8 + 4 + 3 + 4 + 4
        offset, length = struct.unpack_from(">qh", answer, at)
        end = at + 10 + length
        return offset, answer[at + 10 : end].decode(), struct.unpack_from(">h", answer, end)[0]

    def coordinator_error(self, wire: Wire) -> int:
        return int(struct.unpack_from(">h", wire.ask(request(10, string("g"))), 8)[0])

    def test_offsets_kept_in_kafka_outlive_a_crash(self, tmp_path: Path) -> None:
        with EmbeddedCluster(1, zookeeper=False, folder=tmp_path) as cluster:
            cluster.create_topic("t")
            with Wire(cluster.port(0)) as wire:
                assert self.committed_in_kafka(wire) == (-1, "", 16)
                assert self.coordinator_error(wire) == 15
                wait_until(lambda: self.coordinator_error(wire) == 0, 10, "a coordinator")
                assert self.committed_in_kafka(wire) == (-1, "", 0)
                assert self.commit_in_kafka(wire, 41, "before") == 0
                assert self.commit_in_kafka(wire, 42, "note") == 0
                assert self.committed_in_kafka(wire) == (42, "note", 0)
            cluster.kill(0)
            cluster.start(0)
            with Wire(cluster.port(0)) as wire:
                assert self.committed_in_kafka(wire) == (42, "note", 0)


class TestConnections:
    @pytest.mark.parametrize(
        "frame",
        [
            request(4, b""),
            request(11, b""),
            request(8, b"", version=2),
            request(0, b""),
            request(1, struct.pack(">iiii", -1, 0, 1, 1_000_000)),
            request(3, struct.pack(">i", 1) + struct.pack(">h", 100) + b"short"),
            struct.pack(">i", 0),
            struct.pack(">i", -1),
            struct.pack(">i", 100 * 1024 * 1024 + 1),
            b"GET / HTTP/1.1\r\n\r\n",
        ],
        ids=["internal api", "join group", "commit v2", "empty produce", "count too large", "cut string", "size 0",
             "size -1", "size above the limit", "http"],
    )  # fmt: skip
    def test_what_0_8_2_does_not_understand_closes_the_connection_alone(
        self, cluster: EmbeddedCluster, frame: bytes
    ) -> None:
        with Wire(cluster.port(0)) as bad, Wire(cluster.port(0)) as good:
            bad.send(frame)
            assert bad.is_closed()
            assert good.fetch("t", 0, 0, wait_ms=0).error == 0

    def test_requests_sent_ahead_are_answered_in_order(self, wire: Wire) -> None:
        for number in range(50):
            wire.send(request(10, string(f"group-{number}"), correlation_id=number))
        assert [struct.unpack_from(">i", wire.receive(), 4)[0] for _ in range(50)] == list(range(50))

    def test_hundreds_of_waiting_connections_are_all_served(self, cluster: EmbeddedCluster) -> None:
        waiting = [Wire(cluster.port(0)) for _ in range(300)]
        try:
            for wire in waiting:
                wire.send(fetch_request("t", 0, 0, wait_ms=60_000))
            with Wire(cluster.port(0)) as producer:
                producer.produce("t", 0, message_set(b"for all"))
            assert all(wire.receive().endswith(b"for all") for wire in waiting)
        finally:
            for wire in waiting:
                wire.socket.close()
        wait_until(lambda: cluster.brokers[0].connections == 0, 20, "the connections to end")

    def test_one_connection_too_many_is_closed_and_room_comes_back(self) -> None:
        settings = {"max.connections": 2}
        with EmbeddedCluster(1, zookeeper=False, settings=settings) as cluster:
            cluster.create_topic("t")
            first, second, third = (Wire(cluster.port(0)) for _ in range(3))
            assert third.is_closed()
            first.socket.close()
            third.socket.close()
            wait_until(lambda: cluster.brokers[0].connections == 1, 10, "room")
            with Wire(cluster.port(0)) as again, second:
                assert again.fetch("t", 0, 0, wait_ms=0).error == 0

    def test_a_stop_ends_idle_and_waiting_clients_at_once_and_leaves_no_thread(self) -> None:
        before = set(threading.enumerate())
        cluster = EmbeddedCluster(1, zookeeper=False).start_all()
        cluster.create_topic("t")
        with Wire(cluster.port(0)) as idle, Wire(cluster.port(0)) as waiting:
            idle.fetch("t", 0, 0, wait_ms=0)
            waiting.send(fetch_request("t", 0, 0, wait_ms=600_000))
            cluster.close()
            assert idle.is_closed()
            assert waiting.is_closed()
        assert set(threading.enumerate()) <= before

    def test_a_killed_broker_resets_its_connections(self, cluster: EmbeddedCluster) -> None:
        with Wire(cluster.port(0)) as wire:
            wire.fetch("t", 0, 0, wait_ms=0)
            cluster.kill(0)
            with pytest.raises(ConnectionResetError):
                wire.socket.recv(1)

    def test_a_paused_broker_keeps_its_connections_and_its_answers(self, cluster: EmbeddedCluster) -> None:
        cluster.pause(0)
        with Wire(cluster.port(0)) as wire:
            wire.send(fetch_request("t", 0, 0, wait_ms=0))
            assert not select.select([wire.socket], [], [], 0.3)[0]
            cluster.resume(0)
            assert struct.unpack_from(">i", wire.receive(), 4)[0] == 7

    def test_a_broker_comes_back_on_its_port_with_its_messages(self, cluster: EmbeddedCluster) -> None:
        port = cluster.port(0)
        with Wire(port) as wire:
            wire.produce("t", 0, message_set(b"a", b"b"))
        cluster.stop(0)
        cluster.start(0)
        assert cluster.port(0) == port
        with Wire(port) as wire:
            assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a"), (1, b"b")]
            assert wire.produce("t", 0, message_set(b"c")) == (0, 2)


class TestOurSimpleConsumer:
    """The cases of Kafka's PrimitiveApiTest."""

    def test_four_topics_in_one_fetch_come_in_order(self, cluster: EmbeddedCluster) -> None:
        topics = [f"test{n}" for n in range(1, 5)]
        for topic in topics:
            cluster.create_topic(topic)
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
            for topic in topics:
                consumer.produce(topic, 0, [f"a_{topic}".encode(), f"b_{topic}".encode()], acks=0)
            for topic in topics:
                wait_until(lambda t=topic: consumer.get_offsets_before(t, 0, LATEST) == [2], 10, f"2 in {topic}")
            results = consumer.multifetch([FetchRequest(topic, 0, 0, 10_000) for topic in topics])
            assert [result.high_watermark for result in results] == [2] * 4
            found = {topic: [m.value for m in consumer.fetch(topic, 0, 0)] for topic in topics}
        assert found == {topic: [f"a_{topic}".encode(), f"b_{topic}".encode()] for topic in topics}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
    def test_every_codec_comes_back_with_keys_and_nulls(self, cluster: EmbeddedCluster, codec: str) -> None:
        sent = [(b"k", b"v"), (None, b"no key"), (b"tombstone", None), (b"", b"")]
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
            assert consumer.produce("t", 0, sent, codec=codec) == 0
            assert consumer.produce("t", 0, sent, codec=codec) == 4
            found = list(consumer.fetch("t", 0, 0))
        assert [(m.key, m.value) for m in found] == sent * 2
        assert [m.offset for m in found] == list(range(8))

    @pytest.mark.parametrize(("partition", "offset", "code"), [(0, -1, 1), (99, 0, 3), (0, 5, 1)])
    def test_wrong_offsets_and_partitions_are_named(
        self, cluster: EmbeddedCluster, partition: int, offset: int, code: int
    ) -> None:
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer, pytest.raises(BrokerError) as refused:
            list(consumer.fetch("t", partition, offset))
        assert refused.value.code == code

    def test_offsets_are_committed_and_fetched(self, cluster: EmbeddedCluster) -> None:
        where = [TopicPartition("t", 0), TopicPartition("t", 1)]
        with SimpleConsumer("127.0.0.1", cluster.port(0)) as consumer:
            consumer.commit_offsets("g", {where[0]: 12})
            found = consumer.fetch_offsets("g", where)
        assert found[where[0]].offset == 12
        assert found[where[1]].offset == -1
