"""The test kit at ZooKeeper servers that demand credentials: brokers, Java members and members of ours authenticate."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.security import make_acl
from secured import PATIENCE_S, SASL_PASSWORD, USER, refused, sasl, sasl_server

from zkconsumer import ZooKeeperRefused
from zkconsumer.testing import JavaMember, KafkaCluster, MemberProcess
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

LOGIN = ZooKeeperLogin(USER, SASL_PASSWORD)


@pytest.mark.real
@pytest.mark.parametrize(("zookeeper", "kafka", "settings"), [
    ("zk-3.4.14", "0.9.0.1", {}),
    ("zk-3.9", "1.1.1", {"sessionRequireClientSASLAuth": "true"}),
])
def test_a_mixed_group_behind_access_lists(
    tmp_path: Path, zookeeper: str, kafka: str, settings: dict[str, str]
) -> None:
    with (
        sasl_server(tmp_path, zookeeper, **settings) as server,
        KafkaCluster(kafka, zookeeper=server, chroot="/kafka", login=LOGIN,
                     settings={"zookeeper.set.acl": "true"}) as cluster,
    ):  # fmt: skip
        cluster.create_topic("topic", partitions=4)
        cluster.client.ensure_path("/consumers")
        cluster.client.set_acls("/consumers", [make_acl("sasl", USER, all=True)])
        with (
            JavaMember(cluster, "group", topics={"topic": 1}) as java,
            MemberProcess(cluster, "group", topics={"topic": 1}, settings={"zookeeper.acl": "creator"}) as ours,
        ):
            wait_until(lambda: len(java.owned()) == len(ours.owned()) == 2, PATIENCE_S, "two partitions each",
                       state=lambda: (java.owned(), ours.owned(), java.log()))
            assert _processes_with(SASL_PASSWORD) == []
            connect = cluster.zookeeper_connect
            refused(connect, ZooKeeperRefused, "set zookeeper.auth or zookeeper.sasl", group="another")
            with MemberProcess(connect, "group", topics={"topic": 1}, settings=_by_name(sasl())) as third:
                assert third.session_id()


def _by_name(settings: dict[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _processes_with(text: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in shown:
            found.append(shown)
    return found
