"""Requests and answers of Kafka 0.7: byte for byte as in the protocol and as its client and broker sent them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka07_decoding import answer, decode_simply, frame

from simpleconsumer.codecs import decompress
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.dialect_types import Request
from simpleconsumer.errors import DecodeError, NoSuchRequest
from simpleconsumer.kafka07 import requests as kafka07
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set
from simpleconsumer.types import FetchedPartition, FetchRequest, Message, TopicPartition

LATEST, EARLIEST = -1, -2
THREE = [b"hello", b"", "grüße ✓".encode()]


def framed(request: Request[Any]) -> bytes:
    return KAFKA07.frame(request, 7, "client")


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def fetch(*wanted: tuple[str, int | str, int, int]) -> Request[list[FetchedPartition]]:
    return KAFKA07.fetch([FetchRequest(*each) for each in wanted], 100, 1, 0)


def produce(*sets: tuple[str, int | str, bytes]) -> Request[Any]:
    return KAFKA07.produce({TopicPartition(topic, number): data for topic, number, data in sets}, 1, 1000, 0)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (
            framed(produce(("test", 0, encode_message_set([b"hello"])))),
            "0000001f 0000 0004 74657374 00000000 0000000f 0000000b 01 00 3610a686 68656c6c6f",
        ),
        (
            kafka07.frame_request(
                kafka07.MULTI_FETCH, kafka07.encode_multi_fetch([FetchRequest("test", 0, 0, 1 << 20)])
            ),
            "0000001a 0002 0001 0004 74657374 00000000 0000000000000000 00100000",
        ),
        (
            framed(fetch(("test", "5-0", 0, 1 << 20))),
            "00000018 0001 0004 74657374 00000000 0000000000000000 00100000",
        ),
        (
            framed(KAFKA07.offsets([TopicPartition("test", 0)], LATEST, 1)[0]),
            "00000018 0004 0004 74657374 00000000 ffffffffffffffff 00000001",
        ),
        (encode_message_set([b"hello"]), "0000000b 01 00 3610a686 68656c6c6f"),
        (encode_message_set([b"hello"], magic=0), "0000000a 00 3610a686 68656c6c6f"),
    ],
    ids=["produce", "multifetch", "fetch", "offsets", "magic 1", "magic 0"],
)  # fmt: skip
def test_conformance_vectors(sent: bytes, expected: str) -> None:
    assert sent == hexadecimal(expected)


def test_conformance_vectors_of_answers() -> None:
    body = hexadecimal("0000 00000011 0000 0000000b 01 00 3610a686 68656c6c6f")
    [found] = kafka07.decode_multi_fetch(body, [FetchRequest("test", 0, 0, 1 << 20)])
    assert (found.error_code, found.high_watermark) == (0, -1)
    assert decode_simply(bytes(found.message_set)) == [Message("t", "0-1", 0, 15, None, b"hello")]
    assert kafka07.decode_offsets(hexadecimal("0000 00000001 000000000000000f")) == (0, [15])


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("java-fetch-none", fetch(("g-none", 0, 0, 65536))),
        ("java-fetch-gzip", fetch(("g-gzip", 0, 0, 65536))),
        ("java-fetch-snappy", fetch(("g-snappy", 0, 0, 65536))),
        ("java-multifetch", fetch(("g-none", 0, 0, 4096), ("g-gzip", "0-1", 0, 4096), ("g-unknown", 0, 0, 4096))),
        ("java-offsets-latest", KAFKA07.offsets([TopicPartition("g-gzip", 0)], LATEST, 10)[0]),
        ("java-offsets-earliest", KAFKA07.offsets([TopicPartition("g-gzip", 0)], EARLIEST, 10)[0]),
        ("java-offsets-unknown-topic", KAFKA07.offsets([TopicPartition("g-unknown", 0)], LATEST, 10)[0]),
        ("java-offsets-by-time-epoch1", KAFKA07.offsets([TopicPartition("g-gzip", 0)], 1, 10)[0]),
        ("hand-fetch-magic0", fetch(("h-magic0", 0, 0, 4096))),
        ("java-produce-none", produce(("g-none", 0, encode_message_set(THREE)))),
        ("java-produce-snappy", produce(("g-snappy", 0, encode_message_set(THREE, "snappy")))),
        ("java-produce-random-partition", produce(("g-rand", -1, encode_message_set([b"anywhere"])))),
        ("java-produce-gzip-plain", produce(("g-gzip", 0, encode_message_set([b"sixth"])))),
        ("hand-produce-magic0", produce(("h-magic0", 0, encode_message_set([b"hello", b"old"], magic=0)))),
    ],
)  # fmt: skip
def test_requests_of_the_java_client(name: str, request_: Request[Any]) -> None:
    assert framed(request_) == frame(f"{name}-request")


def inflated(set_bytes: bytes) -> tuple[bytes, bytes]:
    """Return head (without size and CRC) and decompressed payload of the only entry of a set."""
    assert struct.unpack_from(">i", set_bytes)[0] == len(set_bytes) - 4
    return set_bytes[4:6], decompress(set_bytes[5] & 3, set_bytes[10:], 1 << 20)


@pytest.mark.parametrize(
    ("name", "values"), [("java-produce-gzip", THREE), ("java-produce-gzip-2", [b"fourth", b"fifth"])]
)
def test_gzip_of_the_java_client_inflates_to_what_ours_does(name: str, values: list[bytes]) -> None:
    recorded = frame(f"{name}-request")
    head = len(framed(produce(("g-gzip", 0, b""))))
    assert framed(produce(("g-gzip", 0, recorded[head:]))) == recorded
    assert inflated(recorded[head:]) == inflated(encode_message_set(values, "gzip"))


def test_multiproduce_of_the_java_client() -> None:
    """Everything but the gzip bytes is equal."""
    recorded = frame("java-multiproduce-request")
    plain = encode_message_set([b"m1"])
    gzip = recorded[-0x33:]
    assert framed(produce(("g-none", 1, plain), ("g-gzip", "0-1", gzip))) == recorded
    assert inflated(gzip) == inflated(encode_message_set([b"m2", b"m3"], "gzip"))


def test_the_nested_set_is_built_of_entries() -> None:
    recorded = frame("hand-produce-nested-gzip-request")
    [entry] = [recorded[-0x6C:]]
    inside = decompress(1, entry[10:], 1 << 20)
    parts = [message.value for message in decode_simply(entry)]
    assert parts == [b"inner1", b"deep1", b"deep2", b"inner2"]
    assert inside.startswith(encode_entry(b"inner1"))
    assert inside.endswith(encode_entry(b"inner2"))


def test_recorded_answers_to_fetches() -> None:
    def fetched(name: str) -> tuple[int, int]:
        [found] = fetch(("t", 0, 0, 100)).decode(memoryview(answer(name)))
        return found.error_code, len(found.message_set)

    assert fetched("java-fetch-none") == (0, 46)
    assert fetched("hand-fetch-at-end") == (0, 0)
    assert fetched("hand-fetch-beyond-end") == (1, 0)
    assert fetched("hand-fetch-negative-offset") == (1, 0)
    assert fetched("hand-fetch-wrong-partition") == (3, 0)
    assert fetched("hand-fetch-unknown-topic") == (0, 0)
    assert fetched("hand-fetch-unknown-topic-at-7") == (0, 0)
    assert fetched("hand-fetch-size-0") == (0, 0)


def test_a_multifetch_has_an_error_code_for_each_partition() -> None:
    wanted = [("a", "0-0", 0, 100), ("a", "0-7", 0, 100)]
    found = fetch(*wanted).decode(memoryview(answer("hand-multifetch-with-one-wrong")))
    assert [(each.topic, each.partition, each.error_code, len(each.message_set)) for each in found] == [
        ("a", "0-0", 0, 46),
        ("a", "0-7", 3, 0),
    ]


def test_recorded_offsets_come_with_the_largest_first() -> None:
    def found(name: str) -> list[tuple[int, list[int]]]:
        [request] = KAFKA07.offsets([TopicPartition("t", "0-0")], LATEST, 10)
        return request.decode(memoryview(answer(name)))

    assert found("java-offsets-latest") == [(0, [147, 0])]
    assert found("java-offsets-earliest") == [(0, [0])]
    assert found("java-offsets-unknown-topic") == [(0, [0])]
    assert found("java-offsets-by-time-epoch1") == [(0, [])]
    assert found("hand-offsets-latest-max-0") == [(0, [])]


def test_there_is_one_offsets_request_for_each_partition() -> None:
    asked = KAFKA07.offsets([TopicPartition("t", "3-0"), TopicPartition("t", "3-1")], LATEST, 1)
    assert [request.body for request in asked] == [
        kafka07.encode_offsets(TopicPartition("t", number), LATEST, 1) for number in (0, 1)
    ]
    assert all(request.can_resend for request in asked)


def test_no_produce_request_is_answered_or_sent_twice() -> None:
    for request in (produce(("t", 0, b"x")), produce(("t", 0, b"x"), ("t", 1, b"y"))):
        assert not request.has_answer
        assert not request.can_resend


# Hostile and cut off answers


@pytest.mark.parametrize("name", ["java-multifetch", "hand-multifetch-with-one-wrong"])
def test_a_multifetch_answer_that_is_cut_or_has_more_is_an_error(name: str) -> None:
    body = answer(name)
    wanted = [FetchRequest("t", number, 0, 100) for number in range(3 if name == "java-multifetch" else 2)]
    kafka07.decode_multi_fetch(body, wanted)
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            kafka07.decode_multi_fetch(body[:length], wanted)
    with pytest.raises(DecodeError, match="multifetch response: 1 bytes after its end"):
        kafka07.decode_multi_fetch(body + b"\0", wanted)
    with pytest.raises(DecodeError):
        kafka07.decode_multi_fetch(body, wanted[:-1])
    with pytest.raises(DecodeError):
        kafka07.decode_multi_fetch(body, [*wanted, FetchRequest("t", 9, 0, 100)])


def test_the_malformed_answer_to_a_negative_fetch_size_is_an_error() -> None:
    """A broker says one byte and sends two: the frame holds half of an error code."""
    with pytest.raises(DecodeError):
        kafka07.decode_fetch(b"\0", FetchRequest("t", 0, 0, 1))


def test_an_error_of_the_whole_multifetch_is_one_of_each_partition() -> None:
    found = kafka07.decode_multi_fetch(struct.pack(">h", -1), [FetchRequest("t", n, 0, 9) for n in (0, 1)])
    assert found == [FetchedPartition("t", number, -1, -1, memoryview(b"")) for number in (0, 1)]


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0", b"\0\0\0\0\0\1", b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\0x"])
def test_offsets_that_make_no_sense_are_an_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        kafka07.decode_offsets(body)


def test_bytes_behind_offsets_are_an_error() -> None:
    with pytest.raises(DecodeError, match="offsets response: 1 bytes after its end at byte 6"):
        kafka07.decode_offsets(struct.pack(">hix", 0, 0))


def test_an_error_code_of_offsets_is_kept() -> None:
    assert kafka07.decode_offsets(struct.pack(">h", 3)) == (3, [])
    assert kafka07.decode_offsets(struct.pack(">hi", 3, 0)) == (3, [])


# Arguments


@pytest.mark.parametrize(
    ("partition", "number"), [("0-3", 3), ("1000000-0", 0), (5, 5), ("2-10", 10), ("0-2147483647", 2**31 - 1)]
)
def test_the_number_of_a_partition_is_behind_its_broker(partition: int | str, number: int) -> None:
    assert KAFKA07.partition_number(partition) == number


@pytest.mark.parametrize(
    "text", ["", "3", "-3", "0-", "0--1", "a-0", "0-a", "0-1-2", " 0-1", "0-²", "٣-1", "0-4294967296"]
)
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a partition of Kafka 0\.7; it must be broker-number, such as '0-3'"):
        KAFKA07.partition_number(text)


def test_a_name_is_counted_in_bytes_as_brokers_read_it() -> None:
    body = fetch(("grüße", 0, 0, 1)).body
    assert body.startswith(struct.pack(">h", 7) + "grüße".encode())


def test_a_multifetch_is_its_fetches_behind_their_number() -> None:
    wanted = [("t", 0, 5, 1), ("u", 7, 6, 2)]
    assert fetch(*wanted).body == b"\0\2" + fetch(wanted[0]).body + fetch(wanted[1]).body


def test_versions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"version 2: requests of Kafka 0\.7 have no versions"):
        KAFKA07.fetch([FetchRequest("t", 0, 0, 1)], 0, 0, 2)
    with pytest.raises(ValueError, match=r"version 1: requests of Kafka 0\.7 have no versions"):
        KAFKA07.produce({TopicPartition("t", 0): b"x"}, 1, 0, 1)
    with pytest.raises(ValueError, match="version 1"):
        KAFKA07.frame(Request(1, 1, b"", bytes), 0, "")


def test_more_partitions_than_a_request_can_count_are_refused() -> None:
    most = 32767
    assert fetch(*[("t", number, 0, 1) for number in range(most)]).body.startswith(b"\x7f\xff")
    with pytest.raises(ValueError, match="32768 partitions fetched at once; a request can have 32767"):
        fetch(*[("t", number, 0, 1) for number in range(most + 1)])
    with pytest.raises(ValueError, match="32768 partitions produced to at once; a request can have 32767"):
        produce(*[("t", number, b"x") for number in range(most + 1)])


@pytest.mark.parametrize(
    ("ask", "about", "remedy"),
    [
        (lambda: KAFKA07.metadata(["t"]), "metadata", "the name of a partition says which broker has it"),
        (lambda: KAFKA07.api_versions(), "the versions", "have no versions"),
        (lambda: KAFKA07.commit_offsets("g", {}, 0), "committing offsets", "ZooKeeper"),
        (lambda: KAFKA07.fetch_offsets("g", [], 0), "committed offsets", "ZooKeeper"),
        (lambda: KAFKA07.coordinator("g"), "the offset manager", "ZooKeeper"),
        (lambda: KAFKA07.delete_group("g"), "deleting a group", "ZooKeeper"),
        (lambda: KAFKA07.offsets_for_times({}), "the message of a time", "get_offsets_before"),
    ],
)
def test_requests_that_do_not_exist_are_refused_with_what_to_do(ask: Any, about: str, remedy: str) -> None:
    with pytest.raises(NoSuchRequest, match="kafka07: brokers of this generation have no request for ") as caught:
        ask()
    assert caught.value.request.startswith(about)
    assert remedy in caught.value.remedy
    assert caught.value.remedy in str(caught.value)


def test_nothing_of_what_newer_brokers_serve_is_served() -> None:
    everything = {number: range(10) for number in range(100)}
    assert not KAFKA07.serves_offsets_for_times(everything)
    assert not KAFKA07.serves_delete_groups(everything)


@pytest.mark.parametrize(
    ("messages", "options", "reason"),
    [
        ([(b"key", b"value")], {}, "message 0 has a key: Kafka 0.7 stores none"),
        ([b"x", Message("t", 0, 0, 1, b"key", b"value")], {}, "message 1 has a key: Kafka 0.7 stores none"),
        ([(None, None)], {}, "message 0 has no value: Kafka 0.7 stores no null, only values of 0 bytes"),
        ([b"x"], {"codec": "lz4"}, "codec 'lz4' is not one of none, gzip, snappy, the codecs of Kafka 0.7"),
        ([b"x"], {"magic": 2}, "magic 2 is neither 0 nor 1"),
        ([b"x"], {"codec": "gzip", "magic": 0}, "codec 'gzip' needs magic 1: messages of magic 0 are never compressed"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused(messages: list[Any], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        encode_message_set(messages, **options)
    assert str(caught.value) == reason


def test_pairs_and_messages_are_encoded_by_their_values() -> None:
    expected = encode_message_set([b"x"] * 3)
    assert (
        KAFKA07.encode_messages([b"x", (None, b"x"), Message("t", 0, 0, 1, None, b"x", 5)], "none", None, 7) == expected
    )
    assert KAFKA07.encode_messages([], "gzip", None, None) == b""
