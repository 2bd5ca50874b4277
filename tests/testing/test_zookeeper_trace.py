"""ZooKeeperRecorder records the requests and replies of one client, however the bytes are split."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from rebalance.zookeeper.port.requests import Fault
from zkconsumer.cluster.zookeeper_obstacles import speaks_tls, zookeeper_answer
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.proxy.zookeeper_exchanges import Connected, Entry, Exchange, ExchangeReader, Fired
from zkconsumer.testing.proxy.zookeeper_trace import ZooKeeperRecorder, format_entry, format_trace
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


PASSWORD = struct.pack(">i", 16) + bytes(16)
STAT = bytes(68)
UP = (
    frame(struct.pack(">iqiq", 0, 0, 6000, 0) + PASSWORD)
    + frame(struct.pack(">ii", 1, 3) + text("/a") + b"\x01")
    + frame(struct.pack(">ii", 2, 4) + text("/a") + b"\0")
    + frame(struct.pack(">ii", -2, 11))
    + frame(struct.pack(">ii", 3, 2) + text("/a") + struct.pack(">i", 7))
)
DOWN = (
    frame(struct.pack(">iiq", 0, 4000, 77) + PASSWORD)
    + frame(struct.pack(">iqi", 1, 5, -101))
    + frame(struct.pack(">iqi", -1, -1, 0) + struct.pack(">ii", 1, 3) + text("/a"))
    + frame(struct.pack(">iqi", 2, 6, 0) + text("held") + STAT)
    + frame(struct.pack(">iqi", -2, 6, 0))
    + frame(struct.pack(">iqi", 3, 7, 0))
)
READ = [
    Exchange("exists", "/a", ("watch",), is_answered=True, fault=Fault.NO_NODE),
    Exchange("get", "/a", data=b"held", is_answered=True),
    Exchange("delete", "/a", version=7, is_answered=True),
    Connected(77, 0, 4000),
    Fired("created", "/a"),
]


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_bytes_are_read_in_any_pieces(piece_bytes: int) -> None:
    found: list[Entry] = []
    reader = ExchangeReader(found.append)
    for feed, data in ((reader.up, UP), (reader.down, DOWN)):
        for start in range(0, len(data), piece_bytes):
            feed(data[start : start + piece_bytes])
    assert found == READ


def test_a_session_that_is_over_has_no_id() -> None:
    found: list[Entry] = []
    reader = ExchangeReader(found.append)
    reader.up(frame(struct.pack(">iqiq", 0, 0, 6000, 77) + PASSWORD))
    reader.down(frame(struct.pack(">iiq", 0, 0, 0) + PASSWORD))
    assert found == [Connected(0, 77, 0)]
    assert format_entry(found[0]) == "connect -> session is over"


@pytest.mark.parametrize("data", [struct.pack(">i", -5), b"GET / HTTP/1.1", frame(b"\0")], ids=["negative", "web", "-"])
def test_what_is_no_request_is_said(data: bytes) -> None:
    with pytest.raises(ValueError, match="ZooKeeper frame of"):
        ExchangeReader(lambda entry: None).up(data)


@pytest.mark.parametrize("piece_bytes", [1, 3, 1000])
@pytest.mark.parametrize("asked", [b"srvr", b"stmk" + bytes(8), b"\x16\x03\x01\x01\x00" + bytes(256)])
def test_a_connection_without_a_session_is_left_out(asked: bytes, piece_bytes: int) -> None:
    found: list[Entry] = []
    reader = ExchangeReader(found.append)
    for start in range(0, len(asked), piece_bytes):
        reader.up(asked[start : start + piece_bytes])
    if asked.startswith(b"s"):
        reader.down(b"Zookeeper version: 3.9")
    assert found == []


def test_tls_that_the_server_speaks_is_said() -> None:
    reader = ExchangeReader(lambda entry: None)
    reader.up(b"\x16\x03\x01\x01\x00")
    with pytest.raises(ValueError, match="speak TLS, which cannot be read: record a port without TLS"):
        reader.down(b"\x16\x03\x03")


def test_an_answer_without_a_request_is_said() -> None:
    reader = ExchangeReader(lambda entry: None)
    reader.down(frame(struct.pack(">iiq", 0, 4000, 77) + PASSWORD))
    with pytest.raises(ValueError, match="answered a request that was not seen"):
        reader.down(frame(struct.pack(">iqi", 1, 5, 0)))


def test_what_differs_from_run_to_run_is_left_out_of_the_text() -> None:
    broker = b'{"port":9092,"host":"h","timestamp":"17","version":1,"jmx_port":-1}'
    topic = b'{"version":1,"partitions":{"10":[1],"2":[0,1]}}'
    registration = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"99"}'
    entries: list[Entry] = [
        Exchange("get", "/brokers/ids/0", data=broker, is_answered=True),
        Exchange("get", "/brokers/topics/t", data=topic, is_answered=True),
        Exchange("create", "/consumers/g1/ids/a", ("ephemeral",), registration, is_answered=True),
        Exchange("children", "/x", children=("b", "a"), is_answered=True),
        Exchange("set", "/x", data=None),
        Exchange("get", "/x", data=b"{no json", is_answered=True),
    ]
    assert format_trace(entries, {"g1": "g"}) == [
        'get /brokers/ids/0 -> {"host":"<host>","jmx_port":0,"port":0,"timestamp":"<ms>","version":1}',
        'get /brokers/topics/t -> {"partitions":["2","10"],"version":1}',
        "create /consumers/g/ids/a ephemeral "
        '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"<ms>"} -> ok',
        "children /x -> a, b",
        "set /x null -> no answer",
        "get /x -> {no json",
    ]


@pytest.fixture
def recorder(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperRecorder]:
    with ZooKeeperRecorder(zookeeper.connect) as running:
        yield running


def test_a_real_client_is_recorded_request_by_request(zookeeper: ZooKeeperServer, recorder: ZooKeeperRecorder) -> None:
    client = KazooClient(recorder.proxy.address, timeout=4.0)
    client.start(10)
    client.exists("/recorded", watch=lambda event: None)
    client.create("/recorded", b"one")
    client.get("/recorded", watch=lambda event: None)
    client.set("/recorded", b"two", version=0)
    with pytest.raises(NodeExistsError):
        client.create("/recorded", b"", ephemeral=True)
    client.get_children("/recorded", watch=lambda event: None)
    transaction = client.transaction()
    transaction.check("/recorded", 1)
    transaction.create("/recorded/x", b"")
    transaction.delete("/recorded/y")
    transaction.commit()
    client.delete("/recorded")
    client.stop()
    client.close()
    lines = format_trace(recorder.entries())
    assert lines[:13] == [
        "connect -> new session",
        "exists /recorded watch -> no node",
        "create /recorded one -> ok",
        "* /recorded created",
        "get /recorded watch -> one",
        "set /recorded two -> ok",
        "* /recorded data changed",
        "create /recorded ephemeral  -> node exists",
        "children /recorded watch -> none",
        "multi [check /recorded -> another operation of the multi failed] "
        "[create /recorded/x  -> another operation of the multi failed] [delete /recorded/y -> no node] -> no node",
        "delete /recorded -> ok",
        "* /recorded deleted",
        "close -> ok",
    ]


def test_a_session_that_was_ended_is_recorded_with_the_next_one(
    zookeeper: ZooKeeperServer, recorder: ZooKeeperRecorder
) -> None:
    client = KazooClient(recorder.proxy.address, timeout=4.0)
    client.start(10)
    zookeeper.end_session(client.client_id[0])
    over = ["connect -> new session", "connect -> session is over", "connect -> new session"]
    wait_until(lambda: format_trace(recorder.entries()) == over, 15, "the new session", state=recorder.entries)
    client.stop()
    client.close()


def test_what_is_not_the_protocol_is_said_at_the_end(zookeeper: ZooKeeperServer) -> None:
    recorder = ZooKeeperRecorder(zookeeper.connect)
    address, _, port = recorder.proxy.address.partition(":")
    with socket.create_connection((address, int(port)), timeout=5) as client:
        client.sendall(b"GET / HTTP/1.1")
        with suppress(ConnectionResetError):
            assert client.recv(10) == b""
    with pytest.raises(KitError, match="failed"):
        recorder.close()


def test_what_a_member_asks_a_slow_server_is_left_out(recorder: ZooKeeperRecorder) -> None:
    host, _, port = recorder.proxy.address.partition(":")
    server = (host, int(port))
    for _ in range(2):
        assert speaks_tls(server, 10) is False
        assert "Zookeeper version" in str(zookeeper_answer(server, 10))
    client = KazooClient(recorder.proxy.address, timeout=4.0)
    client.start(10)
    assert client.exists("/recorded") is None
    client.stop()
    client.close()
    assert format_trace(recorder.entries()) == ["connect -> new session", "exists /recorded -> no node", "close -> ok"]
