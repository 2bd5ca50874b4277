"""Encoders give the same bytes with the compiled kernel and without it, and those of one message at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from decoding import PATHS, decoding_by
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer import codecs, kernel
from simpleconsumer.dialect import Run, encode_producer_batch, encode_producer_set, takes_producer_ids, takes_zstd
from simpleconsumer.kafka011.batch_head import read_head
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.kafka07 import requests as encode_07
from simpleconsumer.kafka08.message_encode import encode_message, encode_message_set, encode_wrapper
from simpleconsumer.types import HeaderMessage, Headers, Message

SIZES = (0, 1, 40, 62, 63, 64, 65, 127, 128, 4030, 4032, 4033, 5000, 8191, 8192)
CONTENT = st.one_of(st.none(), st.sampled_from(SIZES).map(lambda size: b"x" * size))
HEADERS = st.sampled_from([None, (), (("h", b"1"),), (("größe", None), ("h", b""), ("h", b"x" * 100))])
OWN_TIME = st.sampled_from([None, 0, 5, 1_699_999_999_999, 1_700_000_000_189, 4_000_000_000_000, 2**63 - 1, 10**18 - 1])


def as_row(key: bytes | None, value: bytes | None, headers: Headers | None, time_ms: int | None) -> tuple[Any, ...]:
    """Return a message as producers keep it: with what it has beside key and value, and no more."""
    if time_ms is not None:
        return key, value, headers or (), time_ms
    return (key, value) if headers is None else (key, value, headers)


ROW = st.builds(as_row, CONTENT, CONTENT, HEADERS, OWN_TIME)
TIME = st.sampled_from([0.0, 0.001, 0.0635, 0.064, -1.5, 77.25, 10_000.0, 1e9])
RUN = st.lists(ROW, min_size=1, max_size=40).flatmap(
    lambda rows: st.tuples(st.just(rows), st.one_of(
        st.lists(TIME, min_size=len(rows), max_size=len(rows)), TIME.map(lambda at: (at,))
    ))
)  # fmt: skip
CLOCK_S = 1_700_000_000.125
PRODUCER = BatchProducer(2**40 + 5, 1, 2**31 - 7, is_transactional=True)
BATCH_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def by_both(encode: Callable[[], bytes]) -> bytes:
    """Encode by both paths, compare what they give, and return it."""
    found = []
    for path in PATHS:
        with decoding_by(path):
            found.append(encode())
    assert found[0] == found[1]
    return found[0]


def as_messages(runs: list[Run], clock_s: float) -> list[Message]:
    found: list[Message] = []
    for rows, times in runs:
        for index, (key, value, *rest) in enumerate(rows):
            headers: Headers = rest[0] if rest else ()
            came_ms = int((clock_s + times[index if len(times) > 1 else 0]) * 1000)
            place = ("t", 0, len(found), len(found) + 1, key, value, rest[1] if len(rest) > 1 else came_ms)
            found.append(HeaderMessage(*place, headers) if headers else Message(*place))
    return found


# -- record batches --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(runs=st.lists(RUN, min_size=1, max_size=4), codec=st.sampled_from(BATCH_CODECS))
def test_batches_of_producers_are_those_of_single_messages(runs: list[Run], codec: str) -> None:
    expected = encode_record_batch(as_messages(runs, CLOCK_S), codec, producer=PRODUCER)
    assert by_both(lambda: encode_producer_batch(runs, codec, CLOCK_S, PRODUCER)) == expected


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8193, 16_385, 40_000])
def test_numbers_of_more_bytes_are_encoded_within_a_run(count: int) -> None:
    rows = [(None, b"v%d" % number) for number in range(count)]
    data = by_both(lambda: encode_producer_batch([(rows, (0.0,))], "none", 0.009))
    assert data == encode_record_batch(rows, timestamp_ms=9)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("codec", BATCH_CODECS)
def test_what_was_encoded_is_decoded(path: str, codec: str) -> None:
    rows: list[Any] = [(b"k", b"v" * 70_000), (None, None, (("h", None),)), (b"", b"")]
    with decoding_by(path):
        data = encode_producer_batch([(rows[:1], (1.0,)), (rows[1:], (1.25, 1.5))], codec, 9.0)
    found = list(decode_messages(data, "t", 0, 0))
    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in found] == [
        (b"k", b"v" * 70_000, (), 10_000), (None, None, (("h", None),), 10_250), (b"", b"", (), 10_500),
    ]  # fmt: skip


class Bytes(bytes):
    """Bytes of a class of its own."""


@pytest.mark.parametrize("times", [(0,), (1, 2.0), (1e300, 0.5)])
@pytest.mark.parametrize("rows", [[(None, b"v"), (b"k", Bytes(b"w"))], [(Bytes(b"k"), None), (b"k", b"w", ())]])
def test_other_types_are_encoded_all_the_same(rows: list[Any], times: tuple[float, ...]) -> None:
    if max(times) > 1e18:  # no int64 holds it
        for path in PATHS:
            with decoding_by(path), pytest.raises(Exception, match=r"format requires|int too large|out of range"):
                encode_producer_batch([(rows, times)], "none", 0.0)
        return
    assert by_both(lambda: encode_producer_batch([(rows, times)], "none", 5.0))


@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_is_no_bytes_is_an_error(path: str) -> None:
    with decoding_by(path):
        for row in ((None, "text"), (1, b"v"), (None, b"v", (("h", 1),)), (None, b"v", ((1, b"v"),))):
            with pytest.raises((TypeError, AttributeError)):
                encode_producer_batch([([row], (0.0,))], "none", 0.0)
        with pytest.raises(ValueError, match="argument 2 is longer"):
            encode_producer_batch([([(None, b"v")], (0.0, 1.0))], "none", 0.0)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_head_of_a_batch_has_its_first_and_its_newest_time(path: str, codec: str) -> None:
    rows = [
        (None, b"now"),
        (None, b"before", (), 1000),
        (b"k", None, (("h", b"1"),), 2**63 - 1),
        (None, b"epoch", (), 0),
    ]
    with decoding_by(path):
        data = encode_producer_batch([(rows, (0.5,))], codec, 5.0)
        found = [(each.value, each.timestamp_ms) for each in decode_messages(data, "t", 0, 0)]
    head = read_head(data, 0)
    assert (head.base_timestamp_ms, head.max_timestamp_ms) == (5500, 2**63 - 1)
    assert found == [(b"now", 5500), (b"before", 1000), (None, 2**63 - 1), (b"epoch", 0)]


# -- message sets ----------------------------------------------------------------------------------------------------


def drawn_rows(random: Random) -> list[Any]:
    """Return values and pairs, and sometimes a message."""

    def part() -> bytes | None:
        return random.choice((None, random.randbytes(random.choice(SIZES))))

    rows: list[Any] = [random.choice((part(), (part(), part()))) for _ in range(random.randint(1, 30))]
    if not random.randrange(4):
        rows.append(Message("t", 0, 0, 1, part(), part(), random.choice((None, 77))))
    return rows


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_message_sets_are_made_of_single_messages(magic: int, codec: str) -> None:
    random = Random(magic)
    for _ in range(150):
        rows = drawn_rows(random)
        first, stamp = random.choice((0, 0, 5, 2**40)), random.choice((None, 0, 1_700_000_000_000))
        data = by_both(lambda: encode_message_set(rows, codec, magic, first_offset=first, timestamp_ms=stamp))  # noqa: B023
        base, times, entries = first if codec != "none" and magic else 0, [], []
        for offset, row in enumerate(rows, first):
            default = -1 if stamp is None else stamp
            key, value, time = (
                (row.key, row.value, default if row.timestamp_ms is None else row.timestamp_ms)
                if isinstance(row, Message) else (*row, default) if isinstance(row, tuple) else (None, row, default)
            )  # fmt: skip
            times.append(time)
            entries.append(encode_message(offset - base, key, value, magic, timestamp_ms=time))
        inside = b"".join(entries)
        last = first + len(rows) - 1
        assert data == (
            inside if codec == "none" else encode_wrapper(inside, codec, magic, last, timestamp_ms=max(times))
        )


WITHOUT_HEADERS = RUN.map(lambda run: ([row if len(row) == 2 else (*row[:2], (), *row[3:]) for row in run[0]], run[1]))


@settings(deadline=None)
@given(runs=st.lists(WITHOUT_HEADERS, min_size=1, max_size=3), codec=st.sampled_from(["none", "gzip", "snappy", "lz4"]))
def test_message_sets_of_producers_are_those_of_single_messages(runs: list[Run], codec: str) -> None:
    expected = encode_message_set(as_messages(runs, CLOCK_S), codec, 1)
    assert by_both(lambda: encode_producer_set(runs, codec, CLOCK_S)) == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_kafka_07_are_made_of_single_entries(magic: int) -> None:
    random = Random(magic)
    for _ in range(150):
        values = [random.randbytes(random.choice(SIZES)) for _ in range(random.randint(1, 30))]
        rows: list[Any] = [random.choice((value, (None, value))) for value in values]
        inside = b"".join(encode_07.encode_entry(value, magic) for value in values)
        assert by_both(lambda: encode_07.encode_message_set(rows, "none", magic)) == inside  # noqa: B023
        if magic:
            data = by_both(lambda: encode_07.encode_message_set(rows, "gzip", 1))  # noqa: B023
            assert data == encode_07.encode_wrapper(inside, "gzip")


@pytest.mark.parametrize("path", PATHS)
def test_what_a_message_set_cannot_hold_is_an_error(path: str) -> None:
    with decoding_by(path):
        assert encode_message_set([]) == encode_07.encode_message_set([]) == b""
        for row in ("text", ("k", b"v"), 5):
            with pytest.raises(TypeError):
                encode_message_set([b"v", row], magic=1)  # type: ignore[list-item]
        with pytest.raises(ValueError, match=r"message 1 has a key: Kafka 0\.7 stores none"):
            encode_07.encode_message_set([b"v", (b"k", b"v")])
        with pytest.raises(ValueError, match="message 0 has no value"):
            encode_07.encode_message_set([None])
        with pytest.raises(ValueError, match="magic 2 is neither 0 nor 1"):
            encode_message_set([b"v"], magic=2)


@pytest.mark.skipif(kernel.compiled is None, reason="needs the compiled kernel")
def test_encoders_of_the_kernel_hold_nothing_back() -> None:
    value = b"v" * 100
    rows = [(None, value), (b"key", value, (("h", b"1"),))] * 500
    for codec in ("none", "snappy"):
        encode_producer_batch([(rows, (0.0,))], codec, 0.0)
        encode_message_set([row[:2] for row in rows], codec)
    gc.collect()
    held = len(gc.get_objects())
    for _ in range(300):
        encode_producer_batch([(rows[:20], (0.0,))], "snappy", 0.0)
        kernel.compiled.message_set([value, "text"], 0, 0, -1)
        kernel.compiled.timed_message_set([([(None, value, (), 5), (None, value, (), 1 << 63)], (0.0,))], 0.0)
        kernel.compiled.message_set_07([value, None], 1)
    gc.collect()
    assert len(gc.get_objects()) < held + 300  # threads of other tests may make some


def test_what_a_broker_takes_follows_from_the_versions_that_it_serves() -> None:
    assert [takes_zstd({0: range(end)}) for end in (7, 8)] == [False, True]
    assert [takes_producer_ids(served) for served in ({}, {22: range(1)}, {22: range(5)})] == [False, True, True]
    assert "zstd" in codecs.BATCH_CODECS
