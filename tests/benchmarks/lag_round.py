"""How long it takes to read the lag of all groups of a cluster, and what that costs.

    python tests/benchmarks/lag_round.py                              # 500 groups, 20 partitions each
    python tests/benchmarks/lag_round.py --groups 5 --topics 400 --topics-each 400 --partitions 10
    python tests/benchmarks/lag_round.py --offsets kafka
    python tests/benchmarks/lag_round.py --beside ../earlier          # in turns with another checkout of this project
    python tests/benchmarks/lag_round.py --delay-ms 2                 # each way between the monitor and ZooKeeper

Each group has one member, which owns and has offsets of all partitions of one topic, or of `--topics-each`. The
monitor is a process of its own, as `zkconsumer exporter` is. It reads once without being measured, and then `--rounds`
times. Medians of the seconds, of the CPU seconds of the monitor, and the requests of one round are printed; with
`--beside` also the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = os.environ.get("LAG_ROUND_TREE", str(Path(__file__).resolve().parents[2]))

from rebalance.zookeeper.port.requests import Create, Multi
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.types import TopicPartition
from tests.benchmarks.requests_sent import RequestsSent
from zkconsumer.admin import Admin
from zkconsumer.cluster.zookeeper_connection import zookeeper_connection
from zkconsumer.testing import EmbeddedCluster, KafkaCluster, TcpProxy, load, wait_until

TREE = Path(__file__).resolve().parents[2]
LONGEST_S = 300.0
CREATED_AT_A_TIME = 200
Run = dict[str, Any]


# -- the monitor, in a process of its own ------------------------------------------------------------------------------


def measure(zookeeper: str, rounds: int) -> None:
    """Print one line of JSON: the medians of the rounds, and the requests of the last one."""
    sent = RequestsSent()
    seconds, cpu = [], []
    with Admin(zookeeper) as admin:
        monitor = admin.lag_monitor()
        report = monitor.read()
        for _ in range(rounds):
            sent.clear()
            started_at, cpu_at = time.monotonic(), time.process_time()
            report = monitor.read()
            seconds.append(time.monotonic() - started_at)
            cpu.append(time.process_time() - cpu_at)
    print(json.dumps({
        "seconds": statistics.median(seconds), "cpu_s": statistics.median(cpu),
        "zookeeper": sent.zookeeper.total(), "brokers": sent.brokers.total(),
        "groups": len(report.groups), "rows": sum(len(group.partitions) for group in report.groups),
        "unknown": sum(group.lag_unknown for group in report.groups), "lag": sum(group.lag for group in report.groups),
    }))  # fmt: skip


# -- the cluster -------------------------------------------------------------------------------------------------------


def group_nodes(group: str, topics: Sequence[str], partitions: int, with_offsets: bool) -> Iterator[Create]:
    """The nodes of a group whose one member owns all partitions of some topics."""
    root = f"/consumers/{group}"
    member = f"{group}_host-1-abcdef01"
    subscription = json.dumps(dict.fromkeys(topics, 1))
    text = f'{{"version":1,"subscription":{subscription},"pattern":"static","timestamp":"1"}}'
    for path in (root, f"{root}/ids", f"{root}/owners", f"{root}/offsets"):
        yield Create(path)
    yield Create(f"{root}/ids/{member}", text.encode(), ephemeral=True)
    for topic in topics:
        yield Create(f"{root}/owners/{topic}")
        yield Create(f"{root}/offsets/{topic}")
        for partition in range(partitions):
            yield Create(f"{root}/owners/{topic}/{partition}", f"{member}-0".encode(), ephemeral=True)
            if with_offsets:
                yield Create(f"{root}/offsets/{topic}/{partition}", b"3")


@contextmanager
def groups_in(zookeeper: str, options: argparse.Namespace) -> Iterator[None]:
    """Have the groups exist for the block; their members' sessions end with it."""
    nodes = [
        node for number in range(options.groups)
        for node in group_nodes(f"group-{number:05}", topics_of(number, options), options.partitions,
                                options.offsets == "zookeeper")
    ]  # fmt: skip
    with zookeeper_connection(zookeeper) as port:
        answered: list[Any] = []
        for first in range(0, len(nodes), CREATED_AT_A_TIME):
            port.send(Multi(tuple(nodes[first : first + CREATED_AT_A_TIME])), answered.append)
            wanted = first // CREATED_AT_A_TIME + 1
            wait_until(lambda wanted=wanted: len(answered) == wanted, LONGEST_S, "the nodes to be created")  # type: ignore[misc]
            if answered[-1].fault is not None or "Error" in answered[-1].reason:
                raise SystemExit(f"the nodes were not created: {answered[-1]}")
        yield


def topics_of(group: int, options: argparse.Namespace) -> list[str]:
    return [topic_of(group + number, options) for number in range(options.topics_each)]


def topic_of(number: int, options: argparse.Namespace) -> str:
    return f"topic-{number % options.topics:04}"


def store_in_kafka(cluster: EmbeddedCluster | KafkaCluster, options: argparse.Namespace) -> None:
    """Store the offsets of the groups in Kafka, as their members would."""
    broker = next(iter(cluster.brokers.values()))
    with SimpleConsumer("127.0.0.1", broker.port, 30.0, "lag-round") as consumer:
        for number in range(options.groups):
            group = f"group-{number:05}"

            def manager(group: str = group) -> object:
                try:
                    return consumer.consumer_metadata(group)
                except Exception:  # noqa: BLE001 - the topic of offsets is just being created
                    return None

            found: Any = wait_until(manager, LONGEST_S, "an offset manager")
            names = [TopicPartition(topic, partition) for topic in topics_of(number, options)
                     for partition in range(options.partitions)]  # fmt: skip
            with SimpleConsumer(found.host, found.port, 30.0, "lag-round") as of_group:
                of_group.commit_offsets(group, dict.fromkeys(names, 3), version=1)


def run(zookeeper: str, tree: Path, rounds: int) -> Run:
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", zookeeper, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False,
                          env={**os.environ, "LAG_ROUND_TREE": str(tree)})  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the monitor of {tree} failed:\n{done.stderr}")
    found: Run = json.loads(done.stdout)
    return found


def compare(zookeeper: str, options: argparse.Namespace) -> None:
    """Measure in turns, and print the medians and ratios."""
    trees = [TREE, *([options.beside.resolve()] if options.beside else [])]
    runs: dict[Path, list[Run]] = {tree: [] for tree in trees}
    for number in range(options.runs):
        for tree in trees if number % 2 == 0 else reversed(trees):
            runs[tree].append(run(zookeeper, tree, options.rounds))
    for tree, found in runs.items():
        name = "this tree" if tree == TREE else tree.name
        last = found[-1]
        print(
            f"{name}: {statistics.median(one['seconds'] for one in found):.2f} s a round, "
            f"{statistics.median(one['cpu_s'] for one in found):.2f} CPU s, "
            f"{last.get('zookeeper', 0):,} requests to ZooKeeper, {last.get('brokers', 0):,} to brokers; "
            f"{last['groups']:,} groups, {last['rows']:,} partitions, {last['unknown']} unknown, lag {last['lag']:,}"
        )
    if options.beside:
        pairs = list(zip(runs[trees[1]], runs[trees[0]], strict=True))
        for name, key in (("seconds", "seconds"), ("CPU seconds", "cpu_s")):
            ratio = statistics.median(other[key] / ours[key] for other, ours in pairs)
            print(f"{trees[1].name} / this tree, {name}: {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="How long a round over the lag of all groups takes.")
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=20, help="of each topic")
    parser.add_argument("--topics", type=int, default=25, help="that the groups share")
    parser.add_argument("--topics-each", type=int, default=1, help="that each group reads")
    parser.add_argument("--offsets", choices=["zookeeper", "kafka"], default="zookeeper", help="where they are stored")
    parser.add_argument("--kafka", metavar="VERSION", help="a real broker in place of an embedded one")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="each way between the monitor and ZooKeeper")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of one monitor")
    parser.add_argument("--runs", type=int, default=3, help="monitors that are started")
    parser.add_argument("--beside", type=Path, metavar="TREE", help="another checkout, measured in turns")
    parser.add_argument("--measure", metavar="ZOOKEEPER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.rounds)
        return
    made: EmbeddedCluster | KafkaCluster = KafkaCluster(options.kafka, 1) if options.kafka else EmbeddedCluster(1)
    with made as cluster:
        for number in range(options.topics):
            cluster.create_topic(topic_of(number, options), options.partitions)
            load(cluster, topic_of(number, options), 10)
        if options.offsets == "kafka":
            store_in_kafka(cluster, options)
        with groups_in(cluster.zookeeper_connect, options):
            host, _, port = cluster.zookeeper_connect.partition("/")[0].rpartition(":")
            with TcpProxy((host, int(port))) as proxy:
                proxy.delay(options.delay_ms / 1000)
                place = f"127.0.0.1:{proxy.port}" if options.delay_ms else cluster.zookeeper_connect
                compare(place, options)


if __name__ == "__main__":
    main()
