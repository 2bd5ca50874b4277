"""A mirror from a cluster of Kafka 0.8.2.2 to one of 4.3.1 while processes and brokers of both sides are killed.

Run it: `.venv/bin/pytest -m slow tests/mirror/test_mirror_in_chaos.py`. It takes about twelve minutes; with
`ZKCONSUMER_CHAOS_S=60` in the environment it kills for one minute.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from mirroring import WAIT_S, command, run_command, servers_of, settings_of, values

from zkconsumer import Producer, ProducerConfig, ZkConsumerError, read_topic
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import Deadline, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

CHAOS_S = float(os.environ.get("ZKCONSUMER_CHAOS_S", "600"))
PARTITIONS = 4
RATE_PER_S = 500
SOURCE = {"unclean.leader.election.enable": False, "replica.lag.time.max.ms": 5000, "default.replication.factor": 2}
TARGET = {"offsets.topic.replication.factor": 3, "offsets.topic.num.partitions": 4,
          "group.initial.rebalance.delay.ms": 0, "unclean.leader.election.enable": False}  # fmt: skip


@contextmanager
def load(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Messages to all partitions until the end of the block; unacknowledged ones may be there twice."""
    ending = threading.Event()

    def send() -> None:
        number = 0
        config = ProducerConfig(metadata_broker_list=servers_of(cluster), producer_type="async",
                                request_required_acks=-1, queue_buffering_max_ms=50,
                                message_send_max_retries=100)  # fmt: skip
        with Producer(config) as producer:
            while not ending.wait(0.1):
                for _ in range(RATE_PER_S // 10):
                    value = (b"message %d " % number).ljust(200, b".")
                    try:
                        producer.send(topic, value, key=b"%d" % number, partition=number % PARTITIONS)
                    except ZkConsumerError:  # its queue is full: the brokers are away
                        ending.wait(0.5)
                    number += 1

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(WAIT_S)


def source_values(cluster: KafkaCluster, topic: str, partition: int) -> list[bytes | None]:
    with read_topic(cluster.zookeeper_connect, topic, [partition]) as reader:
        return [message.value for message in reader]


def test_a_mirror_whose_processes_and_brokers_are_killed_has_each_record_once() -> None:
    topic = "clicks"
    rng = random.Random(20)
    kills = {"process": 0, "source": 0, "target": 0}
    with ExitStack() as stack:
        source = stack.enter_context(KafkaCluster("0.8.2.2", 2, settings=SOURCE))
        target = stack.enter_context(KafkaCluster("4.3.1", 3, settings=TARGET))
        source.create_topic(topic, assignment={number: [number % 2, 1 - number % 2] for number in range(PARTITIONS)})
        settings = settings_of("chaos", source, target, topic)
        arguments = command(settings, "--whitelist", topic, "--slots", "4", "--progress", "5")
        processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(2)]
        stack.callback(lambda: [process.kill() for process in processes])
        with load(source, topic):
            deadline = Deadline(CHAOS_S)
            while not deadline.expired:
                time.sleep(rng.uniform(1.0, 4.0))  # the moment of a fault, whichever it is
                kind = rng.choice(["process", "process", "source", "target"])
                kills[kind] += 1
                if kind == "process":
                    index = rng.randrange(2)
                    processes[index].kill()
                    processes[index].wait(WAIT_S)
                    processes[index] = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
                    continue
                cluster = source if kind == "source" else target
                victim = rng.choice(sorted(cluster.brokers))
                cluster.kill(victim)
                time.sleep(rng.uniform(0.2, 3.0))
                cluster.start(victim)
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
        wait_until(lambda: all(source.leader(topic, number) is not None for number in range(PARTITIONS)), WAIT_S,
                   "leaders of the source")  # fmt: skip
        Mirror(settings_of("chaos", source, target, topic, until_end=True)).run()
        count = 0
        for partition in range(PARTITIONS):
            found = values(target, topic, partition)
            assert found == source_values(source, topic, partition)
            count += len(found)
        audited = run_command(command(settings, verb="audit"))
        assert (audited.returncode, audited.stderr) == (0, ""), audited.stdout
        print(f"{count} records, each once and in order; killed: {kills}")
