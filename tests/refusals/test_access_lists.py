"""Nodes that may not be read or written: one sentence that names the node, its list's node, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl
from secured import PATIENCE_S, refused

from simpleconsumer.types import TopicPartition
from zkconsumer import CommitFailed, ConsumerConfig, ConsumerConnector, ZooKeeperRefused
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

READ_ONLY = [make_acl("world", "anyone", read=True), make_digest_acl("owner", "owner-secret", all=True)]
CLOSED = [make_digest_acl("owner", "owner-secret", all=True)]
GIVE = r"set zookeeper.auth or zookeeper.sasl.\* to credentials that it accepts, or change that list \(setAcl\)"


@pytest.fixture
def owner(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client that may do everything."""
    client = KazooClient(zookeeper.connect, auth_data=[("digest", "owner:owner-secret")])
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root(owner: KazooClient, fresh_group: str) -> str:
    """A chroot of one's own."""
    owner.create(f"/{fresh_group}")
    return f"/{fresh_group}"


def test_a_group_that_may_not_be_joined(zookeeper: ZooKeeperServer, owner: KazooClient, root: str) -> None:
    owner.create(f"{root}/consumers/group/ids", acl=READ_ONLY, makepath=True)
    refused(
        zookeeper.connect + root,
        ZooKeeperRefused,
        r"^ZooKeeper does not let this client create /consumers/group/ids/group_.* \(NoAuth\): the access list of "
        f"/consumers/group/ids does not name its credentials; {GIVE}",
    )


def test_wrong_credentials_for_a_group_that_others_may_join(
    zookeeper: ZooKeeperServer, owner: KazooClient, root: str
) -> None:
    owner.create(f"{root}/consumers/group/ids", acl=READ_ONLY, makepath=True)
    refused(
        zookeeper.connect + root,
        ZooKeeperRefused,
        "does not let this client create /consumers/group/ids/group_",
        "hidden-secret",
        zookeeper_auth="digest:owner:hidden-secret",
    )


def test_a_group_that_may_not_be_made(zookeeper: ZooKeeperServer, owner: KazooClient, root: str) -> None:
    owner.create(f"{root}/consumers", acl=READ_ONLY)
    refused(
        zookeeper.connect + root,
        ZooKeeperRefused,
        r"does not let this client create /consumers/group \(NoAuth\): the access list of /consumers does not name",
    )


def test_a_chroot_in_which_nothing_may_be_made(zookeeper: ZooKeeperServer, owner: KazooClient, root: str) -> None:
    owner.set_acls(root, READ_ONLY)
    refused(
        zookeeper.connect + root,
        ZooKeeperRefused,
        r"does not let this client create /consumers \(NoAuth\): the access list of / does not name",
    )


def test_a_closed_root_above_open_nodes_is_no_obstacle(
    zookeeper: ZooKeeperServer, owner: KazooClient, root: str
) -> None:
    """ZooKeeper refuses to create a node that exists, rather than to report that it exists."""
    owner.create(f"{root}/consumers")
    owner.set_acls(root, READ_ONLY)
    with ConsumerConnector(ConsumerConfig(zookeeper.connect + root, "group")) as consumer:
        consumer.create_message_streams({"topic": 1})
        assert owner.exists(f"{root}/consumers/group/ids/{consumer.consumer_id}")


def test_brokers_that_may_not_be_read(zookeeper: ZooKeeperServer, owner: KazooClient, root: str) -> None:
    owner.create(f"{root}/brokers/ids", acl=CLOSED, makepath=True)
    refused(
        zookeeper.connect + root,
        ZooKeeperRefused,
        r"^ZooKeeper does not let this client read /brokers/ids \(NoAuth\): the access list of /brokers/ids does "
        f"not name its credentials; {GIVE}",
    )


def test_offsets_that_may_not_be_written(
    zookeeper: ZooKeeperServer, owner: KazooClient, root: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(zookeeper=zookeeper, chroot=root) as cluster:
        cluster.create_topic(topic, partitions=2)
        offsets = f"{root}/consumers/group/offsets/{topic}"
        owner.create(f"{offsets}/0", b"0", makepath=True)
        owner.set_acls(f"{offsets}/0", READ_ONLY)
        owner.set_acls(offsets, READ_ONLY)
        config = ConsumerConfig(cluster.zookeeper_connect, "group", auto_commit_enable=False)
        with ConsumerConnector(config) as consumer:
            consumer.create_message_streams({topic: 1})
            wait_until(lambda: len(consumer.status().owned) == 2, PATIENCE_S, "both partitions")
            with pytest.raises(CommitFailed) as raised:
                consumer.commit_offsets({TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 1})
    said = {partition[1]: str(reason) for partition, reason in raised.value.reasons.items()}
    path = f"/consumers/group/offsets/{topic}"
    refused = "ZooKeeper does not let this client"
    assert said[0].startswith(f"{refused} write {path}/0 (NoAuth): the access list of {path}/0 does")
    assert said[1].startswith(f"{refused} create {path}/1 (NoAuth): the access list of {path} does")


def test_owner_nodes_that_may_not_be_made_are_told_of(
    zookeeper: ZooKeeperServer,
    owner: KazooClient,
    root: str,
    fresh_topic: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = fresh_topic()
    with EmbeddedCluster(zookeeper=zookeeper, chroot=root) as cluster:
        cluster.create_topic(topic, partitions=2)
        owners = f"/consumers/group/owners/{topic}"
        owner.ensure_path(f"{root}/consumers/group/owners")
        owner.create(root + owners, acl=READ_ONLY)
        config = ConsumerConfig(cluster.zookeeper_connect, "group", zookeeper_connection_timeout_ms=2000)
        with ConsumerConnector(config) as first, ConsumerConnector(config) as second:
            first.create_message_streams({topic: 1})
            said = f"ZooKeeper does not let this client create {owners}/"
            wait_until(lambda: caplog.text.count(said) == 1, PATIENCE_S, "one line in the log", state=first.status)
            assert any(warning.startswith(said) for warning in first.status().warnings)
            assert first.status().owned == ()

            owner.set_acls(root + owners, [make_acl("world", "anyone", all=True)])
            second.create_message_streams({topic: 1})
            wait_until(
                lambda: first.status().owned and second.status().owned,
                PATIENCE_S,
                "a partition for each",
                state=lambda: (first.status(), second.status()),
            )
            assert first.status().warnings == ()
