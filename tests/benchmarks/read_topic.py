"""How fast one process reads a whole topic without a group, beside a group, confluent-kafka and kcat.

    python tests/benchmarks/read_topic.py                      # two topics of 400 MB: about 4 minutes
    python tests/benchmarks/read_topic.py --sizes 1000 --rounds 1 --megabytes 100

One Kafka 0.8.2.2 broker holds one topic for each message size. In each round every client reads each topic once, in a
process of its own, the clients taking turns; medians over the rounds are printed.

    read_topic     `for message in read_topic(...)`, which ends at the ends of the logs
    group          `for message in stream` of a connector with a fresh group
    confluent      `consume(10000)` of confluent-kafka with `assign`
    consume        `zkconsumer consume --until-end > /dev/null`
    consume -f     the same with `-f '%t %p %o %k %v\\n'`
    consume group  `zkconsumer consume --from-beginning --max-messages N > /dev/null`, which joins a group
    print          a program that writes each value that confluent-kafka reads to /dev/null, a line each
    kcat           `kcat -C -e -o beginning > /dev/null`, if it is installed

The seconds are those of the whole process, start and end included; CPU time and memory are those of the process, too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

CLIENTS = ("read_topic", "group", "confluent", "consume", "consume -f", "consume group", "print", "kcat")
LINES = "%t %p %o %k %v\\n"


class Run(NamedTuple):
    """What one process took to read a topic."""

    seconds: float
    cpu_s: float
    peak_mib: float


def count_read_topic(zookeeper: str, topic: str) -> tuple[int, int]:
    from zkconsumer import read_topic

    count = value_bytes = 0
    for message in read_topic(zookeeper, topic):
        count += 1
        value_bytes += len(message.value)
    return count, value_bytes


def count_group(zookeeper: str, topic: str, wanted: int) -> tuple[int, int]:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(zookeeper, f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest")
    count = value_bytes = 0
    with ConsumerConnector(config) as connector:
        for message in connector.create_message_streams({topic: 1})[topic][0]:
            count += 1
            value_bytes += len(message.value)
            if count == wanted:
                break
    return count, value_bytes


def count_confluent(broker: str, topic: str, partitions: int, wanted: int, is_printing: bool) -> tuple[int, int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "none",
            "enable.auto.commit": False,
            "api.version.request": False,
            "broker.version.fallback": "0.8.2.2",
            "check.crcs": True,
            "queued.min.messages": 1_000_000,
            "auto.offset.reset": "smallest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    count = value_bytes = 0
    with open(os.devnull, "wb") as output:
        while count < wanted:
            for message in consumer.consume(10_000, 1.0):
                count += 1
                value = message.value()
                value_bytes += len(value)
                if is_printing:
                    output.write(value + b"\n")
    consumer.close()
    return count, value_bytes


def run_client(arguments: argparse.Namespace) -> None:
    """Read the topic in this process."""
    topic, wanted = arguments.topic, arguments.count
    if arguments.client == "read_topic":
        count, value_bytes = count_read_topic(arguments.zookeeper, topic)
    elif arguments.client == "group":
        count, value_bytes = count_group(arguments.zookeeper, topic, wanted)
    else:
        is_printing = arguments.client == "print"
        count, value_bytes = count_confluent(arguments.broker, topic, arguments.partitions, wanted, is_printing)
    if (count, value_bytes) != (wanted, wanted * arguments.size):
        raise SystemExit(f"{arguments.client} read {count} messages, {value_bytes} bytes, of {wanted}")


def command_of(
    client: str, zookeeper: str, broker: str, topic: str, partitions: int, size: int, count: int
) -> list[str]:
    """Return the command of one client."""
    consume = [sys.executable, "-m", "zkconsumer.cli", "consume", "--zookeeper", zookeeper, "--topic", topic]
    match client:
        case "consume":
            return [*consume, "--until-end"]
        case "consume -f":
            return [*consume, "--until-end", "-f", LINES]
        case "consume group":
            return [*consume, "--from-beginning", "--max-messages", str(count)]
        case "kcat":
            return [
                "kcat",
                "-C",
                "-e",
                "-q",
                "-o",
                "beginning",
                "-b",
                broker,
                "-t",
                topic,
                "-X",
                "api.version.request=false",
                "-X",
                "broker.version.fallback=0.8.2.2",
            ]
        case _:
            return [
                sys.executable,
                __file__,
                "--client",
                client,
                "--zookeeper",
                zookeeper,
                "--broker",
                broker,
                "--topic",
                topic,
                "--partitions",
                str(partitions),
                "--size",
                str(size),
                "--count",
                str(count),
            ]


def measure(client: str, command: list[str], count: int) -> Run:
    """Run a command, and check that it has read everything."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    started_at = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started_at
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or (client.startswith("consume") and f"Consumed {count} " not in errors):
        raise SystemExit(f"{client} failed with status {process.returncode}:\n{errors[-2000:]}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def bench(arguments: argparse.Namespace) -> None:
    from simpleconsumer import KAFKA08
    from tests.benchmarks.consume import fill
    from zkconsumer.testing.kafka import KafkaCluster

    clients = [client for client in CLIENTS if client in arguments.clients]
    if shutil.which("kcat") is None and "kcat" in clients:
        clients.remove("kcat")
        print("kcat is not installed and is left out", file=sys.stderr)
    results: dict[tuple[int, str], list[Run]] = {}
    counts = {size: arguments.megabytes * 1_000_000 // size for size in arguments.sizes}
    with KafkaCluster("0.8.2.2", brokers=1) as cluster:
        broker = f"127.0.0.1:{cluster.port(0)}"
        for size in arguments.sizes:
            fill(cluster, KAFKA08, f"bench-{size}", arguments.partitions, size, "none", counts[size])
        for number in range(arguments.rounds):
            for size in arguments.sizes:
                for client in clients[number % len(clients) :] + clients[: number % len(clients)]:
                    command = command_of(
                        client,
                        cluster.zookeeper_connect,
                        broker,
                        f"bench-{size}",
                        arguments.partitions,
                        size,
                        counts[size],
                    )
                    run = measure(client, command, counts[size])
                    results.setdefault((size, client), []).append(run)
                    print(f"round {number + 1} {size} B {client}: {run.seconds:.2f} s", file=sys.stderr, flush=True)
    report(arguments, clients, counts, results)


def report(
    arguments: argparse.Namespace, clients: list[str], counts: dict[int, int], results: dict[tuple[int, str], list[Run]]
) -> None:
    print(
        f"medians of {arguments.rounds} rounds, {arguments.megabytes} MB of values a topic, "
        f"{arguments.partitions} partition(s), CPython {sys.version.split()[0]}, {os.cpu_count()} cores\n"
    )
    print("| size | client | seconds | messages/s | MB/s | CPU s | peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for size in arguments.sizes:
        for client in clients:
            seconds, cpu_s, peak_mib = (
                statistics.median(values) for values in zip(*results[size, client], strict=True)
            )
            print(
                f"| {size} B | {client} | {seconds:.2f} | {counts[size] / seconds:,.0f} | "
                f"{counts[size] * size / seconds / 1e6:.0f} | {cpu_s:.2f} | {peak_mib:.0f} |"
            )


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=CLIENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=400, help="bytes of values a topic")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--zookeeper", help=argparse.SUPPRESS)
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
    else:
        bench(arguments)


if __name__ == "__main__":
    main()
