"""A Java member that has given up: registered, owning nothing, and not looking any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.members.java_member import JavaMember
from zkconsumer.testing.waiting import wait_until

WAIT_S = 30.0
REGISTRATION = '{"version":1,"subscription":{"%s":1},"pattern":"static","timestamp":"1400000000000"}'
EACH = 3


def owners(cluster: KafkaCluster, group: str, topic: str) -> dict[str, str]:
    """Partition -> thread id."""
    folder = f"/consumers/{group}/owners/{topic}"
    return {name: cluster.client.get(f"{folder}/{name}")[0].decode() for name in cluster.client.get_children(folder)}


@contextmanager
def given_up_member(cluster: KafkaCluster, group: str, topic: str) -> Iterator[JavaMember]:
    """The member `<group>_ann` of a topic of two partitions with three messages each.

    Partition 1 belonged to a member `<group>_bob` that is gone; its owner node is persistent and still there. Ann wants
    the partition now, finds it owned in each of its two tries, and has let go of partition 0 for that.
    """
    client, root = cluster.client, f"/consumers/{group}"
    cluster.create_topic(topic, 2)
    load(cluster, topic, EACH)
    client.create(f"{root}/ids/{group}_bob", (REGISTRATION % topic).encode(), ephemeral=True, makepath=True)
    client.create(f"{root}/owners/{topic}/1", f"{group}_bob-0".encode(), makepath=True)
    settings = {"rebalance.max.retries": 2, "rebalance.backoff.ms": 100, "zookeeper.session.timeout.ms": 30_000}
    with JavaMember(cluster, group, topics={topic: 1}, consumer_id="ann", settings=settings) as ann:
        ann.wait_messages(EACH)
        assert owners(cluster, group, topic) == {"0": f"{group}_ann-0", "1": f"{group}_bob-0"}
        client.delete(f"{root}/ids/{group}_bob")
        wait_until(lambda: ann.gave_up == 1, WAIT_S, "the member to give up", state=lambda: ann.process.tail(5))
        assert owners(cluster, group, topic) == {"1": f"{group}_bob-0"}
        yield ann
