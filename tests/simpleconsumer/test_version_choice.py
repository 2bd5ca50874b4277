"""The version of a request is chosen for each connection: what the broker there says it serves."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokerError, ConnectionFailed, DecodeError, VersionNotServed
from simpleconsumer.messages import apis
from simpleconsumer.primitives import encode_array, encode_int16, encode_int32, encode_int64, encode_string
from simpleconsumer.types import TopicPartition

KAFKA_2 = {0: (0, 8), 1: (0, 11), 2: (0, 5), 3: (0, 8), 18: (0, 3)}
KAFKA_4 = {0: (0, 12), 1: (4, 17), 2: (1, 10), 3: (0, 13), 18: (0, 4)}


def consumer(broker: ScriptedBroker, timeout_s: float = 5.0) -> SimpleConsumer:
    return SimpleConsumer("127.0.0.1", broker.port, timeout_s, dialect=KAFKA011)


def versions(served: Mapping[int, tuple[int, int]]) -> bytes:
    rows = [struct.pack(">hhh", key, *bounds) for key, bounds in served.items()]
    return encode_int16(0) + encode_array(rows)


def head(request: bytes) -> tuple[int, int]:
    """Return key and version of a request without its size field."""
    key, version = struct.unpack_from(">hh", request)
    return key, version


def end_of_log(request: bytes, end: int) -> bytes:
    """Return the answer to a request for the end of t/0, in the version that was asked for."""
    version = head(request)[1]
    row = encode_int32(0) + encode_int16(0) + encode_int64(-1) + encode_int64(end)
    row += encode_int32(0) if version >= 4 else b""
    topics = encode_array([encode_string("t") + encode_array([row])])
    return (encode_int32(0) if version >= 2 else b"") + topics


class Serves:
    """A script: a broker that says what it serves and answers where t/0 ends, and closes after so many requests."""

    def __init__(self, served: Mapping[int, tuple[int, int]], requests: int) -> None:
        self.served = served
        self.requests = requests
        self.seen: list[tuple[int, int]] = []

    def __call__(self, peer: Peer) -> None:
        for _ in range(self.requests):
            request = peer.request()
            self.seen.append(head(request))
            peer.answer(versions(self.served) if head(request)[0] == 18 else end_of_log(request, 7), request)


def test_the_newest_version_that_both_have_is_sent_and_versions_are_asked_once_a_connection() -> None:
    script = Serves(KAFKA_2, 3)
    with ScriptedBroker(script) as broker, consumer(broker) as asked:
        assert asked.get_offsets_before("t", 0, LATEST) == [7]
        assert asked.get_offsets_before("t", 0, LATEST) == [7]
        assert asked.connects == 1
    assert script.seen == [(18, 0), (2, 5), (2, 5)]


def test_a_new_connection_asks_again_as_the_broker_may_be_another_one() -> None:
    newer, older = Serves(KAFKA_2, 2), Serves({**KAFKA_2, 2: (0, 2)}, 2)
    with ScriptedBroker(newer, older) as broker, consumer(broker) as asked:
        assert asked.get_offsets_before("t", 0, LATEST) == [7]
        assert asked.get_offsets_before("t", 0, LATEST) == [7]
    assert (newer.seen, older.seen) == ([(18, 0), (2, 5)], [(18, 0), (2, 2)])


def test_a_request_that_the_broker_does_not_serve_names_what_both_have() -> None:
    scripts = [Serves(KAFKA_4, 1), Serves(KAFKA_4, 1), Serves(KAFKA_4, 2)]
    with ScriptedBroker(*scripts) as broker, consumer(broker) as asked:
        with pytest.raises(VersionNotServed) as raised:
            asked.get_offsets_before("t", 0, 1_500_000_000_000)
        assert (raised.value.spoken, raised.value.served) == ((0,), (1, 10))
        assert str(raised.value) == (
            f"127.0.0.1:{broker.port}: this broker serves ListOffsets in the versions 1 to 10, "
            "and this client can send the request only in 0"
        )
        with pytest.raises(VersionNotServed, match=r"does not serve DeleteGroups \(this client speaks 0\)"):
            asked.delete_group("g")
        assert asked.get_offsets_before("t", 0, LATEST) == [7], "the consumer can be used as before"
    assert [key for script in scripts for key, _ in script.seen] == [18, 18, 18, 2], "nothing else was sent"


def test_what_is_served_can_be_asked_for() -> None:
    script = Serves(KAFKA_4, 1)

    def stays(peer: Peer) -> None:
        script(peer)
        peer.wait_for_the_end()

    with ScriptedBroker(stays) as broker, consumer(broker) as asked:
        served = asked.served_versions()
        assert served[apis.PRODUCE.key] == range(3, 13), "Kafka 4 says 0 to 12"
        assert KAFKA011.newest_magic(served) == 2
        assert asked.served_versions() == served
    assert script.seen == [(18, 0)]


def test_versions_count_for_the_deadline_of_the_call() -> None:
    """A broker of Kafka 0.9 never answers the question for its versions."""

    def silent(peer: Peer) -> None:
        peer.request()
        peer.stall()

    with ScriptedBroker(silent) as broker, consumer(broker, 0.3) as asked:
        with pytest.raises(ConnectionFailed, match=r"no answer within 0\.3 s") as raised:
            asked.get_offsets_before("t", 0, LATEST)
        assert not raised.value.is_sent, "the request itself was not"


def test_a_broker_that_closes_on_the_question_is_a_failed_connection() -> None:
    """As one of Kafka 0.8 does."""

    def closes(peer: Peer) -> None:
        peer.request()

    with (
        ScriptedBroker(closes) as broker,
        consumer(broker) as asked,
        pytest.raises(ConnectionFailed, match="closed by the broker"),
    ):
        asked.get_offsets_before("t", 0, LATEST)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (encode_int16(35) + encode_array([]), BrokerError, "UnsupportedVersion"),
        (encode_int16(0) + encode_int32(1_000_000), DecodeError, "says 1000000 items"),
        (b"\0", DecodeError, "int16 at byte 0"),
    ],
)
def test_an_answer_without_versions_fails_the_call(body: bytes, error: type[Exception], words: str) -> None:
    def script(peer: Peer) -> None:
        peer.answer(body, peer.request())
        peer.stall()

    with ScriptedBroker(script) as broker, consumer(broker) as asked, pytest.raises(error, match=words):
        asked.get_offsets_before("t", 0, LATEST)


def test_a_produce_without_acknowledgement_is_sent_behind_the_question() -> None:
    seen: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.answer(versions(KAFKA_2), peer.request())
        seen.append(peer.request())

    with ScriptedBroker(script) as broker, consumer(broker) as asked:
        asked.produce_sets({TopicPartition("t", 0): bytes(16) + b"\2"}, acks=0)
    assert [head(each) for each in seen] == [(0, 8)]
