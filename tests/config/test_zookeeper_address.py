"""The connection string: hosts, ports, one chroot."""

from __future__ import annotations

import pytest

from zkconsumer.config.zookeeper_settings import ZooKeeperAddress, parse_zookeeper_address


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", (("zk", 2181),), ""),
        ("zk:2182", (("zk", 2182),), ""),
        ("zk1:2181,zk2:2181/kafka", (("zk1", 2181), ("zk2", 2181)), "/kafka"),
        (" zk1:1 , zk2:65535/a/b ", (("zk1", 1), ("zk2", 65535)), "/a/b"),
        ("127.0.0.1:2181/", (("127.0.0.1", 2181),), ""),
        ("[::1]:2181,[2001:db8::2]/k", (("::1", 2181), ("2001:db8::2", 2181)), "/k"),
    ],
)
def test_good_addresses(text: str, hosts: tuple[tuple[str, int], ...], chroot: str) -> None:
    address = parse_zookeeper_address(text)
    assert address == ZooKeeperAddress(hosts, chroot)
    assert parse_zookeeper_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "host is missing"),
        ("/kafka", "host is missing"),
        (":2181", "not host:port"),
        ("zk1:2181,,zk2:2181", "host is missing"),
        ("zk1:2181,", "host is missing"),
        ("zk:0", "port 0"),
        ("zk:65536", "port 65536"),
        ("zk:-1", "not host:port"),
        ("zk:port", "not host:port"),
        ("zk:", "not host:port"),
        ("zk:2181kafka", "not host:port"),
        ("zk 1:2181", "not host:port"),
        ("::1:2181", "not host:port"),
        ("zk1:2181/kafka,zk2:2181", "once, after the last host"),
        ("zk1:2181/kafka,zk2:2181/kafka", "once, after the last host"),
        ("zk:2181//kafka", "not a path"),
        ("zk:2181/kafka/", "not a path"),
        ("zk:2181/a/../b", "not a path"),
        ("zk:2181/a\x00b", "not a path"),
    ],
)
def test_bad_addresses(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_zookeeper_address(text)
