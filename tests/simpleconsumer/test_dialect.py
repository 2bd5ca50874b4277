"""The seam between a consumer and a generation of Kafka: what is asked of the dialect and what no caller assumes."""

from __future__ import annotations

import pickle
import struct

import pytest
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA07, KAFKA08, dialect_of
from simpleconsumer.errors import NoSuchRequest
from simpleconsumer.types import Broker, FetchRequest, TopicPartition


def test_a_broker_names_its_dialect_and_stays_a_plain_tuple() -> None:
    broker = Broker(1, "a", 9092)
    assert dialect_of(broker) is KAFKA08
    sent = pickle.loads(pickle.dumps(broker._replace(fetch_version=2)))
    assert (sent, hash(sent)) == (broker._replace(fetch_version=2), hash(broker._replace(fetch_version=2)))
    assert dialect_of(sent) is KAFKA08
    assert dialect_of(broker._replace(generation="kafka07")) is KAFKA07


def test_an_unknown_generation_is_refused_by_name() -> None:
    reason = r"broker 1 is of the generation 'kafka99', not one of \['kafka07', 'kafka08', 'kafka011'\]"
    with pytest.raises(ValueError, match=reason):
        dialect_of(Broker(1, "a", 9092, generation="kafka99"))


def sent(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_generation_without_correlation_ids_and_numbers_of_partitions_is_served() -> None:
    seen: list[bytes] = []

    def script(peer: Peer) -> None:
        for body in (struct.pack(">hiq", 0, 1, 100), struct.pack(">hiq", 0, 1, 200), b"\0\0tail"):
            seen.append(peer.request())
            peer.send(sent(body))

    with ScriptedBroker(script) as broker, SimpleConsumer("127.0.0.1", broker.port, 5.0, dialect=KAFKA07) as asked:
        partitions = [TopicPartition("t", "1-0"), TopicPartition("t", "1-1")]
        assert asked.multi_offsets_before(partitions, -1) == [(0, [100]), (0, [200])], "one request for each"
        [found] = asked.multifetch([FetchRequest("t", "1-0", 4711, 100)])
        assert (found.partition, bytes(found.message_set)) == ("1-0", b"tail")
        with pytest.raises(NoSuchRequest, match="no request for metadata"):
            asked.topic_metadata(["t"])
    assert seen == [
        struct.pack(">hh1siqi", 4, 1, b"t", 0, -1, 1),
        struct.pack(">hh1siqi", 4, 1, b"t", 1, -1, 1),
        struct.pack(">hh1siqi", 1, 1, b"t", 0, 4711, 100),
    ]


def test_partitions_of_kafka_0_8_are_numbers() -> None:
    with pytest.raises(ValueError, match=r"t/1-0: partitions of Kafka 0\.8 and later are numbers"):
        KAFKA08.fetch([FetchRequest("t", "1-0", 0, 1)], 0, 0, 0)
    assert KAFKA08.partition_number(3) == 3
