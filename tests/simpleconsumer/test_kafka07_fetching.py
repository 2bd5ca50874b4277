"""Fetches of Kafka 0.7: what an answer means, where entries start, and SimpleConsumer with recorded answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka07_decoding import answer, decode_simply, entries, frame
from scripted_broker import DEADLINE_S, Peer, ScriptedBroker

from simpleconsumer import EARLIEST, KAFKA07, LATEST, SimpleConsumer
from simpleconsumer.dialect_types import Boundary, FetchResult, Outcome, PositionIs
from simpleconsumer.errors import (
    BrokenFraming,
    BrokerError,
    ConnectionFailed,
    CrcMismatch,
    MessageTooLarge,
    NoSuchRequest,
)
from simpleconsumer.kafka07.message_set import find_boundary
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set
from simpleconsumer.primitives import MAX_FRAME_BYTES
from simpleconsumer.types import Buffer, FetchedPartition, FetchRequest, Message, ProducedPartition, TopicPartition

SET = encode_message_set([b"one", b"two"]) + encode_message_set([b"a", b"b"], "gzip")


def classify(data: bytes, asked_bytes: int = 4096, largest_bytes: int = 1 << 20, code: int = 0) -> FetchResult:
    fetched = FetchedPartition("t", "0-1", code, -1, memoryview(data))
    return KAFKA07.classify(fetched, 1000, asked_bytes, largest_bytes)


def recorded(name: str) -> FetchedPartition:
    [found] = KAFKA07.fetch([FetchRequest("t", "0-5", 0, 10)], 0, 0, 0).decode(memoryview(answer(name)))
    return found


# What an answer means


def test_a_set_moves_the_position_by_its_whole_entries() -> None:
    for cut in range(4):
        data = SET + encode_entry(b"cut off")[:cut]
        assert classify(data) == FetchResult(Outcome.CHUNK, len(SET), 1000 + len(SET), last_byte=26, entries=3)
    assert classify(SET[:-1], len(SET) - 1) == FetchResult(Outcome.CHUNK, 26, 1026, last_byte=13, entries=2)


def test_recorded_answers_are_classified() -> None:
    outcomes = {
        name: KAFKA07.classify(recorded(name), 0, 10, 1000).outcome
        for name in (
            "java-fetch-none", "hand-fetch-at-end", "hand-fetch-beyond-end", "hand-fetch-negative-offset",
            "hand-fetch-wrong-partition", "hand-fetch-unknown-topic", "hand-fetch-size-0",
        )
    }  # fmt: skip
    assert list(outcomes.values()) == [
        Outcome.CHUNK, Outcome.NOTHING, Outcome.CHECK_RANGE, Outcome.CHECK_RANGE, Outcome.FIND_LEADER, Outcome.NOTHING,
        Outcome.NOTHING,
    ]  # fmt: skip
    assert KAFKA07.classify(recorded("hand-fetch-too-small"), 0, 10, 1000) == FetchResult(
        Outcome.GROW, size_bytes=15, reason="the entry at 0 does not fit into 10 bytes: it takes 15 bytes"
    )
    partial = KAFKA07.classify(recorded("hand-fetch-partial"), 0, 20, 1000)
    assert partial == FetchResult(Outcome.CHUNK, 15, 15, entries=1)


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        (1, Outcome.CHECK_RANGE, "OffsetOutOfRange (code 1)"),
        (3, Outcome.FIND_LEADER, "WrongPartition (code 3): broker 0 has no partition 1 of the topic, although /brok"),
        (2, Outcome.BACK_OFF, "InvalidMessage (code 2)"),
        (4, Outcome.BACK_OFF, "InvalidFetchSize (code 4)"),
        (-1, Outcome.BACK_OFF, "Unknown (code -1)"),
        (99, Outcome.BACK_OFF, "Code99 (code 99)"),
    ],
)
def test_error_codes(code: int, outcome: Outcome, reason: str) -> None:
    result = classify(b"", code=code)
    assert result.outcome is outcome
    assert result.reason.startswith(reason)
    assert (code in KAFKA07.not_leader_codes) == (outcome is Outcome.FIND_LEADER)


def test_an_entry_that_does_not_fit_is_asked_for_with_its_size() -> None:
    entry = encode_entry(b"x" * 5000)
    for size in range(4, 100):
        assert classify(entry[:size], size) == FetchResult(
            Outcome.GROW,
            size_bytes=5010,
            reason=f"the entry at 1000 does not fit into {size} bytes: it takes 5010 bytes",
        )
    at_the_limit = classify(entry[:100], 100, 5010)
    assert (at_the_limit.outcome, at_the_limit.size_bytes) == (Outcome.GROW, 5010)
    assert classify(struct.pack(">iB", MAX_FRAME_BYTES - 4, 1), 5, MAX_FRAME_BYTES).outcome is Outcome.GROW


@pytest.mark.parametrize("size", [1, 2, 3])
def test_while_the_size_itself_is_cut_twice_as_much_is_asked_for(size: int) -> None:
    result = classify(encode_entry(b"x" * 50)[:size], size)
    assert (result.outcome, result.size_bytes) == (Outcome.GROW, 2 * size)
    assert result.reason.endswith(f"its size is not within the {size} bytes that came")


def test_asking_again_as_told_always_arrives() -> None:
    """A broker sends as many bytes as it is asked for."""
    for payload in (0, 1, 50, 5000):
        data = encode_entry(bytes(payload)) * 3
        asked, rounds = 1, 0
        while (result := classify(data[:asked], asked)).outcome is Outcome.GROW:
            asked, rounds = result.size_bytes, rounds + 1
            assert rounds < 5
        assert result.outcome is Outcome.CHUNK
        assert result.next_offset > 1000


def test_an_entry_above_the_limit_is_named_with_its_end() -> None:
    entry = encode_entry(b"x" * 5000)
    assert classify(entry[:100], 100, 5009) == FetchResult(
        Outcome.TOO_LARGE, next_offset=1000 + 5010, offset=1000, size_bytes=5010,
        reason="the entry at 1000 does not fit into 100 bytes: it takes 5010 bytes, and the limit is 5009",
    )  # fmt: skip
    below_a_size = classify(entry[:2], 2, 2)
    assert (below_a_size.outcome, below_a_size.next_offset) == (Outcome.TOO_LARGE, 1000), "where it ends is not known"


@pytest.mark.parametrize(
    ("data", "asked_bytes", "reason"),
    [
        (struct.pack(">i", -5) + bytes(96), 100, "entry at byte 0, after 0 entries, has size -5"),
        (bytes(100), 100, "entry at byte 0, after 0 entries, has size 0"),
        (SET + bytes(4), 4096, "after 3 entries, has size 0"),
        (b"some text, and no entry", 23, "the entry has magic 32 (0 and 1 are known)"),
        (struct.pack(">i", 2**31 - 1), 4, "the entry takes 2147483651 bytes, more than any answer can have"),
        (struct.pack(">iB", 2**29, 1), 5, "the entry takes 536870916 bytes, more than any answer can have"),
        (encode_entry(b"x" * 50)[:20], 21, "20 bytes of 21 came, in the middle of an entry"),
        (b"\0\0", 100, "2 bytes of 100 came, in the middle of an entry"),
    ],
)
def test_what_can_be_no_entry_is_broken_and_moves_no_position(data: bytes, asked_bytes: int, reason: str) -> None:
    result = classify(data, asked_bytes)
    assert result.outcome is Outcome.BROKEN
    assert reason in result.reason
    assert result.reason.endswith("the position is not the start of an entry, or the log is damaged")
    assert (result.next_offset, result.size_bytes) == (-1, 0)


@given(data=st.binary(max_size=100), asked=st.integers(1, 200), largest=st.integers(1, 400))
def test_any_answer_is_classified_and_no_size_above_the_limit_is_asked_for(
    data: bytes, asked: int, largest: int
) -> None:
    result = classify(data, asked, max(asked, largest))
    assert result.size_bytes <= max(asked, largest) or result.outcome is Outcome.TOO_LARGE
    if result.outcome is Outcome.GROW:
        assert result.size_bytes > asked
    if result.outcome in (Outcome.CHUNK, Outcome.TOO_LARGE):
        assert result.next_offset >= 1000


# Where entries start


def test_a_position_is_a_boundary_or_within_an_entry() -> None:
    starts = [start for start, _ in entries(SET)]
    for position in range(len(SET) + 1):
        found = find_boundary(SET, 100, 100 + position)
        if position in starts or position == len(SET):
            assert found == Boundary(PositionIs.BOUNDARY, 100 + position, 100 + position)
        else:
            around = max(start for start in starts if start < position)
            end = dict(entries(SET))[around]
            assert found == Boundary(PositionIs.INSIDE, 100 + around, 100 + end)
    assert find_boundary(SET, 100, 100 + len(SET) + 1) == Boundary(PositionIs.UNKNOWN, 100 + len(SET), 100 + len(SET))


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=40), at=st.integers(0, 5000), piece=st.integers(4, 60),
)  # fmt: skip
@settings(deadline=None)
def test_a_walk_that_fetches_piece_by_piece_finds_the_same(lengths: list[int], at: int, piece: int) -> None:
    """Each fetch starts where the walk continues; the sizes of the entries alone are needed."""
    data = b"".join(encode_entry(bytes(length)) for length in lengths)
    position = at % (len(data) + 1)
    where, fetches = 0, 0
    while True:
        found = find_boundary(data[where : where + piece], where, position)
        if found.position_is is not PositionIs.UNKNOWN:
            break
        assert where < found.start < position
        where, fetches = found.start, fetches + 1
        assert fetches <= len(lengths)
    assert found == find_boundary(data, 0, position)


def test_the_size_of_an_entry_is_enough() -> None:
    head = encode_entry(bytes(996))[:4]
    assert find_boundary(head, 0, 500) == Boundary(PositionIs.INSIDE, 0, 1006)
    assert find_boundary(head, 0, 1006) == Boundary(PositionIs.BOUNDARY, 1006, 1006)
    assert find_boundary(head, 0, 2000) == Boundary(PositionIs.UNKNOWN, 1006, 1006)
    assert find_boundary(head[:3], 0, 2000) == Boundary(PositionIs.UNKNOWN, 0, 0)
    assert find_boundary(encode_entry(b"", 0), 0, 3) == Boundary(PositionIs.INSIDE, 0, 9), "the smallest entry"
    assert find_boundary(b"", 70, 70) == Boundary(PositionIs.BOUNDARY, 70, 70)


def test_a_walk_that_meets_no_entry_is_broken() -> None:
    with pytest.raises(BrokenFraming):
        find_boundary(encode_entry(b"x") + bytes(50), 0, 40)
    with pytest.raises(BrokenFraming, match="entry at position 100 has size -1"):
        find_boundary(b"\xff" * 4, 100, 102)
    with pytest.raises(ValueError, match="position 99 is before 100, where the walk starts"):
        find_boundary(SET, 100, 99)


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(data).cast("c")])
def test_the_entry_that_ends_at_a_position_is_found(kind: Callable[[bytes], Buffer]) -> None:
    starts = {end: start for start, end in entries(SET)}
    for position in range(-3, len(SET) + 4):
        expected = 100 + starts[position] if position in starts else None
        assert KAFKA07.last_entry_before(kind(SET), 100, 100 + position) == expected
    assert KAFKA07.last_entry_before(b"", 100, 100) is None


def test_what_the_dialect_knows_of_positions() -> None:
    assert KAFKA07.first_offset_in(SET, 1030, 1000) == 1026
    assert KAFKA07.bytes_an_offset(SET, 1000) == 1.0
    assert KAFKA07.set_end(SET[:-1], 1000) == (26, 1026, 2)
    with pytest.raises(BrokenFraming):
        KAFKA07.set_end(bytes(8), 0)


# SimpleConsumer


@contextmanager
def answering(*answers: bytes | None) -> Iterator[tuple[SimpleConsumer, list[bytes]]]:
    """Yield a consumer of a broker that gives these frames, or no answer, and the requests it gets."""
    requests: list[bytes] = []

    def script(peer: Peer) -> None:
        for each in answers:
            request = peer.request()
            requests.append(struct.pack(">i", len(request)) + request)
            if each is not None:
                peer.send(each)
        peer.wait_until_closed()

    with (
        ScriptedBroker(script) as broker,
        SimpleConsumer(broker.host, broker.port, DEADLINE_S, "me", dialect=KAFKA07) as consumer,
    ):
        yield consumer, requests


def test_recorded_exchanges_with_a_broker() -> None:
    names = ["java-fetch-gzip", "java-multifetch", "java-offsets-latest", "java-offsets-earliest"]
    with answering(*(frame(f"{name}-response") for name in names)) as (consumer, requests):
        messages = consumer.fetch("g-gzip", "0-0", 0, 65536)
        parts = consumer.multifetch(
            [
                FetchRequest("g-none", "0-0", 0, 4096),
                FetchRequest("g-gzip", "0-1", 0, 4096),
                FetchRequest("g-unknown", "0-0", 0, 4096),
            ]
        )
        assert consumer.get_offsets_before("g-gzip", "0-0", LATEST, 10) == [147, 0]
        assert consumer.get_offsets_before("g-gzip", 0, EARLIEST, 10) == [0]
    assert requests == [frame(f"{name}-request") for name in names]
    assert [(m.partition, m.offset, m.index, m.next_offset, m.value) for m in messages] == [
        ("0-0", 0, 0, 0, b"hello"), ("0-0", 0, 1, 0, b""), ("0-0", 0, 2, 71, "grüße ✓".encode()),
        ("0-0", 71, 0, 71, b"fourth"), ("0-0", 71, 1, 132, b"fifth"), ("0-0", 132, 0, 147, b"sixth"),
    ]  # fmt: skip
    assert [len(decode_simply(bytes(part.message_set))) for part in parts] == [3, 2, 0]


def test_produce_requests_are_sent_and_nothing_is_read() -> None:
    with answering(None, None, None, frame("java-fetch-none-response")) as (consumer, requests):
        assert consumer.produce("g-none", "0-0", [b"hello", b"", "grüße ✓".encode()]) == -1
        assert consumer.produce("g-rand", -1, [b"anywhere"], acks=0) == -1
        sets = {TopicPartition("g-none", 1): [b"m1"], TopicPartition("g-gzip", "0-1"): [b"m2", b"m3"]}
        assert consumer.multi_produce(sets) == [ProducedPartition(0, -1)] * 2
        assert len(consumer.fetch("g-none", "0-0", 0)) == 3, "the next answer belongs to the next request"
    assert requests[0] == frame("java-produce-none-request")
    assert requests[1] == frame("java-produce-random-partition-request")
    assert requests[2][4:8] == struct.pack(">hh", 3, 2)


def test_what_a_broker_of_0_7_cannot_be_asked_is_refused_before_anything_is_sent() -> None:
    with answering() as (consumer, requests):
        partition = TopicPartition("t", "0-0")
        for ask in (
            lambda: consumer.topic_metadata(["t"]), consumer.all_topic_metadata, consumer.api_versions,
            lambda: consumer.commit_offsets("g", {partition: 5}), lambda: consumer.fetch_offsets("g", [partition]),
            lambda: consumer.consumer_metadata("g"), lambda: consumer.delete_group("g"),
            lambda: consumer.offset_for_time("t", 0, 5),
        ):  # fmt: skip
            with pytest.raises(NoSuchRequest, match="kafka07: brokers of this generation have no request for "):
                ask()
        with pytest.raises(ValueError, match="version 1: requests of Kafka 0"):
            consumer.fetch("t", 0, 0, version=1)
        with pytest.raises(ValueError, match="key"):
            consumer.produce("t", 0, [(b"key", b"value")])
        with pytest.raises(ValueError, match="no messages to produce"):
            consumer.produce("t", 0, [])
        with pytest.raises(ValueError, match="no partitions to produce to"):
            consumer.multi_produce({})
        with pytest.raises(ValueError, match="partition numbers are 0 to 2147483647"):
            consumer.produce("t", -2, [b"x"])
        with pytest.raises(ValueError, match="partition numbers are 0 to 2147483647"):
            consumer.fetch("t", -1, 0)
        with pytest.raises(ValueError, match="max_bytes is 0"):
            consumer.fetch("t", 0, 0, 0)
    assert requests == []


def test_faults_of_a_fetch_have_their_place() -> None:
    def fetched(data: bytes, code: int = 0) -> bytes:
        return struct.pack(">ih", len(data) + 2, code) + data

    cut = encode_entry(bytes(500))[:100]
    bad = encode_message_set([b"a", b"b"])[:-1] + b"x"
    answers = (fetched(b"", 1), fetched(b"", 3), fetched(cut), fetched(cut[:50]), fetched(bad), fetched(bad[11:]))
    with answering(*answers) as (consumer, _):
        with pytest.raises(BrokerError, match="t/0-1 at 7: OffsetOutOfRange"):
            consumer.fetch("t", "0-1", 7)
        with pytest.raises(BrokerError, match=r"t/0-1 at 7: UnknownTopicOrPartition \(code 3\)"):
            consumer.fetch("t", "0-1", 7)
        with pytest.raises(MessageTooLarge, match="is larger than the fetch of 100 bytes; ask for 510") as too_large:
            consumer.fetch("t", "0-1", 7, 100)
        assert (too_large.value.offset, too_large.value.next_offset) == (7, 517)
        with pytest.raises(BrokenFraming, match="t/0-1 at 7: 50 bytes of 100 came, in the middle of an entry"):
            consumer.fetch("t", "0-1", 7, 100)
        assert consumer.fetch("t", "0-1", 7) == [Message("t", "0-1", 7, 18, None, b"a")], "what is before an error"
        with pytest.raises(CrcMismatch, match="t/0-1 at 18: the CRC is"):
            consumer.fetch("t", "0-1", 18)


def test_columns_of_a_fetch() -> None:
    with answering(frame("java-fetch-gzip-response"), frame("java-fetch-gzip-response")) as (consumer, _):
        [batch] = consumer.fetch_columns("g-gzip", "0-0", 0)
        assert tuple(batch.schema.names) == KAFKA07.columns
        assert batch.column("next_offset").to_pylist() == [0, 0, 71, 71, 132, 147]
        assert batch.column("entry_index").to_pylist() == [0, 1, 2, 0, 1, 0]
        [batch] = consumer.fetch_columns("g-gzip", "0-0", 0, columns=["value"])
        assert batch.column("value").to_pylist()[-1] == b"sixth"
        with pytest.raises(ValueError, match="values"):
            consumer.fetch_columns("g-gzip", "0-0", 0, columns=["values"])


def test_a_partition_that_the_broker_does_not_have_hides_no_offsets_of_another() -> None:
    """At the question for its offsets the broker closes the connection."""

    def answering_one(peer: Peer) -> None:
        peer.request()
        peer.send(frame("java-offsets-latest-response"))
        peer.request()

    def closing(peer: Peer) -> None:
        peer.request()

    def why(peer: Peer) -> None:
        assert peer.request()[:2] == struct.pack(">h", 1), "a fetch"
        peer.send(frame("hand-fetch-wrong-partition-response"))
        peer.request()
        peer.send(frame("java-offsets-latest-response"))

    wanted = [TopicPartition("t", "0-0"), TopicPartition("t", "0-5"), TopicPartition("t", "0-1")]
    with (
        ScriptedBroker(answering_one, closing, why) as broker,
        SimpleConsumer(broker.host, broker.port, DEADLINE_S, dialect=KAFKA07) as consumer,
    ):
        first, second, third = consumer.multi_offsets_before(wanted, LATEST)
        assert first == third
        assert (first[0], second) == (0, (3, []))


def test_a_connection_that_is_closed_at_a_question_for_offsets_for_another_reason_fails() -> None:
    def closing(peer: Peer) -> None:
        peer.request()

    def why(peer: Peer) -> None:
        peer.request()
        peer.send(frame("hand-fetch-at-end-response"))

    with (
        ScriptedBroker(closing, why) as broker,
        SimpleConsumer(broker.host, broker.port, DEADLINE_S, dialect=KAFKA07) as consumer,
        pytest.raises(ConnectionFailed, match="closed by the broker"),
    ):
        consumer.get_offsets_before("t", "0-0", LATEST)
    with (
        ScriptedBroker(Peer.stall) as broker,
        SimpleConsumer(broker.host, broker.port, 0.3, dialect=KAFKA07) as consumer,
        pytest.raises(ConnectionFailed, match="no answer within"),
    ):
        consumer.get_offsets_before("t", "0-0", LATEST)


def test_a_connection_that_dies_in_the_middle_of_an_answer_is_not_used_again() -> None:
    whole = frame("java-multifetch-response")

    def dying(peer: Peer) -> None:
        peer.request()
        peer.send(whole[:-1])

    def serving(peer: Peer) -> None:
        peer.request()
        peer.send(frame("java-fetch-none-response"))

    wanted = [FetchRequest("t", number, 0, 100) for number in range(3)]
    with (
        ScriptedBroker(dying, serving) as broker,
        SimpleConsumer(broker.host, broker.port, DEADLINE_S, dialect=KAFKA07) as consumer,
    ):
        with pytest.raises(ConnectionFailed, match="closed by the broker after 116 of 117 bytes"):
            consumer.multifetch(wanted)
        assert len(consumer.fetch("t", 0, 0)) == 3
