"""The seam between a consumer and a generation of Kafka: what is asked of the dialect and what no caller assumes."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence

import pytest
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA08, dialect_of
from simpleconsumer.dialect_types import Request
from simpleconsumer.errors import MessageTooLarge
from simpleconsumer.kafka08.dialect import Kafka08
from simpleconsumer.types import Broker, FetchedPartition, FetchRequest, TopicPartition


def test_a_broker_names_its_dialect_and_stays_a_plain_tuple() -> None:
    broker = Broker(1, "a", 9092)
    assert dialect_of(broker) is KAFKA08
    sent = pickle.loads(pickle.dumps(broker._replace(fetch_version=2)))
    assert (sent, hash(sent)) == (broker._replace(fetch_version=2), hash(broker._replace(fetch_version=2)))
    assert dialect_of(sent) is KAFKA08


def test_an_unknown_generation_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"broker 1 is of the generation 'kafka99', not one of \['kafka08'\]"):
        dialect_of(Broker(1, "a", 9092, generation="kafka99"))


class Positions(Kafka08):
    """What is different in Kafka 0.7: no correlation ids, no metadata, partitions by name, and byte positions."""

    has_correlation_ids = False  # type: ignore[misc]
    has_metadata = False  # type: ignore[misc]

    def next_offset(self, offset: int) -> int:
        return offset

    def frame(self, request: Request[object], correlation_id: int, client_id: str) -> bytes:
        return struct.pack(">ih", len(request.body) + 2, request.api_key) + request.body

    def fetch(
        self, wanted: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int, version: int
    ) -> Request[list[FetchedPartition]]:
        [one] = wanted
        body = f"{one.topic} {one.partition} {one.offset}".encode()
        return Request(
            1, 0, body, lambda answer: [FetchedPartition(one.topic, one.partition, 0, -1, answer[2:])], True
        )

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int
    ) -> list[Request[list[tuple[int, list[int]]]]]:
        return [
            Request(4, 0, str(each.partition).encode(), lambda answer: [(0, [int(bytes(answer))])])
            for each in partitions
        ]


def sent(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_generation_without_correlation_ids_and_numbers_of_partitions_is_served() -> None:
    seen: list[bytes] = []

    def script(peer: Peer) -> None:
        for body in (b"100", b"200", b"\0\0tail"):
            seen.append(peer.request())
            peer.send(sent(body))

    with ScriptedBroker(script) as broker, SimpleConsumer("127.0.0.1", broker.port, 5.0, dialect=Positions()) as asked:
        partitions = [TopicPartition("t", "1-0"), TopicPartition("t", "1-1")]
        assert asked.multi_offsets_before(partitions, -1) == [(0, [100]), (0, [200])], "one request for each"
        [found] = asked.multifetch([FetchRequest("t", "1-0", 4711, 100)])
        assert (found.partition, bytes(found.message_set)) == ("1-0", b"tail")
        with pytest.raises(ValueError, match="cannot be asked for metadata"):
            asked.topic_metadata(["t"])
    assert seen == [b"\0\x041-0", b"\0\x041-1", b"\0\x01t 1-0 4711"]


def test_behind_a_message_is_where_the_dialect_says() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(sent(b"\0\0tail"))

    with (
        ScriptedBroker(script) as broker, SimpleConsumer("127.0.0.1", broker.port, 5.0, dialect=Positions()) as asked,
        pytest.raises(MessageTooLarge) as caught,
    ):  # fmt: skip
        asked.fetch("t", 0, 4711, 100)
    assert (caught.value.offset, caught.value.next_offset) == (4711, 4711)


def test_partitions_of_kafka_0_8_are_numbers() -> None:
    with pytest.raises(ValueError, match=r"t/1-0: partitions of Kafka 0\.8 are numbers"):
        KAFKA08.fetch([FetchRequest("t", "1-0", 0, 1)], 0, 0, 0)
    assert KAFKA08.partition_number(3) == 3
