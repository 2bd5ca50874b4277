"""A partition of real brokers whose log an unclean election cuts off, and that grows beyond what it had before."""

from __future__ import annotations

import json

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokerError
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 60.0
KEPT, LOST, NEW = 10, 10, 40
SETTINGS = {
    "auto.create.topics.enable": False, "unclean.leader.election.enable": True, "replica.lag.time.max.ms": 2000,
    "offsets.topic.num.partitions": 1,
}  # fmt: skip
"""What the brokers need, of which there are two."""


class CutLog:
    """A partition with a replica on each broker; the one that leads first has messages which the other one lacks."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        cluster.create_topic(topic, assignment={0: [0, 1]})
        wait_until(lambda: self._in_sync() == [0, 1], WAIT_S, "both replicas to be in sync")
        self.produce(0, b"kept", KEPT, acks=-1)
        # A slow follower may have left the replicas in sync before the messages were written.
        wait_until(lambda: self._in_sync() == [0, 1], WAIT_S, "both replicas to have the messages")
        cluster.kill(1)
        wait_until(lambda: self._in_sync() == [0], WAIT_S, "the leader to be alone")
        self.produce(0, b"lost", LOST)

    def produce(self, broker_id: int, kind: bytes, count: int, acks: int = 1) -> None:
        """Write numbered messages to the broker, once it leads the partition."""
        wait_until(lambda: self.cluster.leader(self.topic, 0) == broker_id, WAIT_S, f"broker {broker_id} to lead")
        with SimpleConsumer("127.0.0.1", self.cluster.port(broker_id), dialect=KAFKA011) as broker:

            def sent() -> bool:
                try:
                    broker.produce(self.topic, 0, [b"%s %d" % (kind, number) for number in range(count)], acks=acks)
                except BrokerError:  # it has not heard yet that it leads
                    return False
                return True

            wait_until(sent, WAIT_S, "the messages to be taken")

    def cut(self) -> None:
        """Have the other replica lead, and write until its log has grown beyond what the first one had."""
        self.cluster.kill(0)
        self.cluster.start(1)
        self.produce(1, b"new", NEW)

    def _in_sync(self) -> list[int]:
        state = json.loads(self.cluster.client.get(f"/brokers/topics/{self.topic}/partitions/0/state")[0])
        return sorted(state["isr"])

    def restore(self) -> None:
        """Start the brokers that do not run."""
        for broker_id in (0, 1):
            if not self.cluster.brokers[broker_id].running:
                self.cluster.start(broker_id)


def numbered(kind: str, count: int) -> list[bytes]:
    return [f"{kind} {number}".encode() for number in range(count)]
