"""How long a group takes to start on thousands of partitions, to start again, to join, to leave, and what that costs.

    python tests/benchmarks/first_start.py                          # 2,000 partitions of an embedded broker
    python tests/benchmarks/first_start.py --kafka 0.8.2.2 --topics 4 --partitions 400
    python tests/benchmarks/first_start.py --delay-ms 2             # each way between the members and ZooKeeper

Each member is a process of its own. Prints one line for each phase: how many partitions are delivered (or given back)
by it, the seconds until the listener has heard of the last of them, the seconds until `create_message_streams`
returned, and what the member that is watched has spent until it asked nothing of ZooKeeper for a second: CPU seconds,
requests to ZooKeeper (a multi is one), requests to brokers.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = str(Path(__file__).parents[2])

from tests.benchmarks.requests_sent import RequestsSent
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import EmbeddedCluster, KafkaCluster, TcpProxy

LONGEST_S = 300.0
QUIET_S = 1.0


class Spent(NamedTuple):
    """What a member spent since it was last asked."""

    cpu_s: float
    zookeeper: Counter[str]
    brokers: Counter[str]


class Phase(NamedTuple):
    """What one phase took; `returned_s` is for `create_message_streams`."""

    name: str
    partitions: int
    seconds: float
    returned_s: float | None
    spent: Spent


# -- a member, in a process of its own -----------------------------------------------------------------------------


class Spending:
    """What this process spends, from one look to the next."""

    def __init__(self) -> None:
        self._sent = RequestsSent()
        self._cpu_s = time.process_time()

    def wait_quiet(self) -> None:
        """Return when ZooKeeper was asked nothing for a while."""
        while time.monotonic() - self._sent.zookeeper_at < QUIET_S:
            time.sleep(QUIET_S / 10)

    def take(self) -> Spent:
        """What was spent since the last call."""
        before, self._cpu_s = self._cpu_s, time.process_time()
        spent = Spent(self._cpu_s - before, self._sent.zookeeper, self._sent.brokers)
        self._sent.clear()
        return spent


class Listener:
    """Counts what is owned, and keeps the moment of the last change."""

    def __init__(self) -> None:
        self.owned = 0
        self.changed_at = 0.0
        self.changed = threading.Condition()

    def _move(self, count: int) -> None:
        with self.changed:
            self.owned += count
            self.changed_at = time.monotonic()
            self.changed.notify_all()

    def on_partitions_assigned(self, positions: dict[object, int]) -> None:
        self._move(len(positions))

    def on_partitions_revoked(self, partitions: list[object]) -> None:
        self._move(-len(partitions))

    def on_partitions_lost(self, partitions: list[object]) -> None:
        self._move(-len(partitions))

    def wait(self, owned: int) -> float:
        """When the last partition of so many came or went."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.owned == owned, LONGEST_S):
                raise SystemExit(f"{self.owned} of {owned} partitions after {LONGEST_S:.0f} s")
            return self.changed_at


def run_member(pipe: Connection, connect: str, group: str, topics: list[str]) -> None:
    """Body of a member: does what the pipe says, and answers with the moment it was done."""
    spending, listener = Spending(), Listener()
    config = ConsumerConfig(connect, group, auto_offset_reset="smallest")
    connector = ConsumerConnector(config, listener)
    returned_at = 0.0
    while True:
        match pipe.recv():
            case ("join",):
                connector.create_message_streams(dict.fromkeys(topics, 1))
                returned_at = time.monotonic()
            case ("wait", owned):
                pipe.send((listener.wait(owned), returned_at))
            case ("counts",):
                spending.wait_quiet()
                pipe.send(spending.take())
            case ("leave",):
                connector.shutdown()
                pipe.send((time.monotonic(), spending.take()))
                return


class Member:
    """A member process as the bench sees it."""

    def __init__(self, connect: str, group: str, topics: list[str]) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        arguments = (theirs, connect, group, topics)
        self._process = multiprocessing.get_context("spawn").Process(target=run_member, args=arguments, daemon=True)
        self._process.start()

    def tell(self, *command: object) -> None:
        """Send a command that has no answer."""
        self._pipe.send(command)

    def ask(self, *command: object) -> Any:
        """What the member answers."""
        self.tell(*command)
        if not self._pipe.poll(2 * LONGEST_S):
            raise SystemExit("a member does not answer")
        return self._pipe.recv()


# -- the bench -----------------------------------------------------------------------------------------------------


def measure(name: str, partitions: int, watched: Member, begun: Member, command: str, owned: int) -> Phase:
    """Have `begun` do something, until `watched` owns so many partitions."""
    watched.ask("counts")
    begun.ask("counts")
    started = time.monotonic()
    begun.tell(command)
    ended, returned = watched.ask("wait", owned)
    returned_s = returned - started if begun is watched else None
    return Phase(name, partitions, ended - started, returned_s, watched.ask("counts"))


def close(name: str, member: Member, partitions: int) -> Phase:
    """Have a member shut down."""
    member.ask("counts")
    started = time.monotonic()
    ended, spent = member.ask("leave")
    return Phase(name, partitions, ended - started, None, spent)


def phases(connect: str, topics: list[str], partitions: int) -> Iterator[Phase]:
    group = f"bench-{uuid.uuid4().hex[:8]}"
    half = partitions // 2
    first = Member(connect, group, topics)
    yield measure("first start", partitions, first, first, "join", partitions)
    yield close("close", first, partitions)
    first, second = Member(connect, group, topics), Member(connect, group, topics)
    yield measure("start again", partitions, first, first, "join", partitions)
    yield measure("join: is given", half, second, second, "join", half)
    yield measure("leave: the other", half, first, second, "leave", partitions)
    yield close("close", first, partitions)


@contextlib.contextmanager
def cluster_of(arguments: argparse.Namespace) -> Iterator[EmbeddedCluster | KafkaCluster]:
    kind = (
        EmbeddedCluster(arguments.brokers)
        if arguments.kafka is None
        else KafkaCluster(arguments.kafka, arguments.brokers, heap_mb=512)
    )
    with kind as cluster:
        yield cluster


def bench(arguments: argparse.Namespace) -> None:
    topics = [f"bench-{number}" for number in range(arguments.topics)]
    total = arguments.topics * arguments.partitions
    with cluster_of(arguments) as cluster:
        for topic in topics:
            cluster.create_topic(topic, arguments.partitions)
        with TcpProxy(cluster.zookeeper.connect) as proxy:
            proxy.delay(arguments.delay_ms / 1000)
            connect = proxy.address if arguments.delay_ms else cluster.zookeeper_connect
            print(f"{'phase':<18}{'partitions':>11}{'seconds':>9}{'returned':>9}{'CPU s':>7}  ZooKeeper; brokers")
            for phase in phases(connect, topics, total):
                returned = "-" if phase.returned_s is None else f"{phase.returned_s:.2f}"
                spent = phase.spent
                print(
                    f"{phase.name:<18}{phase.partitions:>11}{phase.seconds:>9.2f}{returned:>9}{spent.cpu_s:>7.2f}"
                    f"  {told(spent.zookeeper)}; {told(spent.brokers)}",
                    flush=True,
                )


def told(counts: Counter[str]) -> str:
    """A count of requests, whole and by kind."""
    return f"{counts.total()} (" + " ".join(f"{kind}={count}" for kind, count in sorted(counts.items())) + ")"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=2000, help="of each topic")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--kafka", metavar="VERSION", help="real brokers instead of embedded ones")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="each way between the members and ZooKeeper")
    bench(parser.parse_args())


if __name__ == "__main__":
    main()
