"""Mirrors of history whose processes are frozen, on brokers that forget producers each second.

Records without times, and records that are 40 days old, make brokers forget the producer at once. A process that was
frozen, has lost its lanes to another one and goes on must not write anything again.

Run it: `.venv/bin/pytest -m slow tests/mirror/test_mirror_frozen.py`. It takes about four minutes; with
`ZKCONSUMER_FREEZE_S=600` in the environment it freezes for ten minutes each time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest
from mirroring import WAIT_S, command, run_command, servers_of, settings_of, values

from zkconsumer import Producer, ProducerConfig
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import Deadline, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

FREEZE_S = float(os.environ.get("ZKCONSUMER_FREEZE_S", "70"))
PARTITIONS, PER_PARTITION = 4, 40_000
OLD_MS = 40 * 86_400_000
FORGETS = {"producer.id.expiration.ms": 86_400_000, "producer.id.expiration.check.interval.ms": 1000,
           "transaction.remove.expired.transaction.cleanup.interval.ms": 1000,
           "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 4,
           "group.initial.rebalance.delay.ms": 0}  # fmt: skip


def fill(cluster: KafkaCluster, topic: str, time_ms: int | None) -> None:
    config = ProducerConfig(metadata_broker_list=servers_of(cluster), producer_type="async", request_required_acks=-1)
    with Producer(config) as producer:
        sent = None
        for number in range(PARTITIONS * PER_PARTITION):
            value = b"record %d" % number
            more = {} if time_ms is None else {"timestamp_ms": time_ms + number}
            sent = producer.send(topic, value, key=b"%d" % number, partition=number % PARTITIONS, **more)
        assert sent is not None
        sent.result(WAIT_S)
        assert producer.flush(WAIT_S)


@pytest.mark.parametrize("pins", [False, True], ids=["owned", "pinned"])
@pytest.mark.parametrize(("source_version", "target_version", "is_old"),
                         [("0.8.2.2", "4.3.1", False), ("1.1.1", "3.9.2", True)])  # fmt: skip
def test_a_process_that_was_frozen_writes_nothing_again(
    source_version: str, target_version: str, is_old: bool, pins: bool
) -> None:  # fmt: skip
    topic = "history"
    rng = random.Random(5)
    with ExitStack() as stack:
        source = stack.enter_context(KafkaCluster(source_version, 1))
        target = stack.enter_context(KafkaCluster(target_version, 1, settings=FORGETS))
        keeps = {"retention.ms": "-1"} if is_old else {}
        source.create_topic(topic, partitions=PARTITIONS, **({"config": keeps} if keeps else {}))
        fill(source, topic, int(time.time() * 1000) - OLD_MS if is_old else None)
        settings = settings_of("frozen", source, target, topic)
        rate = PARTITIONS * PER_PARTITION * 20 / FREEZE_S
        arguments = command(settings, "--whitelist", topic, "--slots", "4", "--rate", str(int(rate)),
                            "--topic-config", "retention.ms=-1", *(["--pin-producers"] if pins else []))  # fmt: skip
        processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(3)]
        stack.callback(lambda: [process.kill() for process in processes])
        deadline = Deadline(FREEZE_S)
        freezes = 0
        while not deadline.expired:
            time.sleep(rng.uniform(0.5, 3.0))  # the moment of a fault, whichever it is
            victim = rng.choice(processes)
            victim.send_signal(signal.SIGSTOP)
            time.sleep(rng.choice([1.0, 4.0, 7.0, 9.0, 12.0]))  # sessions take six seconds
            victim.send_signal(signal.SIGCONT)
            freezes += 1
        assert [process.poll() for process in processes] == [None] * len(processes)
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
        Mirror(settings_of("frozen", source, target, topic, until_end=True, pins_producers=pins)).run()
        wait_until(lambda: target.leader(topic, 0) is not None, WAIT_S, "a leader")
        for partition in range(PARTITIONS):
            expected = [b"record %d" % number for number in range(partition, PARTITIONS * PER_PARTITION, PARTITIONS)]
            assert values(target, topic, partition, has_markers=pins) == expected
        audited = run_command(command(settings, verb="audit"))
        assert (audited.returncode, audited.stderr) == (0, ""), audited.stdout
        print(f"{PARTITIONS * PER_PARTITION} records, each once and in order; frozen {freezes} times")
