"""How fast `zkconsumer mirror` copies a topic between two brokers, beside MirrorMaker 1 and 2.

Usage: .venv/bin/python tests/benchmarks/mirror.py [--sizes 100 1000] [--codecs none lz4] [--megabytes 200] [--rounds 1]

Two clusters of Kafka 3.9.2 with one broker each; the source holds a topic of four partitions for each size and codec,
in batches of about 64 KB. Each client copies it in a process of its own, into a topic of its own, one after the other:

    mirror        `zkconsumer mirror run --until-end`, which copies batches whole
    decoded       the same with `--timestamps target`, which decodes and encodes each record
    pinned        the same with `--pin-producers`, which writes in transactions
    mirror-maker  `kafka.tools.MirrorMaker` of 3.9.2, one stream, acks=all, batch.size=65536, linger.ms=5
    mirror-maker-2  `org.apache.kafka.connect.mirror.MirrorMaker` of 3.9.2, one task, the same producer; needs Maven

Seconds and CPU seconds are those of the copying process from its start, until all records are on the target.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

CLIENTS = ("mirror", "decoded", "pinned", "mirror-maker", "mirror-maker-2")
OF_JAVA = ("mirror-maker", "mirror-maker-2")
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>benchmark</groupId><artifactId>mirror-maker-2</artifactId><version>1</version><dependencies><dependency>
<groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId><version>3.9.2</version>
</dependency></dependencies></project>"""
PARTITIONS = 4
BATCH_BYTES = 65_536
LONGEST_S = 900.0


class Run(NamedTuple):
    """What one process took to copy a topic."""

    seconds: float
    cpu_s: float


def servers(cluster: Any) -> str:
    return f"127.0.0.1:{cluster.port(0)}"


def fill(cluster: Any, topic: str, count: int, size: int, codec: str) -> None:
    """Write records that compress to about a half."""
    from zkconsumer import Producer, ProducerConfig

    config = ProducerConfig(
        metadata_broker_list=servers(cluster), producer_type="async", compression_codec=codec, request_required_acks=-1,
        batch_num_messages=max(1, BATCH_BYTES // size), queue_buffering_max_messages=20_000,
    )  # fmt: skip
    noise = os.urandom(1 << 20)
    with Producer(config) as producer:
        last = None
        for number in range(count):
            at = number * 37 % (len(noise) - size)
            value = noise[at : at + size // 2] + b"." * (size - size // 2)
            last = producer.send(topic, value, key=b"%d" % number, partition=number % PARTITIONS)
        assert last is not None
        last.result(LONGEST_S)


def ends(cluster: Any, topic: str) -> int:
    """How many records a topic has."""
    from simpleconsumer.consumer import SimpleConsumer
    from simpleconsumer.dialect import KAFKA011
    from simpleconsumer.types import TopicPartition

    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as client:
        found = client.log_ends([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return sum(max(0, each.offset) for each in found)


def measure(command: list[str], target: Any, topic: str, count: int) -> Run:
    """Run a command until the target has all records, or it ends."""
    from tests.benchmarks.process_times import cpu_seconds

    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started_at = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    cpu_s = 0.0
    while time.monotonic() - started_at < LONGEST_S:
        if process.poll() is None:
            cpu_s = cpu_seconds(process.pid)
        if ends(target, topic) >= count:
            break
        if process.poll() not in (None, 0):
            assert process.stderr is not None
            raise SystemExit(f"{command[:6]} failed:\n{process.stderr.read().decode()[-2000:]}")
        time.sleep(0.05)  # a sample of a rate, and not a wait for a condition
    else:
        raise SystemExit(f"{topic} has {ends(target, topic)} of {count} records after {LONGEST_S:g} s")
    seconds = time.monotonic() - started_at
    process.terminate()
    process.communicate(timeout=60)
    return Run(seconds, cpu_s)


def command_of(client: str, source: Any, target: Any, topic: str, folder: Path, jars: str, java: str) -> list[str]:
    name = uuid.uuid4().hex[:8]
    if client not in OF_JAVA:
        return [sys.executable, "-m", "zkconsumer.cli", "mirror", "run", "--name", name, "--from-brokers",
                servers(source), "--to-brokers", servers(target), "--whitelist", topic, "--rename",
                f"{topic}={topic}-{client}", "--timestamps", "target" if client == "decoded" else "source",
                "--topic-config", "retention.ms=-1", "--slots", "4", "--until-end",
                *(["--pin-producers"] if client == "pinned" else [])]  # fmt: skip
    if client == "mirror-maker-2":
        return mirror_maker_2(source, target, topic, name, folder, java)
    consumer, producer = folder / "consumer.properties", folder / "producer.properties"
    consumer.write_text(f"bootstrap.servers={servers(source)}\ngroup.id={name}\nauto.offset.reset=earliest\n")
    codec = topic.rsplit("-", 1)[1]
    producer.write_text(
        f"bootstrap.servers={servers(target)}\nacks=all\nbatch.size=65536\nlinger.ms=5\ncompression.type={codec}\n"
    )
    return [java, "-Xmx512m", "-cp", jars, "kafka.tools.MirrorMaker", "--consumer.config", str(consumer),
            "--producer.config", str(producer), "--whitelist", topic]  # fmt: skip


def mirror_maker_2(source: Any, target: Any, topic: str, name: str, folder: Path, java: str) -> list[str]:
    """The command of a MirrorMaker 2 of its own, which keeps the topic's name."""
    path, pom = folder / f"class-path-{name}", folder / "pom.xml"
    pom.write_text(POM)
    subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={path}"],
                   check=True, timeout=LONGEST_S)  # fmt: skip
    settings = folder / f"mirror-maker-2-{name}.properties"
    internal = ("config.storage", "offset.storage", "status.storage", "checkpoints.topic", "heartbeats.topic",
                "offset-syncs.topic")  # fmt: skip
    codec = topic.rsplit("-", 1)[1]
    settings.write_text("\n".join([
        f"clusters=a{name}, b{name}", f"a{name}.bootstrap.servers={servers(source)}",
        f"b{name}.bootstrap.servers={servers(target)}", f"a{name}->b{name}.enabled=true",
        f"a{name}->b{name}.topics={topic}", "replication.factor=1", "tasks.max=1", "emit.heartbeats.enabled=false",
        "emit.checkpoints.enabled=false", "sync.topic.acls.enabled=false",
        "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        *(f"{each}.replication.factor=1" for each in internal),
        f"b{name}.producer.acks=all", f"b{name}.producer.batch.size=65536", f"b{name}.producer.linger.ms=5",
        f"b{name}.producer.compression.type={codec}",
    ]))  # fmt: skip
    return [java, "-Xmx512m", "-cp", path.read_text().strip(), "org.apache.kafka.connect.mirror.MirrorMaker",
            str(settings)]  # fmt: skip


def main() -> None:
    from zkconsumer.testing.java.runtime import find_java
    from zkconsumer.testing.kafka import KafkaCluster
    from zkconsumer.testing.kafka.known_versions import kafka_jars

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--codecs", nargs="+", default=["none", "lz4"])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--clients", nargs="+", default=list(CLIENTS), choices=CLIENTS)
    given = parser.parse_args()
    jars, java = os.pathsep.join(map(str, kafka_jars("3.9.2"))), str(find_java().program)
    settings = {"offsets.topic.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}
    with (
        KafkaCluster("3.9.2", 1, settings=settings) as source,
        KafkaCluster("3.9.2", 1, settings=settings) as target,
        tempfile.TemporaryDirectory() as folder,
    ):
        for size in given.sizes:
            count = given.megabytes * 1_000_000 // size
            for codec in given.codecs:
                topic = f"records-{size}-{codec}"
                source.create_topic(topic, partitions=PARTITIONS)
                fill(source, topic, count, size, codec)
                runs: dict[str, list[Run]] = {client: [] for client in given.clients}
                for _ in range(given.rounds):
                    for client in given.clients:
                        copy = topic if client in OF_JAVA else f"{topic}-{client}"
                        target.create_topic(copy, partitions=PARTITIONS)
                        command = command_of(client, source, target, topic, Path(folder), jars, java)
                        runs[client].append(measure(command, target, copy, count))
                        target.delete_topic(copy)
                for client, found in runs.items():
                    seconds, cpu_s = (statistics.median(each) for each in zip(*found, strict=True))
                    print(f"{size:6} B {codec:6} {client:13} {seconds:7.2f} s {given.megabytes / seconds:8.1f} MB/s "
                          f"{cpu_s:7.2f} CPU s", flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])  # in place of this folder, where `rebalance` is another benchmark
    main()
