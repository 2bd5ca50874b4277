"""Answers of Kafka 0.7 that contradict themselves, bombs, impossible lengths, and connections that end at any byte."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from decoding import MEBIBYTE, memory_growth_below
from kafka07_decoding import PARTITION, decode_all
from scripted_broker import Peer, ScriptedBroker

from simpleconsumer import KAFKA07, LATEST, SimpleConsumer
from simpleconsumer.codecs import compress
from simpleconsumer.errors import (
    BrokerError,
    ConnectionFailed,
    CorruptMessage,
    DecodeError,
    MessageError,
    MessageTooLarge,
)
from simpleconsumer.kafka07 import requests as kafka07
from simpleconsumer.kafka07.columns import decode_columns
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper
from simpleconsumer.types import FetchRequest
from zkconsumer.testing import EmbeddedCluster, TcpProxy
from zkconsumer.testing.waiting import wait_until

ONE, TWO = encode_message_set([b"one"]), encode_message_set([b"two", b"three"])
WANTED = [FetchRequest("t", "0-0", 0, 4096), FetchRequest("t", "0-1", 0, 4096)]


def part(data: bytes, code: int = 0, length: int | None = None) -> bytes:
    """Return one part of a multifetch answer; with a length that is not its own, if one is given."""
    return struct.pack(">ih", 2 + len(data) if length is None else length, code) + data


def whole(*parts: bytes, code: int = 0) -> bytes:
    return struct.pack(">h", code) + b"".join(parts)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def consumer_of(broker: ScriptedBroker, timeout_s: float = 5.0) -> SimpleConsumer:
    return SimpleConsumer(broker.host, broker.port, timeout_s, dialect=KAFKA07)


# Answers


def test_the_answer_that_the_others_are_made_of_is_read() -> None:
    found = kafka07.decode_multi_fetch(whole(part(ONE), part(TWO)), WANTED)
    assert [bytes(each.message_set) for each in found] == [ONE, TWO]


BEHIND_FIRST = len(part(TWO))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "length", [-(2**31), -1, 0, 1, 2 + len(ONE) - 1, 2 + len(ONE) + 1, 2 + len(ONE) + BEHIND_FIRST, 2**31 - 1]
)
def test_a_part_whose_length_is_not_its_own_is_an_error_and_no_other_part(length: int, number: int) -> None:
    parts = [part(ONE, length=length), part(TWO)]
    if number:
        parts = [part(TWO), part(ONE, length=length)]
    with memory_growth_below(MEBIBYTE), pytest.raises(DecodeError):
        kafka07.decode_multi_fetch(whole(*parts), WANTED)


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_an_answer_with_fewer_or_more_parts_than_were_asked_for_is_an_error(count: int) -> None:
    with pytest.raises(DecodeError):
        kafka07.decode_multi_fetch(whole(*[part(ONE)] * count), WANTED)


@pytest.mark.parametrize("code", [-1, 1, 2, 3, 4, 99])
def test_bytes_behind_the_error_code_of_a_partition_are_not_taken_for_messages(code: int) -> None:
    [first, second] = kafka07.decode_multi_fetch(whole(part(ONE, code), part(TWO)), WANTED)
    assert (first.error_code, second.error_code) == (code, 0)
    result = KAFKA07.classify(first, 0, 4096, 1 << 20)
    assert (result.valid_bytes, result.next_offset, result.size_bytes) == (0, -1, 0)
    with answering(framed(struct.pack(">h", code) + ONE)) as consumer, pytest.raises(BrokerError) as caught:
        consumer.fetch("t", "0-0", 7)
    assert (caught.value.code, caught.value.topic, caught.value.partition, caught.value.offset) == (code, "t", "0-0", 7)


def test_parts_behind_the_error_code_of_a_whole_multifetch_speak_for_themselves() -> None:
    """As in the Java client, which reads no code but those of the parts."""
    found = kafka07.decode_multi_fetch(whole(part(ONE), part(b"", 3), code=-1), WANTED)
    assert [(each.error_code, bytes(each.message_set)) for each in found] == [(0, ONE), (3, b"")]
    for behind in (b"\0", b"\xff" * 6, part(ONE), whole(part(ONE), part(TWO))):
        with pytest.raises(DecodeError):
            kafka07.decode_multi_fetch(whole(behind, code=-1), WANTED)


@pytest.mark.parametrize("code", [0, -1, 3])
@pytest.mark.parametrize(("count", "there"), [(-(2**31), 0), (-1, 1), (1, 0), (3, 2), (2**31 - 1, 2), (0, 1), (1, 2)])
def test_offsets_of_another_count_than_their_own_are_an_error_and_take_no_memory(
    count: int, there: int, code: int
) -> None:
    body = struct.pack(f">hi{there}q", code, count, *range(there))
    with memory_growth_below(MEBIBYTE), pytest.raises(DecodeError, match=r"array at byte 2|bytes after its end"):
        kafka07.decode_offsets(body)


def test_an_answer_with_more_offsets_than_were_asked_for_is_read() -> None:
    body = struct.pack(">hi5q", 0, 5, *range(5, 0, -1))
    with answering(framed(body)) as consumer:
        assert consumer.get_offsets_before("t", "0-0", LATEST, 1) == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("body", [b"", b"\0"])
def test_an_answer_of_no_bytes_or_of_one_is_an_error_and_ends_the_connection(body: bytes) -> None:
    asks: list[Any] = [
        lambda consumer: consumer.fetch("t", "0-0", 0),
        lambda consumer: consumer.multifetch(WANTED),
        lambda consumer: consumer.get_offsets_before("t", "0-0", LATEST),
    ]
    for ask in asks:

        def broken(peer: Peer) -> None:
            peer.request()
            peer.send(framed(body))
            peer.wait_until_closed()

        def good(peer: Peer) -> None:
            peer.request()
            peer.send(framed(whole(ONE)))

        with ScriptedBroker(broken, good) as broker, consumer_of(broker) as consumer:
            with pytest.raises(DecodeError, match=f"int16 at byte 0 needs 2 bytes, {len(body)} are left") as caught:
                ask(consumer)
            [note] = caught.value.__notes__
            assert note == f"in an answer of {len(body)} bytes from {broker.host}:{broker.port}"
            assert [message.value for message in consumer.fetch("t", "0-0", 0)] == [b"one"]


def test_what_is_left_of_an_answer_that_is_longer_than_its_frame_is_never_read_as_the_next_answer() -> None:
    """Nothing in an answer of Kafka 0.7 says which request it belongs to."""

    def too_long(peer: Peer) -> None:
        peer.request()
        peer.send(framed(whole(ONE)) + framed(whole(encode_message_set([b"never"]))))
        peer.wait_until_closed()

    def good(peer: Peer) -> None:
        peer.request()
        peer.send(framed(whole(TWO)))

    with ScriptedBroker(too_long, good) as broker, consumer_of(broker) as consumer:
        assert [message.value for message in consumer.fetch("t", "0-0", 0)] == [b"one"]
        wait_until(lambda: not consumer._connection._reusable(), 5, "the bytes that nobody asked for")
        assert [message.value for message in consumer.fetch("t", "0-0", 13)] == [b"two", b"three"]


def test_an_answer_to_a_produce_request_is_never_read_as_the_next_answer() -> None:
    def answers_all(peer: Peer) -> None:
        peer.request()
        peer.send(framed(whole(ONE)))
        peer.wait_until_closed()

    def good(peer: Peer) -> None:
        peer.request()
        peer.send(framed(whole(TWO)))

    with ScriptedBroker(answers_all, good) as broker, consumer_of(broker) as consumer:
        consumer.produce("t", "0-0", [b"x"])
        wait_until(lambda: not consumer._connection._reusable(), 5, "the bytes that nobody asked for")
        assert [message.value for message in consumer.fetch("t", "0-0", 0)] == [b"two", b"three"]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (struct.pack(">i", -1), "frame with the negative size -1"),
        (struct.pack(">i", 2**31 - 1), "frame of 2147483647 bytes, at most 268435456 are accepted"),
        (b"HTTP", "frame of 1213486160 bytes, at most 268435456 are accepted"),
    ],
)
def test_a_frame_of_an_impossible_size_is_refused_before_it_is_read(header: bytes, reason: str) -> None:
    refused = pytest.raises(DecodeError, match=reason)
    with answering(header + b"x" * 100) as consumer, memory_growth_below(MEBIBYTE), refused:
        consumer.multifetch(WANTED)


def test_an_answer_that_is_shorter_than_its_frame_ends_at_the_deadline() -> None:
    def silent(peer: Peer) -> None:
        peer.request()
        peer.send(framed(whole(part(ONE), part(TWO)))[:-1])
        peer.wait_until_closed()

    with ScriptedBroker(silent) as broker, consumer_of(broker, 0.3) as consumer:
        started = time.monotonic()
        with pytest.raises(ConnectionFailed, match=r"no answer within 0\.3 s"):
            consumer.multifetch(WANTED)
        assert time.monotonic() - started < 5


@contextmanager
def answering(answer: bytes) -> Iterator[SimpleConsumer]:
    """Yield a consumer of a broker that gives one answer, then waits until the connection is closed."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(answer)
        peer.wait_until_closed()

    with ScriptedBroker(script) as broker, consumer_of(broker) as consumer:
        yield consumer


# Connections that end


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, generation="0.7", zookeeper=False) as made:
        made.produce("t", [b"one"], partition="0-0")
        made.produce("t", [b"two", b"three"], partition="0-1", codec="gzip")
        yield made


def test_a_connection_that_ends_at_any_byte_of_a_multifetch_answer_gives_no_part_of_it(
    cluster: EmbeddedCluster,
) -> None:
    with (
        TcpProxy(("127.0.0.1", cluster.port(0))) as proxy,
        SimpleConsumer("127.0.0.1", proxy.port, 10.0, dialect=KAFKA07) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        before = proxy.moved_bytes("down")
        expected = [bytes(each.message_set) for each in consumer.multifetch(WANTED)]
        length = proxy.moved_bytes("down") - before
        assert length == 4 + 2 + 2 * 6 + sum(map(len, expected))
        for cut in range(1, length):
            proxy.drop()
            wait_until(lambda: not consumer._connection._reusable(), 5, "the end of the connection", interval_s=0.001)
            before = proxy.moved_bytes("down")
            proxy.stall_after(cut)
            call = pool.submit(consumer.multifetch, WANTED)
            wait_until(lambda: proxy.moved_bytes("down") - before >= cut, 5, f"{cut} bytes", interval_s=0.001)  # noqa: B023
            proxy.drop()
            with pytest.raises(ConnectionFailed):
                call.result(5)
            proxy.clear()
            assert [bytes(each.message_set) for each in consumer.multifetch(WANTED)] == expected


# Message sets


def found(data: bytes, limit: int) -> list[tuple[int, int, int]]:
    """Return offset, index and next offset of each row and error of the columns of a set."""
    rows: list[tuple[int, int, int]] = []
    resume = None
    while True:
        try:
            for batch in decode_columns(data, "t", PARTITION, max_decoded_bytes=limit, resume=resume):
                names = ("offset", "entry_index", "next_offset")
                rows += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
            return rows
        except MessageError as error:
            rows.append((error.offset, error.index, error.next_offset))
            resume = error.resume


@pytest.mark.parametrize("outer", ["gzip", "snappy"])
@pytest.mark.parametrize("inner", ["gzip", "snappy"])
def test_a_bomb_in_an_entry_is_refused_by_the_limit_of_that_entry(outer: str, inner: str) -> None:
    bomb = encode_wrapper(encode_entry(b"\0" * 60 * MEBIBYTE), inner)
    data = encode_wrapper(encode_message_set([b"a"]) + bomb + encode_message_set([b"b"]), outer)
    limit = 4 * MEBIBYTE
    left = limit - len(encode_message_set([b"a"]) + bomb + encode_message_set([b"b"]))
    with memory_growth_below(24 * MEBIBYTE):
        messages, [error] = decode_all(data + ONE, 500, limit)
        columns = found(data + ONE, limit)
    assert [message.value for message in messages] == [b"a", b"b", b"one"]
    assert type(error) is MessageTooLarge
    assert str(error) == f"t/{PARTITION} at 500: message 1 of the entry: {inner}: inflates to more than {left} bytes"
    assert (error.index, error.next_offset) == (1, 500)
    end = len(data)
    assert columns == [(0, 0, 0), (0, 1, 0), (0, 2, end), (end, 0, end + len(ONE))]


@pytest.mark.parametrize("inside", [b"", encode_message_set([b""])])
def test_thousands_of_compressed_entries_in_one_take_time_by_their_number_alone(inside: bytes) -> None:
    small = encode_wrapper(inside, "snappy")

    def seconds(count: int) -> float:
        data = encode_wrapper(small * count, "gzip")
        started = time.process_time()
        messages, errors = decode_all(data, 0, 16 * MEBIBYTE)
        rows = found(data, 16 * MEBIBYTE)
        assert (len(messages), errors) == (count if inside else 0, [])
        assert len(rows) == len(messages)
        return time.process_time() - started

    seconds(100)
    few = min(seconds(2000) for _ in range(3))
    assert min(seconds(16_000) for _ in range(2)) < 8 * 4 * few


def test_what_follows_an_error_two_levels_deep_comes_in_few_batches() -> None:
    inside = bytearray(encode_message_set([b"value %d" % number for number in range(4000)]))
    inside[12] ^= 1  # of the first payload
    data = encode_wrapper(encode_wrapper(bytes(inside), "gzip"), "gzip")
    with pytest.raises(MessageError) as caught:
        list(decode_columns(data, "t", PARTITION))
    rest = list(decode_columns(data, "t", PARTITION, resume=caught.value.resume))
    assert sum(batch.num_rows for batch in rest) == 3999
    assert len(rest) < 40


@pytest.mark.parametrize("inner", [False, True], ids=["log", "entry"])
def test_every_magic_but_0_and_1_is_one_error(inner: bool) -> None:
    for magic in range(2, 256):
        entry = bytearray(encode_entry(b"x" * 20))
        entry[4] = magic
        data = encode_message_set([b"a"] * 50) + bytes(entry) + encode_message_set([b"b"] * 50)
        messages, [error] = decode_all(encode_wrapper(data, "gzip") if inner else data)
        assert [message.value for message in messages] == [b"a"] * 50 + [b"b"] * 50
        assert type(error) is CorruptMessage
        assert error.reason == f"magic {magic} is not known (0 and 1 are)"


def test_payloads_of_no_bytes_are_messages_in_all_forms() -> None:
    for magic in (0, 1):
        data = encode_message_set([b""] * 100, magic=magic)
        for each in (data, encode_wrapper(data, "gzip"), encode_wrapper(encode_wrapper(data, "snappy"), "gzip")):
            messages, errors = decode_all(each)
            assert ([message.value for message in messages], errors) == ([b""] * 100, [])
            assert len(found(each, MEBIBYTE)) == 100


def test_a_compressed_entry_of_every_wrong_codec_is_one_error_or_what_is_stored() -> None:
    """No checksum covers the attributes."""
    inside = encode_message_set([b"a", b"b"])
    for codec, payload in ((1, compress(1, inside)), (2, compress(2, inside))):
        for attributes in range(256):
            data = encode_entry(payload, attributes=attributes) + ONE
            messages, errors = decode_all(data)
            expected = {codec: [b"a", b"b"], 0: [payload]}.get(attributes & 3, [])
            assert [message.value for message in messages] == [*expected, b"one"]
            assert len(errors) == (0 if expected else 1)
            assert messages[-1].offset == len(data) - len(ONE)
