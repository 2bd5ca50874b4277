"""A process that hosts a broker is killed at work: nothing acknowledged is lost, no torn tail stays."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import broker_process
from broker_wire import Wire, entry, message_set, offsets_and_values

from simpleconsumer import SimpleConsumer, SimpleConsumerError
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
PARTITIONS = 3
KILLS = 4


class Producers:
    """A thread for each partition that appends until its broker is gone; what was acknowledged, by partition."""

    def __init__(self, port: int, acknowledged: list[dict[int, bytes]], run: int) -> None:
        self.acknowledged = acknowledged
        self._threads = [threading.Thread(target=self._produce, args=(port, n, run)) for n in range(PARTITIONS)]
        for thread in self._threads:
            thread.start()

    def _produce(self, port: int, partition: int, run: int) -> None:
        """Sets of one to five messages, every third one compressed."""
        number = 0
        try:
            with SimpleConsumer("127.0.0.1", port, timeout_s=PATIENCE_S) as producer:
                while True:
                    values = [b"%d-%d-%d" % (run, number, n) for n in range(1 + number % 5)]
                    codec = "snappy" if number % 3 == 0 else "none"
                    base = producer.produce(broker_process.TOPIC, partition, values, codec=codec)
                    self.acknowledged[partition].update(enumerate(values, base))
                    number += 1
        except SimpleConsumerError:
            return  # the broker was killed

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)


def stored(port: int, partition: int) -> Iterator[tuple[int, bytes]]:
    """Everything in a partition, every checksum checked by the reader."""
    with SimpleConsumer("127.0.0.1", port) as consumer:
        [offset] = consumer.get_offsets_before(broker_process.TOPIC, partition, -2)
        [end] = consumer.get_offsets_before(broker_process.TOPIC, partition, -1)
        while offset < end:
            for message in consumer.fetch(broker_process.TOPIC, partition, offset):
                yield message.offset, message.value
                offset = message.next_offset


def hosted(folder: Path, run: int) -> tuple[ChildProcess, int]:
    """A process with a broker, and its port."""
    output = folder.parent / f"port-{run}"
    output.touch()
    command = [sys.executable, broker_process.__file__, str(folder), str(PARTITIONS)]
    process = ChildProcess("broker process", command, folder.parent / "log", output_path=output)
    wait_until(lambda: output.read_text().endswith("\n"), PATIENCE_S, "the broker's port", state=process.tail)
    return process, int(output.read_text())


def test_everything_acknowledged_survives_every_kill(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    acknowledged: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
    for run in range(KILLS):
        process, port = hosted(folder, run)
        before = [len(each) for each in acknowledged]
        producers = Producers(port, acknowledged, run)
        wait_until(
            lambda old=before: all(len(each) > n + 300 for each, n in zip(acknowledged, old, strict=True)),
            PATIENCE_S, "300 more acknowledged messages in each partition", state=process.tail,
        )  # fmt: skip
        process.kill()
        producers.join()
        for last in (sorted(log.glob("*.log"))[-1] for log in (folder / "broker-0").glob("t-*")):
            with last.open("ab") as tail:
                tail.write(entry(1 << 40, b"never written whole")[:-3])
    with EmbeddedCluster(1, zookeeper=False, folder=folder) as cluster:
        cluster.create_topic(broker_process.TOPIC, PARTITIONS)
        for partition, expected in enumerate(acknowledged):
            found = list(stored(cluster.port(0), partition))
            assert [offset for offset, _ in found] == list(range(len(found)))
            kept = dict(found)
            assert {offset: kept.get(offset) for offset in expected} == expected
            # Behind what was acknowledged there is at most the one set whose answer the kill swallowed, each time.
            assert len(kept) - len(expected) <= 5 * KILLS


def test_an_unclean_broker_cuts_torn_tails_and_a_clean_one_scans_nothing(tmp_path: Path) -> None:
    with EmbeddedCluster(1, zookeeper=False, folder=tmp_path) as cluster:
        cluster.create_topic("t")
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(b"a", b"b", b"c"))
        path = cluster.brokers[0].folder / "t-0" / "00000000000000000000.log"
        cluster.kill(0)
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        cluster.start(0)
        with Wire(cluster.port(0)) as wire:
            assert wire.fetch("t", 0, 0).high_watermark == 2
            assert wire.produce("t", 0, message_set(b"d")) == (0, 2)
        cluster.stop(0)
        damaged = bytearray(path.read_bytes())
        damaged[-1] ^= 1
        path.write_bytes(damaged)
        cluster.start(0)
        with Wire(cluster.port(0)) as wire:
            answer = wire.fetch("t", 0, 0)
            assert answer.high_watermark == 3
            assert offsets_and_values(answer.data)[:2] == [(0, b"a"), (1, b"b")]


def test_four_bytes_overwritten_on_the_disk_are_served_as_they_are(tmp_path: Path) -> None:
    """Kafka's LogCorruptionTest: the broker does not check what it serves, the consumer must."""
    with EmbeddedCluster(1, zookeeper=False, folder=tmp_path) as cluster:
        cluster.create_topic("t")
        with Wire(cluster.port(0)) as wire:
            wire.produce("t", 0, message_set(b"hello"))
            path = cluster.brokers[0].folder / "t-0" / "00000000000000000000.log"
            with path.open("r+b") as file:
                file.seek(12)
                file.write(struct.pack(">i", 1000))
            for _ in range(2):
                assert wire.fetch("t", 0, 0).data == path.read_bytes()
