"""Faults of embedded brokers of Kafka 0.7: the same plan as for 0.8, where there are answers without numbers."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator

import pytest
from broker_wire_07 import Wire07, entries, fetch_body, frame, gzipped, place, produce_body, several

from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.embedded.kafka07.requests import InvalidSet, check
from zkconsumer.testing.errors import KitError

ONE, TWO = entries(b"one"), entries(b"two")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="0.7", zookeeper=False) as made:
        with Wire07(made.port(0)) as wire:
            for topic in ("clicks", "views"):
                wire.put(topic, 0, ONE)
                wire.put(topic, 0, TWO)
                wire.wait_end(topic, 0, 26)
        yield made


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[Wire07]:
    with Wire07(cluster.port(0)) as connection:
        yield connection


BOTH = [fetch_body("clicks", 0, 0), fetch_body("views", 0, 0)]


@pytest.mark.parametrize("partition", [0, "0-0"])
def test_an_error_code_is_answered_for_the_partition_that_it_names(
    cluster: EmbeddedCluster, wire: Wire07, partition: int | str
) -> None:
    fault = cluster.faults.add(Fault.error(1, api="fetch", topic="views", partition=partition))
    cluster.faults.add(Fault.error(3, api="fetch", topic="views", partition="1-0"))
    assert wire.get_several(BOTH) == [(0, ONE + TWO), (1, b"")]
    assert wire.get_several(BOTH) == [(0, ONE + TWO), (0, ONE + TWO)]
    assert cluster.faults.used(fault) == 1


def test_an_error_of_an_offsets_request_has_no_positions(cluster: EmbeddedCluster, wire: Wire07) -> None:
    cluster.faults.add(Fault.error(-1, api="offsets"))
    answer = wire.ask(frame(4, place("clicks", 0) + struct.pack(">qi", -1, 10)))
    assert answer == struct.pack(">ihi", 6, -1, 0)
    assert wire.positions("clicks", 0, -1) == [26, 0]


def test_a_produce_request_that_fails_closes_the_connection_and_stores_nothing(
    cluster: EmbeddedCluster, wire: Wire07
) -> None:
    cluster.faults.add(Fault.error(2, api="produce", topic="clicks"))
    wire.send(several(3, [produce_body("views", 0, ONE), produce_body("clicks", 0, ONE)]))
    assert wire.is_closed()
    assert (cluster.log("views", "0-0").end, cluster.log("clicks", "0-0").end) == (39, 26)


def test_a_connection_dies_in_the_middle_of_a_multifetch(cluster: EmbeddedCluster, wire: Wire07) -> None:
    cluster.faults.add(Fault.close(api="fetch", after_bytes=6 + 6 + 26 + 6 + 3))
    wire.send(several(2, BOTH))
    got = wire._exactly(6 + 6 + 26 + 6 + 3)
    assert got == struct.pack(">ihih", 2 + 64, 0, 28, 0) + ONE + TWO + struct.pack(">ih", 28, 0) + ONE[:3]
    assert wire.is_closed()


def test_a_produced_set_is_stored_before_the_connection_closes(cluster: EmbeddedCluster, wire: Wire07) -> None:
    cluster.faults.add(Fault.close(api="produce"))
    wire.put("clicks", 0, ONE)
    assert wire.is_closed()
    assert cluster.log("clicks", "0-0").end == 39


def test_garbage_is_sent_instead_of_an_answer(cluster: EmbeddedCluster, wire: Wire07) -> None:
    cluster.faults.add(Fault.garbage(b"\0\0\0\1x", api="fetch"))
    assert wire.ask(frame(1, fetch_body("clicks", 0, 0))) == b"\0\0\0\1x"
    assert wire.get("clicks", 0, 0) == (0, ONE + TWO)


def test_a_tail_is_cut_off_and_the_frame_says_so(cluster: EmbeddedCluster, wire: Wire07) -> None:
    cluster.faults.add(Fault.cut_tail(4, "clicks", "0-0"), times=2)
    assert wire.get_several(BOTH) == [(0, (ONE + TWO)[:-4]), (0, ONE + TWO)]
    assert wire.get("clicks", 0, 0) == (0, (ONE + TWO)[:-4])
    assert wire.get("clicks", 0, 0) == (0, ONE + TWO)


@pytest.mark.parametrize("position", [13, 14, 25])
def test_an_entry_is_corrupted_on_its_way_and_not_in_its_file(
    cluster: EmbeddedCluster, wire: Wire07, position: int
) -> None:
    fault = cluster.faults.add(Fault.corrupt("clicks", 0, offset=position), times=None)
    assert wire.get("clicks", 0, 0, 20).data == (ONE + TWO)[:20]  # the entry is not whole
    assert cluster.faults.used(fault) == 0
    found = wire.get("clicks", 0, 0).data
    assert found[:13] == ONE
    with pytest.raises(InvalidSet):
        check(found[13:], 100)
    assert cluster.faults.used(fault) == 1
    cluster.faults.clear()
    assert wire.get("clicks", 0, 0).data == ONE + TWO


def test_a_compressed_entry_is_corrupted_as_a_whole(cluster: EmbeddedCluster, wire: Wire07) -> None:
    data = gzipped(entries(b"a", b"b"))
    wire.put("packed", 1, data)
    cluster.faults.add(Fault.corrupt("packed", "0-1", offset=5))
    found = wire.get("packed", 1, 0).data
    assert (found[:-1], found[-1]) == (data[:-1], data[-1] ^ 0xFF)


def test_a_delay_holds_one_request_back_until_it_is_cleared(cluster: EmbeddedCluster, wire: Wire07) -> None:
    fault = cluster.faults.add(Fault.delay(60, api="fetch", topic="clicks"))
    started = time.monotonic()
    threading.Timer(0.3, cluster.faults.clear).start()
    assert wire.get("clicks", 0, 0).error == 0
    assert 0.2 < time.monotonic() - started < 20
    assert cluster.faults.used(fault) == 1


def test_a_fault_of_one_broker_leaves_the_others_alone() -> None:
    with EmbeddedCluster(2, generation="0.7", zookeeper=False) as cluster:
        cluster.faults.add(Fault.error(-1, api="fetch").only(broker=1), times=None)
        for broker, error in ((0, 0), (1, -1)):
            with Wire07(cluster.port(broker)) as wire:
                assert wire.get("clicks", 0, 0).error == error


def test_faults_that_0_7_cannot_have_are_refused(cluster: EmbeddedCluster) -> None:
    for fault in (Fault.wrong_correlation_id(), Fault.move_leader("clicks", 0, 1)):
        with pytest.raises(ValueError, match=f"of this generation of Kafka cannot have the fault {fault.kind}"):
            cluster.faults.add(fault)


def test_what_0_7_does_not_have_is_refused(cluster: EmbeddedCluster) -> None:
    with pytest.raises(KitError, match=r"brokers of Kafka 0\.7 register themselves"):
        _ = cluster.registry
    with pytest.raises(KitError, match=r"0 is not a partition of Kafka 0\.7\.2"):
        cluster.log("clicks", 0)
    with pytest.raises(KitError, match="broker 0 has no log of clicks-1"):
        cluster.log("clicks", "0-1")
    with pytest.raises(KitError, match="there is no broker 4"):
        cluster.log("clicks", "4-0")
    with pytest.raises(KitError, match="this cluster has no ZooKeeper"):
        _ = cluster.client
    with pytest.raises(ValueError, match=r"generation '0\.6'"):
        EmbeddedCluster(generation="0.6")
    assert cluster.partitions("clicks") == ["0-0", "0-1"]
    assert cluster.leader("clicks", "0-1") == 0
    assert cluster.leader("clicks", "0-2") is None
