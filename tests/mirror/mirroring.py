"""Mirrors in this process and as commands, and what both sides of one have."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zkconsumer import Message, Producer, ProducerConfig, read_topic
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.sides import MirrorSettings
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.waiting import wait_until

WAIT_S = 90.0
TARGET_SETTINGS = {"offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 1,
                   "transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1,
                   "transaction.state.log.num.partitions": 1, "group.initial.rebalance.delay.ms": 0}  # fmt: skip


def servers_of(cluster: Cluster) -> str:
    return ",".join(f"127.0.0.1:{cluster.port(number)}" for number in cluster.brokers)


def settings_of(name: str, source: Cluster, target: Cluster, topic: str, **more: Any) -> MirrorSettings:
    """A mirror of one topic. Sources with a ZooKeeper are named by it."""
    zookeeper = getattr(source, "zookeeper_connect", None) if not more.pop("by_brokers", False) else None
    given = {} if zookeeper else {"bootstrap.servers": servers_of(source)}
    return MirrorSettings(
        name, {"bootstrap.servers": servers_of(target)}, given, zookeeper, whitelist=topic, slots=4, **more
    )  # fmt: skip


def send(cluster: Cluster, topic: str, values: Iterable[bytes], partition: int = 0, **settings: Any) -> None:
    config = ProducerConfig(
        metadata_broker_list=servers_of(cluster), producer_type="async", request_required_acks=-1,
        queue_buffering_max_ms=20, **settings,
    )  # fmt: skip
    with Producer(config) as producer:
        sent = [producer.send(topic, value, key=value[-3:], partition=partition) for value in values]
        for each in sent:
            each.result(WAIT_S)


def numbered(first: int, end: int, size_bytes: int = 0) -> list[bytes]:
    return [(b"value %d" % number).ljust(size_bytes, b".") for number in range(first, end)]


def values(cluster: Cluster, topic: str, partition: int = 0, *, has_markers: bool = False) -> list[bytes | None]:
    """What a plain reader of the target finds, which counts each record, whatever it belongs to."""
    return [message.value for message in read(cluster, topic, partition, has_markers=has_markers)]


def read(cluster: Cluster, topic: str, partition: int = 0, *, has_markers: bool = False) -> list[Message]:
    properties = {"bootstrap.servers": servers_of(cluster), "isolation.level": "read_uncommitted"}
    with read_topic(None, topic, [partition], properties=properties) as reader:
        found = list(reader)
    if not has_markers:
        assert [message.offset for message in found] == [found[0].offset + n for n in range(len(found))]
    return found


@contextmanager
def running(settings: MirrorSettings) -> Iterator[Mirror]:
    """A mirror on a thread, which is stopped at the end."""
    mirror = Mirror(settings)
    faults: list[BaseException] = []

    def run() -> None:
        try:
            mirror.run()
        except BaseException as error:  # noqa: BLE001 - raised at the end
            faults.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        mirror.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    if faults:
        raise faults[0]


def wait_copied(mirror: Mirror, target: Cluster, topic: str, count: int, partition: int = 0) -> None:
    wait_until(lambda: end_of(target, topic, partition) >= count, WAIT_S, f"{count} records on the target",
               state=mirror.figures)  # fmt: skip


def end_of(target: Cluster, topic: str, partition: int = 0) -> int:
    """Where the log of a partition ends; -1 if nobody says it now."""
    from lane_writing import Wire

    from simpleconsumer.errors import SimpleConsumerError
    from simpleconsumer.types import TopicPartition

    wire = None
    try:
        wire = Wire(target, TopicPartition(topic, partition))
        return wire.end()
    except (AssertionError, SimpleConsumerError, KeyError):
        return -1
    finally:
        if wire is not None:
            wire.close()


def command(settings: MirrorSettings, *more: str, verb: str = "run") -> list[str]:
    """The command line of the same mirror."""
    source = (
        ["--from-zookeeper", settings.source_zookeeper]
        if settings.source_zookeeper else ["--from-brokers", str(settings.source["bootstrap.servers"])]
    )  # fmt: skip
    return [sys.executable, "-m", "zkconsumer.cli", "mirror", verb, "--name", settings.name, *source, "--to-brokers",
            str(settings.target["bootstrap.servers"]), *more]  # fmt: skip


def run_command(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(arguments), capture_output=True, text=True, timeout=WAIT_S, check=False)
