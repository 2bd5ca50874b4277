"""How fast an embedded broker serves and takes messages over loopback.

    python tests/benchmarks/embedded_broker.py [MEBIBYTES]

Prints megabytes (10^6) a second of message sets: fetched as bytes (nothing decoded), fetched and decoded by
SimpleConsumer, and produced, each with the broker in this process and in one of its own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = str(Path(__file__).parents[2])

from simpleconsumer import FetchRequest, SimpleConsumer
from simpleconsumer.kafka08.message_set import decode_messages, shallow_end
from zkconsumer.testing.embedded.cluster import EmbeddedCluster

TOPIC = "bench"
VALUE_BYTES = 200
BATCH = 2000
FETCH_BYTES = 1024 * 1024


@contextlib.contextmanager
def here(folder: Path) -> Iterator[int]:
    """Port of a broker in this process."""
    with EmbeddedCluster(1, zookeeper=False, folder=folder) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster.port(0)


def host(folder: Path, pipe: Connection) -> None:
    """Body of the other process."""
    with here(folder) as port:
        pipe.send(port)
        pipe.recv()


@contextlib.contextmanager
def elsewhere(folder: Path) -> Iterator[int]:
    """Port of a broker in a process of its own."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=host, args=(folder, theirs), daemon=True)
    process.start()
    yield ours.recv()
    ours.send(None)
    process.join(10)


def produce(port: int, total_bytes: int) -> float:
    """Seconds to append that many bytes."""
    values = [b"x" * VALUE_BYTES] * BATCH
    with SimpleConsumer("127.0.0.1", port) as producer:
        started = time.perf_counter()
        for _ in range(total_bytes // (BATCH * (VALUE_BYTES + 26))):
            producer.produce(TOPIC, 0, values)
        return time.perf_counter() - started


def fetch(port: int, *, decode: bool) -> tuple[int, float]:
    """Bytes and seconds of reading the whole partition."""
    size = 0
    with SimpleConsumer("127.0.0.1", port) as consumer:
        [end] = consumer.get_offsets_before(TOPIC, 0, -1)
        started = time.perf_counter()
        offset = 0
        while offset < end:
            [part] = consumer.multifetch([FetchRequest(TOPIC, 0, offset, FETCH_BYTES)])
            if decode:
                for _ in decode_messages(part.message_set, TOPIC, 0):
                    pass
            whole, following, _ = shallow_end(part.message_set)
            size += whole
            offset = following or end
        return size, time.perf_counter() - started


def main() -> None:
    total_bytes = int(sys.argv[1] if len(sys.argv) > 1 else 256) * 1024 * 1024
    for name, place in (("in this process", here), ("in its own process", elsewhere)):
        with tempfile.TemporaryDirectory() as folder, place(Path(folder)) as port:
            seconds = produce(port, total_bytes)
            raw_bytes, raw_s = fetch(port, decode=False)
            decoded_bytes, decoded_s = fetch(port, decode=True)
            print(f"broker {name}: produced {raw_bytes / seconds / 1e6:.0f} MB/s, fetched {raw_bytes / raw_s / 1e6:.0f}"
                  f" MB/s, fetched and decoded {decoded_bytes / decoded_s / 1e6:.0f} MB/s")  # fmt: skip


if __name__ == "__main__":
    main()
