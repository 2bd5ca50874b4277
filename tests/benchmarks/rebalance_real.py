"""The crowd of the benchmark `rebalance.py` for real: processes, a real ZooKeeper behind a counting proxy."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Protocol

from tests.benchmarks.rebalance_phases import Crowd, Node, assigned, at_rest_per_s
from zkconsumer import ConsumerConfig, ConsumerConnector
from zkconsumer.testing import EmbeddedCluster, JavaMember, TcpProxy
from zkconsumer.testing.proxy.tcp_proxy import BACKGROUND
from zkconsumer.testing.zookeeper.group_watch import owners

TOPIC = "crowded"
LOOK_S = 0.2
QUIET_S = 1.5
LONGEST_S = 180.0
FETCH_WAIT_MS = 20_000
"""The topic is empty: so a fetch is asked rarely, and the machine is left to the rebalances."""


class Cast(Protocol):
    """Those who can take part."""

    def begin(self, join: Sequence[str], leave: Sequence[str], kill: Sequence[str]) -> None:
        """Begin a change; returns when the leavers have left."""

    def gave_up(self) -> int:
        """How often members have used up their tries."""

    def close(self) -> None:
        """End all."""


# -- ours ------------------------------------------------------------------------------------------------------------


def host(pipe: Connection, settings: Mapping[str, str]) -> None:
    """Body of a process with many connectors: joins and leaves as the pipe says."""
    logging.disable(logging.WARNING)
    connectors: dict[str, ConsumerConnector] = {}

    def join(name: str) -> None:
        connectors[name].create_message_streams({TOPIC: 1})

    while True:
        word, names = pipe.recv()
        if word == "join":
            for name in names:
                config = ConsumerConfig.from_properties({**settings, "consumer.id": name})
                connectors[name] = ConsumerConnector(config)
                threading.Thread(target=join, args=[name], daemon=True).start()
        else:
            leavers = [threading.Thread(target=connectors.pop(name).shutdown) for name in names]
            for thread in leavers:
                thread.start()
            for thread in leavers:
                thread.join()
        pipe.send(os.getpid())


class Ours:
    """Connectors, several in a process; each of those that are to die has a process of its own."""

    def __init__(self, settings: Mapping[str, str], names: Sequence[str], processes: int, dying: Sequence[str]) -> None:
        self._settings = settings
        self._pipes: dict[str, Connection] = {}
        self._processes: dict[str, multiprocessing.process.BaseProcess] = {}
        others = [name for name in names if name not in dying]
        self._home = {name: f"home{n % processes}" for n, name in enumerate(others)}
        self._home |= dict.fromkeys(dying, "doomed")
        for home in set(self._home.values()):
            self._start(home)

    def _start(self, home: str) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(target=host, args=(theirs, self._settings), daemon=True)
        process.start()
        self._pipes[home], self._processes[home] = ours, process

    def begin(self, join: Sequence[str], leave: Sequence[str], kill: Sequence[str]) -> None:
        """Begin a change."""
        for home in {self._home[name] for name in kill}:
            self._processes[home].kill()
            self._processes[home].join()
            self._start(home)
        for word, names in (("leave", leave), ("join", join)):
            homes = {home: [name for name in names if self._home[name] == home] for home in self._pipes}
            asked = [home for home, some in homes.items() if some]
            for home in asked:
                self._pipes[home].send((word, homes[home]))
            for home in asked:
                if not self._pipes[home].poll(LONGEST_S):
                    raise SystemExit(f"{home} does not answer to {word}")
                self._pipes[home].recv()

    def gave_up(self) -> int:
        """Never: ours have no tries to use up."""
        return 0

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.kill()


# -- Java's ----------------------------------------------------------------------------------------------------------


class Javas:
    """A JVM for each member."""

    def __init__(self, cluster: EmbeddedCluster, connect: str, group: str, settings: Mapping[str, str]) -> None:
        self._cluster, self._connect, self._group, self._settings = cluster, connect, group, settings
        self._members: dict[str, JavaMember] = {}
        self._gone: list[JavaMember] = []
        self._given_up = 0

    def begin(self, join: Sequence[str], leave: Sequence[str], kill: Sequence[str]) -> None:
        """Begin a change."""
        for name in kill:
            self._members[name].kill()
        for name in (*kill, *leave):
            member = self._members.pop(name)
            if name in leave:
                member.stop(LONGEST_S)
            self._given_up += member.gave_up
            member.close()
        for name in join:
            member = JavaMember(
                self._cluster, self._group, topics={TOPIC: 1}, consumer_id=name, settings=self._settings,
                zookeeper_connect=self._connect, heap_mb=64, timeout_s=LONGEST_S,
            )  # fmt: skip
            self._members[name] = member
            member.launch()

    def gave_up(self) -> int:
        """How often, all together."""
        return self._given_up + sum(member.gave_up for member in self._members.values())

    def close(self) -> None:
        """End all JVMs."""
        for member in self._members.values():
            member.close()


# -- either ----------------------------------------------------------------------------------------------------------


class RealCrowd:
    """See `rebalance_phases.Crowd`."""

    def __init__(
        self, cluster: EmbeddedCluster, proxy: TcpProxy, cast: Cast, group: str, arguments: argparse.Namespace
    ) -> None:
        self.partitions = partitions = arguments.partitions
        self.session_s = arguments.session_s
        self.present: set[str] = set()
        self._cluster, self._proxy, self._cast, self._group = cluster, proxy, cast, group
        self._places = [(TOPIC, partition) for partition in range(partitions)]
        self._changed_s = 0.0
        self._gave_up = 0

    @property
    def now_s(self) -> float:
        """Monotonic time."""
        return time.monotonic()

    def change(self, join: Sequence[str] = (), leave: Sequence[str] = (), kill: Sequence[str] = ()) -> None:
        """Begin a change."""
        self.present = self.present - {*kill, *leave} | {*join}
        self._changed_s = time.monotonic()
        self._cast.begin(join, leave, kill)

    def settle(self) -> tuple[float | None, float]:
        """Wait for the table, then until nobody asks but to prove a session."""
        wanted = assigned(sorted(self.present), self.partitions, self._group)
        seconds = None
        while (passed := time.monotonic() - self._changed_s) < LONGEST_S:
            if {partition: node.thread_id for partition, node in self.table().items()} == wanted:
                seconds = passed
                break
            time.sleep(LOOK_S)
        self._quieten()
        return seconds, time.monotonic() - self._changed_s

    def _quieten(self) -> None:
        usual = QUIET_S * at_rest_per_s(len(self.present), self.partitions, self.session_s)
        deadline_s = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline_s:
            before = self._proxy.request_count
            time.sleep(QUIET_S)
            if self._proxy.request_count - before <= 2 + 2 * usual:
                return

    def rest(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def table(self) -> dict[int, Node]:
        """The owner nodes, read past the proxy."""
        found = owners(self._cluster.client, self._group, self._places)
        return {partition: Node(owner.thread_id, owner.czxid) for (_, partition), owner in found.items()}

    def forget(self) -> None:
        """Count anew."""
        self._proxy.forget_requests()
        self._gave_up = self._cast.gave_up()

    def requests(self) -> Counter[str]:
        """What was asked, without what every client asks all the time."""
        return Counter({kind: count for kind, count in self._proxy.requests.items() if kind not in BACKGROUND})

    def gave_up(self) -> int:
        """How often since then."""
        return self._cast.gave_up() - self._gave_up


@contextmanager
def real_crowd(arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Crowd]:
    """A crowd of nobody, and what it needs."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(2))
        cluster.create_topic(TOPIC, arguments.partitions)
        proxy = stack.enter_context(TcpProxy(cluster.zookeeper.connect, count_zookeeper=True))
        connect = cluster.zookeeper_connect.replace(cluster.zookeeper.connect, proxy.address)
        settings = {
            "zookeeper.session.timeout.ms": str(int(arguments.session_s * 1000)),
            "zookeeper.connection.timeout.ms": "60000",
            "auto.commit.interval.ms": "60000",
            "fetch.wait.max.ms": str(FETCH_WAIT_MS),
            "socket.timeout.ms": "60000",
        }
        cast: Cast
        if arguments.cast == "java":
            cast = Javas(cluster, connect, group, settings)
        else:
            dying = names[1 :: max(1, len(names) // 10)][:10] if len(names) > 10 else []
            settings["rebalance.quiet.max.ms"] = str(arguments.quiet_max_ms)
            ours = {**settings, "zookeeper.connect": connect, "group.id": group}
            cast = Ours(ours, names, arguments.processes, dying)
        stack.callback(cast.close)
        yield RealCrowd(cluster, proxy, cast, group, arguments)
