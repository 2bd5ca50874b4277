"""Requests of Kafka 0.10.0 and later in every version: what brokers got and answered, and answers that are broken."""

from __future__ import annotations

import struct
from typing import Any

import golden_apis
import pytest
from decoding import MEBIBYTE, memory_growth_below
from golden_apis import ONE, VERSIONS, ZERO, Frames

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import DecodeError
from simpleconsumer.messages import apis
from simpleconsumer.types import (
    AbortedTransaction,
    ClusterMetadata,
    EpochEnd,
    FetchedPartition,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ProducedPartition,
    ProducerId,
)

EVERY = golden_apis.every()
CLIENT_IDS = {"ApiVersions-v0", "SaslAuthenticate-v0-scram256-1", "SaslAuthenticate-v0-scram256-2"}
"""Requests with another client id."""


def decoded(pattern: str, kafka: str = "2.8.2") -> dict[int, object]:
    """Return the answers of one broker to a request, by version."""
    found = {each.version: each.decoded() for each in golden_apis.of_name(pattern) if each.kafka == kafka}
    assert found, f"no frames of {pattern}"
    return found


@pytest.mark.parametrize("each", EVERY, ids=str)
def test_requests_are_what_brokers_have_answered(each: Frames) -> None:
    correlation_id = struct.unpack_from(">i", each.request, 8)[0]
    client_id = str(each.request[14 : 14 + each.request[13]], "ascii")
    assert (client_id == "golden") == (each.name not in CLIENT_IDS)
    frame = KAFKA011.frame(each.asked, correlation_id, client_id)
    assert b"".join((frame, *each.asked.tail)) == each.request


def test_each_version_that_is_spoken_has_been_recorded() -> None:
    recorded = {(each.asked.api_key, each.version) for each in EVERY}
    spoken = {(api.key, version) for api in apis.APIS.values() for version in api.versions}
    needs_sasl = {(apis.SASL_HANDSHAKE.key, 0), (apis.SASL_AUTHENTICATE.key, 1)}
    assert spoken - recorded == needs_sasl


@pytest.mark.parametrize("each", EVERY, ids=str)
def test_an_answer_cut_anywhere_or_continued_does_not_decode(each: Frames) -> None:
    body, decode = each.answer, each.asked.decode
    decode(memoryview(body))
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            decode(memoryview(body[:length]))
    with pytest.raises(DecodeError, match="1 bytes after its end"):
        decode(memoryview(body + b"\0"))


@pytest.mark.parametrize("each", EVERY, ids=str)
def test_a_flipped_byte_gives_a_value_or_a_decode_error(each: Frames) -> None:
    body, decode = each.answer, each.asked.decode
    with memory_growth_below(16 * MEBIBYTE):
        for position in range(len(body)):
            for mask in (0xFF, 0x01, 0x80):
                damaged = bytearray(body)
                damaged[position] ^= mask
                try:
                    decode(memoryview(damaged))
                except DecodeError:
                    continue


@pytest.mark.parametrize("kafka", VERSIONS)
def test_a_broker_names_what_it_serves(kafka: str) -> None:
    [frames] = [each for each in EVERY if each.kafka == kafka and each.name == "ApiVersions-v0"]
    code, served = frames.decoded()
    assert code == 0
    assert (served[apis.FETCH.key], served[apis.PRODUCE.key], served[apis.METADATA.key]) == {
        "0.10.2.2": (range(4), range(3), range(3)),
        "1.1.1": (range(8), range(6), range(6)),
        "2.8.2": (range(13), range(10), range(12)),
        "3.9.2": (range(18), range(12), range(13)),
        "4.3.1": (range(4, 19), range(3, 14), range(14)),  # of Produce it says 0 to 13
    }[kafka]


def test_metadata_tells_more_from_version_to_version() -> None:
    by_version = decoded(r"Metadata-v\d+")
    for version, metadata in by_version.items():
        assert isinstance(metadata, ClusterMetadata)
        [topic], [broker] = metadata.topics.values(), metadata.brokers.values()
        assert (topic.topic, topic.error_code, topic.is_internal) == ("g-apis", 0, False)
        assert [each[:5] for each in topic.partitions] == [(0, 0, (0,), (0,), 0), (1, 0, (0,), (0,), 0)]
        assert (broker.id, broker.host, broker.generation) == (0, "127.0.0.1", "kafka011")
        assert [each.leader_epoch for each in topic.partitions] == ([0, 0] if version >= 7 else [-1, -1])
        assert (topic.topic_id is not None) == (version >= 10)
        assert (metadata.cluster_id is not None) == (version >= 2)
    assert list(by_version) == [1, 10, 11, 2, 4, 5, 7]


def test_metadata_of_all_topics_shows_kafkas_own() -> None:
    [metadata] = decoded(r"Metadata-all-v12", "4.3.1").values()
    assert isinstance(metadata, ClusterMetadata)
    assert {topic.topic: topic.is_internal for topic in metadata.topics.values()}.items() >= {("g-apis", False)}


@pytest.mark.parametrize("kafka", ["2.8.2", "3.9.2", "4.3.1"])
def test_a_topic_that_is_not_to_be_created_does_not_exist(kafka: str) -> None:
    for metadata in decoded(r"Metadata-unknown-v\d+", kafka).values():
        assert isinstance(metadata, ClusterMetadata)
        [topic] = metadata.topics.values()
        assert (topic.topic, topic.error_code, topic.partitions) == ("no-such", 3, ())


def test_brokers_that_create_what_is_named_are_asked_for_all_topics() -> None:
    [frames] = [each for each in EVERY if each.name == "Metadata-v2" and each.kafka == "0.10.2.2"]
    asked = KAFKA011.metadata(["no-such"], create=False).at(2)
    assert asked.body == b"\xff\xff\xff\xff"
    metadata = asked.decode(memoryview(frames.answer))
    assert {name: topic.error_code for name, topic in metadata.topics.items()} == {"no-such": 3}


def test_ends_of_logs_are_the_same_in_every_version() -> None:
    assert set(decoded(r"ListOffsets-latest-v\d")) == {0, 1, 2, 4, 5}
    assert all(found == [(0, [8])] for found in decoded(r"ListOffsets-latest-v\d").values())
    assert all(found == [(0, [0])] for found in decoded(r"ListOffsets-earliest-v\d").values())


def test_a_log_ends_at_an_open_transaction_for_readers_of_committed_messages() -> None:
    assert decoded(r"ListOffsets-stable-v\d") == {2: [(0, [11])], 5: [(0, [11])]}


def test_the_first_message_of_a_time_comes_with_its_timestamp() -> None:
    for rows in decoded(r"ListOffsets-time-v\d").values():
        assert isinstance(rows, list)
        [(code, found)] = rows
        assert (code, found.offset, found.timestamp_ms > 0) == (0, 0, True)
    none = [(0, OffsetAndTimestamp(-1, -1))]
    assert decoded(r"ListOffsets-none-v\d") == {1: none, 5: none}


def test_starts_of_segments_are_asked_in_version_0_alone() -> None:
    [asked] = KAFKA011.offsets([ZERO], 1_500_000_000_000, 10)
    assert asked.versions == (0,)
    [asked] = KAFKA011.offsets([ZERO], -1, 2)
    assert asked.versions == (0,)


def test_what_a_fetch_tells_from_version_to_version() -> None:
    for version, rows in decoded(r"Fetch-v\d+").items():
        assert isinstance(rows, list)
        [found] = rows
        assert isinstance(found, FetchedPartition)
        assert (found.topic, found.partition, found.error_code, found.high_watermark) == ("g-apis", 0, 0, 8)
        assert found.last_stable_offset == (8 if version >= 4 else -1)
        assert found.log_start_offset == (0 if version >= 5 else -1)
        assert (found.aborted, found.preferred_replica) == ((), -1)
        assert found.message_set[16] == (2 if version >= 4 else 1), "the magic"


def test_a_fetch_beside_an_unknown_partition_and_beyond_the_end() -> None:
    for rows in decoded(r"Fetch-unknown-v\d+").values():
        assert isinstance(rows, list)
        assert [(each.partition, each.error_code) for each in rows] == [(7, 3), (0, 0)]
    for rows in decoded(r"Fetch-out-of-range-v\d+").values():
        assert isinstance(rows, list)
        assert [(each.error_code, bytes(each.message_set)) for each in rows] == [(1, b"")]


def test_a_fetch_with_an_epoch_that_is_not_yet_is_refused() -> None:
    for rows in decoded(r"Fetch-fenced-v\d+").values():
        assert isinstance(rows, list)
        assert [each.error_code for each in rows] == [75]


def test_readers_of_committed_messages_learn_of_aborted_transactions() -> None:
    for rows in decoded(r"Fetch-aborted-v\d+").values():
        assert isinstance(rows, list)
        [found] = rows
        [aborted] = found.aborted
        assert isinstance(aborted, AbortedTransaction)
        assert (aborted.first_offset, found.last_stable_offset, found.high_watermark) == (11, 13, 13)
    for rows in decoded(r"Fetch-open-v\d+").values():
        assert isinstance(rows, list)
        assert [(each.last_stable_offset, each.high_watermark) for each in rows] == [(11, 12)]


def test_an_error_of_a_fetch_as_a_whole_is_that_of_each_partition() -> None:
    [frames] = [each for each in EVERY if each.name == "Fetch-unknown-v11" and each.kafka == "2.8.2"]
    answer = struct.pack(">ihii", 0, 6, 0, 0)
    found = frames.asked.decode(memoryview(answer))
    assert [(each.partition, each.error_code) for each in found] == [(7, 6), (0, 6)]


def test_a_session_that_nobody_asked_for_is_refused() -> None:
    [frames] = [each for each in EVERY if each.name == "Fetch-v11" and each.kafka == "2.8.2"]
    with pytest.raises(DecodeError, match="session 7, and no session was requested"):
        frames.asked.decode(memoryview(struct.pack(">ihii", 0, 0, 7, 0)))


def test_record_batches_got_the_offsets_that_follow_each_other() -> None:
    found = decoded(r"Produce-v\d")
    assert {version: found[version] for version in sorted(found)} == {
        version: [ProducedPartition(0, offset)] for version, offset in ((3, 0), (5, 2), (7, 4), (8, 6))
    }
    assert decoded(r"Produce-refused-v\d") == {3: [ProducedPartition(3, -1)], 8: [ProducedPartition(3, -1)]}
    assert decoded(r"Produce-broken-v\d") == {8: [ProducedPartition(2, -1)]}


def test_batches_and_older_message_sets_are_produced_in_versions_of_their_own() -> None:
    batch, older = bytes(16) + b"\2", bytes(16) + b"\1"
    assert KAFKA011.produce({ZERO: batch}, 1, 0).versions == (3, 5, 7, 8)
    assert KAFKA011.produce({ZERO: older}, 1, 0).versions == (2,)
    with pytest.raises(ValueError, match="cannot be sent in one request"):
        KAFKA011.produce({ZERO: batch, ONE: older}, 1, 0)
    with pytest.raises(ValueError, match="a message set of 3 bytes has no entry"):
        KAFKA011.produce({ZERO: b"abc"}, 1, 0)


def test_where_epochs_end() -> None:
    found = decoded(r"OffsetForLeaderEpoch-v\d")
    assert found == {v: [EpochEnd(0, 0 if v >= 1 else -1, 8)] for v in range(4)}
    assert set(map(str, decoded(r"OffsetForLeaderEpoch-unknown-v\d").values())) == {str([EpochEnd(0, -1, -1)])}


def test_offsets_of_groups() -> None:
    assert decoded(r"OffsetCommit-v2") == {2: [0]}
    assert decoded(r"OffsetFetch-v1") == {1: [(0, OffsetAndMetadata(1, "m")), (0, OffsetAndMetadata(-1, ""))]}
    assert (decoded(r"DeleteGroups-v0"), decoded(r"DeleteGroups-unknown-v0")) == ({0: 0}, {0: 69})
    for rows in decoded(r"FindCoordinator(-txn)?-v\d").values():
        assert isinstance(rows, tuple)
        assert (rows[0], rows[1].id, rows[1].generation) == (0, 0, "kafka011")


def test_ids_of_producers_and_the_ends_of_transactions() -> None:
    for rows in decoded(r"InitProducerId(-idempotent)?-v\d").values():
        assert isinstance(rows, tuple)
        code, producer = rows
        assert (code, isinstance(producer, ProducerId), producer.producer_id >= 0) == (0, True, True)
    nexts: Any = decoded(r"InitProducerId-next-v\d")
    assert {version: (code, epoch) for version, (code, (_, epoch)) in nexts.items()} == {3: (0, 1), 4: (0, 4)}
    fenced: Any = decoded(r"InitProducerId-fenced-v\d")
    assert {version: code for version, (code, _) in fenced.items()} == {3: 47, 4: 90}, "an epoch before the last one"
    assert KAFKA011.producer_id("t", 1, ProducerId(7, 0)).versions == (3, 4), "those before have no field for it"
    assert set(map(str, decoded(r"AddPartitionsToTxn-v\d").values())) == {"[0]"}
    assert (decoded(r"EndTxn-commit-v0"), decoded(r"EndTxn-abort-v1")) == ({0: 0}, {1: 0})
    assert decoded(r"EndTxn-none-v0") == {0: 49}, "the transactional id has no producer id"


def test_steps_of_an_authentication() -> None:
    [refused] = decoded(r"SaslHandshake-v1").values()
    assert refused == (34, []), "the listener has no SASL"
    [first] = [each.decoded() for each in EVERY if each.name == "SaslAuthenticate-v0-scram256-1"]
    assert (first.error_code, first.message, first.token[:2], first.lifetime_ms) == (0, "", b"r=", 0)


def test_a_version_that_is_not_spoken_is_named() -> None:
    asked = KAFKA011.metadata([]).at(7)._replace(version=9)
    with pytest.raises(ValueError, match="version 9 of Metadata is not supported; this client speaks 1, 2, 4, 5, 7,"):
        KAFKA011.frame(asked, 1, "c")


@pytest.mark.parametrize("kafka", ["1.1.1", "2.8.2", "3.9.2", "4.3.1"])
def test_settings_in_force_come_for_each_topic(kafka: str) -> None:
    for found in decoded("DescribeConfigs-v.", kafka).values():
        assert found == [(0, {"cleanup.policy": "compact"})]


def test_settings_of_a_topic_that_is_not_there_have_an_error() -> None:
    assert decoded("DescribeConfigs-unknown-v.") == {0: [(3, {})], 1: [(3, {})]}
    defaults = [(0, {"cleanup.policy": "delete"})]
    assert decoded("DescribeConfigs-unknown-v.", "1.1.1") == {0: defaults, 1: defaults}


def test_settings_of_another_topic_than_asked_are_refused() -> None:
    [each] = golden_apis.of_name("DescribeConfigs-v1")[:1]
    with pytest.raises(DecodeError, match="1 results, not one for each of the 1 topics"):
        KAFKA011.topic_settings(["other"], ["cleanup.policy"]).at(1).decode(memoryview(each.answer))
