"""What a join and a leave cost ZooKeeper: 20 members, 200 partitions, all requests counted at the port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from group_members import Group

from zkconsumer.testing.history import Place
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy.tcp_proxy import BACKGROUND, TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.group_watch import Owner, owners, wait_owned

pytestmark = pytest.mark.real

MEMBERS = 20
PROCESSES = 4
PARTITIONS = 200
QUIET_S = 0.5
# Long enough that proving the session and committing add next to nothing to what is counted.
SETTINGS = {
    "zookeeper_session_timeout_ms": 40_000,
    "zookeeper_connection_timeout_ms": 40_000,
    "auto_commit_interval_ms": 60_000,
    "fetch_wait_max_ms": 2000,
}


def budget(moved: int) -> int:
    """Requests that one change of the group may cost."""
    return 5 * MEMBERS + 10 * moved + 50


def wait_quiet(port: TcpProxy) -> None:
    """Return when no request has passed for half a second, but for a few that prove sessions."""
    seen = -1

    def quiet() -> bool:
        nonlocal seen
        before, seen = seen, port.request_count
        return before >= 0 and seen - before <= 2

    wait_until(quiet, 30, "ZooKeeper to have nothing to do", interval_s=QUIET_S, state=lambda: port.requests)


def spent(port: TcpProxy) -> Counter[str]:
    """Requests by kind since they were last forgotten, a multi counted by its parts."""
    return Counter({kind: count for kind, count in port.requests.items() if kind not in BACKGROUND})


def compare(before: dict[Place, Owner], after: dict[Place, Owner]) -> int:
    """How many partitions have another owner; those that have not keep their very node."""
    stayed = [place for place in before if before[place].thread_id == after[place].thread_id]
    assert [place for place in stayed if before[place].czxid != after[place].czxid] == []
    return len(before) - len(stayed)


@pytest.mark.catalogue("B7")
def test_a_leave_and_a_join_cost_a_few_requests_a_member_and_a_few_a_moved_partition(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, PARTITIONS)
    places = [(topic, partition) for partition in range(PARTITIONS)]
    with (
        TcpProxy(kafka_0822.zookeeper.connect, count_zookeeper=True) as port,
        Group(port.address, fresh_group) as group,
    ):
        wanted = {"topics": {topic: 1}, **SETTINGS}
        crowds = [group.launch(f"crowd{n}-", copies=5 if n else 4, **wanted) for n in range(PROCESSES)]
        leaver = group.launch("member", **wanted)
        for process in [*crowds, leaver]:
            process.wait_ready(timeout_s=60)
        ids = sorted(kafka_0822.client.get_children(f"/consumers/{fresh_group}/ids"))
        assert len(ids) == MEMBERS
        full = wait_owned(kafka_0822.client, fresh_group, places, dict.fromkeys(ids, PARTITIONS // MEMBERS))
        wait_quiet(port)

        port.forget_requests()
        leaver.leave()
        left = [each for each in ids if each != leaver.id]
        shares = {each: PARTITIONS // len(left) + (n < PARTITIONS % len(left)) for n, each in enumerate(left)}
        rest = wait_owned(kafka_0822.client, fresh_group, places, shares)
        wait_quiet(port)
        moved = compare(full, rest)
        leave = spent(port)
        print(f"leave: {moved} moved, {leave.total()} requests of {budget(moved)}: {dict(leave)}")
        assert leave.total() <= budget(moved), leave

        port.forget_requests()
        group.join("member", **wanted)
        wait_owned(kafka_0822.client, fresh_group, places, dict.fromkeys(ids, PARTITIONS // MEMBERS))
        wait_quiet(port)
        moved = compare(rest, owners(kafka_0822.client, fresh_group, places))
        join = spent(port)
        print(f"join: {moved} moved, {join.total()} requests of {budget(moved)}: {dict(join)}")
        assert join.total() <= budget(moved), join
