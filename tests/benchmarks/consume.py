"""How fast one consumer reads a topic: ours beside confluent-kafka, kafka-python and Java, from one real broker.

    python tests/benchmarks/consume.py                     # everything: about 12 minutes
    python tests/benchmarks/consume.py --sizes 100 --codecs none --rounds 5
    python tests/benchmarks/consume.py --clients ours ours-batches --kafka embedded-0.8 embedded-0.7 0.8.2.2 0.7.2
    python tests/benchmarks/consume.py --clients ours ours-batches ours-topic confluent java --kafka 0.8.2.2 3.9.2 4.3.1
    python tests/benchmarks/consume.py --clients ours ours-brokers ours-polled confluent --kafka 3.9.2 --codecs none

One Kafka 0.8.2.2 broker holds one topic for each message size and codec. In each round every client reads each topic
once, in a process of its own, with a fresh group, the clients taking turns; medians over the rounds are printed. All
fetch 1 MiB a partition. Ours runs with its default configuration: every CRC checked, lease and auto-commit on, `for
message in stream`; ours-batches is the same with `for batch in stream.batches()`. confluent-kafka runs in its fastest
mode (`consume(10000)`, `assign`), kafka-python iterates, Java is `ConsumerPerformance`: that of 0.8.2.2 for brokers of
0.8.2.2, and that of 3.9.2, by its rate after the rebalance, for brokers of 3.9.2 and 4.3.1, whose jars have no tools.
Every client reads the value of every message, batches their lengths alone.

With `--kafka`, one broker of each version has the same messages, and they are read from one after the other: by ours,
and by confluent-kafka where it still can (0.8.2.2 and later). ours-topic is `for message in read_topic(...)`, which
joins no group and needs no ZooKeeper. ours-brokers is ours in a group that the brokers coordinate, and ours-polled is
`KafkaConsumer.poll` in such a group, of 500 records or as many as BENCH_POLL_RECORDS says; ours-iterated is `for
record in consumer`. A second table says how fast Kafka 0.7 is read beside 0.8, as the median
of the ratios of neighbouring runs. `embedded-0.8` and `embedded-0.7` are brokers of the test kit; 0.7.2 needs its jar
(ZKCONSUMER_KAFKA_07_JAR).

The last table has ours as multiples of confluent-kafka and of Java, by rate and by messages for each CPU second of the
whole process, its start included.

The rate is taken from the first message to the last; the time to the first message and what the whole process took
(CPU seconds, peak memory) stand beside it. Needs: confluent-kafka, kafka-python (2.3.3), Java, Maven.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS = (
    "ours",
    "ours-batches",
    "ours-topic",
    "ours-brokers",
    "ours-polled",
    "ours-iterated",
    "confluent",
    "kafka-python",
    "java",
)
OURS = CLIENTS[:6]
BY_DEFAULT = ("ours", "ours-batches", "confluent", "kafka-python", "java")
OTHERS_READ = "0.8.2.2"
"""The brokers that kafka-python is measured with."""
JAVA_TOOLS = {"0.8.2.2": "0.8.2.2", "3.9.2": "3.9.2", "4.3.1": "3.9.2"}
"""Broker -> the version whose ConsumerPerformance reads from it."""
FETCH_BYTES = 1024 * 1024


class Run(NamedTuple):
    """What one client made of one topic."""

    messages: int
    seconds: float
    first_s: float
    cpu_s: float
    peak_mib: float


Results = dict[tuple[str, int, str, str], list[Run]]
"""By version, size, codec and client."""


# -- the clients, each in a process of its own ---------------------------------------------------------------------


class Tally:
    """Counts messages and keeps the moments of the first and the last."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.count = 0
        self.value_bytes = 0
        self.first_at = 0.0
        self.last_at = 0.0


def read_ours(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(zookeeper, f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        count = value_bytes = 0
        for message in connector.create_message_streams({topic: 1})[topic][0]:
            if not count:
                tally.first_at = time.monotonic()
            count += 1
            value_bytes += len(message.value)
            if count == tally.wanted:
                break
        tally.last_at = time.monotonic()
        tally.count, tally.value_bytes = count, value_bytes


def read_batches(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from pyarrow import compute

    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(zookeeper, f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        count = value_bytes = 0
        for batch in connector.create_message_streams({topic: 1})[topic][0].batches():
            if not count:
                tally.first_at = time.monotonic()
            count += len(batch)
            value_bytes += compute.sum(compute.binary_length(batch.record_batch.column("value"))).as_py()
            if count >= tally.wanted:
                break
        tally.last_at = time.monotonic()
        tally.count, tally.value_bytes = count, value_bytes


def read_group_of_brokers(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from zkconsumer import ConsumerConfig, ConsumerConnector

    config = ConsumerConfig(
        bootstrap_servers=broker, group_id=f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest"
    )
    with ConsumerConnector(config) as connector:
        count = value_bytes = 0
        for message in connector.create_message_streams({topic: 1})[topic][0]:
            if not count:
                tally.first_at = time.monotonic()
            count += 1
            value_bytes += len(message.value or b"")
            if count == tally.wanted:
                break
        tally.last_at = time.monotonic()
        tally.count, tally.value_bytes = count, value_bytes


def read_polled(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from zkconsumer import KafkaConsumer

    settings: dict[str, Any] = {
        "group_id": f"bench-{uuid.uuid4().hex[:8]}",
        "auto_offset_reset": "earliest",
        "max_poll_records": int(os.environ["BENCH_POLL_RECORDS"]),
        "bootstrap_servers": broker,
    }
    with KafkaConsumer(topic, **settings) as consumer:
        count = value_bytes = 0
        while count < tally.wanted:
            for record in consumer.poll(1000):
                if not count:
                    tally.first_at = time.monotonic()
                count += 1
                value_bytes += len(record.value)
        tally.last_at = time.monotonic()
        tally.count, tally.value_bytes = count, value_bytes


def read_iterated(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from zkconsumer import KafkaConsumer

    settings: dict[str, Any] = {
        "group_id": f"bench-{uuid.uuid4().hex[:8]}",
        "auto_offset_reset": "earliest",
        "bootstrap_servers": broker,
    }
    with KafkaConsumer(topic, **settings) as consumer:
        count = value_bytes = 0
        for record in consumer:
            if not count:
                tally.first_at = time.monotonic()
            count += 1
            value_bytes += len(record.value)
            if count == tally.wanted:
                break
        tally.last_at = time.monotonic()
        tally.count, tally.value_bytes = count, value_bytes


def read_whole_topic(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from zkconsumer import read_topic

    count = value_bytes = 0
    properties = {} if zookeeper else {"bootstrap.servers": broker}
    for message in read_topic(zookeeper or None, topic, properties=properties):
        if not count:
            tally.first_at = time.monotonic()
        count += 1
        value_bytes += len(message.value)
    tally.last_at = time.monotonic()
    tally.count, tally.value_bytes = count, value_bytes


def read_confluent(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    old = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"bench-{uuid.uuid4().hex[:8]}",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 2_000_000,  # with the default, 64 MB, it pauses for seconds at high rates
            "auto.offset.reset": "smallest",
            **(old if os.environ["BENCH_KAFKA"] == OTHERS_READ else {}),
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    count = value_bytes = 0
    while count < tally.wanted:
        for message in consumer.consume(10_000, 1.0):
            if not count:
                tally.first_at = time.monotonic()
            count += 1
            value_bytes += len(message.value())
    tally.last_at = time.monotonic()
    tally.count, tally.value_bytes = count, value_bytes
    consumer.close()


def read_kafka_python(tally: Tally, zookeeper: str, broker: str, topic: str, partitions: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=broker,
        api_version=(0, 8, 2),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        check_crcs=True,
        group_id=None,
        max_poll_records=10_000,
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
    consumer.seek_to_beginning()
    count = value_bytes = 0
    for message in consumer:
        if not count:
            tally.first_at = time.monotonic()
        count += 1
        value_bytes += len(message.value)
        if count == tally.wanted:
            break
    tally.last_at = time.monotonic()
    tally.count, tally.value_bytes = count, value_bytes
    consumer.close()


READERS: dict[str, Callable[[Tally, str, str, str, int], None]] = {
    "ours": read_ours,
    "ours-batches": read_batches,
    "ours-topic": read_whole_topic,
    "ours-brokers": read_group_of_brokers,
    "ours-polled": read_polled,
    "ours-iterated": read_iterated,
    "confluent": read_confluent,
    "kafka-python": read_kafka_python,
}


def run_client(arguments: argparse.Namespace) -> None:
    started_at = float(os.environ["BENCH_STARTED_AT"])
    tally = Tally(arguments.count)
    READERS[arguments.client](tally, arguments.zookeeper, arguments.broker, arguments.topic, arguments.partitions)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "messages": tally.count,
                "value_bytes": tally.value_bytes,
                "seconds": tally.last_at - tally.first_at,
                "first_s": tally.first_at - started_at,
                "cpu_s": usage.ru_utime + usage.ru_stime,
                "peak_mib": usage.ru_maxrss / 1024,
            }
        )
    )


# -- the bench -----------------------------------------------------------------------------------------------------


def fill(cluster: Any, dialect: Any, topic: str, partitions: int, size: int, codec: str, count: int) -> None:
    """Fill a topic with `count` JSON-like values of `size` bytes, a tenth of which differs from value to value."""
    from simpleconsumer import LATEST, SimpleConsumer
    from zkconsumer.testing import wait_until

    chance = random.Random(size)
    batch = max(1, 200_000 // size)
    cluster.create_topic(topic, partitions, 1)
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=dialect) as producer:
        sent = [0] * partitions
        for number, start in enumerate(range(0, count, batch)):
            values = list(_values(chance, size, start, min(batch, count - start)))
            producer.produce(topic, number % partitions, values, codec=codec)
            sent[number % partitions] += len(dialect.encode_messages(values, codec, None, None))
        if dialect.has_byte_positions:  # whose brokers acknowledge nothing
            for partition, end in enumerate(sent):
                wait_until(
                    lambda: producer.get_offsets_before(topic, partition, LATEST) == [end],  # noqa: B023
                    60, f"{topic}-{partition} to end at {end}",
                )  # fmt: skip


def _values(chance: random.Random, size: int, start: int, count: int) -> Iterator[bytes]:
    for number in range(start, start + count):
        head = f'{{"id":{number},"user":"{chance.getrandbits(48):012x}","page":"/products/{chance.randrange(9999)}","'
        filling = 'agent":"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36","referrer":"https://shop/'
        text = head + filling * (size // 80 + 1)
        yield text[: size - 2].encode() + b'"}'


def run_python_client(
    client: str, version: str, zookeeper: str, broker: str, topic: str, partitions: int, count: int
) -> Run:
    command = [
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
        "--count",
        str(count),
    ]
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ, "BENCH_STARTED_AT": str(time.monotonic()), "BENCH_KAFKA": version, "PYTHONPATH": root,
    }  # fmt: skip
    environment.setdefault("BENCH_POLL_RECORDS", "500")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has compiled modules
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise SystemExit(f"{client} failed on {topic}:\n{done.stderr[-2000:]}")
    row = json.loads(done.stdout.splitlines()[-1])
    if row["messages"] != count:
        raise SystemExit(f"{client} read {row['messages']} of {count} messages of {topic}")
    return Run(row["messages"], row["seconds"], row["first_s"], row["cpu_s"], row["peak_mib"])


def run_java(version: str, jars: list[Path], java: str, cluster: Any, topic: str, count: int) -> Run:
    """Java's own benchmark; that of 0.8 counts its start-up as reading, which is small beside the reading itself."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    if version == OTHERS_READ:
        tool = ["kafka.tools.ConsumerPerformance", "--zookeeper", cluster.zookeeper_connect, "--threads", "1"]
    else:
        tool = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", f"127.0.0.1:{cluster.port(0)}"]
    command = [
        java,
        "-Xmx512m",
        "-cp",
        os.pathsep.join(map(str, jars)),
        *tool,
        "--topic",
        topic,
        "--messages",
        str(count),
        "--fetch-size",
        str(FETCH_BYTES),
        "--hide-header",
        "--group",
        group,
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out, _ = process.communicate(timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # runs are one at a time
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = [line.split(", ") for line in out.splitlines() if re.match(r"\d{4}-\d\d-\d\d .*, \d", line)]
    if not rows:
        raise SystemExit(f"Java's ConsumerPerformance printed no figures:\n{out[-2000:]}")
    # 0.8: start.time, end.time, fetch.size, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec
    # 3.9: start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,
    #      fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
    messages, rate = rows[-1][5:7] if version == OTHERS_READ else (rows[-1][4], rows[-1][9])
    return Run(int(messages), int(messages) / float(rate), float("nan"), cpu_s, float("nan"))


def bench(arguments: argparse.Namespace) -> None:
    from tests.benchmarks.one_broker import check_versions, cluster_of, dialect_of

    check_versions(arguments.kafka)
    clients = [client for client in CLIENTS if client in arguments.clients]
    cases = [(size, codec) for size in arguments.sizes for codec in arguments.codecs]
    counts = {size: arguments.megabytes * 1_000_000 // size for size in arguments.sizes}
    results: Results = {}
    with contextlib.ExitStack() as stack:
        clusters = {
            version: stack.enter_context(cluster_of(version, arguments.partitions)) for version in arguments.kafka
        }
        for version, cluster in clusters.items():
            for size, codec in cases:
                topic = f"bench-{size}-{codec}"
                fill(cluster, dialect_of(version), topic, arguments.partitions, size, codec, counts[size])
        for number in range(arguments.rounds):
            for size, codec in cases:
                turn = clients[number % len(clients) :] + clients[: number % len(clients)]
                for client in turn:
                    for version in list(clusters) if number % 2 == 0 else reversed(clusters):
                        if not reads(client, version, clusters[version]):
                            continue
                        topic = f"bench-{size}-{codec}"
                        run = run_client_of(
                            client, version, clusters[version], topic, arguments.partitions, counts[size]
                        )
                        results.setdefault((version, size, codec, client), []).append(run)
                        print(
                            f"round {number + 1} {version} {size} B {codec} {client}: "
                            f"{run.messages / run.seconds:,.0f} messages/s",
                            file=sys.stderr,
                            flush=True,
                        )
    print(
        f"medians of {arguments.rounds} rounds, {arguments.megabytes} MB of values a topic, "
        f"{arguments.partitions} partition(s), CPython {sys.version.split()[0]}, {os.cpu_count()} cores"
    )
    for version in clusters:
        report(version, cases, clients, results)
    report_07(cases, clients, results)
    report_ratios(list(clusters), cases, clients, results)


def reads(client: str, version: str, cluster: Any) -> bool:
    """Return whether a client is measured with a broker."""
    from tests.benchmarks.one_broker import has_record_batches

    if client in ("ours", "ours-batches"):
        return cluster.has_zookeeper
    if client in ("ours-brokers", "ours-polled", "ours-iterated"):
        return version != OTHERS_READ and has_record_batches(version)
    if client == "confluent":
        return version == OTHERS_READ or has_record_batches(version)
    if client == "java":
        return version in JAVA_TOOLS
    return client == "ours-topic" or version == OTHERS_READ


def run_client_of(client: str, version: str, cluster: Any, topic: str, partitions: int, count: int) -> Run:
    from zkconsumer.testing.java import find_java
    from zkconsumer.testing.java.maven import jars

    if client == "java":
        tools = JAVA_TOOLS[version]
        return run_java(tools, jars(tools), str(find_java().program), cluster, topic, count)
    broker = f"127.0.0.1:{cluster.port(0)}"
    zookeeper = cluster.zookeeper_connect if cluster.has_zookeeper else ""
    return run_python_client(client, version, zookeeper, broker, topic, partitions, count)


def report(version: str, cases: list[tuple[int, str]], clients: list[str], results: Results) -> None:
    print(f"\nKafka {version}\n")
    print("| size | codec | client | messages/s | MB/s | ours / it | first message s | CPU s | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, codec in cases:
        ours = results.get((version, size, codec, "ours"), results.get((version, size, codec, "ours-topic")))
        for client in clients:
            runs = results.get((version, size, codec, client))
            if runs is None:
                continue
            rate = statistics.median(run.messages / run.seconds for run in runs)
            ratio = "-"
            if ours and client != "ours":
                ratio = f"{statistics.median(run.messages / run.seconds for run in ours) / rate:.2f}"
            figures = [statistics.median(values) for values in zip(*runs, strict=True)][2:]
            shown = [
                "-" if figure != figure else f"{figure:.{digits}f}"
                for figure, digits in zip(figures, (2, 2, 0), strict=True)
            ]
            print(
                f"| {size} B | {codec} | {client} | {rate:,.0f} | {rate * size / 1e6:.1f} | {ratio} | "
                + " | ".join(shown)
                + " |"
            )


def report_ratios(versions: list[str], cases: list[tuple[int, str]], clients: list[str], results: Results) -> None:
    """Print how many times as fast as the peers ours is: by rate, and by messages for each CPU second."""

    def median(version: str, case: tuple[int, str], client: str, figure: Callable[[Run], float]) -> float:
        runs = results.get((version, *case, client))
        return statistics.median(map(figure, runs)) if runs else float("nan")

    def shown(ratio: float) -> str:
        return "-" if ratio != ratio else f"{ratio:.2f}"

    figures: tuple[Callable[[Run], float], ...] = (
        lambda run: run.messages / run.seconds, lambda run: run.messages / run.cpu_s,
    )  # fmt: skip
    peers = [(peer, figure) for peer in ("confluent", "java") for figure in figures]
    print("\nOurs as multiples of the peers\n")
    print("| Kafka | size | codec | client | : confluent, rate | for each CPU s | : Java, rate | for each CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for version, case, client in itertools.product(versions, cases, clients):
        if client in OURS and (version, *case, client) in results:
            ratios = [
                median(version, case, client, figure) / median(version, case, peer, figure) for peer, figure in peers
            ]
            print(f"| {version} | {case[0]} B | {case[1]} | {client} | " + " | ".join(map(shown, ratios)) + " |")


def report_07(cases: list[tuple[int, str]], clients: list[str], results: Results) -> None:
    """Print how fast Kafka 0.7 is read beside 0.8, where both were read."""
    from tests.benchmarks.one_broker import BESIDE

    versions = {version for version, *_ in results}
    pairs = [(new, old) for new, old in BESIDE.items() if {new, old} <= versions]
    if not pairs:
        return
    print("\nKafka 0.7 beside 0.8\n")
    print("| brokers | size | codec | client | messages/s, 0.7 : 0.8 | CPU s, 0.7 : 0.8 |")
    print("|---|---|---|---|---|---|")
    for (new, old), (size, codec), client in itertools.product(pairs, cases, clients):
        if client in OURS:
            both = list(zip(results[new, size, codec, client], results[old, size, codec, client], strict=True))
            rate = statistics.median(
                each.messages / each.seconds * (of_08.seconds / of_08.messages) for each, of_08 in both
            )
            cpu = statistics.median(each.cpu_s / of_08.cpu_s for each, of_08 in both)
            print(f"| {new} : {old} | {size} B | {codec} | {client} | {rate:.2f} | {cpu:.2f} |")


def main() -> None:
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--codecs", nargs="+", default=["none", "gzip", "snappy"])
    parser.add_argument("--clients", nargs="+", default=list(BY_DEFAULT), choices=CLIENTS)
    parser.add_argument(
        "--kafka",
        nargs="+",
        default=[OTHERS_READ],
        metavar="VERSION",
        help="embedded-0.8, embedded-0.7, 0.7.2, 0.8.2.2, or another real broker",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="bytes of values a topic")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--zookeeper", help=argparse.SUPPRESS)
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
    else:
        bench(arguments)


if __name__ == "__main__":
    main()
