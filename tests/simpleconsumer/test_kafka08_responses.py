"""Responses of every kind: what real brokers answered, and answers that do not fit what was asked."""

from __future__ import annotations

import struct
from collections.abc import Callable

import golden_frames
import pytest
from decoding import MEBIBYTE, memory_growth_below
from golden_frames import VERSIONS, answer
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka08 import requests as kafka08
from simpleconsumer.kafka08.requests import ProducedPartition
from simpleconsumer.primitives import encode_array, encode_bytes, encode_int32, encode_string
from simpleconsumer.types import (
    Broker,
    ClusterMetadata,
    FetchRequest,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionMetadata,
    TopicMetadata,
)

G_NONE = [("g-none", 0)]
WITH_COMMITS = ["0.8.1.1", "0.8.2.2", "0.10.2.2"]
WITH_COORDINATORS = ["0.8.2.2", "0.10.2.2"]
Decode = Callable[[bytes], object]


def produce_decoder(version: str, name: str) -> Decode:
    codec = name.split("-")[2]
    topic = f"{'n' if 'newproduce' in name else 'g'}-{codec}"
    return lambda body: kafka08.decode_produce(body, [(topic, 0)], 2 if version == "0.10.2.2" else 0)


def in_time(body: bytes) -> list[tuple[int, OffsetAndTimestamp]]:
    return kafka08.decode_offsets_for_times(body, [("m2-none", 0)])


def every_recorded_answer() -> list[tuple[str, str, Decode]]:
    """Return version, name and decoder of every recorded answer but the fetches."""
    found: list[tuple[str, str, Decode]] = []
    for version in VERSIONS:
        for name in golden_frames.names(version, r"java-(produce|second|newproduce)-.*-response"):
            found.append((version, name, produce_decoder(version, name)))
        for name in ("java-metadata-response", "hand-metadata-v0-response", "hand-metadata-v0-new-topic-response"):
            found.append((version, name, kafka08.decode_metadata))
        for name in ("java-offsets-latest-response", "hand-offsets-v0-latest-response"):
            found.append((version, name, lambda body: kafka08.decode_offsets(body, [("g-none", 0)])))
    for version in WITH_COMMITS:
        for name in ("hand-offset-fetch-v0-response", "hand-offset-fetch-v0-none-response"):
            found.append((version, name, lambda body: kafka08.decode_offset_fetch(body, G_NONE)))
        commit: Decode = lambda body: kafka08.decode_offset_commit(body, G_NONE)  # noqa: E731
        found.append((version, "hand-offset-commit-v0-response", commit))
    for version in WITH_COORDINATORS:
        found.append((version, "hand-consumer-metadata-v0-response", kafka08.decode_consumer_metadata))
    found += [("1.1.1", f"hand-offsets-v1-{name}response", in_time) for name in ("", "none-", "latest-")]
    found.append(("0.10.2.2", "hand-api-versions-v0-response", kafka08.decode_api_versions))
    return found


RECORDED = every_recorded_answer()


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_of_a_topic(version: str) -> None:
    for name in ("java-metadata-response", "hand-metadata-v0-response"):
        body = answer(version, name)
        port = struct.unpack_from(">i", body, 4 + 4 + 2 + len("127.0.0.1"))[0]
        partition = PartitionMetadata(0, leader=0, replicas=(0,), isr=(0,), error_code=0)
        assert kafka08.decode_metadata(body) == ClusterMetadata(
            {0: Broker(0, "127.0.0.1", port)}, {"g-none": TopicMetadata("g-none", 0, (partition,))}
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_of_a_topic_that_is_being_created(version: str) -> None:
    metadata = kafka08.decode_metadata(answer(version, "hand-metadata-v0-new-topic-response"))
    assert metadata.topics == {"auto-new": TopicMetadata("auto-new", 5, ())}
    assert list(metadata.brokers) == ([] if version in ("0.8.0", "0.8.1.1") else [0])


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_come_newest_first(version: str) -> None:
    for name in ("java-offsets-latest-response", "hand-offsets-v0-latest-response"):
        assert kafka08.decode_offsets(answer(version, name), [("g-none", 0)]) == [(0, [5, 0])]


def test_an_offset_by_time_comes_with_the_timestamp_of_its_message() -> None:
    found = {name: in_time(answer("1.1.1", f"hand-offsets-v1-{name}response")) for name in ("", "none-", "latest-")}
    assert found == {
        "": [(0, OffsetAndTimestamp(1, 1_500_000_000_002))],
        "none-": [(0, OffsetAndTimestamp(-1, -1))],
        "latest-": [(0, OffsetAndTimestamp(5, -1))],
    }


def test_a_broker_names_what_it_serves() -> None:
    code, served = kafka08.decode_api_versions(answer("0.10.2.2", "hand-api-versions-v0-response"))
    assert (code, len(served)) == (0, 21)
    assert (served[kafka08.FETCH], served[kafka08.OFFSETS], served[6]) == (range(4), range(2), range(4))


@pytest.mark.parametrize("version", WITH_COMMITS)
def test_commits_and_what_they_left(version: str) -> None:
    assert kafka08.decode_offset_commit(answer(version, "hand-offset-commit-v0-response"), G_NONE) == [0]
    none = kafka08.decode_offset_fetch(answer(version, "hand-offset-fetch-v0-none-response"), G_NONE)
    assert none == [(3, OffsetAndMetadata(-1, ""))]
    # ZooKeeper keeps the offset, not the metadata.
    stored = kafka08.decode_offset_fetch(answer(version, "hand-offset-fetch-v0-response"), G_NONE)
    assert stored == [(0, OffsetAndMetadata(3, ""))]


@pytest.mark.parametrize("version", WITH_COORDINATORS)
def test_the_first_question_for_a_coordinator_finds_none(version: str) -> None:
    body = answer(version, "hand-consumer-metadata-v0-response")
    assert kafka08.decode_consumer_metadata(body) == (15, Broker(-1, "", -1))


@pytest.mark.parametrize("version", VERSIONS)
def test_produced_sets_got_the_offsets_that_were_fetched_later(version: str) -> None:
    for name in golden_frames.names(version, r"java-(produce|second|newproduce)-.*-response"):
        base_offset = 3 if "second" in name else 0
        assert produce_decoder(version, name)(answer(version, name)) == [ProducedPartition(0, base_offset)]


@pytest.mark.parametrize(("version", "name", "decode"), RECORDED)
def test_an_answer_cut_anywhere_or_continued_does_not_decode(version: str, name: str, decode: Decode) -> None:
    body = answer(version, name)
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            decode(body[:length])
    with pytest.raises(DecodeError, match="1 bytes after its end"):
        decode(body + b"\0")


@pytest.mark.parametrize(("version", "name", "decode"), RECORDED)
def test_a_flipped_byte_gives_a_value_or_a_decode_error(version: str, name: str, decode: Decode) -> None:
    body = answer(version, name)
    with memory_growth_below(16 * MEBIBYTE):
        for position in range(len(body)):
            for mask in (0xFF, 0x01, 0x80):
                damaged = bytearray(body)
                damaged[position] ^= mask
                try:
                    assert decode(bytes(damaged)) is not None
                except DecodeError as error:
                    assert str(error)  # noqa: PT017 - one of two legal outcomes


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value_or_a_decode_error(body: bytes) -> None:
    decoders: list[Decode] = [
        kafka08.decode_metadata,
        kafka08.decode_consumer_metadata,
        lambda data: kafka08.decode_fetch(data, [FetchRequest("t", 0, 0, 1)]),
        lambda data: kafka08.decode_fetch(data, [FetchRequest("t", 0, 0, 1)], 2),
        lambda data: kafka08.decode_produce(data, [("t", 0)], 1),
        lambda data: kafka08.decode_offsets(data, [("t", 0)]),
        lambda data: kafka08.decode_offsets_for_times(data, [("t", 0)]),
        kafka08.decode_api_versions,
        lambda data: kafka08.decode_offset_commit(data, [("t", 0)]),
        lambda data: kafka08.decode_offset_fetch(data, [("t", 0)]),
    ]
    for decode in decoders:
        try:
            decode(body)
        except DecodeError as error:
            assert str(error)  # noqa: PT017 - one of two legal outcomes


# Answers that do not fit the question


def fetched(*topics: tuple[str, list[int]]) -> bytes:
    return encode_array(
        [
            encode_string(topic)
            + encode_array([struct.pack(">ihq", number, 0, 9) + encode_bytes(b"%d" % number) for number in numbers])
            for topic, numbers in topics
        ]
    )


def ask(*partitions: tuple[str, int]) -> list[FetchRequest]:
    return [FetchRequest(topic, number, 0, 100) for topic, number in partitions]


def test_results_come_in_the_order_asked_whatever_the_order_answered() -> None:
    body = fetched(("a", [5]), ("b", [0]), ("a", [1]))
    results = kafka08.decode_fetch(body, ask(("a", 1), ("b", 0), ("a", 5)))
    assert [(r.topic, r.partition, bytes(r.message_set)) for r in results] == [
        ("a", 1, b"1"),
        ("b", 0, b"0"),
        ("a", 5, b"5"),
    ]


def test_message_sets_are_views_of_the_answer() -> None:
    body = bytearray(fetched(("a", [7])))
    [result] = kafka08.decode_fetch(memoryview(body), ask(("a", 7)))
    body[-1:] = b"8"
    assert bytes(result.message_set) == b"8"


def test_brokers_of_kafka_3_have_null_for_messages_beside_an_error() -> None:
    beside = lambda code: encode_array(  # noqa: E731
        [encode_string("a") + encode_array([struct.pack(">ihqi", 0, code, -1, -1)])]
    )
    [result] = kafka08.decode_fetch(beside(76), ask(("a", 0)))
    assert (result.error_code, bytes(result.message_set)) == (76, b"")
    with pytest.raises(DecodeError, match="have length -1"):
        kafka08.decode_fetch(beside(0), ask(("a", 0)))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (fetched(("a", [0, 1])), "a/1 was not requested"),
        (fetched(("a", [0]), ("zz", [0])), "zz/0 was not requested"),
        (fetched(("a", [0, 0])), "a/0 appears twice"),
        (fetched(("a", [])), "a/0 and 0 more are missing"),
        (encode_int32(-1), "array at byte 0 says -1 items"),
        (encode_int32(2**31 - 1), "array at byte 0 says 2147483647 items"),
    ],
)
def test_answers_to_another_question_are_refused_by_name(body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        kafka08.decode_fetch(body, ask(("a", 0)))


def test_an_answer_without_partitions_is_that_to_a_throttled_client() -> None:
    """From Kafka 2.0 on; version 0 does not say for how long."""
    assert kafka08.decode_fetch(fetched(), ask(("a", 0))) == []
    assert kafka08.decode_fetch(encode_int32(250) + fetched(), ask(("a", 0)), 1) == []
    with pytest.raises(DecodeError, match="a/0 and 0 more are missing"):
        kafka08.decode_fetch(encode_int32(0) + fetched(), ask(("a", 0)), 1)


def test_a_message_set_that_claims_more_than_the_answer_holds() -> None:
    body = bytearray(fetched(("a", [0])))
    body[-5:-1] = (2**31 - 1).to_bytes(4)
    with pytest.raises(DecodeError, match=r"bytes at byte .* needs 2147483647 bytes, 1 are left"):
        kafka08.decode_fetch(body, ask(("a", 0)))


def test_throttle_times_are_first_in_fetch_and_last_in_produce() -> None:
    [result] = kafka08.decode_fetch(encode_int32(250) + fetched(("a", [0])), ask(("a", 0)), 1)
    assert result.high_watermark == 9
    produced = encode_array([encode_string("a") + encode_array([struct.pack(">ihq", 0, 0, 77)])])
    assert kafka08.decode_produce(produced + encode_int32(250), [("a", 0)], 1) == [ProducedPartition(0, 77)]
    stamped = encode_array([encode_string("a") + encode_array([struct.pack(">ihqq", 0, 0, 77, -1)])])
    assert kafka08.decode_produce(stamped + encode_int32(250), [("a", 0)], 2) == [ProducedPartition(0, 77)]


def test_a_partition_without_a_leader_says_so() -> None:
    row = struct.pack(">hii", 5, 3, -1) + encode_array([encode_int32(1)]) + encode_array([])
    body = encode_array([]) + encode_array([struct.pack(">h", 0) + encode_string("t") + encode_array([row])])
    assert kafka08.decode_metadata(body).topics["t"].partitions == (PartitionMetadata(3, None, (1,), (), 5),)


def test_metadata_of_a_commit_may_be_null() -> None:
    row = struct.pack(">iqhh", 0, 4, -1, 0)
    body = encode_array([encode_string("t") + encode_array([row])])
    assert kafka08.decode_offset_fetch(body, [("t", 0)]) == [(0, OffsetAndMetadata(4, ""))]
