"""Message sets of real brokers, decoded and compared with what Kafka's own library decoded."""

from __future__ import annotations

import zlib

import golden_frames
import pytest
from golden_frames import KEYS, VALUES, VERSIONS, Fetch

from simpleconsumer.kafka08.message_encode import encode_message
from simpleconsumer.kafka08.message_set import decode_messages, shallow_end
from simpleconsumer.types import Message

FETCHES = list(golden_frames.fetches())
CONTENT = [fetch for fetch in FETCHES if fetch.name.startswith("hand") and fetch.request.topic in fetch.name]
JAVA = [
    pytest.param(version, name, id=f"{version}-{name}")
    for version in VERSIONS
    for name in golden_frames.decoded_by_java(version)
]


def fetch_of(version: str, name: str) -> Fetch:
    return next(fetch for fetch in FETCHES if (fetch.version, fetch.name) == (version, name))


def decode(fetch: Fetch, start_offset: int = 0) -> list[Message]:
    fetched = fetch.decode()
    assert fetched.error_code == 0
    return list(decode_messages(fetched.message_set, fetched.topic, fetched.partition, start_offset))


def test_the_recordings_are_all_here() -> None:
    assert {version: sum(fetch.version == version for fetch in FETCHES) for version in VERSIONS} == {
        "0.8.0": 18, "0.8.1.1": 18, "0.8.2.2": 26, "0.10.2.2": 42,
    }  # fmt: skip
    assert len(JAVA) == 9 + 9 + 12 + 12


@pytest.mark.parametrize(("version", "name"), JAVA)
def test_decodes_what_java_decoded(version: str, name: str) -> None:
    expected = golden_frames.decoded_by_java(version)[name]
    messages = decode(fetch_of(version, f"java-{name}"))
    assert [(m.offset, m.next_offset) for m in messages] == [(int(e["offset"]), int(e["next"])) for e in expected]
    assert [(m.key or b"null").decode() for m in messages] == [e["key"] for e in expected]
    assert [m.value.decode() for m in messages] == [e["payload"] for e in expected]
    assert {m.topic for m in messages} == {fetch_of(version, f"java-{name}").request.topic}


@pytest.mark.parametrize(("version", "name"), JAVA)
def test_every_field_is_right_because_the_checksum_that_java_printed_is(version: str, name: str) -> None:
    """The CRC covers magic, attributes, timestamp, key and value: encoding them again must give the same one."""
    messages = decode(fetch_of(version, f"java-{name}"))
    for message, expected in zip(messages, golden_frames.decoded_by_java(version)[name], strict=True):
        stamp = -1 if message.timestamp_ms is None else message.timestamp_ms
        body = encode_message(0, message.key, message.value, int(expected["magic"]), timestamp_ms=stamp)[16:]
        assert zlib.crc32(body) == int(expected["crc"])
        assert (message.timestamp_ms is None) == (expected["magic"] == "0")


@pytest.mark.parametrize(("version", "name"), JAVA)
def test_messages_before_the_offset_asked_for_are_passed_over(version: str, name: str) -> None:
    start = int(name[-1])
    offsets = [message.offset for message in decode(fetch_of(version, f"java-{name}"), start)]
    assert offsets == list(range(start, 5))


@pytest.mark.parametrize("fetch", CONTENT, ids=lambda fetch: f"{fetch.version}-{fetch.name}")
def test_every_producer_codec_and_version_holds_the_known_content(fetch: Fetch) -> None:
    messages = decode(fetch)
    count = 5 if fetch.request.topic.startswith("g-") else 3
    assert [m.offset for m in messages] == list(range(count))
    assert [m.key for m in messages] == list(KEYS[:count])
    assert [m.value for m in messages] == list(VALUES[:count])
    assert fetch.decode().high_watermark == count
    if fetch.api_version < 2:
        assert {m.timestamp_ms for m in messages} == {None}
    elif count == 3:
        assert [m.timestamp_ms for m in messages] == [1400000000001, 1400000000002, 1400000000003]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_that_ends_in_the_middle_of_a_message_yields_the_whole_ones(version: str) -> None:
    fetch = fetch_of(version, "hand-fetch-v0-partial")
    assert [m.value for m in decode(fetch)] == [b"hello"]
    assert shallow_end(fetch.decode().message_set) == (31, 1, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_too_small_for_one_message_yields_nothing_and_shows_it(version: str) -> None:
    fetched = fetch_of(version, "hand-fetch-v0-too-small").decode()
    assert len(fetched.message_set) == 10
    assert list(decode_messages(fetched.message_set, "g-none", 0)) == []
    assert shallow_end(fetched.message_set) == (0, None, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_end_there_is_nothing_and_beyond_it_an_error(version: str) -> None:
    at_end = fetch_of(version, "hand-fetch-v0-at-end").decode()
    assert (at_end.error_code, at_end.high_watermark, bytes(at_end.message_set)) == (0, 5, b"")
    assert shallow_end(at_end.message_set) == (0, None, 0)
    assert fetch_of(version, "hand-fetch-v0-beyond-end").decode()[2:4] == (1, -1)
    assert fetch_of(version, "hand-fetch-v0-unknown-topic").decode()[2:4] == (3, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wrapper_comes_whole_when_asked_for_its_middle(version: str) -> None:
    fetch = fetch_of(version, "hand-fetch-v0-g-gzip-from-1")
    assert [m.offset for m in decode(fetch)] == [0, 1, 2, 3, 4]
    assert [m.offset for m in decode(fetch, 1)] == [1, 2, 3, 4]
    assert shallow_end(fetch.decode().message_set)[1] == 5
