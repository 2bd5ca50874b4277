"""Reads many messages with one process and prints its memory as it goes: it must not grow.

    python tests/benchmarks/flat_memory.py                            # 50 million messages of 100 B from Kafka 3.9.2
    python tests/benchmarks/flat_memory.py --kafka 4.3.1 --millions 10 --reader polled

The broker keeps five million messages with snappy (`--kept`). `KafkaConsumer` reads them again and again by `seek`. For
a stream each round has a new member; the closed one is freed before the next starts (Python would do that at a time of
its own). The memory is what the kernel counts as resident for the process.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

TOPIC: Final = "memory"
PARTITIONS: Final = 4


def resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def polled(broker: str, kept: int) -> Iterator[int]:
    """Yield how many messages each poll has brought."""
    from zkconsumer import KafkaConsumer

    group = f"memory-{uuid.uuid4().hex[:8]}"
    with KafkaConsumer(TOPIC, bootstrap_servers=broker, group_id=group, auto_offset_reset="earliest") as consumer:
        read = 0
        while True:
            count = sum(len(record.value) > 0 for record in consumer.poll(1_000))
            read += count
            yield count
            if read >= kept:
                consumer.seek_to_beginning(*consumer.assignment())
                read = 0


def streamed(broker: str, kept: int) -> Iterator[int]:
    """Yield the numbers of messages that streams bring; each member reads the whole topic."""
    from zkconsumer import ConsumerConfig, ConsumerConnector

    while True:
        group = f"memory-{uuid.uuid4().hex[:8]}"
        config = ConsumerConfig(bootstrap_servers=broker, group_id=group, auto_offset_reset="smallest")
        with ConsumerConnector(config) as connector:
            read = 0
            for message in connector.create_message_streams({TOPIC: 1})[TOPIC][0]:
                read += len(message.value) > 0
                if read % 1_000 == 0:
                    yield 1_000
                if read == kept:
                    break
        gc.collect()


def bench(version: str, messages: int, kept: int, reader: str) -> None:
    """Fill the topic, read it again and again, and print the memory after each time."""
    from tests.benchmarks.consume import fill
    from tests.benchmarks.one_broker import cluster_of, dialect_of

    readers: dict[str, Any] = {"polled": polled, "streamed": streamed}
    with cluster_of(version, PARTITIONS) as cluster:
        fill(cluster, dialect_of(version), TOPIC, PARTITIONS, 100, "snappy", kept)
        read, shown, started = 0, 0, time.monotonic()
        for count in readers[reader](f"127.0.0.1:{cluster.port(0)}", kept):
            read += count
            if read >= shown + kept:
                shown = read
                print(f"{read:12,} messages {resident_mib():8.1f} MiB {time.monotonic() - started:7.1f} s", flush=True)
            if read >= messages:
                return


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", default="3.9.2", metavar="VERSION")
    parser.add_argument("--millions", type=float, default=50, help="how many million messages are read")
    parser.add_argument("--kept", type=int, default=5_000_000, metavar="MESSAGES", help="how many the topic has")
    parser.add_argument("--reader", choices=["polled", "streamed"], default="streamed")
    arguments = parser.parse_args()
    bench(arguments.kafka, int(arguments.millions * 1_000_000), arguments.kept, arguments.reader)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
