"""Links between members and the coordinator of their group that stall, break, or are slow."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from broker_scene import (
    AUTO_COMMIT_S,
    BROKER,
    BUSY_S,
    HEARTBEAT_S,
    OURS,
    SESSION_S,
    Scene,
    addresses,
    last_delivery_ns,
    scene,
    seconds,
)
from group_members import LAST_DELIVERY_S

from zkconsumer.testing.history.checks import Limits, Trouble
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.members.member_process import MemberProcess
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

VERSIONS = ["3.9.2", *(pytest.param(version, marks=pytest.mark.slow) for version in ("0.10.2.2", "1.1.1", "2.8.2"))]


def _free_ports() -> int:
    """The first of twenty ports that nobody listens at."""
    for first in range(random.randrange(20_000, 30_000), 32_000, 20):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + 20):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    raise AssertionError("no twenty free ports")


@pytest.fixture(scope="module", params=VERSIONS)
def linked(request: pytest.FixtureRequest) -> Iterator[tuple[KafkaCluster, TcpProxy]]:
    """Two brokers with two listeners each. The first one coordinates the groups, and the other one leads the topics.

    Whoever comes to the second listeners gets to the coordinator over a link.
    """
    port = _free_ports()
    behind = port + 10
    with TcpProxy(("127.0.0.1", behind)) as link:

        def settings_of(number: int, seen: str) -> dict[str, object]:
            return {
                "listeners": f"PLAINTEXT://127.0.0.1:{port + number},LINK://127.0.0.1:{behind + number}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port + number},LINK://{seen}",
            }

        settings = {
            **BROKER, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LINK:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }  # fmt: skip
        of_brokers = {0: settings_of(0, link.address), 1: settings_of(1, f"127.0.0.1:{behind + 1}")}
        with KafkaCluster(request.param, 2, port=port, settings=settings, broker_settings=of_brokers) as cluster:
            with MemberProcess(
                cluster, "first", topics={"any": 1}, bootstrap_servers=addresses(cluster), settings=OURS
            ):  # the topic of the offsets is there now
                cluster.move_leader("__consumer_offsets", 0, 0)
            yield cluster, link


@pytest.fixture(params=["cooperative-sticky", pytest.param("range", marks=pytest.mark.slow)])
def stage(
    request: pytest.FixtureRequest, linked: tuple[KafkaCluster, TcpProxy], fresh_group: str,
    fresh_topic: Callable[[], str],
) -> Iterator[Scene]:  # fmt: skip
    """A topic of six partitions under load, and a link without faults."""
    cluster, link = linked
    link.clear()
    with scene(cluster, fresh_group, fresh_topic(), assignor=request.param) as made:
        for _, number in made.places:
            cluster.move_leader(made.topic, int(number), 1)
        yield made


def test_a_stalled_link_to_the_coordinator_ends_delivery_before_anybody_takes_over(
    linked: tuple[KafkaCluster, TcpProxy], stage: Scene
) -> None:
    _, link = linked  # messages go on to come
    a, b = stage.join("a", brokers=link.address), stage.join("b")
    stage.wait_shares(a=3, b=3)
    stage.wait_committed()
    stage.load.grow(50)
    stalled_ns = time.monotonic_ns()
    link.stall()
    silent_ns = time.monotonic_ns()
    wait_until(
        lambda: len(b.events("assigned", since_ns=stalled_ns)) >= 3, SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S,
        "the other one to take over", state=b.process.tail,
    )  # fmt: skip
    taken_ns = min(event.time_ns for event in b.events("assigned", since_ns=stalled_ns))
    wait_until(lambda: seconds(time.monotonic_ns(), stalled_ns) > 2.5 * SESSION_S, 20, "the stall to outlast it")
    healed_ns = time.monotonic_ns()
    last_ns = last_delivery_ns(a, healed_ns)
    link.clear()
    stage.wait_shares(a=3, b=3)
    stage.load.grow(50)
    stage.settle()
    assert stalled_ns < last_ns < taken_ns
    assert seconds(last_ns, silent_ns) <= LAST_DELIVERY_S
    back_ns = min(event.time_ns for event in a.events("assigned", since_ns=healed_ns))
    assert last_delivery_ns(a, back_ns) == last_ns
    stage.cut_off.add("a")
    stalled = Trouble(stalled_ns, healed_ns, "a")
    repeats = stage.assert_clean(Limits(repeat_before_end_s=AUTO_COMMIT_S + 1.0, troubles=(stalled,)))
    print(
        f"stalled: last delivery after {seconds(last_ns, stalled_ns):.2f} s, taken over after "
        f"{seconds(taken_ns, stalled_ns):.2f} s, {repeats} repeats"
    )


@pytest.mark.slow
def test_broken_connections_are_made_again_and_cost_no_membership(
    linked: tuple[KafkaCluster, TcpProxy], stage: Scene
) -> None:
    _, link = linked
    a = stage.join("a", brokers=link.address)
    stage.join("b")
    stage.wait_shares(a=3, b=3)
    since_ns = time.monotonic_ns()
    for _ in range(5):
        stage.wait_committed()
        link.drop()
    stage.wait_committed()
    stage.load.grow(50)
    stage.settle()
    assert a.events("revoked", "lost", since_ns=since_ns) == []
    assert link.accepted > 5
    assert stage.assert_clean() == 0


@pytest.mark.slow
def test_a_member_leaves_in_time_over_a_stalled_link_and_names_what_is_not_stored(
    linked: tuple[KafkaCluster, TcpProxy], stage: Scene
) -> None:
    _, link = linked
    a = stage.join("a", brokers=link.address)
    stage.join("b")
    stage.wait_shares(a=3, b=3)
    stage.wait_committed()
    stage.load.grow(100)
    link.stall()
    began = time.monotonic()
    a.stop(timeout_s=20.0)
    print(f"left over a stalled link after {time.monotonic() - began:.2f} s")
    stage.wait_shares(b=6, timeout_s=SESSION_S + HEARTBEAT_S + 1.0 + BUSY_S)
    link.clear()
    stage.load.grow(50)
    stage.settle()
    lost = {note.text.split(" ")[0] for note in a.notes("unstored")}
    assert len(lost) == 3, a.notes("unstored")
