"""Reads that are sent together: the same replies as singly, in any pieces of bytes and states of a connection."""

from __future__ import annotations

import random
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss

from rebalance.zookeeper.port.kazoo_port import KazooPort, call
from rebalance.zookeeper.port.kazoo_requests import ReadPiece, hook_reads
from rebalance.zookeeper.port.requests import (
    Exists,
    Fault,
    GetChildren,
    GetData,
    Read,
    Reply,
    SessionChange,
    SetData,
    Stat,
)
from zkconsumer.cluster.zookeeper_connection import ZooKeeperSilent, read_each
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer
from zkconsumer.testing.zookeeper.client import ClosedNodes

PATIENCE_S = 20.0
NODES = 600


class Opened(KazooPort):
    """A port that waits for its session."""

    def __init__(self, connect: str, session_s: float = 10.0) -> None:
        super().__init__(connect, session_s)
        self.changes: list[SessionChange] = []
        self.start(self.changes.append)
        wait_until(lambda: self.changes, PATIENCE_S, "a session")

    def together(self, requests: Sequence[Read]) -> list[Reply]:
        answered = self.start_reading(requests)
        wait_until(lambda: answered, PATIENCE_S, "the replies")
        return answered[0]

    def start_reading(self, requests: Sequence[Read]) -> list[list[Reply]]:
        answered: list[list[Reply]] = []
        self.read(requests, answered.append)
        return answered

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(5.0)


@pytest.fixture(scope="module")
def root(zookeeper: ZooKeeperServer) -> Iterator[str]:
    """A chroot with nodes of all kinds, and many that are alike."""
    path = f"/reads-{random.getrandbits(40):x}"
    client = KazooClient(zookeeper.connect)
    client.start()
    client.create(path)
    client.create(f"{path}/größe-☃", "größe ☃".encode())
    client.create(f"{path}/empty", b"")
    client.create(f"{path}/large", b"x" * 900_000)
    client.create(f"{path}/mine", b"e", ephemeral=True)
    client.create(f"{path}/many")
    created = [client.create_async(f"{path}/many/{number}", b"%d" % number) for number in range(NODES)]
    for each in created:
        each.get(timeout=PATIENCE_S)
    with ClosedNodes(zookeeper.connect) as closed:
        closed.create(f"{path}/closed", b"secret", ephemeral=False)
        yield path
    client.stop()
    client.close()


def all_kinds(root: str = "") -> list[Read]:
    paths = ["/größe-☃", "/empty", "/large", "/mine", "/many", "/closed", "/absent", "/absent/below"]
    kinds = (Exists, GetData, GetChildren)
    whole: list[Read] = [kind(f"{root}{path}") for path in paths for kind in kinds]
    return whole + [kind(root or "/") for kind in kinds]


@pytest.fixture(params=["", "chroot"])
def opened(zookeeper: ZooKeeperServer, root: str, request: pytest.FixtureRequest) -> Iterator[tuple[Opened, str]]:
    """A port, and the path of the nodes as it is seen through it."""
    chroot = root if request.param else ""
    with Opened(f"{zookeeper.connect}{chroot}") as port:
        yield port, "" if chroot else root


def test_reads_have_the_same_replies_as_singly(opened: tuple[Opened, str]) -> None:
    port, root = opened
    wanted = all_kinds(root)
    singly = [call(port, request, PATIENCE_S) for request in wanted]
    together = port.together(wanted)
    assert [reply._replace(sent_at=0.0) for reply in together] == [reply._replace(sent_at=0.0) for reply in singly]
    assert len({reply.sent_at for reply in together}) == 1
    by_request = dict(zip(wanted, together, strict=True))
    assert by_request[GetData(f"{root}/größe-☃")].value[0] == "größe ☃".encode()
    assert by_request[GetData(f"{root}/empty")].value[0] == b""
    assert by_request[GetData(f"{root}/closed")].fault is Fault.NO_AUTH
    assert by_request[GetData(f"{root}/absent")].fault is Fault.NO_NODE
    assert by_request[Exists(f"{root}/absent")][:2] == (None, None)
    assert by_request[Exists(f"{root}/mine")].value.ephemeral_owner != 0
    assert len(by_request[GetChildren(f"{root}/many")].value[0]) == NODES


def test_pieces_single_requests_and_watches_are_answered_in_the_order_of_the_server(
    zookeeper: ZooKeeperServer, root: str
) -> None:
    """Pieces before and behind single requests, while another session changes what is watched."""
    node = f"{root}/many/7"
    with Opened(zookeeper.connect) as port, Opened(zookeeper.connect) as other:
        for turn in range(50):
            interleave(port, other, root, node, turn)


def interleave(port: Opened, other: Opened, root: str, node: str, turn: int) -> None:
    fired: list[object] = []
    answers: list[object] = []
    watching: list[object] = []
    port.send(GetData(node, fired.append), watching.append)
    wait_until(lambda: watching, PATIENCE_S, "the watch")
    for size in (1, 250, 3):
        piece = [GetData(f"{root}/many/{each}") for each in range(size)]
        port.read(piece, lambda replies: answers.append([reply.value[0] for reply in replies]))
        port.send(GetData(f"{root}/many/{turn}"), lambda reply: answers.append(reply.value[0]))
    other.send(SetData(node, b"7"), lambda reply: None)
    port.send(GetChildren(f"{root}/many"), lambda reply: answers.append(len(reply.value[0])))
    wait_until(lambda: len(answers) == 7, PATIENCE_S, "all answers", state=lambda: len(answers))
    wait_until(lambda: fired, PATIENCE_S, "the watch event")
    alike = [[b"%d" % each for each in range(size)] for size in (1, 250, 3)]
    single = b"%d" % turn
    assert answers == [alike[0], single, alike[1], single, alike[2], single, NODES]
    assert len(fired) == 1


def test_a_lost_connection_answers_all_reads_with_loss_and_the_next_one_reads_again(
    zookeeper: ZooKeeperServer, root: str
) -> None:
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as port:
        wanted = [GetData(f"{root}/many/{number}") for number in range(NODES)]
        proxy.stall_after(10_000)  # within an answer
        answered = port.start_reading(wanted)
        time.sleep(0.3)
        assert answered == []
        proxy.drop()
        proxy.clear()
        wait_until(lambda: answered, PATIENCE_S, "the replies")
        [replies] = answered
        assert [reply.fault for reply in replies] == [Fault.CONNECTION_LOSS] * NODES
        again = ["connected", "suspended", "connected"]
        wait_until(lambda: [change.what for change in port.changes] == again, PATIENCE_S, "another connection")
        assert all(reply.fault is None for reply in port.together(wanted))
        proxy.stall()
        answered = port.start_reading(wanted)
        proxy.drop()
        wait_until(lambda: answered, PATIENCE_S, "the replies")
        assert {(reply.fault, reply.value) for reply in answered[0]} == {(Fault.CONNECTION_LOSS, None)}
        assert "ConnectionLoss" in answered[0][0].reason


def test_a_session_lives_while_answers_come_slowly(zookeeper: ZooKeeperServer, root: str) -> None:
    """Pings are answered between the answers; nothing takes them for answers."""
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address, 4.0) as port:
        proxy.throttle(12_000)
        wanted = [GetData(f"{root}/many/{number}") for number in range(NODES)]
        assert [reply.value[0] for reply in port.together(wanted)] == [b"%d" % number for number in range(NODES)]
        proxy.clear()
        assert [change.what for change in port.changes] == ["connected"]


def test_without_the_methods_of_kazoo_reads_are_sent_singly(
    zookeeper: ZooKeeperServer, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert hook_reads(SimpleNamespace(_connection=SimpleNamespace())) is False
    assert "this version of kazoo has no _send_request: reads of many nodes are sent one by one" in caplog.text
    wanted = all_kinds(root)
    with Opened(zookeeper.connect) as port:
        together = port.together(wanted)
        port._reads_together = False
        singly = port.together(wanted)
    assert [reply._replace(sent_at=0.0) for reply in together] == [reply._replace(sent_at=0.0) for reply in singly]


def test_what_cannot_be_sent_together_is_refused(zookeeper: ZooKeeperServer) -> None:
    with Opened(zookeeper.connect) as port:
        for wrong in ([], [GetData("/"), Exists("/", lambda event: None)]):
            with pytest.raises(ValueError, match=f"{len(wrong)} reads are sent together"):
                port.read(wrong, lambda replies: None)


def test_reads_on_a_closed_port_are_lost_and_not_forgotten(zookeeper: ZooKeeperServer) -> None:
    with Opened(zookeeper.connect) as port:
        port.close(5.0)
        [reply] = port.together([GetData("/")])
        assert (reply.value, reply.fault) == (None, call(port, GetData("/"), PATIENCE_S).fault)
        assert reply.fault is not None
        assert reply.fault.is_lost


# -- many pieces -------------------------------------------------------------------------------------------------------


class Waiting:
    """A port whose replies are given by the test; counts the reads that are under way."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[Read], Callable[[list[Reply]], None]]] = []
        self.most = 0

    def read(self, requests: Sequence[Read], done: Callable[[list[Reply]], None]) -> None:
        self.waiting.append((requests, done))
        self.most = max(self.most, sum(len(requests) for requests, _ in self.waiting))


def test_five_hundred_reads_at_most_are_under_way_and_values_keep_their_order() -> None:
    port = Waiting()
    wanted = [GetData(f"/{number}") for number in range(1730)]
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.extend(read_each(port, wanted, PATIENCE_S)))  # type: ignore[arg-type]
    reader.start()
    rng = random.Random(1)
    while reader.is_alive():
        if port.waiting:
            requests, done = port.waiting.pop(rng.randrange(len(port.waiting)))
            done([Reply(request.path, None, 0.0) for request in requests])
        time.sleep(0.001)
    reader.join()
    assert found == [request.path for request in wanted]
    assert port.most == 500


def test_a_silent_server_ends_the_wait_in_time_and_says_how_much_is_missing(
    zookeeper: ZooKeeperServer, root: str
) -> None:
    wanted = [GetData(f"{root}/many/{number}") for number in range(NODES)]
    with TcpProxy(zookeeper.connect) as proxy, Opened(proxy.address) as port:
        proxy.stall("down")
        started_at = time.monotonic()
        with pytest.raises(ZooKeeperSilent, match=r"^600 of 600 reads were not answered within 0\.5 s, "):
            read_each(port, wanted, 0.5)
        with pytest.raises(ZooKeeperSilent, match="600 of 600 reads were not answered before the deadline"):
            read_each(port, wanted, 10.0, time.monotonic() + 0.3)
        with pytest.raises(ZooKeeperSilent, match="before the deadline"):
            read_each(port, wanted, 10.0, time.monotonic() - 1)
        assert time.monotonic() - started_at < 5.0
        proxy.clear()
        assert len(read_each(port, wanted)) == NODES


# -- bytes -------------------------------------------------------------------------------------------------------------

STAT = struct.pack("!qqqqiiiqiiq", 11, 12, 13, 14, 1, 2, 3, 15, 5, 6, 16)
WANTED: list[Read] = [GetData("/a"), Exists("/b"), GetChildren("/c"), Exists("/d"), GetData("/e")]


def frame(xid: int, content: bytes, code: int = 0, zxid: int = 77) -> bytes:
    return struct.pack("!iiqi", 16 + len(content), xid, zxid, code) + content


ANSWERS = [
    frame(1, struct.pack("!i", 2) + b"xy" + STAT),
    frame(2, STAT),
    frame(3, struct.pack("!ii", 2, 1) + b"p" + struct.pack("!i", 2) + b"qq" + STAT),
    frame(4, b"", -101),
    frame(5, struct.pack("!i", -1) + STAT, zxid=80),
]
PING, EVENT = frame(-2, b""), frame(-1, b"event", zxid=-1)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 20, 21, 1000])
@pytest.mark.parametrize("between", [b"", PING, EVENT, PING + EVENT])
def test_answers_are_decoded_from_any_pieces_of_bytes_and_nothing_behind_them_is_asked_for(
    step: int, between: bytes
) -> None:
    piece = ReadPiece(WANTED, "", 5.0)
    piece.encode([1, 2, 3, 4, 5])
    whole = between.join([b"", *ANSWERS])
    at = 0
    others: list[int] = []
    while not piece.is_complete:
        missing = piece.missing_bytes()
        assert 1 <= missing <= len(whole) - at
        data = whole[at : at + min(step, missing)]
        at += len(data)
        others += [xid for xid, _ in piece.take(data)]
    assert at == len(whole)
    assert len(others) == 5 * (len(between) > 0) * (2 if len(between) > len(EVENT) else 1)
    stat = Stat(1, 2, 15, 11, 16, 12, 13)
    values = [(b"xy", stat), stat, (["p", "qq"], stat), None, (b"", stat)]
    assert piece.replies == [Reply(value, None, 5.0) for value in values]
    assert piece.last_zxid == 80


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (frame(2, b""), "request 2 is out of order"),
        (struct.pack("!ii", 4, 1), "an answer of 4 bytes"),
        (struct.pack("!ii", -5, 1), "an answer of -5 bytes"),
    ],
)
def test_bytes_that_are_no_answer_end_the_connection(answer: bytes, said: str) -> None:
    piece = ReadPiece(WANTED, "", 5.0)
    piece.encode([1, 2, 3, 4, 5])
    with pytest.raises(ConnectionDropped, match=said):
        list(piece.take(answer))
    lost = piece.outcome(ConnectionLoss())
    assert [(reply.value, reply.fault) for reply in lost] == [(None, Fault.CONNECTION_LOSS)] * 5


def test_an_answer_that_cannot_be_decoded_is_refused_on_its_own() -> None:
    piece = ReadPiece(WANTED[:2], "", 5.0)
    piece.encode([1, 2])
    list(piece.take(frame(1, struct.pack("!i", 50) + b"xy") + ANSWERS[1]))
    assert piece.replies[0].fault is Fault.OTHER
    assert piece.replies[0].reason.startswith("the answer cannot be decoded: ")
    assert piece.replies[1].fault is None


def test_a_tls_connection_without_more_data_waits_for_more() -> None:
    """What TLS has received may be no whole record yet: the bytes that came are kept, and kazoo waits again."""
    piece = ReadPiece(WANTED, "", 5.0)
    piece.encode([1, 2, 3, 4, 5])
    arriving: list[bytes | Exception] = [ssl.SSLWantReadError(), ANSWERS[0][:9], BlockingIOError(),
                                         ANSWERS[0][9:] + b"".join(ANSWERS[1:])]  # fmt: skip

    def receive(most: int) -> bytes:
        data = arriving.pop(0)
        if isinstance(data, Exception):
            raise data
        if len(data) > most:
            arriving.insert(0, data[most:])
        return data[:most]

    results: list[object] = []
    connection = KazooClient("127.0.0.1:1")._connection
    client = connection.client
    assert hook_reads(client)
    connection._socket = SimpleNamespace(recv=receive)
    client._pending.append((piece, SimpleNamespace(set=results.append), 1))
    while arriving:
        connection._read_socket(1.0)
    assert (len(results), len(piece.replies), len(client._pending)) == (1, 5, 0)
    assert client.last_zxid == 80
