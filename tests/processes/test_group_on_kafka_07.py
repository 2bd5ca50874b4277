"""A group on Kafka 0.7 whose members and brokers die: nothing is lost, and only deaths repeat messages."""

from __future__ import annotations

import pytest
from kafka_07 import BOTH_07, cluster_07

from zkconsumer.testing import (
    Event,
    GroupWatch,
    LastingLoad,
    Limits,
    MemberProcess,
    check_history,
    figures_of,
    wait_until,
)

pytestmark = pytest.mark.real

SETTINGS = {"zookeeper.session.timeout.ms": 3000, "auto.commit.interval.ms": 500, "fetcher.backoff.ms": 200}


@pytest.mark.parametrize("kind", BOTH_07)
def test_a_killed_member_and_a_killed_broker_lose_nothing(kind: str) -> None:
    with cluster_07(kind) as cluster:
        places = [("orders", name) for name in cluster.create_topic("orders")]
        with (
            GroupWatch(cluster.zookeeper_connect, "shipping", places) as watch,
            LastingLoad(cluster, ["orders"], 2, 200.0) as load,
            MemberProcess(cluster, "shipping", consumer_id="ann", topics={"orders": 1}, settings=SETTINGS) as ann,
            MemberProcess(cluster, "shipping", consumer_id="bob", topics={"orders": 1}, settings=SETTINGS) as bob,
        ):
            assert bob.wait_owned(2) == [("orders", "1-0"), ("orders", "1-1")]
            load.grow(100)
            ann.kill()
            bob.wait_owned(4)
            load.grow(50)
            cluster.stop(1)
            bob.wait_owned(2)
            load.grow(50)
            cluster.start(1)
            bob.wait_owned(4)
            load.grow(50)
            load.stop()

            def history() -> list[Event]:
                return [*load.acked, *watch.events, *ann.events(), *bob.events()]

            wait_until(lambda: figures_of(history()).lost == 0, 30, "everything to be delivered")
            assert check_history(history(), Limits(repeat_before_end_s=5.0)) == []
            assert {event.partition for event in load.acked} == {name for _, name in places}
