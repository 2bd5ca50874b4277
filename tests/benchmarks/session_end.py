"""How long partitions deliver nothing when the session of a running member is ended from outside.

    python tests/benchmarks/session_end.py                  # a lonely member, and one of three
    python tests/benchmarks/session_end.py --members 1 --rounds 20 --servers 3

Members are processes on an embedded broker and a real ZooKeeper, under a steady load. In each round the session of the
first member is closed by somebody who knows its id. Of each partition that it owned, the longest time between two
messages is taken, whoever delivered them: in one row over all rounds the shortest, the median and the longest.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":  # this folder holds a `rebalance` that is not the package
    sys.path[0] = str(Path(__file__).parents[2])

from zkconsumer.testing import (
    EmbeddedCluster,
    MemberProcess,
    SteadyLoad,
    ZooKeeperEnsemble,
    ZooKeeperServer,
    end_session,
    wait_until,
)
from zkconsumer.testing.zookeeper.group_watch import wait_owned

TOPIC = "still"
PARTITIONS = 6
BEFORE_S = 0.5
AFTER_S = 4.0
"""Longer than all that is waited for, and than changes of a group count as a series."""
WANTED_S = 0.3


def longest_gap_s(moments_ns: Sequence[int]) -> float:
    """The longest time between two messages."""
    ordered = sorted(moments_ns)
    return max((after - before for before, after in itertools.pairwise(ordered)), default=0) / 1e9


def delivered(members: Sequence[MemberProcess], since_ns: int) -> dict[int, list[int]]:
    """When messages of each partition were delivered since a moment, by whomever."""
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for member in members:
        for event in member.events("deliver", since_ns=since_ns):
            found[event.partition].append(event.time_ns)
    return found


def rounds(cluster: EmbeddedCluster, count: int, rounds_: int, session_ms: int) -> Iterator[list[float]]:
    """The gaps of the partitions of the first member, one list a round."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    settings = {"zookeeper.session.timeout.ms": session_ms, "auto.commit.interval.ms": 1000, "fetch.wait.max.ms": 100}
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
    with ExitStack() as stack:
        members = []
        for number in range(count):
            member = MemberProcess(cluster.zookeeper_connect, group, f"m{number}", topics={TOPIC: 1}, settings=settings)
            stack.callback(member.close)
            members.append(member)
        for member in members:
            member.wait_ready()
        shares = {member.id: PARTITIONS // count for member in members}
        stack.enter_context(SteadyLoad(cluster, [TOPIC], PARTITIONS, rate_per_s=600))
        for _ in range(rounds_):
            owners = wait_owned(cluster.client, group, places, shares)
            mine = [partition for (_, partition), owner in owners.items() if owner.member_id == members[0].id]
            wait_until(lambda: all(delivered(members, time.monotonic_ns() - 200_000_000).values()), 30.0,
                       "all partitions to flow")  # fmt: skip
            time.sleep(AFTER_S)
            since_ns = time.monotonic_ns() - int(BEFORE_S * 1e9)
            end_session(cluster.zookeeper_connect, members[0].session_id(cluster.client))
            time.sleep(AFTER_S)
            found = delivered(members, since_ns)
            yield [longest_gap_s([*found[partition], time.monotonic_ns()]) for partition in mine]


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="session_end.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, nargs="+", default=[1, 3], choices=(1, 2, 3, 6))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--servers", type=int, default=1, help="of ZooKeeper")
    parser.add_argument("--session-ms", type=int, default=6000)
    arguments = parser.parse_args()
    print(f"{'members':>7}{'rounds':>8}{'shortest':>10}{'median':>9}{'longest':>9}  wanted")
    with ExitStack() as stack:
        made = ZooKeeperServer() if arguments.servers == 1 else ZooKeeperEnsemble(arguments.servers)
        cluster = stack.enter_context(EmbeddedCluster(1, zookeeper=stack.enter_context(made).connect))
        cluster.create_topic(TOPIC, PARTITIONS)
        for count in arguments.members:
            gaps = [each for part in rounds(cluster, count, arguments.rounds, arguments.session_ms) for each in part]
            verdict = "kept" if max(gaps) <= WANTED_S else "MISSED"
            print(f"{count:>7}{arguments.rounds:>8}{min(gaps):>9.2f}s{statistics.median(gaps):>8.2f}s{max(gaps):>8.2f}s"
                  f"  {WANTED_S:g} s: {verdict}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
