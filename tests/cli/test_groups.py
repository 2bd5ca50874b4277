"""`zkconsumer groups`: every group of a cluster, with or without members."""

from __future__ import annotations

import json
import uuid

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from zkconsumer.cli.program import program
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real


def groups(zookeeper: ZooKeeperServer, chroot: str, *arguments: str) -> Result:
    call = ["groups", "--zookeeper", zookeeper.connect + chroot, *arguments]
    return CliRunner().invoke(program, call, prog_name="zkconsumer")


@pytest.fixture
def chroot(zookeeper: ZooKeeperServer) -> str:
    """A tree with a group that reads, one that has read, and one that has nothing but its name."""
    root = f"/groups-{uuid.uuid4().hex[:8]}"
    client = KazooClient(zookeeper.connect)
    client.start()
    for path in (
        "billing/ids/billing_a", "billing/ids/billing_b", "billing/owners/clicks/0", "billing/owners/clicks/1",
        "billing/owners/done", "billing/offsets/clicks/0", "billing/offsets/views/0", "old/offsets/clicks/0", "empty",
    ):  # fmt: skip
        client.create(f"{root}/consumers/{path}", b"", makepath=True)
    client.stop()
    client.close()
    return root


def test_all_groups_are_shown_with_members_and_topics(zookeeper: ZooKeeperServer, chroot: str) -> None:
    shown = groups(zookeeper, chroot)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "3 groups",
        "",
        "GROUP    MEMBERS  OWNED  TOPICS",
        "billing        2      2  clicks, views",
        "empty          0      0  -",
        "old            0      0  clicks",
    ]


def test_active_ones_alone_and_as_json(zookeeper: ZooKeeperServer, chroot: str) -> None:
    shown = groups(zookeeper, chroot, "--active", "--json")
    assert json.loads(shown.stdout) == {
        "groups": [
            {
                "group": "billing",
                "member_count": 2,
                "owned": 2,
                "topics": ["clicks", "views"],
                "offsets_in_zookeeper": True,
                "offsets_in_kafka": False,
                "coordination": "zookeeper",
                "state": None,
                "protocol_type": None,
                "group_type": None,
                "coordinator": None,
            }
        ]
    }


def test_a_cluster_without_groups_is_no_error(zookeeper: ZooKeeperServer, chroot: str) -> None:
    client = KazooClient(zookeeper.connect + chroot)
    client.start()
    client.delete("/consumers", recursive=True)
    client.stop()
    client.close()
    shown = groups(zookeeper, chroot)
    assert (shown.exit_code, shown.stdout) == (0, "0 groups\n")
