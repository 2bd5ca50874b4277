"""Requests of Kafka 0.8 and later: byte for byte as in the protocol and as Kafka's own clients sent them."""

from __future__ import annotations

import struct

import golden_frames
import pytest
from decoding import decode_simply
from golden_frames import VERSIONS

from simpleconsumer.codecs import CODECS
from simpleconsumer.kafka08 import requests as kafka08
from simpleconsumer.kafka08.message_encode import encode_message_set
from simpleconsumer.kafka08.requests import frame_request
from simpleconsumer.types import FetchRequest, Message, OffsetAndMetadata

LATEST, EARLIEST = -1, -2


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(
    ("api_key", "version", "body", "expected"),
    [
        (
            kafka08.FETCH, 0, kafka08.encode_fetch([FetchRequest("test", 0, 0, 1 << 20)], 100, 1),
            "00000035 0001 0000 00000001 0001 63 ffffffff 00000064 00000001 00000001 0004 74657374 00000001 00000000"
            "0000000000000000 00100000",
        ),
        (
            kafka08.OFFSETS, 0, kafka08.encode_offsets([("test", 0)], EARLIEST, 1),
            "0000002d 0002 0000 00000001 0001 63 ffffffff 00000001 0004 74657374 00000001 00000000 fffffffffffffffe"
            "00000001",
        ),
        (
            kafka08.METADATA, 0, kafka08.encode_metadata(["test"]),
            "00000015 0003 0000 00000001 0001 63 00000001 0004 74657374",
        ),
        (
            kafka08.OFFSET_COMMIT, 0, kafka08.encode_offset_commit("g", {("test", 0): OffsetAndMetadata(5)}, 0),
            "0000002a 0008 0000 00000001 0001 63 0001 67 00000001 0004 74657374 00000001 00000000 0000000000000005"
            "0000",
        ),
        (
            kafka08.OFFSET_COMMIT, 1, kafka08.encode_offset_commit("g", {("test", 0): OffsetAndMetadata(5)}, 1),
            "00000038 0008 0001 00000001 0001 63 0001 67 ffffffff 0000 00000001 0004 74657374 00000001 00000000"
            "0000000000000005 ffffffffffffffff 0000",
        ),
        (
            kafka08.OFFSET_COMMIT, 2, kafka08.encode_offset_commit("g", {("test", 0): OffsetAndMetadata(5)}, 2),
            "00000038 0008 0002 00000001 0001 63 0001 67 ffffffff 0000 ffffffffffffffff 00000001 0004 74657374 00000001"
            "00000000 0000000000000005 0000",
        ),
        (
            kafka08.OFFSET_FETCH, 1, kafka08.encode_offset_fetch("g", [("test", 0)]),
            "00000020 0009 0001 00000001 0001 63 0001 67 00000001 0004 74657374 00000001 00000000",
        ),
        (
            kafka08.CONSUMER_METADATA, 0, kafka08.encode_consumer_metadata("g"),
            "0000000e 000a 0000 00000001 0001 63 0001 67",
        ),
        (
            kafka08.OFFSETS, 1, kafka08.encode_offsets_for_times({("t", 0): LATEST}),
            "00000026 0002 0001 00000001 0001 63 ffffffff 00000001 0001 74 00000001 00000000 ffffffffffffffff",
        ),
        (kafka08.API_VERSIONS, 0, b"", "0000000b 0012 0000 00000001 0001 63"),
    ],
    ids=["fetch", "offsets", "metadata", "commit-0", "commit-1", "commit-2", "offset-fetch", "consumer-metadata",
         "offsets-1", "api-versions"],
)  # fmt: skip
def test_conformance_vectors(api_key: int, version: int, body: bytes, expected: str) -> None:
    assert frame_request(api_key, version, 1, "c", body) == hexadecimal(expected)


def test_the_one_message_hello_in_both_magics() -> None:
    assert encode_message_set([b"hello"]) == hexadecimal(
        "0000000000000000 00000013 87a77ab2 00 00 ffffffff 00000005 68656c6c6f"
    )
    assert encode_message_set([b"hello"], magic=1, timestamp_ms=1) == hexadecimal(
        "0000000000000000 0000001b 24a856b3 01 00 0000000000000001 ffffffff 00000005 68656c6c6f"
    )


# What Kafka's own clients sent


@pytest.mark.parametrize(
    ("version", "name"), [(v, n) for v in VERSIONS for n in golden_frames.names(v, "java-fetch-.*-request")]
)
def test_fetch_requests_of_the_java_client(version: str, name: str) -> None:
    _, _, codec, _, offset, _ = name.split("-")
    request = FetchRequest(f"g-{codec}", 0, int(offset), 65536)
    api_version = 3 if version == "0.10.2.2" else 0
    body = kafka08.encode_fetch([request], 100, 1, api_version)
    assert frame_request(kafka08.FETCH, api_version, 0, "golden", body) == golden_frames.frame(version, name)


def test_the_question_for_a_time_that_a_broker_answered() -> None:
    body = kafka08.encode_offsets_for_times({("m2-none", 0): 1_500_000_000_002})
    assert frame_request(kafka08.OFFSETS, 1, 1, "c", body) == golden_frames.frame("1.1.1", "hand-offsets-v1-request")


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_and_metadata_requests_of_the_java_client(version: str) -> None:
    offsets = kafka08.encode_offsets([("g-none", 0)], LATEST, 10)
    assert frame_request(kafka08.OFFSETS, 0, 0, "golden", offsets) == golden_frames.frame(
        version, "java-offsets-latest-request"
    )
    metadata = frame_request(kafka08.METADATA, 0, 0, "", kafka08.encode_metadata(["g-none"]))
    assert metadata == golden_frames.frame(version, "java-metadata-request")


@pytest.mark.parametrize(
    ("version", "name"), [(v, n) for v in VERSIONS for n in golden_frames.names(v, "java-(new)?produce-.*-request")]
)
def test_produce_requests_of_the_java_clients(version: str, name: str) -> None:
    """Everything but the bytes of the compressors is equal, and those inflate to the same messages."""
    recorded = golden_frames.frame(version, name)
    _, producer, codec, _ = name.split("-")
    api_version, magic = (2, 1) if version == "0.10.2.2" else (0, 0)
    assert struct.unpack_from(">hh", recorded, 4) == (kafka08.PRODUCE, api_version)
    (client_length,) = struct.unpack_from(">h", recorded, 12)
    client_id = recorded[14 : 14 + client_length].decode()
    acks, timeout_ms = struct.unpack_from(">hi", recorded, 14 + client_length)
    (correlation_id,) = struct.unpack_from(">i", recorded, 8)
    topic = f"{'n' if producer == 'newproduce' else 'g'}-{codec}"
    [before, _] = kafka08.encode_produce({(topic, 0): b""}, acks, timeout_ms)
    head = len(frame_request(0, api_version, 0, client_id, before))
    sent = recorded[head:]

    ours = b"".join(kafka08.encode_produce({(topic, 0): sent}, acks, timeout_ms))
    assert frame_request(kafka08.PRODUCE, api_version, correlation_id, client_id, ours) == recorded

    messages = decode_simply(sent)  # producers leave offsets to the broker: some send the same one for all
    assert [(m.key, m.value) for m in messages] == list(zip(golden_frames.KEYS, golden_frames.VALUES, strict=True))[:3]
    again = encode_message_set(messages, codec, magic, offsets=[m.offset for m in messages])
    if codec == "none":
        assert again == sent
    else:
        attributes_end = 18
        assert again[16:attributes_end] == sent[16:attributes_end]
        assert sent[17] & 7 == CODECS[codec]
        assert [(m.key, m.value) for m in decode_simply(again)] == [(m.key, m.value) for m in messages]
        # The new producer of 0.8.2 leaves 0 in all messages inside; the broker assigns offsets anyway.
        assert sent[:8] == struct.pack(">q", 2)
        assert again[:8] == struct.pack(">q", messages[-1].offset)
        assert messages[-1].offset == (0 if producer == "newproduce" and version == "0.8.2.2" else 2)
        assert magic == 0 or again[18:26] == sent[18:26], "the timestamp of the wrapper"


def test_lz4_frames_begin_as_the_java_producers_write_them() -> None:
    for version, name, magic in (
        ("0.8.2.2", "java-produce-lz4", 0),
        ("0.8.2.2", "java-newproduce-lz4", 0),
        ("0.10.2.2", "java-newproduce-lz4", 1),
    ):
        ours = encode_message_set([b"hello"], "lz4", magic)
        start = ours.index(bytes.fromhex("04224d18"))
        assert ours[start : start + 7] in golden_frames.frame(version, f"{name}-request")


def test_snappy_streams_begin_as_the_java_producers_write_them() -> None:
    ours = encode_message_set([b"hello"], "snappy")
    header = ours[ours.index(b"\x82SNAPPY") :][:16]
    for version in VERSIONS:
        assert header in golden_frames.frame(version, "java-produce-snappy-request")


@pytest.mark.parametrize("version", ["0.8.1.1", "0.8.2.2", "0.10.2.2"])
def test_requests_that_brokers_were_seen_to_understand(version: str) -> None:
    commit = kafka08.encode_offset_commit("gg", {("g-none", 0): OffsetAndMetadata(3, "meta")})
    assert frame_request(8, 0, 11, "c", commit) == golden_frames.frame(version, "hand-offset-commit-v0-request")
    fetch = kafka08.encode_offset_fetch("gg", [("g-none", 0)])
    assert frame_request(9, 0, 12, "c", fetch) == golden_frames.frame(version, "hand-offset-fetch-v0-request")
    partial = kafka08.encode_fetch([FetchRequest("g-none", 0, 0, 40)], 100, 1)
    assert frame_request(1, 0, 7, "c", partial) == golden_frames.frame(version, "hand-fetch-v0-partial-request")
    metadata = kafka08.encode_metadata(["g-none"])
    assert frame_request(3, 0, 8, "c", metadata) == golden_frames.frame(version, "hand-metadata-v0-request")


# Grouping and refusals


def test_partitions_are_grouped_by_topic_in_the_order_of_first_mention() -> None:
    requests = [FetchRequest("b", 1, 10, 100), FetchRequest("a", 0, 20, 200), FetchRequest("b", 0, 30, 300)]
    assert kafka08.encode_fetch(requests, 0, 0)[12:] == hexadecimal(
        "00000002"
        "0001 62 00000002  00000001 000000000000000a 00000064  00000000 000000000000001e 0000012c"
        "0001 61 00000001  00000000 0000000000000014 000000c8"
    )


@pytest.mark.parametrize(("api_key", "newest"), kafka08.NEWEST_VERSION.items())
def test_versions_that_are_not_spoken_are_refused(api_key: int, newest: int) -> None:
    frame_request(api_key, newest, 1, "c", b"")
    for version in (-1, newest + 1):
        with pytest.raises(ValueError, match=f"version {version} of API {api_key} is not supported; 0 to {newest} are"):
            frame_request(api_key, version, 1, "c", b"")


def test_timestamps_go_out_with_magic_1() -> None:
    message = Message("t", 0, 0, 1, b"k", b"v", 1400000000001)
    [again] = decode_simply(encode_message_set([message], magic=1))
    assert again == message
