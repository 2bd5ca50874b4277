"""Groups in ZooKeeper are listed, too, while no broker that may coordinate others answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from zkconsumer.admin import Admin, NotFound
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real
NOBODY = {"version": 4, "host": "127.0.0.1", "port": 1, "endpoints": ["PLAINTEXT://127.0.0.1:1"], "jmx_port": -1,
          "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "timestamp": "1"}  # fmt: skip


@pytest.fixture
def admin(zookeeper: ZooKeeperServer) -> Iterator[Admin]:
    """A cluster of Kafka 0.10 or later whose only broker does not answer, with a group in ZooKeeper."""
    client = KazooClient(zookeeper.connect)
    client.start()
    chroot = f"/silent-{uuid.uuid4().hex[:8]}"
    for path, data in (
        ("/brokers/ids/1", json.dumps(NOBODY)), ("/consumers/old/offsets/clicks/0", "5"),
        ("/brokers/topics/clicks", '{"version":1,"partitions":{"0":[1]}}'),
        ("/brokers/topics/__consumer_offsets", '{"version":1,"partitions":{"0":[1]}}'),
    ):  # fmt: skip
        client.create(f"{chroot}{path}", data.encode(), makepath=True)
    client.stop()
    client.close()
    with Admin(f"{zookeeper.connect}{chroot}") as made:
        yield made


def test_groups_in_zookeeper_are_listed_and_the_others_are_said_to_be_missing(admin: Admin) -> None:
    found = admin.groups()
    assert [(row.group, row.coordination) for row in found.groups] == [("old", "zookeeper")]
    assert found.unlisted
    assert all(sentence.startswith("groups ") and "may be missing" in sentence for sentence in found.unlisted)
    assert not admin.is_coordinated_by_brokers("other")
    with pytest.raises(NotFound):
        admin.describe("other")
