"""Requests recorded from Java clients of 0.8.2.2, replayed: the embedded broker answers what the Java broker answered.

Compressed sets are repacked by the broker, and no two compressors write the same bytes, so of those answers the frame,
the offsets and every message inside are compared; of all others every byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from broker_wire import GOLDEN, Wire, fetch_request, golden, offsets_request, one, request, string, unpacked

from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4")
PACKED = CODECS[1:]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedCluster]:
    """A broker to which the recorded produce requests were sent, in the recorded order."""
    with EmbeddedCluster(1, zookeeper=False, settings={"num.partitions": 1}) as cluster:
        for codec in CODECS:
            cluster.create_topic(f"g-{codec}")
            cluster.create_topic(f"n-{codec}")
        yield cluster


@pytest.fixture(scope="module")
def produced(broker: EmbeddedCluster) -> dict[str, bytes]:
    """Name of the recording -> the embedded broker's answer."""
    with Wire(broker.port(0)) as wire:
        return {
            f"{kind}-{codec}": wire.ask(golden(f"java-{kind}-{codec}-request"))
            for codec in CODECS
            for kind in ("produce", "second", "newproduce")
        }


@pytest.fixture
def wire(broker: EmbeddedCluster, produced: dict[str, bytes]) -> Iterator[Wire]:
    with Wire(broker.port(0)) as connection:
        yield connection


def with_port(frame: bytes, port: int) -> bytes:
    """A recorded metadata answer, told of another port than that of the recording."""
    at = frame.index(b"127.0.0.1") + 9
    return frame[:at] + struct.pack(">i", port) + frame[at + 4 :]


def split_fetch(frame: bytes, topic: str) -> tuple[bytes, bytes]:
    """What stands before the length of the message set (size field left out), and the set."""
    at = 8 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8
    return frame[4:at], frame[at + 4 :]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["produce", "second", "newproduce"])
def test_java_producers_are_answered_as_recorded(produced: dict[str, bytes], kind: str, codec: str) -> None:
    assert produced[f"{kind}-{codec}"] == golden(f"java-{kind}-{codec}-response")


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_java_consumers_fetch_plain_messages_byte_for_byte(wire: Wire, offset: int) -> None:
    answer = wire.ask(golden(f"java-fetch-none-from-{offset}-request"))
    assert answer == golden(f"java-fetch-none-from-{offset}-response")


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_java_consumers_fetch_the_same_wrappers(wire: Wire, codec: str, offset: int) -> None:
    topic = f"g-{codec}"
    head, data = split_fetch(wire.ask(golden(f"java-fetch-{codec}-from-{offset}-request")), topic)
    recorded_head, recorded = split_fetch(golden(f"java-fetch-{codec}-from-{offset}-response"), topic)
    assert head == recorded_head
    assert unpacked(data, codec) == unpacked(recorded, codec)


def test_lz4_frames_begin_with_the_checksum_that_0_8_2_expects(wire: Wire) -> None:
    recorded = split_fetch(golden("java-fetch-lz4-from-0-response"), "g-lz4")[1]
    value_at = 12 + 14
    frame_header = recorded[value_at : value_at + 7]
    assert frame_header == bytes.fromhex("04224d1860401a")
    data = split_fetch(wire.ask(golden("java-fetch-lz4-from-0-request")), "g-lz4")[1]
    assert data[value_at : value_at + 7] == frame_header


@pytest.mark.parametrize(
    ("name", "topic", "offset", "max_bytes"),
    [
        ("g-none", "g-none", 0, 65536),
        ("n-none", "n-none", 0, 65536),
        ("partial", "g-none", 0, 40),
        ("too-small", "g-none", 0, 10),
        ("at-end", "g-none", 5, 65536),
        ("beyond-end", "g-none", 6, 65536),
        ("unknown-topic", "no-such", 0, 65536),
    ],
)
def test_fetches_by_hand_are_answered_byte_for_byte(
    wire: Wire, name: str, topic: str, offset: int, max_bytes: int
) -> None:
    answer = wire.ask(fetch_request(topic, 0, offset, max_bytes))
    assert answer == golden(f"hand-fetch-v0-{name}-response")


def test_the_recorded_request_for_forty_bytes_is_the_one_written_here() -> None:
    assert fetch_request("g-none", 0, 0, 40) == golden("hand-fetch-v0-partial-request")


@pytest.mark.parametrize(
    ("name", "topic", "codec", "offset"),
    [(f"{kind}-{codec}", f"{kind}-{codec}", codec, 0) for kind in "gn" for codec in PACKED]
    + [("g-gzip-from-1", "g-gzip", "gzip", 1)],
)
def test_wrappers_fetched_by_hand_hold_the_same(wire: Wire, name: str, topic: str, codec: str, offset: int) -> None:
    head, data = split_fetch(wire.ask(fetch_request(topic, 0, offset)), topic)
    recorded_head, recorded = split_fetch(golden(f"hand-fetch-v0-{name}-response"), topic)
    assert head == recorded_head
    assert unpacked(data, codec) == unpacked(recorded, codec)


def test_offsets_are_those_of_the_recording(wire: Wire) -> None:
    assert wire.ask(golden("java-offsets-latest-request")) == golden("java-offsets-latest-response")
    assert wire.ask(offsets_request("g-none", 0, -1, 10))[8:] == golden("hand-offsets-v0-latest-response")[8:]


def test_metadata_is_that_of_the_recording_but_for_the_port(wire: Wire, broker: EmbeddedCluster) -> None:
    port = broker.port(0)
    assert wire.ask(golden("java-metadata-request")) == with_port(golden("java-metadata-response"), port)
    assert wire.ask(golden("hand-metadata-v0-request")) == with_port(golden("hand-metadata-v0-response"), port)


def test_a_new_topic_is_first_answered_with_error_5_and_then_has_a_leader(wire: Wire, broker: EmbeddedCluster) -> None:
    ask = request(3, struct.pack(">i", 1) + string("auto-new"), correlation_id=8)
    assert wire.ask(ask) == with_port(golden("hand-metadata-v0-new-topic-response"), broker.port(0))
    expected = golden("hand-metadata-v0-response").replace(b"\0\6g-none", b"\0\10auto-new")
    wait_until(lambda: wire.ask(ask)[8:] == with_port(expected, broker.port(0))[8:], 10, "a leader of auto-new")


def test_offsets_are_committed_and_fetched_as_recorded(wire: Wire, broker: EmbeddedCluster) -> None:
    for name in ("offset-fetch-v0-none", "offset-commit-v0", "offset-fetch-v0"):
        assert wire.ask(golden(f"hand-{name}-request")) == golden(f"hand-{name}-response")
    assert broker.registry.committed_offset("gg", "g-none", 0) == 3


def test_the_coordinator_is_not_there_at_first_and_then_the_broker_itself(wire: Wire, broker: EmbeddedCluster) -> None:
    ask = golden("hand-consumer-metadata-v0-request")
    assert wire.ask(ask) == golden("hand-consumer-metadata-v0-response")
    expected = struct.pack(">hi", 0, 0) + string("127.0.0.1") + struct.pack(">i", broker.port(0))
    wait_until(lambda: wire.ask(ask)[8:] == expected, 10, "the broker to coordinate")


def test_api_versions_close_the_connection_as_they_did(wire: Wire) -> None:
    assert "api-versions-v0\t0 bytes" in (GOLDEN / "INDEX.txt").read_text()
    wire.send(request(18, b""))
    assert wire.is_closed()


def test_a_request_for_two_topics_is_answered_in_its_order(wire: Wire) -> None:
    head = struct.pack(">iii", -1, 0, 1)
    position = struct.pack(">qi", 0, 65536)
    topics = [string(topic) + struct.pack(">ii", 1, 0) + position for topic in ("n-none", "g-none")]
    answer = wire.ask(request(1, head + struct.pack(">i", 2) + b"".join(topics)))
    bodies = [golden(f"hand-fetch-v0-{topic}-response")[12:] for topic in ("n-none", "g-none")]
    assert answer[8:] == struct.pack(">i", 2) + b"".join(bodies)


def test_a_partition_that_does_not_exist_is_error_3(wire: Wire) -> None:
    answer = wire.ask(request(1, struct.pack(">iii", -1, 0, 1) + one("g-none", -1, struct.pack(">qi", 0, 100))))
    assert answer[-18:] == struct.pack(">ihqi", -1, 3, -1, 0)
