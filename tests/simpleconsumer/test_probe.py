"""A broker of which only the address is known shows its age by what it answers first, or by closing the connection."""

from __future__ import annotations

import socket
import struct

import pytest
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer.errors import ConnectionFailed, DecodeError
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import Broker

VERSIONS_BODY = struct.pack(">hihhh", 0, 1, 18, 0, 3)
NO_GROUPS = struct.pack(">i", 0)
NO_METADATA = struct.pack(">ii", 0, 0)
DEADLINE_S = 5.0


def probe(*scripts: object, timeout_s: float = DEADLINE_S) -> Broker:
    with ScriptedBroker(*scripts) as broker:  # type: ignore[arg-type]
        return probed_broker("127.0.0.1", broker.port, timeout_s)._replace(port=0)


def asks_for(peer: Peer, *keys: int) -> list[bytes]:
    """Return the next requests; they must be of these APIs, in version 0."""
    requests = [peer.request() for _ in keys]
    assert [struct.unpack_from(">hh", request) for request in requests] == [(key, 0) for key in keys]
    return requests


def test_one_that_lists_its_versions_is_of_0_10_or_later() -> None:
    def script(peer: Peer) -> None:
        versions, groups = asks_for(peer, 18, 15)
        peer.answer(VERSIONS_BODY, versions)
        peer.answer(NO_GROUPS, groups)

    assert probe(script) == Broker(-1, "127.0.0.1", 0, 2, "kafka011", 2)


def test_one_that_answers_the_second_question_alone_is_of_0_9() -> None:
    def script(peer: Peer) -> None:
        _, groups = asks_for(peer, 18, 15)
        peer.answer(NO_GROUPS, groups)

    assert probe(script) == Broker(-1, "127.0.0.1", 0, 0, "kafka08", 2)


def test_one_that_closes_and_answers_the_second_question_alone_is_of_0_8() -> None:
    def closes(peer: Peer) -> None:
        asks_for(peer, 18)

    def answers(peer: Peer) -> None:
        [metadata] = asks_for(peer, 3)
        peer.answer(NO_METADATA, metadata)

    assert probe(closes, answers) == Broker(-1, "127.0.0.1", 0, 0, "kafka08", 1)


def test_what_closes_on_every_question_is_no_broker_of_0_8() -> None:
    def closes(peer: Peer) -> None:
        asks_for(peer, 18)

    def closes_again(peer: Peer) -> None:
        asks_for(peer, 3)

    with pytest.raises(ConnectionFailed, match="closed by the broker"):
        probe(closes, closes_again)


def test_silence_is_no_sign_of_an_age() -> None:
    def silent(peer: Peer) -> None:
        asks_for(peer, 18, 15)
        peer.stall()

    with pytest.raises(ConnectionFailed, match=r"no answer within 0\.3 s"):
        probe(silent, timeout_s=0.3)


@pytest.mark.parametrize(("body", "words"), [(b"\0\0\0\7rest", "answer to request 7"), (b"\0", "too short")])
def test_other_answers_are_refused(body: bytes, words: str) -> None:
    def script(peer: Peer) -> None:
        asks_for(peer, 18, 15)
        peer.send(struct.pack(">i", len(body)) + body)
        peer.stall()

    with pytest.raises(DecodeError, match=words):
        probe(script)


def test_nothing_at_the_address_is_a_failed_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectionFailed) as raised:
        probed_broker("127.0.0.1", port, DEADLINE_S)
    assert not raised.value.is_sent
