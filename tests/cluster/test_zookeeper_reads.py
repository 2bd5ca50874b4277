"""Reads of ZooKeeper while connections break."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebalance.zookeeper.port.requests import GetData
from zkconsumer.cluster.zookeeper_connection import ZooKeeperSilent, read_all, zookeeper_connection
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

READS = [GetData("/zookeeper"), GetData("/none"), GetData("/")]


def test_reads_whose_answers_are_lost_with_the_connection_are_asked_again(zookeeper: ZooKeeperServer) -> None:
    with (
        TcpProxy(zookeeper.connect) as link,
        zookeeper_connection(link.address) as port,
        ThreadPoolExecutor(1) as reader,
    ):
        link.stall("down")
        seen = link.moved_bytes("up")
        reading = reader.submit(read_all, port, READS)
        wait_until(lambda: link.moved_bytes("up") >= seen + 60, 10.0, "the reads to arrive")
        link.clear()
        link.drop()
        found = reading.result(timeout=20.0)
        assert [value is None for value in found] == [False, True, False]


def test_reads_end_at_their_deadline_while_no_server_can_be_reached(zookeeper: ZooKeeperServer) -> None:
    with TcpProxy(zookeeper.connect) as link, zookeeper_connection(link.address) as port:
        link.cut()
        started = time.monotonic()
        with pytest.raises(ZooKeeperSilent):
            read_all(port, READS, 2.0)
        assert time.monotonic() - started < 4.0


def test_reads_on_a_connection_that_was_closed_are_not_repeated(zookeeper: ZooKeeperServer) -> None:
    with zookeeper_connection(zookeeper.connect) as port:
        port.close(5.0)
        started = time.monotonic()
        with pytest.raises(ZooKeeperSilent, match="Connection has been closed"):
            read_all(port, READS)
        assert time.monotonic() - started < 2.0
