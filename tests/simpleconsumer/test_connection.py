"""One request, one answer, one deadline; after any fault a new connection."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from mmap import mmap

import pytest
from calling import call, connect, dies, echo, never_reads, request
from decoding import MEBIBYTE, memory_growth_below
from scripted_broker import DEADLINE_S, Peer, Script, ScriptedBroker, answer, correlation_id

from simpleconsumer.connection import Connection
from simpleconsumer.errors import BrokenFraming, ConnectionFailed, DecodeError, LimitExceeded
from simpleconsumer.security.authentication import Exchange, Session
from simpleconsumer.security.sasl import Sasl
from simpleconsumer.security.security import Security
from simpleconsumer.transport import SILENT, addresses_of


def test_calls_go_over_one_connection() -> None:
    with ScriptedBroker(echo(3)) as broker:
        connection = connect(broker)
        before = connection._transport is not None
        assert [call(connection, number) for number in (1, 2, 3)] == [request(number)[4:] for number in (1, 2, 3)]
        assert (before, connection._transport is not None) == (False, True)
        connection.close()
    assert broker.connections == 1


@pytest.mark.catalogue("M3")
@pytest.mark.parametrize("host", ["::1", "[::1]", "localhost"])
def test_hosts_may_be_ipv6_addresses_and_names(host: str) -> None:
    try:
        server = ScriptedBroker(echo(1), host="127.0.0.1" if host == "localhost" else "::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server as broker:
        connection = Connection(host, broker.port, DEADLINE_S)
        assert call(connection, 1) == request(1)[4:]
        connection.close()


@pytest.mark.parametrize("size", [10, 70_000, 3 * MEBIBYTE])
def test_a_request_in_pieces_is_sent_whole_and_something_else_is_done_before_the_answer_comes(size: int) -> None:
    body = request(1)[4:] + os.urandom(size)
    whole = struct.pack(">i", len(body)) + body
    has_waited = threading.Event()

    def script(peer: Peer) -> None:
        received = peer.request()
        assert has_waited.wait(DEADLINE_S)
        peer.answer(received, received)
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        pieces = [whole[:12], b"", whole[12:15], whole[15:]]
        answered = connection.call(pieces, correlation_id=1, meanwhile=has_waited.set)
        assert bytes(answered) == body
        connection.close()


class SoonOver(Session):
    """A session that has to be renewed, which takes one more line in `done`."""

    def __init__(self, done: list[str]) -> None:
        self.done = done

    def is_due(self) -> bool:
        return True

    def renew(self, exchange: Exchange) -> None:
        self.done.append("authenticated")


def test_something_else_is_done_once_and_before_a_connection_is_made_for_the_request() -> None:
    done: list[str] = []
    with ScriptedBroker(echo(3)) as broker:
        connection = connect(broker)
        connection.opening = lambda exchange: done.append("opened")
        for number in (1, 2):
            connection.call(request(number), correlation_id=number, meanwhile=lambda: done.append("meanwhile"))
        assert done == ["meanwhile", "opened", "meanwhile"]
        connection._session = SoonOver(done)
        connection.call(request(3), correlation_id=3, meanwhile=lambda: done.append("meanwhile"))
        assert done[3:] == ["meanwhile", "authenticated"]
        connection.close()
    with pytest.raises(ConnectionFailed):  # by a connection that nobody takes
        connect(broker).call(request(4), correlation_id=4, meanwhile=lambda: done.append("refused"))
    assert done.count("refused") == 1


def test_an_answer_in_many_pieces_is_read_whole() -> None:
    body = os.urandom(300_000)

    def script(peer: Peer) -> None:
        frame = answer(correlation_id(peer.request()), body)
        peer.send(frame[:2])
        time.sleep(0.01)
        peer.send(frame[2:5])
        for start in range(5, len(frame), 70_001):
            time.sleep(0.002)
            peer.send(frame[start : start + 70_001])
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        assert call(connection, 1) == body
        connection.close()


def test_an_answer_is_read_into_one_buffer_of_its_size() -> None:
    def script(peer: Peer) -> None:
        peer.answer(bytes(32 * MEBIBYTE), peer.request())
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        view = connection.call(request(1), correlation_id=1)
        assert isinstance(view.obj, bytearray | mmap)
        assert len(view.obj) == 32 * MEBIBYTE + 4
        connection.close()


@pytest.mark.parametrize("reuse_answers", [False, True])
def test_four_bytes_that_announce_a_large_answer_take_no_memory_for_it(reuse_answers: bool) -> None:
    def announce(peer: Peer) -> None:
        peer.request()
        peer.send(struct.pack(">i", 256 * MEBIBYTE) + bytes(1000))
        peer.wait_until_closed()

    with memory_growth_below(32 * MEBIBYTE), ScriptedBroker(announce) as broker:
        connection = connect(broker, 0.3, reuse_answers=reuse_answers)
        with pytest.raises(ConnectionFailed, match="no answer within"):
            call(connection, 1)
        connection.close()


def test_an_answer_before_the_first_request_is_small() -> None:
    """Nobody has shown yet who he is: no broker that is asked for its versions, and none that asks for a token."""

    def announce(size: int) -> Script:
        def script(peer: Peer) -> None:
            peer.request()
            peer.send(struct.pack(">i", size))
            peer.wait_until_closed()

        return script

    def ask(exchange: Exchange) -> None:
        exchange(request(1), 1)

    sasl = Security("SASL_PLAINTEXT", sasl=Sasl("PLAIN", "alice", "secret"))
    for security in (None, sasl):
        with ScriptedBroker(announce(65537), announce(65536)) as broker:
            connection = connect(broker, 0.3, security=security)
            connection.opening = ask if security is None else None
            with pytest.raises(LimitExceeded, match="frame of 65537 bytes, at most 65536 are accepted"):
                call(connection, 1)
            with pytest.raises(ConnectionFailed, match="no answer within"):
                call(connection, 1)
            connection.close()


# Faults: each costs the connection, and the next call has a new one


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (answer(99, b"x"), DecodeError, "answer to request 99, expected 1"),
        (struct.pack(">i", -1), BrokenFraming, r"^127.0.0.1:\d+: frame with the negative size -1"),
        (struct.pack(">i", 2**31 - 1), LimitExceeded, r"^127.0.0.1:\d+: frame of 2147483647 bytes"),
        (b"HTTP/1.1 400 Bad Request\r\n", LimitExceeded, "frame of 1213486160 bytes"),
        (struct.pack(">i", 3) + b"abc", DecodeError, "answer of 3 bytes, too short"),
        (struct.pack(">i", 0), DecodeError, "answer of 0 bytes, too short"),
    ],
    ids=["wrong correlation id", "negative", "huge", "http", "short", "empty"],
)
def test_an_answer_that_makes_no_sense(reply: bytes, error: type[DecodeError], text: str) -> None:
    def nonsense(peer: Peer) -> None:
        peer.request()
        peer.send(reply)
        peer.wait_until_closed()

    with memory_growth_below(32 * MEBIBYTE), ScriptedBroker(nonsense, echo(1)) as broker:
        connection = connect(broker)
        with pytest.raises(error, match=text):
            call(connection, 1, resend=True)
        assert connection._transport is None
        assert call(connection, 2) == request(2)[4:]
        connection.close()


@pytest.mark.parametrize("sent", [0, 2, 4, 6, 100])
def test_a_connection_that_ends_in_the_middle_of_an_answer(sent: int) -> None:
    def half(peer: Peer) -> None:
        peer.send(answer(correlation_id(peer.request()), bytes(200))[:sent])

    with ScriptedBroker(half, echo(1)) as broker:
        connection = connect(broker)
        with pytest.raises(ConnectionFailed, match=r"closed by the broker|reset by peer"):
            call(connection, 1, resend=True)
        assert connection._transport is None
        assert call(connection, 2) == request(2)[4:]
        connection.close()


def test_a_limit_of_the_frame_size_can_be_set() -> None:
    def script(peer: Peer) -> None:
        for size in (96, 97):
            peer.answer(bytes(size), peer.request())
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker, max_frame_bytes=100)
        assert call(connection, 1) == bytes(96)
        with pytest.raises(LimitExceeded, match="frame of 101 bytes, at most 100"):
            call(connection, 2)


@pytest.mark.parametrize("sent", [0, 3, 50])
def test_the_deadline_ends_a_call_however_far_the_answer_came(sent: int) -> None:
    def stall(peer: Peer) -> None:
        peer.send(answer(correlation_id(peer.request()), bytes(200))[:sent])
        peer.stall()

    with ScriptedBroker(stall, echo(1)) as broker:
        connection = connect(broker, timeout_s=0.2)
        with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{broker.port}: no answer within 0.2 s"):
            call(connection, 1, resend=True)
        assert connection._transport is None
        connection.timeout_s = DEADLINE_S
        assert call(connection, 2) == request(2)[4:]
        connection.close()


def test_a_broker_that_trickles_does_not_stretch_the_deadline() -> None:
    trickled = []

    def trickle(peer: Peer) -> None:
        peer.send(answer(correlation_id(peer.request()), bytes(100_000))[:8])
        with contextlib.suppress(OSError):
            for _ in range(1000):
                peer.send(b"x")
                trickled.append(1)
                time.sleep(0.01)

    with ScriptedBroker(trickle) as broker:
        connection = connect(broker, timeout_s=0.3)
        with pytest.raises(ConnectionFailed, match="no answer within"):
            call(connection, 1)
        connection.close()
    assert len(trickled) < 1000


def test_a_broker_that_does_not_read_does_not_stretch_the_deadline() -> None:
    with ScriptedBroker(never_reads) as broker:
        connection = connect(broker, timeout_s=0.3)
        with pytest.raises(ConnectionFailed, match="no answer within"):
            connection.call(bytes(64 * MEBIBYTE), correlation_id=1)
        connection.close()


def test_a_host_that_takes_no_connection_uses_up_the_time_for_connecting_alone() -> None:
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # more than its queue has room for: the next connection is not answered
            each = waiting.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        connection = Connection("127.0.0.1", listener.getsockname()[1], timeout_s=60, connect_timeout_s=0.2)
        with pytest.raises(ConnectionFailed, match=r"no connection within 0\.2 s"):
            call(connection, 1)
        connection.close()


def test_the_send_buffer_is_that_of_the_setting() -> None:
    with ScriptedBroker(echo(1), echo(1)) as broker:
        sizes = []
        for size in (0, 20_000):
            connection = Connection("127.0.0.1", broker.port, DEADLINE_S, send_buffer_bytes=size)
            call(connection, 1)
            assert connection._transport is not None
            sizes.append(connection._transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
            connection.close()
    asked = (20_000, 40_000)  # Linux counts twice what was asked
    assert [size in asked for size in sizes] == [False, True]


@pytest.mark.catalogue("F11")
def test_a_late_answer_is_never_the_answer_to_a_later_request() -> None:
    timed_out = threading.Event()

    def late(peer: Peer) -> None:
        received = peer.request()
        assert timed_out.wait(DEADLINE_S)
        with contextlib.suppress(OSError):
            peer.answer(b"late", received)
        peer.wait_until_closed()

    def prompt(peer: Peer) -> None:
        peer.answer(b"prompt", peer.request())
        peer.wait_until_closed()

    with ScriptedBroker(late, prompt) as broker:
        connection = connect(broker, timeout_s=0.2)
        with pytest.raises(ConnectionFailed):
            call(connection, 1)
        timed_out.set()
        connection.timeout_s = DEADLINE_S
        # Even with the very same correlation id.
        assert call(connection, 1) == b"prompt"
        connection.close()


def test_refused_connections_and_hosts_that_do_not_exist() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: Connection refused"):
        call(Connection("127.0.0.1", port), 1)
    for host in ("no-such-host.invalid", "a" * 70, "nul\0", ".."):
        with pytest.raises(ConnectionFailed):
            call(Connection(host, 9092, 5.0), 1)
    for bad_port in (-1, 0, 65536, 2**31):
        with pytest.raises(ConnectionFailed, match=f"port {bad_port} is not from 1 to 65535"):
            call(Connection("127.0.0.1", bad_port), 1)


def test_a_deadline_must_be_positive() -> None:
    with pytest.raises(ValueError, match="timeout_s is 0, it must be positive"):
        Connection("127.0.0.1", 9092, 0)


# Connections that died while they were idle


def wait_for_something_to_read(connection: Connection) -> None:
    """Wait until the end of the connection, or bytes out of turn, have arrived, without taking them."""
    assert connection._transport is not None
    poll = select.poll()
    poll.register(connection._transport.socket, select.POLLIN)
    assert poll.poll(DEADLINE_S * 1000)


def restarted(times: int) -> Callable[[Peer], None]:
    """Return a script that answers, then goes away."""

    def script(peer: Peer) -> None:
        for _ in range(times):
            received = peer.request()
            peer.answer(received, received)

    return script


@pytest.mark.parametrize("by_reset", [False, True])
def test_a_connection_that_ended_while_idle_is_replaced_before_anything_is_sent(by_reset: bool) -> None:
    closed = threading.Event()

    def first(peer: Peer) -> None:
        restarted(1)(peer)
        if by_reset:
            peer.close_by_reset()
        closed.set()

    with ScriptedBroker(first, echo(1)) as broker:
        connection = connect(broker)
        call(connection, 1)
        assert closed.wait(DEADLINE_S)
        wait_for_something_to_read(connection)
        assert call(connection, 2, resend=False) == request(2)[4:]
        connection.close()
    assert broker.connections == 2


def test_bytes_out_of_turn_cost_the_connection_and_are_never_read_as_an_answer() -> None:
    sent = threading.Event()

    def first(peer: Peer) -> None:
        restarted(1)(peer)
        peer.send(answer(2, b"nobody asked"))
        sent.set()
        peer.wait_until_closed()

    with ScriptedBroker(first, echo(1)) as broker:
        connection = connect(broker)
        call(connection, 1)
        assert sent.wait(DEADLINE_S)
        wait_for_something_to_read(connection)
        assert call(connection, 2) == request(2)[4:]
        connection.close()


def dies_on_the_second_request(peer: Peer) -> None:
    restarted(1)(peer)
    peer.request()


def test_a_read_that_meets_a_dying_connection_is_sent_once_more() -> None:
    with ScriptedBroker(dies_on_the_second_request, echo(1)) as broker:
        connection = connect(broker)
        call(connection, 1)
        assert call(connection, 2, resend=True) == request(2)[4:]
        connection.close()
    assert broker.connections == 2


def test_it_is_sent_once_more_and_not_for_ever() -> None:
    with ScriptedBroker(dies_on_the_second_request, dies) as broker:
        connection = connect(broker)
        call(connection, 1)
        with pytest.raises(ConnectionFailed, match="closed by the broker"):
            call(connection, 2, resend=True)
    assert broker.connections == 2


def test_a_write_that_meets_a_dying_connection_is_never_sent_twice() -> None:
    with ScriptedBroker(dies_on_the_second_request) as broker:
        connection = connect(broker)
        call(connection, 1)
        with pytest.raises(ConnectionFailed, match="closed by the broker"):
            call(connection, 2, resend=False)
    assert broker.connections == 1


def test_a_first_request_is_never_sent_twice() -> None:
    with ScriptedBroker(dies) as broker, pytest.raises(ConnectionFailed):
        call(connect(broker), 1, resend=True)
    assert broker.connections == 1


# Requests without an answer


def test_a_request_without_an_answer_does_not_wait_for_one() -> None:
    received = []

    def script(peer: Peer) -> None:
        received.append(peer.request())
        second = peer.request()
        peer.answer(b"to the second", second)
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        assert bytes(connection.call(request(1), has_answer=False)) == b""
        assert call(connection, 2) == b"to the second"
        connection.close()
    assert received == [request(1)[4:]]


def test_without_correlation_ids_the_whole_body_is_the_answer() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(struct.pack(">ih", 2, 0))
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = connect(broker)
        assert bytes(connection.call(request(1))) == b"\0\0"
        connection.close()


def test_answers_may_share_their_memory_one_after_the_other() -> None:
    bodies = [os.urandom(size) for size in (1000, 300_000, 5, 0, 300_000)]

    def script(peer: Peer) -> None:
        for body in bodies:
            peer.send(answer(correlation_id(peer.request()), body))
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker:
        connection = Connection("127.0.0.1", broker.port, DEADLINE_S, reuse_answers=True)
        views = []
        for number, body in enumerate(bodies):
            views.append(connection.call(request(number), correlation_id=number))
            assert views[-1] == body
        # The third answer stands where the second one stood.
        assert views[1].obj is views[2].obj is views[4].obj
        connection.close()


@contextlib.contextmanager
def address_that_drops_packets() -> Iterator[tuple[str, int]]:
    """Listens with a full queue: the kernel drops whatever asks for a further connection."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.2", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        try:
            yield listening.getsockname()
        finally:
            for each in waiting:
                each.close()


def test_an_address_that_drops_packets_costs_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name has two addresses, and the first one never answers: later connections begin with the other one."""
    with address_that_drops_packets() as silent, ScriptedBroker(*[echo(1)] * 3) as broker:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda *_, **__: [(*kind, silent), (*kind, (broker.host, broker.port))]
        )
        seconds = []
        for number in range(3):
            started = time.monotonic()
            connection = Connection("two.addresses", broker.port, 4.0)
            assert call(connection, number) == request(number)[4:]
            connection.close()
            seconds.append(time.monotonic() - started)
        assert 1.5 < seconds[0] < 4
        assert max(seconds[1:]) < 1


def test_an_address_that_dropped_packets_is_tried_again_when_the_others_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedBroker(echo(1)) as broker:
        good, bad = (broker.host, broker.port), ("127.0.0.1", 1)
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(*kind, good), (*kind, bad)])
        SILENT.note(good)
        assert [row[-1] for row in addresses_of("two.addresses", broker.port)] == [bad, good]
        connection = Connection("two.addresses", broker.port, 4.0)
        assert call(connection, 1) == request(1)[4:]
        connection.close()
        assert [row[-1] for row in addresses_of("two.addresses", broker.port)] == [good, bad]  # it has answered
