"""A group of members of ours that assigns by roundrobin settles while its members drain for long, and accuses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from consuming import member, produce
from kazoo.exceptions import NoNodeError

from rebalance.subscription import assign_roundrobin
from zkconsumer import ConsumerConnector, KafkaStream
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

TOPICS = ("clicks", "orders")
WORK_S = 10.0
"""A drain then takes its 3 s: longer than owner nodes of Java members have to be unchanged."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster("0.8.2.2") as running:
        for topic in TOPICS:
            running.create_topic(topic, partitions=1)
            produce(running, topic, 0, [f"{topic} {number}" for number in range(200)])
        yield running


@pytest.fixture
def work() -> Iterator[Callable[[KafkaStream], None]]:
    """Works on the messages of a stream slowly, until the end of the test."""
    is_over = threading.Event()
    threads: list[threading.Thread] = []

    def run(stream: KafkaStream) -> None:
        for _ in stream:
            if is_over.wait(WORK_S):
                return

    def start(stream: KafkaStream) -> None:
        threads.append(threading.Thread(target=run, args=(stream,), daemon=True))
        threads[-1].start()

    yield start
    is_over.set()
    for thread in threads:
        thread.join(10.0)


def owners(cluster: KafkaCluster, group: str) -> dict[tuple[str, int], str]:
    found = {}
    for topic in TOPICS:
        try:
            found[topic, 0] = cluster.client.get(f"/consumers/{group}/owners/{topic}/0")[0].decode()
        except NoNodeError:
            continue
    return found


def table(group: str, names: str) -> dict[tuple[str, int], str]:
    threads = [f"{group}_{name}-0" for name in names.split()]
    return assign_roundrobin(dict.fromkeys(TOPICS, range(1)), dict.fromkeys(TOPICS, threads), "0.8")


@pytest.mark.parametrize("setting", ["auto", "0.8"])
def test_a_member_joins_members_that_drain_for_long(
    cluster: KafkaCluster, fresh_group: str, setting: str, work: Callable[[KafkaStream], None]
) -> None:
    group = fresh_group
    members: list[ConsumerConnector] = []

    def join(name: str) -> None:
        members.append(
            member(
                cluster,
                group,
                name,
                partition_assignment_strategy="roundrobin",
                roundrobin_order=setting,
                consumer_timeout_ms=-1,
            )
        )
        for streams in members[-1].create_message_streams(dict.fromkeys(TOPICS, 1)).values():
            work(streams[0])

    try:
        join("b")
        join("c")
        wait_until(
            lambda: owners(cluster, group) == table(group, "b c"),
            20.0,
            "b and c to own all",
            state=lambda: owners(cluster, group),
        )
        time.sleep(1.0)  # each works on a message now
        join("a")
        said: set[str] = set()

        def is_settled() -> bool:
            said.update(text for each in members for text in each.status().warnings if "order" in text)
            return owners(cluster, group) == table(group, "a b c")

        wait_until(is_settled, 20.0, "all to assign alike", state=lambda: owners(cluster, group))
        time.sleep(2.0)
        assert is_settled()
        assert not said
    finally:
        for each in members:
            each.shutdown(1.0)
