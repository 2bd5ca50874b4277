"""A connection that is lost during an authentication of Kafka before 1.0: a refusal, or a broker that has died."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer import AuthenticationFailed, ConnectionFailed, SimpleConsumer
from simpleconsumer.connection import Connection
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.security import Security, authentication
from simpleconsumer.security.authentication import PAUSES_S, Authentication, Exchange, in_tries
from simpleconsumer.security.sasl import SaslLost, SaslRefused
from zkconsumer.testing import KafkaCluster
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 20.0
SLOW = pytest.mark.slow
VERSIONS_OF_0_10 = struct.pack(">hi", 0, 3) + b"".join(struct.pack(">hhh", key, 0, 0) for key in (3, 17, 18))
HANDSHAKE = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
TRIES = len(PAUSES_S) + 1


def plain(password: str = "secret-of-alice", mechanism: str = "PLAIN") -> Security:
    return Security.of({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": "alice",
        "sasl.password": password,
    })  # fmt: skip


def up_to_the_token(peer: Peer) -> None:
    peer.answer(VERSIONS_OF_0_10, peer.request())
    peer.answer(HANDSHAKE, peer.request())
    peer.request()


def lets_in(peer: Peer) -> None:
    up_to_the_token(peer)
    peer.send(bytes(4))
    peer.stall()


def opened(port: int, timeout_s: float = DEADLINE_S) -> Connection:
    connection = Connection("127.0.0.1", port, timeout_s, security=plain())
    try:
        connection.call(b"", has_answer=False)
    finally:
        connection.close()
    return connection


def test_a_user_is_refused_whose_connection_is_closed_in_every_try() -> None:
    started_at = time.monotonic()
    with ScriptedBroker(*[up_to_the_token] * TRIES) as broker, pytest.raises(AuthenticationFailed) as refused:
        opened(broker.port)
    assert time.monotonic() - started_at >= sum(PAUSES_S), "there is a pause before each further try"
    assert refused.value.reason == (
        "the broker closed the connection during the authentication 3 times in a row, which brokers before Kafka 1.0 "
        "do if user or password is wrong"
    )
    assert broker.connections == TRIES


def test_a_connection_that_is_lost_once_is_made_again() -> None:
    with ScriptedBroker(up_to_the_token, lets_in) as broker:
        assert opened(broker.port).connects == 2


def test_a_broker_that_takes_no_connection_any_more_has_refused_nobody() -> None:
    with ScriptedBroker(up_to_the_token) as broker:

        def dies(peer: Peer) -> None:
            up_to_the_token(peer)
            broker.refuse()

        broker._scripts = (dies,)
        with pytest.raises(ConnectionFailed) as lost:
            opened(broker.port)
    assert "refused" in lost.value.reason
    assert not lost.value.is_sent


def test_no_try_begins_behind_the_deadline() -> None:
    made: list[int] = []

    def attempt() -> None:
        made.append(1)
        raise SaslLost

    with pytest.raises(SaslRefused, match="during the authentication, which brokers before"):
        in_tries(attempt, time.monotonic() + PAUSES_S[0] / 2, lambda seconds: False)
    assert len(made) == 1


def test_close_ends_the_pause_between_two_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "PAUSES_S", (DEADLINE_S,))
    with ScriptedBroker(up_to_the_token) as broker:
        connection = Connection("127.0.0.1", broker.port, 3 * DEADLINE_S, security=plain())
        failures: list[ConnectionFailed] = []

        def call() -> None:
            try:
                connection.call(b"", has_answer=False)
            except ConnectionFailed as error:
                failures.append(error)

        started_at = time.monotonic()
        calling = threading.Thread(target=call)
        calling.start()
        wait_until(lambda: broker.served == 1, DEADLINE_S, "the connection to be closed by the broker")
        connection.close()
        calling.join(DEADLINE_S)
        assert time.monotonic() - started_at < DEADLINE_S
        assert [each.reason for each in failures] == ["closed by close()"]


# -- real brokers of 0.10.2.2 ------------------------------------------------------------------------------------------

Secured = Callable[[str], KafkaCluster]


@pytest.fixture
def at_the_token(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a client has the answer to its handshake, and is about to send its token."""
    reached = threading.Event()
    say = Authentication._say

    def observed(self: Authentication, exchange: Exchange, token: bytes) -> tuple[bytes, int]:
        reached.set()
        return say(self, exchange, token)

    monkeypatch.setattr(Authentication, "_say", observed)
    return reached


@contextmanager
def stalled_at_the_token(
    cluster: KafkaCluster, at_the_token: threading.Event, then: Callable[[TcpProxy], object]
) -> Iterator[TcpProxy]:
    """A way to a broker that answers the handshake of the next connection, stalls at its token, and then ..."""
    port = int(cluster.addresses("SASL_PLAINTEXT").rpartition(":")[2])
    with TcpProxy(("127.0.0.1", port)) as proxy:
        opened(proxy.port)
        proxy.stall_after(proxy.moved_bytes("down") - 4)  # the broker's own token is empty
        at_the_token.clear()
        acting = threading.Thread(target=lambda: at_the_token.wait(DEADLINE_S) and then(proxy))
        acting.start()
        yield proxy
        acting.join(DEADLINE_S)


@SLOW
@pytest.mark.real
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_real_brokers_refuse_a_wrong_password_and_take_the_right_one(mechanism: str, secured_clusters: Secured) -> None:
    port = int(secured_clusters("0.10.2.2").addresses("SASL_PLAINTEXT").rpartition(":")[2])
    for password in ("secret-of-alice", "wrong"):
        security = plain(password, mechanism)
        with SimpleConsumer("127.0.0.1", port, DEADLINE_S, dialect=KAFKA011, security=security) as consumer:
            if password == "wrong":
                with pytest.raises(AuthenticationFailed, match="3 times in a row"):
                    consumer.all_topic_metadata()
                assert consumer.connects == TRIES
            else:
                assert consumer.all_topic_metadata().brokers
                assert consumer.connects == 1


@SLOW
@pytest.mark.real
def test_a_connection_to_a_real_broker_that_is_cut_at_the_token_is_made_again(
    secured_clusters: Secured, at_the_token: threading.Event
) -> None:
    def cut_once(proxy: TcpProxy) -> None:
        proxy.clear()
        proxy.drop()

    with stalled_at_the_token(secured_clusters("0.10.2.2"), at_the_token, cut_once) as proxy:
        assert opened(proxy.port).connects == 2


@SLOW
@pytest.mark.real
def test_a_real_broker_that_is_gone_at_the_token_has_refused_nobody(
    secured_clusters: Secured, at_the_token: threading.Event
) -> None:
    with (
        stalled_at_the_token(secured_clusters("0.10.2.2"), at_the_token, TcpProxy.cut) as proxy,
        pytest.raises(ConnectionFailed, match="Connection refused"),
    ):
        opened(proxy.port)
