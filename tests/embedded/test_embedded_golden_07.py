"""Requests recorded from Java clients of 0.7.2, replayed: the broker answers what the Java broker answered.

Run on the embedded broker, and on a real one where its jar is given. Brokers of 0.7 store sets as they are received, so
every byte is compared.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from broker_wire_07 import Wire07, entries, fetch_body, frame, golden, place, several
from kafka_07 import needs_jar_07

from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.kafka import KafkaCluster

PRODUCED = ("none", "gzip", "snappy", "random-partition", "gzip-2", "gzip-plain")
ENDS = {("g-none", 0): 46, ("g-none", 1): 12, ("g-gzip", 0): 147, ("g-gzip", 1): 51, ("g-snappy", 0): 74}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=[pytest.mark.real, needs_jar_07])])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """A broker to which the recorded produce requests were sent, in the recorded order."""
    made: EmbeddedCluster | KafkaCluster
    if request.param == "real":
        made = KafkaCluster("0.7.2")
    else:
        made = EmbeddedCluster(generation="0.7", zookeeper=False)
    with made as cluster:
        with Wire07(cluster.port(0)) as wire:
            for name in PRODUCED[:4]:
                wire.send(golden(f"java-produce-{name}-request"))
            wire.send(golden("java-multiproduce-request"))
            for name in PRODUCED[4:]:
                wire.send(golden(f"java-produce-{name}-request"))
            wire.send(golden("hand-produce-magic0-request"))
            wire.put("h-magic0", 0, entries(b"new"))
            wire.send(golden("hand-produce-nested-gzip-request"))
            for (topic, partition), end in ENDS.items():
                wire.wait_end(topic, partition, end)
        yield cluster.port(0)


@pytest.fixture
def wire(port: int) -> Iterator[Wire07]:
    with Wire07(port) as connection:
        yield connection


@pytest.mark.parametrize(
    "name",
    ["java-fetch-none", "java-fetch-gzip", "java-fetch-snappy", "java-multifetch", "java-offsets-latest",
     "java-offsets-earliest", "java-offsets-unknown-topic", "java-offsets-by-time-epoch1", "hand-fetch-magic0"],
)  # fmt: skip
def test_java_clients_are_answered_as_recorded(wire: Wire07, name: str) -> None:
    assert wire.ask(golden(f"{name}-request")) == golden(f"{name}-response")


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("nested-gzip", ("h-nested", 0, 0, 4096)),
        ("partial", ("g-none", 0, 0, 20)),
        ("too-small", ("g-none", 0, 0, 10)),
        ("at-end", ("g-none", 0, 46, 4096)),
        ("beyond-end", ("g-none", 0, 47, 4096)),
        ("negative-offset", ("g-none", 0, -1, 4096)),
        ("wrong-partition", ("g-none", 5, 0, 4096)),
        ("misaligned", ("g-none", 0, 3, 4096)),
        ("unknown-topic", ("no-such-topic", 0, 0, 4096)),
        ("unknown-topic-at-7", ("no-such-topic", 0, 7, 4096)),
        ("size-0", ("g-none", 0, 0, 0)),
    ],
)
def test_fetches_by_hand_are_answered_as_recorded(wire: Wire07, name: str, asked: tuple[str, int, int, int]) -> None:
    assert wire.ask(frame(1, fetch_body(*asked))) == golden(f"hand-fetch-{name}-response")


def test_a_multifetch_with_one_wrong_partition_answers_the_others(wire: Wire07) -> None:
    bodies = [fetch_body("g-none", 0, 0, 4096), fetch_body("g-none", 5, 0, 4096)]
    assert wire.ask(several(2, bodies)) == golden("hand-multifetch-with-one-wrong-response")
    assert [each.error for each in wire.get_several([*bodies, fetch_body("no-such", 0, 0)])] == [0, 3, 0]


def test_no_position_is_listed_where_none_is_asked_for(wire: Wire07) -> None:
    asked = frame(4, place("g-gzip", 0) + struct.pack(">qi", -1, 0))
    assert wire.ask(asked) == golden("hand-offsets-latest-max-0-response")


def test_a_random_partition_is_one_of_the_topic(wire: Wire07) -> None:
    stored = [wire.get("g-rand", number, 0).data for number in (0, 1)]
    assert sorted(stored) == [b"", entries(b"anywhere")]


@pytest.mark.parametrize(
    ("size", "answer"), [(-1, "000000010000"), (-100, "ffffff9e0000")], ids=["minus-1", "minus-100"]
)
def test_a_negative_fetch_size_is_answered_with_a_malformed_frame(wire: Wire07, size: int, answer: str) -> None:
    wire.send(frame(1, fetch_body("g-none", 0, 0, size)))
    assert wire._exactly(6).hex() == answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        frame(9, b""),
        frame(4, place("g-none", 5) + struct.pack(">qi", -1, 10)),
        frame(4, place("g-none", 0) + struct.pack(">qi", -1, -1)),
        frame(1, place("g-none", 0)),
        struct.pack(">i", 0),
        struct.pack(">i", -7),
        struct.pack(">i", 200 * 1024 * 1024),
        struct.pack(">ihh", 4, 2, -1),
    ],
    ids=["unknown-type", "offsets-wrong-partition", "offsets-negative-count", "cut-request", "no-size",
         "negative-size", "huge-size", "negative-count"],
)  # fmt: skip
def test_the_connection_is_closed_instead_of_an_answer(wire: Wire07, request_bytes: bytes) -> None:
    wire.send(request_bytes)
    assert wire.is_closed()
