"""Faults that are declared affect the requests that they name, as often as declared, and nothing else."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from broker_wire import Wire, entry, fetch_request, gzipped, message_set, offsets_and_values, request, string

from simpleconsumer import (
    BrokerError,
    ConnectionFailed,
    CrcMismatch,
    FetchRequest,
    SimpleConsumer,
    SimpleConsumerError,
    decode_messages,
)
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(2, zookeeper=False) as running:
        running.create_topic("t", assignment={0: [0], 1: [0]})
        with Wire(running.port(0)) as wire:
            wire.produce("t", 0, message_set(b"a", b"b", b"c"))
        yield running


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[Wire]:
    with Wire(cluster.port(0)) as connection:
        yield connection


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[SimpleConsumer]:
    with SimpleConsumer("127.0.0.1", cluster.port(0), timeout_s=10) as connection:
        yield connection


class TestErrorCodes:
    def test_a_code_comes_so_many_times_and_then_no_more(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        fault = cluster.faults.add(Fault.error(6, api="fetch", topic="t", partition=0), times=3)
        assert [wire.fetch("t", 0, 0).error for _ in range(5)] == [6, 6, 6, 0, 0]
        assert cluster.faults.used(fault) == 3

    def test_other_partitions_apis_and_brokers_go_on(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.error(6, api="fetch", topic="t", partition=0).only(broker=1), times=None)
        cluster.faults.add(Fault.error(5, api="fetch", topic="t", partition=1), times=None)
        assert wire.fetch("t", 0, 0).error == 0
        assert wire.fetch("t", 1, 0).error == 5
        assert wire.offsets("t", 1, -1, 1) == (0, (0,))

    def test_a_refused_produce_stores_nothing(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.error(7, api="produce"))
        assert wire.produce("t", 0, message_set(b"d")) == (7, -1)
        assert wire.fetch("t", 0, 0).high_watermark == 3

    def test_metadata_can_lie_about_a_topic_or_a_partition(
        self, cluster: EmbeddedCluster, consumer: SimpleConsumer
    ) -> None:
        cluster.faults.add(Fault.error(5, api="metadata", topic="t"))
        assert consumer.topic_metadata(["t"]).topics["t"].error_code == 5
        cluster.faults.add(Fault.error(9, api="metadata", topic="t", partition=1))
        answer = consumer.topic_metadata(["t"]).topics["t"]
        assert (answer.error_code, [p.error_code for p in answer.partitions]) == (0, [0, 9])

    def test_the_coordinator_can_be_missing(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.error(15, api="consumer_metadata"))
        assert wire.ask(request(10, string("g")))[8:] == struct.pack(">hi", 15, -1) + string("") + struct.pack(">i", -1)

    def test_one_client_alone_can_be_meant(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.error(6, api="fetch").only(client_id="somebody else"), times=None)
        assert wire.fetch("t", 0, 0).error == 0

    def test_an_unknown_api_is_refused_when_it_is_declared(self) -> None:
        with pytest.raises(ValueError, match="fetsh"):
            Fault.error(6, api="fetsh")


class TestConnections:
    def test_a_delayed_answer_comes_late_but_comes(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.delay(0.4, api="fetch"))
        started = time.monotonic()
        assert wire.fetch("t", 0, 0).error == 0
        assert time.monotonic() - started >= 0.4

    def test_a_delay_longer_than_the_clients_patience_is_its_time_out(self, cluster: EmbeddedCluster) -> None:
        cluster.faults.add(Fault.delay(600, api="fetch"))
        with SimpleConsumer("127.0.0.1", cluster.port(0), timeout_s=0.3) as consumer:
            with pytest.raises(ConnectionFailed):
                consumer.multifetch([FetchRequest("t", 0, 0, 100)])
            assert len(consumer.multifetch([FetchRequest("t", 0, 0, 1000)])) == 1

    def test_a_closed_connection_costs_one_request(self, cluster: EmbeddedCluster, consumer: SimpleConsumer) -> None:
        fault = cluster.faults.add(Fault.close(api="produce"))
        with pytest.raises(ConnectionFailed):
            consumer.produce("t", 0, [b"stored, but who knows"])
        assert cluster.faults.used(fault) == 1
        assert [m.value for m in consumer.fetch("t", 0, 3)] == [b"stored, but who knows"]

    def test_an_answer_can_break_off(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.close(api="fetch", after_bytes=17))
        wire.send(fetch_request("t", 0, 0))
        with pytest.raises(EOFError, match="13 of"):
            wire.receive()

    @pytest.mark.parametrize("data", [b"\xff" * 64, struct.pack(">i", 1 << 30) + bytes(64), b"HTTP/1.1 400 \r\n\r\n"])
    def test_garbage_is_no_answer(self, cluster: EmbeddedCluster, consumer: SimpleConsumer, data: bytes) -> None:
        cluster.faults.add(Fault.garbage(data, api="fetch"))
        with pytest.raises(SimpleConsumerError):
            consumer.multifetch([FetchRequest("t", 0, 0, 1000)])
        assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"a", b"b", b"c"]

    def test_an_answer_to_another_request_is_no_answer(
        self, cluster: EmbeddedCluster, consumer: SimpleConsumer
    ) -> None:
        cluster.faults.add(Fault.wrong_correlation_id(api="fetch"))
        with pytest.raises(SimpleConsumerError):
            consumer.multifetch([FetchRequest("t", 0, 0, 1000)])
        assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"a", b"b", b"c"]


class TestMessageSets:
    def test_a_cut_tail_leaves_the_whole_messages_before_it(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.cut_tail(5, "t", 0))
        cut = wire.fetch("t", 0, 0).data
        assert len(cut) == 3 * len(entry(0, b"a")) - 5
        assert offsets_and_values(cut) == [(0, b"a"), (1, b"b")]
        assert len(offsets_and_values(wire.fetch("t", 0, 0).data)) == 3

    def test_a_corrupt_message_is_named_and_its_neighbours_are_not_touched(
        self, cluster: EmbeddedCluster, wire: Wire
    ) -> None:
        cluster.faults.add(Fault.corrupt("t", 0, offset=1), times=None)
        data = wire.fetch("t", 0, 0).data
        messages = decode_messages(data, "t", 0)
        assert next(messages).value == b"a"
        with pytest.raises(CrcMismatch) as broken:
            next(messages)
        assert (broken.value.offset, broken.value.next_offset) == (1, 2)
        assert [m.value for m in decode_messages(data, "t", 0, resume=broken.value.resume)] == [b"c"]

    def test_only_fetches_that_hold_the_message_use_the_fault_up(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        fault = cluster.faults.add(Fault.corrupt("t", 0, offset=1))
        assert offsets_and_values(wire.fetch("t", 0, 2).data) == [(2, b"c")]
        assert wire.fetch("t", 0, 0, max_bytes=20).data == entry(0, b"a")[:20]
        assert cluster.faults.used(fault) == 0
        assert wire.fetch("t", 0, 1).data != wire.fetch("t", 0, 1).data
        assert cluster.faults.used(fault) == 1

    def test_a_message_in_a_wrapper_is_broken_by_its_wrapper(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        wire.produce("t", 1, gzipped(message_set(b"x", b"y", b"z")))
        cluster.faults.add(Fault.corrupt("t", 1, offset=1))
        with pytest.raises(CrcMismatch):
            list(decode_messages(wire.fetch("t", 1, 0).data, "t", 1))

    def test_the_file_stays_as_it_is(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.corrupt("t", 0, offset=0))
        wire.fetch("t", 0, 0)
        assert offsets_and_values(wire.fetch("t", 0, 0).data) == [(0, b"a"), (1, b"b"), (2, b"c")]


class TestLeaders:
    def test_the_leader_can_move_under_a_request(self, cluster: EmbeddedCluster, consumer: SimpleConsumer) -> None:
        cluster.faults.add(Fault.move_leader("t", 0, to_broker=1, api="produce"))
        with pytest.raises(BrokerError) as refused:
            consumer.produce("t", 0, [b"d"])
        assert refused.value.code == 6
        with SimpleConsumer("127.0.0.1", cluster.port(1)) as new_leader:
            assert new_leader.produce("t", 0, [b"d"]) == 3
            assert [m.value for m in new_leader.fetch("t", 0, 0)] == [b"a", b"b", b"c", b"d"]

    def test_the_move_is_seen_in_metadata(self, cluster: EmbeddedCluster, consumer: SimpleConsumer) -> None:
        cluster.move_leader("t", 0, 1)
        assert [p.leader for p in consumer.topic_metadata(["t"]).topics["t"].partitions] == [1, 0]

    def test_no_acknowledged_message_is_lost_while_the_leader_moves(self, cluster: EmbeddedCluster) -> None:
        acknowledged: dict[int, bytes] = {}
        done = threading.Event()

        def produce() -> None:
            consumers = [SimpleConsumer("127.0.0.1", cluster.port(n)) for n in (0, 1)]
            number = leader = 0
            while not done.is_set():
                value = b"value-%d" % number
                try:
                    acknowledged[consumers[leader].produce("t", 0, [value])] = value
                    number += 1
                except BrokerError:
                    leader = 1 - leader
            for consumer in consumers:
                consumer.close()

        producer = threading.Thread(target=produce)
        producer.start()
        for move in range(20):
            enough = 5 * (move + 1)
            wait_until(lambda n=enough: len(acknowledged) >= n, 20, f"{enough} acknowledged messages")
            cluster.move_leader("t", 0, 1 - move % 2)
        done.set()
        producer.join()
        with Wire(cluster.port(0)) as wire:
            stored = dict(offsets_and_values(wire.fetch("t", 0, 0, 64 << 20).data))
        assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged


class TestPlan:
    def test_faults_can_be_cleared(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        cluster.faults.add(Fault.error(6), times=None)
        assert wire.fetch("t", 0, 0).error == 6
        cluster.faults.clear()
        assert wire.fetch("t", 0, 0).error == 0

    def test_a_cleared_delay_ends_for_those_that_wait(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        fault = cluster.faults.add(Fault.delay(600, api="fetch"))
        wire.send(fetch_request("t", 0, 0))
        cluster.faults.wait_used(fault)
        cluster.faults.clear()
        assert len(wire.receive()) > 0

    def test_a_delayed_request_does_not_hold_up_the_end_of_its_broker_alone(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(Fault.delay(600, api="fetch"), times=2)
        with Wire(cluster.port(0)) as first, Wire(cluster.port(1)) as second:
            first.send(fetch_request("t", 0, 0))
            second.send(fetch_request("t", 0, 0))
            cluster.faults.wait_used(fault, 2)
            cluster.stop(0)
            assert first.is_closed()
            assert cluster.brokers[0].connections == 0
            second.socket.settimeout(0.2)
            with pytest.raises(TimeoutError):
                second.socket.recv(1)

    def test_a_reset_plan_has_forgotten_what_befell_whom(self, cluster: EmbeddedCluster, wire: Wire) -> None:
        fault = cluster.faults.add(Fault.error(6), times=None)
        assert wire.fetch("t", 0, 0).error == 6
        cluster.faults.reset()
        assert wire.fetch("t", 0, 0).error == 0
        assert cluster.faults.used(fault) == 0

    def test_one_can_wait_for_a_fault_to_befall_somebody(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(Fault.error(6, api="fetch"))

        def fetch() -> None:
            with Wire(cluster.port(0)) as wire:
                wire.fetch("t", 0, 0)

        thread = threading.Thread(target=fetch)
        thread.start()
        cluster.faults.wait_used(fault, timeout_s=10)
        thread.join()

    def test_no_times_at_all_make_no_sense(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(ValueError, match="at least 1"):
            cluster.faults.add(Fault.error(6), times=0)
