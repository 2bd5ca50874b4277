"""How fast one stream is read while another one stands still, beside how fast it is read when that one is empty.

    python tests/benchmarks/blocked_stream.py                       # real brokers: about 5 minutes
    python tests/benchmarks/blocked_stream.py --embedded --brokers 1 --rounds 1

One connector with default configuration has one stream of a topic `slow` and one of a topic `fast`, of equally many
partitions. In a run that is called blocked, nobody reads the first stream, whose topic is full; in the other its topic
is empty. When the connector has fetched what it may of the first, the second is started from nothing (its partitions
are paused until then):

    large, small   messages a second of `fast`, from its start to its last message
    latency        milliseconds from the moment before a small message is produced to `fast` to the one at which the
                   stream hands it over, one at a time

Blocked and free runs take turns, each in a process of its own with a fresh group; medians over the rounds are printed,
the median of the ratios of each two of them, the same of the consumer's CPU time, and the most bytes that were queued,
in MiB, against `queued.max.bytes` of 64. Brokers are real ones of Kafka 0.8.2.2, or embedded ones in a process of
their own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = str(Path(__file__).parents[2])

if TYPE_CHECKING:
    from zkconsumer import ConsumerConnector
    from zkconsumer.testing.cluster import Cluster

LARGE_BYTES = 999_900
SMALL_BYTES = 100
LATE_MESSAGES = 100
LATE_EVERY_S = 0.03
QUIET_S = 0.5
PATIENCE_S = 300.0
KINDS = ("large", "small", "latency")


class Run(NamedTuple):
    """What one process measured: a rate or a median latency, its CPU time, and the most bytes that were queued."""

    figure: float
    cpu_s: float
    most_bytes: int


# -- the consumer, in a process of its own -----------------------------------------------------------------------------


def consume(arguments: argparse.Namespace) -> None:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    group = f"blocked-{uuid.uuid4().hex[:8]}"
    config = ConsumerConfig(arguments.zookeeper, group, auto_offset_reset="smallest", auto_commit_enable=False)
    topics = {arguments.slow: 1, arguments.fast: 1}
    with ConsumerConnector(config) as connector, watched(connector) as most:
        streams = connector.create_message_streams(topics)
        fast = [one for one in owned(connector, 2 * arguments.partitions) if one.topic == arguments.fast]
        connector.pause(fast)
        settle(connector)
        stream = streams[arguments.fast][0]
        if arguments.kind == "latency":
            connector.resume(fast)
            settle(connector)
            print("ready", flush=True)
            late = []
            for message in stream:
                late.append((time.monotonic_ns() - int(message.value)) / 1e6)
                if len(late) == arguments.count:
                    break
            figure, cpu_s = statistics.median(late), 0.0
        else:
            started, used_s = time.monotonic(), time.process_time()
            connector.resume(fast)
            for number, _ in enumerate(stream, 1):
                if number == arguments.count:
                    break
            figure, cpu_s = arguments.count / (time.monotonic() - started), time.process_time() - used_s
    print(json.dumps(Run(figure, cpu_s, most[0])))


@contextmanager
def watched(connector: ConsumerConnector) -> Iterator[list[int]]:
    """Look at the queued bytes from time to time; the list holds the most that were seen."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], queued_bytes(connector))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield most
    ended.set()
    thread.join()


def owned(connector: ConsumerConnector, count: int) -> list[object]:
    from simpleconsumer import TopicPartition

    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        rows = [one for one in connector.status().owned if one.state == "owned"]
        if len(rows) == count:
            return [TopicPartition(one.topic, one.partition) for one in rows]
        time.sleep(0.05)
    raise SystemExit(f"{count} partitions were not owned within {PATIENCE_S} s")


def queued_bytes(connector: ConsumerConnector) -> int:
    return connector.statistics().queued_bytes


def settle(connector: ConsumerConnector) -> None:
    """Return when fetching has come to rest."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        now = queued_bytes(connector)
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.02)


# -- the brokers -------------------------------------------------------------------------------------------------------


def host(brokers: int, pipe: Connection) -> None:
    """Body of a process with embedded brokers: makes topics and fills them as the pipe says."""
    from zkconsumer.testing import EmbeddedCluster

    with EmbeddedCluster(brokers) as cluster:
        serve(cluster, pipe)


def host_real(brokers: int, pipe: Connection) -> None:
    from zkconsumer.testing.kafka import KafkaCluster

    with KafkaCluster("0.8.2.2", brokers=brokers) as cluster:
        serve(cluster, pipe)


def serve(cluster: Cluster, pipe: Connection) -> None:
    from zkconsumer.testing import load

    pipe.send((cluster.zookeeper_connect, [cluster.port(number) for number in sorted(cluster.brokers)]))
    while (told := pipe.recv()) is not None:
        topic, partitions, count, size = told
        leaders = cluster.create_topic(topic, partitions)
        if count:
            filling = b"x" * size
            load(
                cluster,
                topic,
                count,
                value=lambda _, n, filling=filling: (b"%d " % n + filling)[: len(filling)],
                batch=max(1, 500_000 // size),
            )
        pipe.send(leaders)


# -- the bench ---------------------------------------------------------------------------------------------------------


def produce_late(out: object, ports: list[int], topic: str, leaders: dict[int, int]) -> None:
    """Produce one message after the other, each with the time in it, once the consumer is ready."""
    from simpleconsumer import SimpleConsumer

    if next(out, "").strip() != "ready":  # type: ignore[call-overload]
        return
    producers = [SimpleConsumer("127.0.0.1", port) for port in ports]
    for number in range(LATE_MESSAGES):
        partition = number % len(leaders)
        producers[leaders[partition]].produce(topic, partition, [b"%d" % time.monotonic_ns()])
        time.sleep(LATE_EVERY_S)
    for producer in producers:
        producer.close()


def run_consumer(
    kind: str, zookeeper: str, ports: list[int], slow: str, fast: str, leaders: dict[int, int], count: int
) -> Run:
    command = [
        sys.executable,
        __file__,
        "--consume",
        "--kind",
        kind,
        "--zookeeper",
        zookeeper,
        "--slow",
        slow,
        "--fast",
        fast,
        "--partitions",
        str(len(leaders)),
        "--count",
        str(count),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        if kind == "latency":
            produce_late(process.stdout, ports, fast, leaders)
        out, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode:
        raise SystemExit(f"the consumer of {fast} failed")
    return Run(*json.loads(out.splitlines()[-1]))


def bench(arguments: argparse.Namespace, brokers: int) -> None:
    ours, theirs = multiprocessing.Pipe()
    target = host if arguments.embedded else host_real
    process = multiprocessing.get_context("spawn").Process(target=target, args=(brokers, theirs))
    process.start()
    theirs.close()
    zookeeper, ports = ours.recv()

    def topic(name: str, count: int, size: int) -> dict[int, int]:
        ours.send((name, arguments.partitions, count, size))
        leaders: dict[int, int] = ours.recv()
        return leaders

    each = arguments.large // arguments.partitions
    topic("empty", 0, 1)
    topic("slow", 4, LARGE_BYTES)
    many = arguments.small // arguments.partitions
    leaders = {"large": topic("large", each, LARGE_BYTES), "small": topic("small", many, SMALL_BYTES)}
    counts = {"large": each * arguments.partitions, "small": many * arguments.partitions, "latency": LATE_MESSAGES}
    for kind in arguments.kinds:
        runs: dict[str, list[Run]] = {"empty": [], "slow": []}
        for number in range(arguments.rounds):
            for other in ("empty", "slow") if number % 2 else ("slow", "empty"):
                fast = kind
                if kind == "latency":
                    fast = f"late-{other}-{number}"
                    leaders[kind] = topic(fast, 0, 1)
                runs[other].append(run_consumer(kind, zookeeper, ports, other, fast, leaders[kind], counts[kind]))
        free, blocked = (statistics.median(run.figure for run in runs[other]) for other in ("empty", "slow"))
        pairs = list(zip(runs["slow"], runs["empty"], strict=True))
        ratio = statistics.median(one.figure / other.figure for one, other in pairs)
        cpu = "-" if kind == "latency" else f"{statistics.median(one.cpu_s / other.cpu_s for one, other in pairs):.2f}"
        most = max(run.most_bytes for run in runs["slow"]) / 2**20
        unit = "ms" if kind == "latency" else "/s"
        print(
            f"| {brokers} | {kind} | {free:,.1f} {unit} | {blocked:,.1f} {unit} | {ratio:.2f} | {cpu} | {most:.1f} |",
            flush=True,
        )
    ours.send(None)
    process.join(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedded", action="store_true", help="embedded brokers instead of real ones")
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=24, help="of each topic")
    parser.add_argument("--large", type=int, default=384, help="messages of 1 MB")
    parser.add_argument("--small", type=int, default=1_200_000, help="messages of 100 bytes")
    parser.add_argument("--consume", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--zookeeper", help=argparse.SUPPRESS)
    parser.add_argument("--slow", help=argparse.SUPPRESS)
    parser.add_argument("--fast", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consume:
        consume(arguments)
        return
    print(
        f"medians of {arguments.rounds} rounds, 2 x {arguments.partitions} partitions, "
        f"{'embedded' if arguments.embedded else 'real'} brokers, {os.cpu_count()} cores\n"
    )
    print(
        "| brokers | messages | other stream empty | other stream blocked | blocked / empty | CPU time |"
        " most queued MiB |"
    )
    print("|---|---|---|---|---|---|---|")
    for brokers in arguments.brokers:
        bench(arguments, brokers)


if __name__ == "__main__":
    main()
