"""How fast messages are sent: our producer beside confluent-kafka, kafka-python and Java's, to one real broker.

    python tests/benchmarks/produce.py                      # everything: about 12 minutes
    python tests/benchmarks/produce.py --sizes 100 --codecs none --rounds 5
    python tests/benchmarks/produce.py --kafka 0.8.2.2 3.9.2 4.3.1 --codecs none snappy lz4 --rounds 3
    python tests/benchmarks/produce.py --clients ours-send-all ours-send --kafka 0.8.2.2 embedded-0.8 embedded-0.7

In each round every client sends the same messages once, in a process of its own, the clients taking turns; medians over
the rounds are printed. All wait for acknowledgements of the leader (acks 1), and each run counts what the topic has
afterwards. ours-send-all is `Producer.send_all` of a list; ours-send is `Producer.send` of one message after the other
with `producer.type=async`. confluent-kafka calls `produce` for each message and `poll` now and then, kafka-python
calls `send` for each message, Java is `ProducerPerformance` of the broker's own version with the newer producer, which
makes its own values: of Kafka 0.8.2.2 in `kafka.tools`, and from 3.9.2 on in `org.apache.kafka.tools`. The jars of
4.3.1 have no tools, so that broker gets the messages of 3.9.2's. Batches have at most 1 MiB; the other settings are
those of each client. A last table has ours as multiples of confluent-kafka and of Java.

The time is from the first message to the last acknowledgement, and so are the CPU seconds, of Java those of the whole
process. The load of the machine before each round goes to stderr. Needs: confluent-kafka, kafka-python (2.3.3), Java,
Maven.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS = ("ours-send-all", "ours-send", "confluent", "kafka-python", "java")
OURS = CLIENTS[:2]
OTHERS_SEND = ("0.8.2.2", "3.9.2", "4.3.1")
"""The brokers that the other clients are measured with."""
JAVA_JARS = {"0.8.2.2": "0.8.2.2", "3.9.2": "3.9.2", "4.3.1": "3.9.2"}
"""Broker -> the version whose `ProducerPerformance` sends to it."""
CODECS_08 = ("none", "gzip", "snappy", "lz4")


class Run(NamedTuple):
    """What one client took to send its messages."""

    messages: int
    seconds: float
    cpu_s: float
    peak_mib: float


Results = dict[tuple[str, int, str, str], list[Run]]
"""By version, size, codec and client."""


# -- the clients, each in a process of its own ---------------------------------------------------------------------


def _values(size: int, count: int) -> list[bytes]:
    filling = ',"agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36","referrer":"https://shop/"'
    filling *= size // 80 + 1
    return [f'{{"id":{number}{filling}'[: size - 1].encode() + b"}" for number in range(count)]


def send_ours(values: list[bytes], arguments: argparse.Namespace, is_bulk: bool) -> None:
    from zkconsumer import Producer, ProducerConfig

    cluster: dict[str, Any] = {"metadata_broker_list": arguments.broker}
    if arguments.zookeeper:  # Kafka 0.7 is found there alone
        cluster = {"zookeeper_connect": arguments.zookeeper}
    config = ProducerConfig(
        **cluster, compression_codec=arguments.codec, producer_type="async", batch_max_bytes=1024 * 1024,
        batch_num_messages=2000, queue_buffering_max_messages=100_000, queue_buffering_max_ms=100,
    )  # fmt: skip
    with Producer(config) as producer:
        if is_bulk:
            producer.send_all(values, topic=arguments.topic)
        else:
            for value in values:
                producer.send(arguments.topic, value)
            producer.flush()


def send_confluent(values: list[bytes], arguments: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    old = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}  # such a broker does not say what it is
    producer = Producer({
        **(old if arguments.is_old else {}), "bootstrap.servers": arguments.broker,
        "acks": 1, "compression.codec": arguments.codec, "linger.ms": 100, "queue.buffering.max.messages": 100_000,
        "message.max.bytes": 1024 * 1024,
    })  # fmt: skip
    produce = producer.produce
    for number, value in enumerate(values):
        while True:
            try:
                produce(arguments.topic, value)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def send_kafka_python(values: list[bytes], arguments: argparse.Namespace) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=arguments.broker,
        api_version=(0, 8, 2) if arguments.is_old else (2, 6),
        acks=1,
        linger_ms=100,
        batch_size=1024 * 1024,
        compression_type=None if arguments.codec == "none" else arguments.codec,
        buffer_memory=64 * 1024 * 1024,
    )
    for value in values:
        producer.send(arguments.topic, value)
    producer.flush()
    producer.close()


SENDERS: dict[str, Callable[[list[bytes], argparse.Namespace], None]] = {
    "ours-send-all": lambda values, arguments: send_ours(values, arguments, True),
    "ours-send": lambda values, arguments: send_ours(values, arguments, False),
    "confluent": send_confluent,
    "kafka-python": send_kafka_python,
}


LIBRARIES = {
    "ours-send-all": "zkconsumer.producer", "ours-send": "zkconsumer.producer", "confluent": "confluent_kafka",
    "kafka-python": "kafka",
}  # fmt: skip


def run_client(arguments: argparse.Namespace) -> None:
    values = _values(arguments.size, arguments.count)
    importlib.import_module(LIBRARIES[arguments.client])
    before = time.process_time()
    started = time.monotonic()
    SENDERS[arguments.client](values, arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({
        "seconds": time.monotonic() - started, "cpu_s": time.process_time() - before,
        "peak_mib": usage.ru_maxrss / 1024,
    }))  # fmt: skip


# -- the bench -----------------------------------------------------------------------------------------------------


def run_python_client(client: str, version: str, cluster: Any, topic: str, size: int, codec: str, count: int) -> Run:
    from tests.benchmarks.one_broker import has_record_batches

    has_zookeeper = not has_record_batches(version)
    command = [sys.executable, __file__, "--client", client,
               "--zookeeper", cluster.zookeeper_connect if has_zookeeper else "",
               "--broker", f"127.0.0.1:{cluster.port(0)}", "--topic", topic,
               "--codec", codec, "--size", str(size), "--count", str(count)]  # fmt: skip
    if has_zookeeper:
        command.append("--is-old")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has compiled modules
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{client} failed on {topic}:\n{done.stderr[-2000:]}")
    row = json.loads(done.stdout.splitlines()[-1])
    return Run(count, row["seconds"], row["cpu_s"], row["peak_mib"])


def run_java(version: str, cluster: Any, topic: str, size: int, codec: str, count: int) -> Run:
    """Java's own benchmark; that of 0.8.2.2 counts its start-up as sending, which is small beside the sending."""
    from zkconsumer.testing.java import find_java
    from zkconsumer.testing.java.maven import jars

    broker = f"127.0.0.1:{cluster.port(0)}"
    command = [str(find_java().program), "-Xmx512m", "-cp", os.pathsep.join(map(str, jars(JAVA_JARS[version])))]
    if version == "0.8.2.2":
        command += [
            "kafka.tools.ProducerPerformance", "--broker-list", broker, "--topics", topic, "--messages", str(count),
            "--message-size", str(size), "--threads", "1", "--request-num-acks", "1", "--compression-codec",
            str(CODECS_08.index(codec)), "--batch-size", str(1024 * 1024), "--new-producer", "--hide-header",
        ]  # fmt: skip
        pattern = r"\d{4}-\d\d-\d\d .*, ([\d.]+)$"
    else:
        command += [
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count),
            "--record-size", str(size), "--throughput", "-1", "--producer-props", f"bootstrap.servers={broker}",
            "acks=1", "enable.idempotence=false", f"compression.type={codec}", f"batch.size={1024 * 1024}",
            f"max.request.size={2 * 1024 * 1024}", "linger.ms=100",
        ]  # fmt: skip
        pattern = r"\d+ records sent, ([\d.]+) records/sec .* 99.9th"  # the last line; those before it have a part each
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rates = re.findall(pattern, done.stdout, re.MULTILINE)
    if not rates:
        raise SystemExit(f"Java's ProducerPerformance printed no figures:\n{(done.stdout + done.stderr)[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(count, count / float(rates[-1]), cpu_s, float("nan"))


def stored(cluster: Any, dialect: Any, topic: str, partitions: int) -> int:
    """Return how many messages a topic has; in Kafka 0.7 what its bytes come to is not counted."""
    from simpleconsumer import LATEST, SimpleConsumer

    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=dialect) as consumer:
        return sum(consumer.get_offsets_before(topic, number, LATEST)[0] for number in range(partitions))


def bench(arguments: argparse.Namespace) -> None:
    from tests.benchmarks.one_broker import check_versions, cluster_of

    check_versions(arguments.kafka)
    clients = [client for client in CLIENTS if client in arguments.clients]
    results: Results = {}
    with contextlib.ExitStack() as stack:
        clusters = {version: stack.enter_context(cluster_of(version, arguments.partitions))
                    for version in arguments.kafka}  # fmt: skip
        for number in range(arguments.rounds):
            print(f"load before round {number + 1}: {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)
            for size in arguments.sizes:
                for codec in arguments.codecs:
                    for client in clients[number % len(clients) :] + clients[: number % len(clients)]:
                        for version, cluster in clusters.items():
                            if client not in OURS and version not in OTHERS_SEND:
                                continue
                            run = one_run(version, cluster, client, number, size, codec, arguments)
                            results.setdefault((version, size, codec, client), []).append(run)
                            rate = f"{run.messages / run.seconds:,.0f} messages/s"
                            case = f"round {number + 1} {version} {size} B {codec} {client}"
                            print(f"{case}: {rate}", file=sys.stderr, flush=True)
    print(f"medians of {arguments.rounds} rounds, {arguments.megabytes} MB of values a run, {arguments.partitions} "
          f"partition(s), CPython {sys.version.split()[0]}, {os.cpu_count()} cores")  # fmt: skip
    for version in arguments.kafka:
        report(version, results, clients)
    report_ratios(results)


def one_run(
    version: str, cluster: Any, client: str, number: int, size: int, codec: str, arguments: argparse.Namespace
) -> Run:
    from tests.benchmarks.one_broker import dialect_of

    dialect = dialect_of(version)
    topic = f"bench-{client}-{size}-{codec}-{number}"
    cluster.create_topic(topic, arguments.partitions, 1)
    count = arguments.megabytes * 1_000_000 // size
    if client == "java":
        run = run_java(version, cluster, topic, size, codec, count)
    else:
        run = run_python_client(client, version, cluster, topic, size, codec, count)
    if not dialect.has_byte_positions:
        found = stored(cluster, dialect, topic, arguments.partitions)
        if found != count:
            raise SystemExit(f"{client} sent {count} messages to {topic}, which has {found}")
    return run


def report(version: str, results: Results, clients: list[str]) -> None:
    print(f"\nKafka {version}\n")
    print("| size | codec | client | messages/s | MB/s | ours-send-all / it | CPU s | µs CPU a message | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, codec in dict.fromkeys((size, codec) for found, size, codec, _ in results if found == version):
        ours = results.get((version, size, codec, "ours-send-all"))
        for client in clients:
            runs = results.get((version, size, codec, client))
            if runs is None:
                continue
            rate = statistics.median(run.messages / run.seconds for run in runs)
            ratio = "-"
            if ours and client != "ours-send-all":
                ratio = f"{statistics.median(run.messages / run.seconds for run in ours) / rate:.2f}"
            cpu_s = statistics.median(run.cpu_s for run in runs)
            peak = statistics.median(run.peak_mib for run in runs)
            shown = "-" if peak != peak else f"{peak:.0f}"
            print(f"| {size} B | {codec} | {client} | {rate:,.0f} | {rate * size / 1e6:.1f} | {ratio} | {cpu_s:.2f} | "
                  f"{cpu_s / runs[0].messages * 1e6:.2f} | {shown} |")  # fmt: skip


def report_ratios(results: Results) -> None:
    """Print the rates of ours as multiples of the others', medians by medians; of Java the CPU is that of a process."""
    print("\nours : other, wall / messages for each CPU second\n")
    print("| Kafka | size | codec | client | : confluent-kafka | : Java |\n|---|---|---|---|---|---|")
    for (version, size, codec, client), runs in results.items():
        if client not in OURS:
            continue
        shown = []
        for other in ("confluent", "java"):
            theirs = results.get((version, size, codec, other))
            if theirs is None:
                shown.append("-")
                continue
            wall, cpu = (
                statistics.median(getattr(run, name) / run.messages for run in theirs)
                / statistics.median(getattr(run, name) / run.messages for run in runs)
                for name in ("seconds", "cpu_s")
            )  # fmt: skip
            shown.append(f"{wall:.2f} / {cpu:.2f}")
        print(f"| {version} | {size} B | {codec} | {client} | {shown[0]} | {shown[1]} |")


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--codecs", nargs="+", default=["none", "snappy"], choices=CODECS_08)
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=CLIENTS)
    versions = "embedded-0.8, embedded-0.7, 0.7.2, 0.8.2.2, 3.9.2, 4.3.1 (the others send to the last three alone)"
    parser.add_argument("--kafka", nargs="+", default=[OTHERS_SEND[0]], metavar="VERSION", help=versions)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="bytes of values a run")
    parser.add_argument("--partitions", type=int, default=4)
    for name in ("--client", "--zookeeper", "--broker", "--topic", "--codec"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--is-old", action="store_true", help=argparse.SUPPRESS)
    for name in ("--size", "--count"):
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
    else:
        bench(arguments)


if __name__ == "__main__":
    main()
