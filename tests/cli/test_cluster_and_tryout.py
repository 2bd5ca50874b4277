"""`zkconsumer cluster up`: real servers that come and go with the command."""

from __future__ import annotations

import re
import signal
import socket

import pytest

from tests.cli.command_line import Running, run
from zkconsumer.testing import maven
from zkconsumer.testing.java import find_java
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _servers_can_be_started() -> None:
    find_java()
    maven.jars("0.8.2.2")


def is_open(address: str) -> bool:
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_cluster_comes_up_and_leaves_no_process(number: int) -> None:
    with Running("cluster", "up", "--brokers", "1", "--topic", "clicks:3") as cluster:
        cluster.wait_lines(10)
        text = "\n".join(cluster.lines())
        zookeeper = re.search(r"^ZooKeeper  (\S+)$", text, re.MULTILINE)
        brokers = re.search(r"^brokers    (\S+)$", text, re.MULTILINE)
        assert zookeeper is not None, cluster.errors()
        assert brokers is not None
        assert "topic      clicks: 3 partitions, 1 replicas\n" in text
        shown = re.search(r"seq 1000 \| zkconsumer (produce .*)", text)
        assert shown is not None
        assert run(*shown[1].split(), stdin=b"1\n2\n").stderr == b"Produced 2 messages\n"
        status = cluster.end(number)
        assert status == (-number if number == signal.SIGKILL else 0)
        for address in (zookeeper[1], brokers[1]):
            wait_until(lambda address=address: not is_open(address), 10, f"{address} to be closed")  # type: ignore[misc]
