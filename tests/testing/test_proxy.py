"""TcpProxy: each fault does what its name says, and nothing is left behind."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.proxy.kafka_frames import Exchange, RawReply
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer


class EchoServer:
    """Sends back what it gets, on any number of connections."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = ("127.0.0.1", int(self._listener.getsockname()[1]))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    @staticmethod
    def _echo(connection: socket.socket) -> None:
        with connection:
            try:
                while chunk := connection.recv(65536):
                    connection.sendall(chunk)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    server = EchoServer()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: EchoServer) -> Iterator[TcpProxy]:
    with TcpProxy(echo.address) as proxy:
        yield proxy


def connect(proxy: TcpProxy) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
    connection.settimeout(5)
    return connection


def say(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return receive(connection, len(text))


def receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            break
        data += chunk
    return data


def is_silent(connection: socket.socket, for_s: float = 0.2) -> bool:
    connection.settimeout(for_s)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)
    return False


def test_bytes_pass_unchanged_and_are_counted(proxy: TcpProxy) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB: more than the proxy buffers
    with connect(proxy) as connection:
        sender = threading.Thread(target=connection.sendall, args=(data,))
        sender.start()
        assert receive(connection, len(data)) == data
        sender.join()
    assert (proxy.moved_bytes("up"), proxy.moved_bytes("down")) == (len(data), len(data))


def test_an_end_of_stream_is_passed_on_after_the_last_byte(proxy: TcpProxy) -> None:
    with connect(proxy) as connection:
        connection.sendall(b"last")
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection, 100) == b"last"
    wait_until(lambda: proxy.connections == 0, 5, "the connection to be closed")


def test_a_stalled_link_keeps_its_sockets_and_loses_nothing(proxy: TcpProxy) -> None:
    with connect(proxy) as connection:
        assert say(connection, b"one") == b"one"
        proxy.stall()
        connection.sendall(b"two")
        assert is_silent(connection)
        assert proxy.connections == 1
        proxy.clear()
        assert receive(connection, 3) == b"two"


def test_connections_made_during_a_stall_are_accepted_and_stay_silent(proxy: TcpProxy) -> None:
    proxy.stall()
    with connect(proxy) as connection:
        connection.sendall(b"hello")
        assert is_silent(connection)
        proxy.clear()
        assert receive(connection, 5) == b"hello"


def test_half_open_link_passes_one_direction_only(proxy: TcpProxy) -> None:
    with connect(proxy) as connection:
        assert say(connection, b"one") == b"one"
        proxy.half("up")
        connection.sendall(b"two")
        wait_until(lambda: proxy.moved_bytes("up") == 6, 5, "the request to reach the server")
        assert is_silent(connection)
        assert proxy.moved_bytes("down") == 3


@pytest.mark.parametrize("count", [1, 3, 7])
def test_stall_after_cuts_at_the_byte(proxy: TcpProxy, count: int) -> None:
    with connect(proxy) as connection:
        proxy.stall_after(count)
        connection.sendall(b"12345678")
        assert receive(connection, count) == b"12345678"[:count]
        assert is_silent(connection)


def test_drop_resets_both_ends_and_new_connections_work(proxy: TcpProxy) -> None:
    with connect(proxy) as old:
        assert say(old, b"x") == b"x"
        assert proxy.drop() == 1
        with pytest.raises(ConnectionResetError):
            old.recv(1)
    with connect(proxy) as new:
        assert say(new, b"y") == b"y"


def test_refuse_turns_away_new_connections_and_leaves_open_ones(proxy: TcpProxy) -> None:
    with connect(proxy) as old:
        assert say(old, b"x") == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        assert say(old, b"y") == b"y"
        port = proxy.port
        proxy.clear()
        assert proxy.port == port
        with connect(proxy) as new:
            assert say(new, b"z") == b"z"


def test_delay_comes_later_but_comes(proxy: TcpProxy) -> None:
    with connect(proxy) as connection:
        proxy.delay(0.3)
        connection.sendall(b"x")
        assert is_silent(connection, 0.4)  # 0.3 s up and 0.3 s down
        assert receive(connection, 1) == b"x"


def test_throttle_spreads_bytes_over_time(proxy: TcpProxy) -> None:
    with connect(proxy) as connection:
        proxy.throttle(50_000)
        start = time.monotonic()
        assert say(connection, bytes(20_000)) == bytes(20_000)
        assert (
            time.monotonic() - start >= 0.35
        )  # 20,000 bytes at 50,000 a second: no machine is too fast for this bound


def test_moving_keeps_open_connections_and_frees_the_old_port(proxy: TcpProxy) -> None:
    with connect(proxy) as old:
        assert say(old, b"x") == b"x"
        before = proxy.port
        assert proxy.move() != before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", before), timeout=5)
        with connect(proxy) as new:
            assert say(new, b"y") == b"y"
        assert say(old, b"z") == b"z"


def test_another_upstream_serves_new_connections(proxy: TcpProxy) -> None:
    other = EchoServer()
    try:
        proxy.connect_to(other.address)
        with connect(proxy) as connection:
            assert say(connection, b"x") == b"x"
    finally:
        other.close()


def test_an_upstream_that_refuses_shows_as_a_reset() -> None:
    def talk(proxy: TcpProxy) -> None:
        with connect(proxy) as connection:  # the reset may come while this returns
            connection.recv(1)

    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with TcpProxy(("127.0.0.1", reserved.getsockname()[1])) as proxy, pytest.raises(ConnectionResetError):
            talk(proxy)


def test_close_leaves_neither_thread_nor_port(echo: EchoServer) -> None:
    proxy = TcpProxy(echo.address)
    with connect(proxy) as connection:
        assert say(connection, b"x") == b"x"
        proxy.stall()
        proxy.close()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
    assert f"proxy-{proxy.port}" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(KitError, match="closed"):
        proxy.stall()


# ---- Kafka frames through the proxy; the echo server answers every request with the request itself


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def response_of(correlation_id: int, rest: bytes) -> bytes:
    """A request whose echo is a response: correlation ids stand at byte 4 of a request and at byte 0 of a response."""
    return struct.pack(">hhi", correlation_id >> 16, correlation_id & 0xFFFF, correlation_id) + rest


def test_whole_responses_are_changed_however_they_are_cut(echo: EchoServer) -> None:
    seen: list[Exchange] = []

    def change(exchange: Exchange) -> bytes:
        seen.append(exchange)
        return exchange.response + b"!"

    with TcpProxy(echo.address, rewrite=change) as proxy, connect(proxy) as connection:
        request = frame(response_of(7, b"payload"))
        for byte in request:
            connection.sendall(bytes([byte]))
        assert receive(connection, len(request) + 1) == frame(response_of(7, b"payload") + b"!")
    assert [(each.api, each.version, each.correlation_id) for each in seen] == [(0, 7, 7)]
    assert seen[0].request == response_of(7, b"payload")


def test_none_leaves_a_response_alone_and_raw_bytes_go_out_without_a_length(echo: EchoServer) -> None:
    answers: list[bytes | None] = [None, RawReply(b"\xff\xff\xff\xff")]
    with TcpProxy(echo.address, rewrite=lambda exchange: answers.pop(0)) as proxy, connect(proxy) as connection:
        first = frame(response_of(1, b"a"))
        assert say(connection, first) == first
        connection.sendall(frame(response_of(2, b"b")))
        assert receive(connection, 4) == b"\xff\xff\xff\xff"


def test_an_error_of_the_rewriting_function_is_reported_by_close(echo: EchoServer) -> None:
    def broken(exchange: Exchange) -> bytes:
        raise ZeroDivisionError("made up")

    proxy = TcpProxy(echo.address, rewrite=broken)
    with connect(proxy) as connection:
        connection.sendall(frame(response_of(1, b"a")))
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(KitError, match="made up"):
        proxy.close()


# ---- ZooKeeper through the proxy


def test_zookeeper_requests_are_counted_by_kind_and_a_multi_by_its_parts(
    zookeeper: ZooKeeperServer, fresh_group: str
) -> None:
    root = f"/{fresh_group}"
    with TcpProxy(zookeeper.connect, count_zookeeper=True) as proxy:
        client = KazooClient(proxy.address)
        client.start()
        try:
            proxy.forget_requests()
            client.create(root, b"a", ephemeral=False)
            client.get(root)
            client.get_children(root)
            transaction = client.transaction()
            transaction.check(root, 0)
            transaction.set_data(root, b"b")
            transaction.create(root + "/x", b"1")
            transaction.delete(root + "/x")
            assert all(not isinstance(result, Exception) for result in transaction.commit())
            counted = {kind: n for kind, n in proxy.requests.items() if kind != "ping"}
        finally:
            client.stop()
            client.close()
        assert counted == {"create": 2, "get_data": 1, "get_children": 1, "check": 1, "set_data": 1, "delete": 1}
        parts = [(each.kind, each.path) for each in proxy.seen_requests() if each.in_multi]
        assert parts == [("check", root), ("set_data", root), ("create", root + "/x"), ("delete", root + "/x")]
