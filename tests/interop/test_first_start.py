"""The first start of a group: no offsets are stored, and every start has to be asked of the brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from simpleconsumer import SimpleConsumer
from simpleconsumer.types import TopicPartition
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import EmbeddedCluster, Fault, TcpProxy
from zkconsumer.testing.waiting import wait_until

PARTITIONS = 300
PATIENCE_S = 40.0


class Assigned:
    """What the listener was told is owned."""

    def __init__(self) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.lock = threading.Lock()

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        with self.lock:
            self.positions |= positions


@pytest.mark.embedded_cluster(brokers=2)
@pytest.mark.parametrize(("policy", "start"), [("smallest", 0), ("largest", 3)])
def test_three_hundred_partitions_cost_a_few_questions_to_each_leader(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str], policy: str, start: int
) -> None:
    topic = fresh_topic()
    leaders = embedded_cluster.create_topic(topic, PARTITIONS)
    for number in (0, 299):
        with SimpleConsumer("127.0.0.1", embedded_cluster.port(leaders[number])) as producer:
            producer.produce(topic, number, [b"one", b"two", b"three"])
    # A fault that does no harm and counts: without it answers would come faster than partitions.
    asked = embedded_cluster.faults.add(Fault.delay(0.05, api="offsets"), times=None)
    told = embedded_cluster.faults.add(Fault.delay(0.0, api="metadata"), times=None)
    assigned = Assigned()
    with TcpProxy(embedded_cluster.zookeeper_hosts, count_zookeeper=True) as proxy:
        config = ConsumerConfig(
            proxy.address + embedded_cluster.chroot,
            fresh_group,
            auto_offset_reset=policy,
            zookeeper_connection_timeout_ms=int(PATIENCE_S * 1000),
        )
        with ConsumerConnector(config, assigned) as connector:
            connector.create_message_streams({topic: 1})
            wait_until(lambda: len(assigned.positions) == PARTITIONS, PATIENCE_S, "all to be assigned")
            stored = {int(each.partition): each.committed for each in connector.status().owned}
            questions, answers = embedded_cluster.faults.used(asked), embedded_cluster.faults.used(told)
            requests = [request for request in proxy.seen_requests() if not request.in_multi]
            multis = sum(request.kind == "check" for request in proxy.seen_requests())
    positions = {int(name.partition): at for name, at in assigned.positions.items()}
    assert positions == {number: start if number in (0, 299) else 0 for number in range(PARTITIONS)}
    assert stored == positions, "each was committed before it was assigned"
    loads = sum(request.kind == "get_data" and "/offsets/" in request.path for request in requests)
    print(f"{questions} questions, {answers} metadata, {loads} loads, {multis} multis, {len(requests)} requests in all")
    # Mostly 3, 1 and 11; what counts is that it is not one for each partition.
    assert questions <= PARTITIONS / 3
    assert answers <= 20
    assert multis <= PARTITIONS / 3
    assert loads <= PARTITIONS + 10
