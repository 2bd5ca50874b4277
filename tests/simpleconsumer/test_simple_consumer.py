"""SimpleConsumer against a scripted broker that answers with recorded or made-up bytes."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import golden_frames
import pytest
from scripted_broker import DEADLINE_S, Peer, ScriptedBroker

from simpleconsumer import (
    EARLIEST,
    LATEST,
    Broker,
    BrokerError,
    ConnectionFailed,
    CrcMismatch,
    DecodeError,
    FetchRequest,
    MessageTooLarge,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    SimpleConsumer,
    TopicPartition,
    decode_messages,
    encode_message_set,
)
from simpleconsumer.primitives import encode_array, encode_bytes, encode_string


@contextmanager
def answering(*bodies: bytes, **settings: float) -> Iterator[tuple[SimpleConsumer, list[bytes]]]:
    """Yield a consumer of a broker that gives these answers, and the requests it gets (behind the client id)."""
    requests: list[bytes] = []

    def script(peer: Peer) -> None:
        for body in bodies:
            received = peer.request()
            requests.append(received)
            peer.answer(body, received)
        peer.wait_until_closed()

    with (
        ScriptedBroker(script) as broker,
        SimpleConsumer(broker.host, broker.port, DEADLINE_S, "me", **settings) as consumer,  # type: ignore[arg-type]
    ):
        yield consumer, requests


def fetched(*partitions: tuple[str, int, int, bytes]) -> bytes:
    return encode_array(
        [
            encode_string(topic) + encode_array([struct.pack(">ihq", number, code, 100) + encode_bytes(message_set)])
            for topic, number, code, message_set in partitions
        ]
    )


def codes(topic: str, *rows: tuple[int, int]) -> bytes:
    return encode_array([encode_string(topic) + encode_array([struct.pack(">ih", *row) for row in rows])])


def header(request: bytes) -> tuple[int, int, int]:
    api_key, version, correlation_id = struct.unpack_from(">hhi", request)
    assert request[8:12] == b"\0\2me"
    return api_key, version, correlation_id


# Fetching


def test_fetch_returns_messages_from_the_offset_on() -> None:
    recorded = golden_frames.answer("0.8.2.2", "hand-fetch-v0-g-gzip-from-1-response")
    with answering(recorded) as (consumer, requests):
        messages = consumer.fetch("g-gzip", 0, 1)
    assert [(m.topic, m.partition, m.offset, m.value) for m in messages] == [
        ("g-gzip", 0, offset, golden_frames.VALUES[offset]) for offset in (1, 2, 3, 4)
    ]
    assert header(requests[0]) == (1, 0, 1)


def test_fetch_of_a_newer_version_has_timestamps() -> None:
    recorded = golden_frames.answer("0.10.2.2", "hand-fetch-v2-n-lz4-response")
    with answering(recorded) as (consumer, requests):
        messages = consumer.fetch("n-lz4", 0, 0, version=2)
    assert [m.timestamp_ms for m in messages] == [1400000000001, 1400000000002, 1400000000003]
    assert header(requests[0]) == (1, 2, 1)


def test_fetch_of_nothing_new_is_an_empty_list() -> None:
    with answering(fetched(("t", 0, 0, b""))) as (consumer, _):
        assert consumer.fetch("t", 0, 100) == []


def test_fetch_names_what_the_broker_refused() -> None:
    with answering(fetched(("t", 0, 1, b""))) as (consumer, _), pytest.raises(BrokerError) as caught:
        consumer.fetch("t", 0, 7)
    assert str(caught.value).startswith("t/0 at 7: OffsetOutOfRange (code 1)")
    assert not caught.value.retriable


def test_a_message_that_does_not_fit_is_named_instead_of_fetched_for_ever() -> None:
    part = encode_message_set([bytes(1000)], first_offset=7)[:200]
    with answering(fetched(("t", 0, 0, part))) as (consumer, _), pytest.raises(MessageTooLarge) as caught:
        consumer.fetch("t", 0, 7, 200)
    assert str(caught.value) == "t/0 at 7: the message is larger than the fetch of 200 bytes; ask for 1026"
    assert caught.value.next_offset == 8


def test_what_comes_before_a_bad_message_is_returned_and_the_next_fetch_raises_about_it() -> None:
    damaged = bytearray(encode_message_set([b"a", b"b", b"c"]))
    damaged[2 * 27 - 1] ^= 1
    rest = bytes(damaged[27:])
    answers = (fetched(("t", 0, 0, bytes(damaged))), fetched(("t", 0, 0, rest)), fetched(("t", 0, 0, rest[27:])))
    with answering(*answers) as (consumer, _):
        assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"a"]
        with pytest.raises(CrcMismatch, match="t/0 at 1: the CRC") as caught:
            consumer.fetch("t", 0, 1)
        assert [m.value for m in consumer.fetch("t", 0, caught.value.next_offset)] == [b"c"]


# Fetched as columns


def test_fetch_columns_brings_what_fetch_brings_as_record_batches() -> None:
    data = encode_message_set([(b"k", b"v%d" % n) for n in range(100)], "gzip", first_offset=5)
    with answering(fetched(("t", 0, 0, data)), fetched(("t", 0, 0, b""))) as (consumer, _):
        [batch] = consumer.fetch_columns("t", 0, 7, columns=["offset", "value"])
        assert consumer.fetch_columns("t", 0, 105) == []
    assert batch.schema.names == ["offset", "value"]
    assert batch.column("offset").to_pylist() == list(range(7, 105))
    assert batch.column("value").to_pylist() == [b"v%d" % n for n in range(2, 100)]


def test_fetch_columns_raises_where_fetch_does() -> None:
    damaged = bytearray(encode_message_set([b"a", b"b", b"c"]))
    damaged[2 * 27 - 1] ^= 1
    part = encode_message_set([bytes(1000)], first_offset=7)[:200]
    answers = (
        fetched(("t", 0, 1, b"")), fetched(("t", 0, 0, part)),
        fetched(("t", 0, 0, bytes(damaged))), fetched(("t", 0, 0, bytes(damaged[27:]))),
    )  # fmt: skip
    with answering(*answers) as (consumer, _):
        with pytest.raises(ValueError, match="values"):
            consumer.fetch_columns("t", 0, 0, columns=["values"])
        with pytest.raises(BrokerError, match="t/0 at 7: OffsetOutOfRange"):
            consumer.fetch_columns("t", 0, 7)
        with pytest.raises(MessageTooLarge, match="message is larger than the fetch of 200 bytes; ask for 1026"):
            consumer.fetch_columns("t", 0, 7, 200)
        assert [batch.column("value").to_pylist() for batch in consumer.fetch_columns("t", 0, 0)] == [[b"a"]]
        with pytest.raises(CrcMismatch, match="t/0 at 1: the CRC"):
            consumer.fetch_columns("t", 0, 1)


def test_multifetch_groups_by_topic_and_answers_in_the_order_asked() -> None:
    sets = {name: encode_message_set([name]) for name in (b"a0", b"b1", b"b0")}
    body = fetched(("a", 0, 0, sets[b"a0"]), ("b", 0, 6, b""), ("b", 1, 0, sets[b"b1"]))
    with answering(body) as (consumer, requests):
        results = consumer.multifetch(
            [FetchRequest("b", 1, 0, 100), FetchRequest("a", 0, 0, 100), FetchRequest("b", 0, 0, 100)], 50, 10
        )
    assert [(r.topic, r.partition, r.error_code) for r in results] == [("b", 1, 0), ("a", 0, 0), ("b", 0, 6)]
    assert [m.value for r in results for m in decode_messages(r.message_set, r.topic, r.partition)] == [b"b1", b"a0"]
    assert struct.unpack_from(">iiii", requests[0], 12) == (-1, 50, 10, 2)
    assert requests[0].count(b"\0\1b") == 1


def test_message_sets_are_views_of_one_receive_buffer() -> None:
    body = fetched(("t", 0, 0, b"0" * 50), ("u", 0, 0, b"1" * 50))
    with answering(body) as (consumer, _):
        first, second = consumer.multifetch([FetchRequest("t", 0, 0, 100), FetchRequest("u", 0, 0, 100)])
    assert isinstance(first.message_set, memoryview)
    assert isinstance(second.message_set, memoryview)
    assert first.message_set.obj is second.message_set.obj
    assert isinstance(first.message_set.obj, bytearray)


@pytest.mark.parametrize(
    ("requests", "settings", "reason"),
    [
        ([], {}, "no partitions to fetch"),
        ([("t", 0, 0, 1), ("t", 0, 5, 1)], {}, "requested twice"),
        ([("t", 0, 0, 0)], {}, "t/0: max_bytes is 0; it must be from 1 to 2147483647"),
        ([("t", 0, 0, 2**31)], {}, "t/0: max_bytes is 2147483648; it must be from 1 to 2147483647"),
        ([("t", 0, 2**63, 1)], {}, "t/0: offset 9223372036854775808 is beyond 9223372036854775807"),
        ([("t", 0, -(2**63) - 1, 1)], {}, "t/0: offset -9223372036854775809 is beyond -9223372036854775808"),
        ([("t", 0, 0, 1)], {"max_wait_ms": 20_000}, "less than the time-out of a call, 20.0 s"),
        ([("t", 0, 0, 1)], {"max_wait_ms": -1}, "max_wait_ms is -1"),
        ([("t", 0, 0, 1)], {"min_bytes": -1}, "min_bytes is -1"),
        ([("t", 0, 0, 1)], {"version": 4}, "version 4 of API 1"),
    ],
)
def test_fetches_that_cannot_be_are_refused_before_anything_is_sent(
    requests: list[tuple[str, int, int, int]], settings: dict[str, int], reason: str
) -> None:
    with SimpleConsumer("127.0.0.1", 1, DEADLINE_S) as consumer, pytest.raises(ValueError, match=reason):
        consumer.multifetch([FetchRequest(*request) for request in requests], **settings)


# Offsets and metadata


def test_offsets_before_a_time() -> None:
    recorded = golden_frames.answer("0.8.0", "java-offsets-latest-response")
    with answering(recorded, recorded) as (consumer, requests):
        assert consumer.get_offsets_before("g-none", 0, LATEST, 10) == [5, 0]
        assert consumer.getOffsetsBefore("g-none", 0, EARLIEST, 10) == [5, 0]
    assert [struct.unpack_from(">qi", request, len(request) - 12) for request in requests] == [(-1, 10), (-2, 10)]
    assert [header(request)[2] for request in requests] == [1, 2]


def test_offsets_of_a_partition_that_moved_away() -> None:
    body = encode_array([encode_string("t") + encode_array([struct.pack(">ih", 3, 6) + encode_array([])])])
    with answering(body) as (consumer, _), pytest.raises(BrokerError, match="t/3: NotLeaderForPartition") as caught:
        consumer.get_offsets_before("t", 3, LATEST)
    assert caught.value.retriable


def test_offsets_of_many_partitions_come_in_one_answer_and_an_error_stands_beside_its_partition() -> None:
    rows = [(3, 6, []), (1, 0, [17])]
    topics = [
        encode_string(topic)
        + encode_array(
            [
                struct.pack(">ih", number, code) + encode_array([struct.pack(">q", at) for at in found])
                for number, code, found in rows
            ]
        )
        for topic in ("t", "u")
    ]
    wanted = [TopicPartition("t", 1), TopicPartition("u", 1), TopicPartition("u", 3), TopicPartition("t", 3)]
    with answering(encode_array(topics)) as (consumer, requests):
        assert consumer.multi_offsets_before(wanted, LATEST) == [(0, [17]), (0, [17]), (6, []), (6, [])]
    assert len(requests) == 1


@pytest.mark.parametrize("partitions", [[], [TopicPartition("t", 0), TopicPartition("t", 0)]])
def test_offsets_of_no_partition_or_of_one_twice_are_not_asked_for(partitions: list[TopicPartition]) -> None:
    with SimpleConsumer("127.0.0.1", 1, DEADLINE_S) as consumer, pytest.raises(ValueError, match="each once"):
        consumer.multi_offsets_before(partitions, LATEST)


def test_the_first_message_at_or_after_a_time() -> None:
    recorded = [golden_frames.answer("1.1.1", f"hand-offsets-v1-{name}response") for name in ("", "none-")]
    with answering(*recorded) as (consumer, requests):
        assert consumer.offset_for_time("m2-none", 0, 1_500_000_000_002) == OffsetAndTimestamp(1, 1_500_000_000_002)
        assert consumer.offset_for_time("m2-none", 0, 2**63 - 1) is None
    assert [header(request)[:2] for request in requests] == [(2, 1), (2, 1)]


def test_times_of_many_partitions_come_in_one_answer_and_an_error_stands_beside_its_partition() -> None:
    rows = [struct.pack(">ihqq", 1, 0, 1000, 17), struct.pack(">ihqq", 0, 43, -1, -1)]
    wanted = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    with answering(encode_array([encode_string("t") + encode_array(rows)])) as (consumer, requests):
        assert consumer.offsets_for_times(wanted) == [(43, (-1, -1, -1)), (0, (17, 1000, -1))]
    assert requests[0].endswith(struct.pack(">iqiq", 0, 5, 1, 6))


def test_a_topic_without_timestamps_is_named() -> None:
    body = encode_array([encode_string("t") + encode_array([struct.pack(">ihqq", 3, 43, -1, -1)])])
    with answering(body) as (consumer, _), pytest.raises(BrokerError, match="t/3: UnsupportedForMessageFormat"):
        consumer.offset_for_time("t", 3, 1000)


@pytest.mark.parametrize("times", [{}, {TopicPartition("t", 0): -1}, {TopicPartition("t", 0): 2**63}])
def test_no_partition_and_no_time_is_not_asked_for(times: dict[TopicPartition, int]) -> None:
    with SimpleConsumer("127.0.0.1", 1, DEADLINE_S) as consumer, pytest.raises(ValueError, match="time"):
        consumer.offsets_for_times(times)


def test_what_a_broker_serves() -> None:
    recorded = golden_frames.answer("0.10.2.2", "hand-api-versions-v0-response")
    with answering(recorded, struct.pack(">hi", 35, 0)) as (consumer, requests):
        assert consumer.api_versions()[2] == range(2)
        with pytest.raises(BrokerError, match="UnsupportedVersion"):
            consumer.api_versions()
    assert header(requests[0])[:2] == (18, 0)


def test_metadata_of_named_topics() -> None:
    with answering(golden_frames.answer("0.8.0", "hand-metadata-v0-response")) as (consumer, requests):
        metadata = consumer.topic_metadata(["g-none"])
    assert metadata.topics["g-none"].partitions[0].leader == 0
    assert metadata.brokers[0].host == "127.0.0.1"
    assert requests[0][12:] == b"\0\0\0\1\0\6g-none"


@pytest.mark.catalogue("F6")
def test_no_topics_are_never_all_topics() -> None:
    with SimpleConsumer("127.0.0.1", 1, DEADLINE_S) as consumer:
        refused: tuple[Sequence[str], ...] = ([], (), "", "clicks")
        for topics in refused:
            with pytest.raises(ValueError, match="a list of at least one name"):
                consumer.topic_metadata(topics)


def test_all_topics_have_a_call_of_their_own() -> None:
    with answering(golden_frames.answer("0.8.0", "hand-metadata-v0-response")) as (consumer, requests):
        assert list(consumer.all_topic_metadata().topics) == ["g-none"]
    assert requests[0][12:] == bytes(4)


def test_metadata_that_leaves_out_a_topic_is_refused() -> None:
    body = golden_frames.answer("0.8.0", "hand-metadata-v0-response")
    with answering(body) as (consumer, _), pytest.raises(DecodeError, match="other and 0 more are missing"):
        consumer.topic_metadata(["g-none", "other"])


def test_the_coordinator_of_a_group() -> None:
    found = struct.pack(">hi", 0, 7) + encode_string("host") + struct.pack(">i", 9093)
    refused = golden_frames.answer("0.8.2.2", "hand-consumer-metadata-v0-response")
    with answering(refused, found) as (consumer, _):
        with pytest.raises(BrokerError, match="ConsumerCoordinatorNotAvailable"):
            consumer.consumer_metadata("gg")
        assert consumer.consumer_metadata("gg") == Broker(7, "host", 9093)


# Commits


def test_commit_and_fetch_of_offsets_through_zookeeper() -> None:
    here, there = TopicPartition("g-none", 0), TopicPartition("other", 1)
    recorded = [golden_frames.answer("0.8.2.2", f"hand-offset-{name}-v0-response") for name in ("commit", "fetch")]
    with answering(*recorded) as (consumer, requests):
        consumer.commit_offsets("gg", {here: OffsetAndMetadata(3, "meta")})
        assert consumer.fetch_offsets("gg", [here]) == {here: OffsetAndMetadata(3, "")}
        consumer.commit_offsets("gg", {})
        assert consumer.fetch_offsets("gg", []) == {}
    assert requests[0][12:] == golden_frames.frame("0.8.2.2", "hand-offset-commit-v0-request")[15:]
    assert requests[1][12:] == golden_frames.frame("0.8.2.2", "hand-offset-fetch-v0-request")[15:]
    assert there not in {here}


def test_nothing_committed_is_minus_one_in_both_stores() -> None:
    partition = TopicPartition("t", 0)
    rows = [struct.pack(">iqhh", 0, -1, 0, code) for code in (3, 0)]
    bodies = [encode_array([encode_string("t") + encode_array([row])]) for row in rows]
    with answering(*bodies) as (consumer, requests):
        assert consumer.fetch_offsets("g", [partition]) == {partition: OffsetAndMetadata(-1)}
        assert consumer.fetchOffsets("g", [partition], version=1) == {partition: OffsetAndMetadata(-1)}
    assert [header(request)[:2] for request in requests] == [(9, 0), (9, 1)]


def test_code_3_from_kafka_storage_is_an_error() -> None:
    body = encode_array([encode_string("t") + encode_array([struct.pack(">iqhh", 0, -1, 0, 3)])])
    with answering(body) as (consumer, _), pytest.raises(BrokerError, match="UnknownTopicOrPartition"):
        consumer.fetch_offsets("g", [TopicPartition("t", 0)], version=1)


def test_a_commit_names_every_partition_that_was_refused() -> None:
    offsets = {TopicPartition("t", number): 10 + number for number in range(4)}
    body = codes("t", (0, 0), (1, 12), (2, 0), (3, 16))
    with answering(body) as (consumer, requests), pytest.raises(BrokerError) as caught:
        consumer.commitOffsets("g", offsets, version=2)
    assert (caught.value.code, caught.value.partition, caught.value.offset) == (12, 1, 11)
    assert [(error.code, error.partition, error.offset) for error in caught.value.also] == [(16, 3, 13)]
    assert "and 1 more partitions failed" in str(caught.value)
    assert header(requests[0])[:2] == (8, 2)


def test_partitions_of_kafka_07_have_no_place_here() -> None:
    with (
        SimpleConsumer("127.0.0.1", 1) as consumer,
        pytest.raises(ValueError, match="t/0-1: partitions of Kafka"),
    ):
        consumer.commit_offsets("g", {TopicPartition("t", "0-1"): 5})


# Producing


def produced(code: int, base_offset: int, tail: bytes = b"") -> bytes:
    row = struct.pack(">ihq", 0, code, base_offset)
    return encode_array([encode_string("t") + encode_array([row])]) + tail


def test_produce_returns_the_offset_of_the_first_message() -> None:
    with answering(produced(0, 41)) as (consumer, requests):
        assert consumer.produce("t", 0, [b"a", (b"k", b"b")], codec="snappy", acks=-1, timeout_ms=1500) == 41
    assert header(requests[0])[:2] == (0, 0)
    assert struct.unpack_from(">hi", requests[0], 12) == (-1, 1500)
    message_set = requests[0][12 + 6 + 4 + 3 + 4 + 4 + 4 :]
    assert [(m.key, m.value) for m in decode_messages(message_set, "t", 0)] == [(None, b"a"), (b"k", b"b")]


def test_produce_of_a_newer_version_carries_timestamps() -> None:
    row = struct.pack(">ihqq", 0, 0, 5, -1)
    body = encode_array([encode_string("t") + encode_array([row])]) + struct.pack(">i", 0)
    with answering(body) as (consumer, requests):
        assert consumer.produce("t", 0, [b"a"], magic=1, timestamp_ms=1234, version=2) == 5
    assert [m.timestamp_ms for m in decode_messages(requests[0][37:], "t", 0)] == [1234]


def test_produce_that_is_refused() -> None:
    with answering(produced(10, -1)) as (consumer, _), pytest.raises(BrokerError, match="MessageSizeTooLarge"):
        consumer.produce("t", 0, [b"a"])


def test_produce_without_acks_waits_for_nothing_and_the_next_answer_is_not_mistaken() -> None:
    def script(peer: Peer) -> None:
        assert struct.unpack_from(">hi", peer.request(), 12) == (0, 10_000)
        second = peer.request()
        peer.answer(fetched(("t", 0, 0, b"")), second)
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker, SimpleConsumer(broker.host, broker.port, DEADLINE_S, "me") as consumer:
        assert consumer.produce("t", 0, [b"a"], acks=0) == -1
        assert consumer.fetch("t", 0, 0) == []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"acks": 2}, "acks is 2"),
        ({"magic": 1}, "magic 1 needs produce version 2, not 0"),
        ({"magic": 1, "version": 1}, "magic 1 needs produce version 2, not 1"),
        ({"codec": "zstd"}, "codec 'zstd' is not one of"),
        ({"messages": []}, "no messages to produce"),
    ],
)
def test_what_cannot_be_produced_is_refused_before_anything_is_sent(settings: dict[str, object], reason: str) -> None:
    arguments = {"messages": [b"a"]} | settings
    with SimpleConsumer("127.0.0.1", 1) as consumer, pytest.raises(ValueError, match=reason):
        consumer.produce("t", 0, **arguments)  # type: ignore[arg-type]


def then_dies(peer: Peer) -> None:
    peer.answer(produced(0, 0), peer.request())
    peer.request()


def test_produce_and_commit_are_never_sent_twice() -> None:
    calls: list[Callable[[SimpleConsumer], object]] = [
        lambda consumer: consumer.produce("t", 0, [b"b"]),
        lambda consumer: consumer.commit_offsets("g", {TopicPartition("t", 0): 1}),
    ]
    for call in calls:
        with ScriptedBroker(then_dies) as broker, SimpleConsumer(broker.host, broker.port, DEADLINE_S) as consumer:
            consumer.produce("t", 0, [b"a"])
            with pytest.raises(ConnectionFailed):
                call(consumer)
        assert broker.connections == 1


def test_reads_are_sent_once_more_when_the_broker_was_restarted() -> None:
    def second(peer: Peer) -> None:
        peer.answer(fetched(("t", 0, 0, encode_message_set([b"again"]))), peer.request())
        peer.wait_until_closed()

    with ScriptedBroker(then_dies, second) as broker, SimpleConsumer(broker.host, broker.port, DEADLINE_S) as consumer:
        consumer.produce("t", 0, [b"a"])
        assert [m.value for m in consumer.fetch("t", 0, 0)] == [b"again"]


# Faults


def test_an_answer_that_does_not_decode_costs_the_connection_and_is_reported_with_its_broker() -> None:
    def first(peer: Peer) -> None:
        peer.answer(b"nonsense", peer.request())
        peer.wait_until_closed()

    def second(peer: Peer) -> None:
        peer.answer(fetched(("t", 0, 0, b"")), peer.request())
        peer.wait_until_closed()

    with ScriptedBroker(first, second) as broker, SimpleConsumer(broker.host, broker.port, DEADLINE_S) as consumer:
        with pytest.raises(DecodeError) as caught:
            consumer.fetch("t", 0, 0)
        assert caught.value.__notes__ == [f"in an answer of 8 bytes from 127.0.0.1:{broker.port}"]
        assert consumer.fetch("t", 0, 0) == []
    assert broker.connections == 2


def test_close_from_another_thread_ends_a_fetch_at_once() -> None:
    asked = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        asked.set()
        peer.stall()

    with ScriptedBroker(script) as broker:
        consumer = SimpleConsumer(broker.host, broker.port, 600.0)

        def close_when_asked() -> None:
            assert asked.wait(DEADLINE_S)
            consumer.close()

        closer = threading.Thread(target=close_when_asked)
        closer.start()
        with pytest.raises(ConnectionFailed, match=r"closed by close\(\)"):
            consumer.fetch("t", 0, 0)
        closer.join(DEADLINE_S)
        with pytest.raises(ConnectionFailed, match="closed"):
            consumer.fetch("t", 0, 0)


def test_correlation_ids_stay_within_31_bits() -> None:
    with answering(fetched(("t", 0, 0, b"")), fetched(("t", 0, 0, b""))) as (consumer, requests):
        consumer._calls._correlation_id = 0x7FFFFFFE
        consumer.fetch("t", 0, 0)
        consumer.fetch("t", 0, 0)
    assert [header(request)[2] for request in requests] == [0x7FFFFFFF, 1]
