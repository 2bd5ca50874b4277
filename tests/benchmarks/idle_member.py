"""What a member costs that gets no messages, and how soon a message reaches it then: Kafka 0.7 beside 0.8.

    python tests/benchmarks/idle_member.py                            # embedded brokers: about a minute
    python tests/benchmarks/idle_member.py --partitions 500 --seconds 60
    python tests/benchmarks/idle_member.py --kafka 0.8.2.2 0.7.2      # real ones; 0.7 needs its jar
    python tests/benchmarks/idle_member.py --kafka 0.8.2.2 --java --partitions 2000

One member for each version of Kafka, in a process of its own with its default configuration, owns all partitions of an
empty topic on one broker. All members are measured at the same time. Printed for each: CPU seconds of the whole process
and requests to its broker and to ZooKeeper, all in a minute; then the seconds from producing a message to receiving it,
where each message comes after a silence.

With `--java`, a Java consumer of each real broker's version owns the partitions of a second topic. It is measured after
the others, when they have ended, in the same way; its requests are not counted.

Brokers of Kafka 0.8 hold back the answer to a fetch until there are messages (`fetch.wait.max.ms`). Those of 0.7 answer
at once, so a member waits between its fetches, at most `fetcher.backoff.ms`.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import sys
import time
import uuid
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = str(Path(__file__).parents[2])

from simpleconsumer.consumer import SimpleConsumer
from tests.benchmarks.one_broker import OneBroker, check_versions, cluster_of, dialect_of
from tests.benchmarks.process_times import cpu_seconds
from tests.benchmarks.requests_sent import RequestsSent
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import JavaMember, KafkaCluster
from zkconsumer.testing.waiting import wait_until

TOPIC = "idle"
JAVA_TOPIC = "idle-java"
JAVAS_OWN: Mapping[str, object] = {"auto.commit.interval.ms": 60_000, "zookeeper.sync.time.ms": 2000}
"""Java's own defaults where members of the test kit have others."""
SETTLED_S = 3.0
"""Longer than the pauses between fetches take to become the longest."""
LONGEST_S = 120.0


class Spent(NamedTuple):
    """What a member has spent since its start."""

    at: float
    cpu_s: float
    broker_requests: int
    zookeeper_requests: int


# -- a member, in a process of its own -----------------------------------------------------------------------------


def spent(sent: RequestsSent) -> Spent:
    """What this process has spent until now."""
    return Spent(time.monotonic(), time.process_time(), sent.brokers.total(), sent.zookeeper.total())


def run_member(pipe: Connection, connect: str, partitions: int) -> None:
    """Body of a member: joins, says what it has spent when asked, then when each message came, until it is closed."""
    sent = RequestsSent()
    config = ConsumerConfig(connect, f"bench-{uuid.uuid4().hex[:8]}", auto_offset_reset="smallest")
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
        until = time.monotonic() + LONGEST_S
        while len(connector.status().owned) < partitions:
            if time.monotonic() > until:
                raise SystemExit(f"{len(connector.status().owned)} of {partitions} partitions are owned")
            time.sleep(0.05)
        pipe.send(None)
        while pipe.recv() == "spent":
            pipe.send(spent(sent))
        for _ in stream:
            pipe.send(time.monotonic())
            if not pipe.recv():
                return


class Member:
    """A member process as the bench sees it."""

    def __init__(self, connect: str, partitions: int) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=run_member, args=(theirs, connect, partitions), daemon=True
        )
        self._process.start()

    def tell(self, command: object) -> None:
        """Send a command."""
        self._pipe.send(command)

    def answer(self) -> Any:
        """What the member sends next."""
        if not self._pipe.poll(2 * LONGEST_S):
            raise SystemExit("a member does not answer")
        return self._pipe.recv()

    def spent(self) -> Spent:
        """What it has spent since its start."""
        self.tell("spent")
        found: Spent = self.answer()
        return found

    def join(self) -> None:
        """Wait for its end."""
        self._process.join(30)


def idle_java_cpu_s(cluster: KafkaCluster, partitions: int, seconds: float) -> float:
    """Return the CPU seconds of a Java consumer that gets no messages, in a minute."""
    cluster.create_topic(JAVA_TOPIC, partitions, 1)
    with JavaMember(cluster, "bench-java", topics={JAVA_TOPIC: 1}, settings=JAVAS_OWN, heap_mb=512) as member:
        member.wait_ready()
        wait_until(lambda: len(member.owned()) == partitions, LONGEST_S, f"Java owns {partitions} partitions")
        time.sleep(SETTLED_S)
        began_s, before_s = time.monotonic(), cpu_seconds(member.process.pid)
        time.sleep(seconds)
        return (cpu_seconds(member.process.pid) - before_s) * 60 / (time.monotonic() - began_s)


# -- the bench -----------------------------------------------------------------------------------------------------


def latencies(version: str, cluster: OneBroker, member: Member, silences: list[float]) -> list[float]:
    """Return how long each of some messages took to the member, each after a silence."""
    found = []
    member.tell("messages")
    with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=dialect_of(version)) as producer:
        for number, silence_s in enumerate(silences, 1):
            time.sleep(silence_s)
            sent_at = time.monotonic()
            producer.produce(TOPIC, 0, [b"x"])
            found.append(member.answer() - sent_at)
            member.tell(number < len(silences))
    member.join()
    return found


def measure(version: str, before: Spent, after: Spent, delays: list[float]) -> str:
    """Return a row of the table."""
    minutes = (after.at - before.at) / 60
    figures = [
        f"{(after.cpu_s - before.cpu_s) / minutes:.2f}",
        f"{(after.broker_requests - before.broker_requests) / minutes:.0f}",
        f"{(after.zookeeper_requests - before.zookeeper_requests) / minutes:.0f}",
        f"{1000 * statistics.median(delays):.0f}",
        f"{1000 * max(delays):.0f}",
    ]
    return f"| {version} | " + " | ".join(figures) + " |"


def bench(arguments: argparse.Namespace) -> None:
    check_versions(arguments.kafka)
    silences = [2.0 + 0.37 * number for number in range(arguments.messages)]
    with contextlib.ExitStack() as stack:
        clusters = {
            version: stack.enter_context(cluster_of(version, arguments.partitions)) for version in arguments.kafka
        }
        for cluster in clusters.values():
            cluster.create_topic(TOPIC, arguments.partitions, 1)
        members = {
            version: Member(cluster.zookeeper_connect, arguments.partitions) for version, cluster in clusters.items()
        }
        for member in members.values():
            member.answer()
        time.sleep(SETTLED_S)
        before = {version: member.spent() for version, member in members.items()}
        time.sleep(arguments.seconds)
        after = {version: member.spent() for version, member in members.items()}
        print(f"one member, {arguments.partitions} partition(s), {arguments.seconds:g} s idle, default configuration\n")
        print("| brokers | CPU s a minute | broker requests | ZooKeeper requests | median delay ms | longest |")
        print("|---|---|---|---|---|---|")
        for version, cluster in clusters.items():
            delays = latencies(version, cluster, members[version], silences)
            print(measure(version, before[version], after[version], delays), flush=True)
        if arguments.java:
            for version, cluster in clusters.items():
                if isinstance(cluster, KafkaCluster):
                    java_s = idle_java_cpu_s(cluster, arguments.partitions, arguments.seconds)
                    soon, late = before[version], after[version]
                    ratio = (late.cpu_s - soon.cpu_s) * 60 / (late.at - soon.at) / java_s
                    print(f"{version}: Java {java_s:.2f} CPU s a minute; ours / Java = {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kafka",
        nargs="+",
        default=["embedded-0.8", "embedded-0.7"],
        metavar="VERSION",
        help="embedded-0.8, embedded-0.7, or versions of real brokers",
    )
    parser.add_argument("--partitions", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the members idle")
    parser.add_argument("--java", action="store_true", help="measure Java's consumer as well")
    parser.add_argument("--messages", type=int, default=5, help="whose delay is measured")
    bench(parser.parse_args())


if __name__ == "__main__":
    main()
