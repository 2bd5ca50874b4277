"""The batches of producers, which are encoded in runs, are those of the plain encoder, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.producer_batches import Run, encode_producer_batch, takes_producer_ids, takes_zstd
from simpleconsumer.types import HeaderMessage, Headers, Message

SIZES = (0, 1, 40, 62, 63, 64, 65, 127, 128, 4030, 4032, 4033, 5000, 8191, 8192)
CONTENT = st.one_of(st.none(), st.sampled_from(SIZES).map(lambda size: b"x" * size))
HEADERS = st.sampled_from([None, (("h", b"1"),), (("größe", None), ("h", b""), ("h", b"x" * 100))])
ROW = st.tuples(CONTENT, CONTENT, HEADERS).map(lambda row: row if row[2] is not None else row[:2])
RUN = st.tuples(st.lists(ROW, min_size=1, max_size=40), st.sampled_from([0, 1, -1, 63, 64, 10_000_000]))


def as_messages(runs: list[Run], start_ms: int) -> list[Message]:
    found: list[Message] = []
    for rows, time_ms in runs:
        for key, value, *rest in rows:
            headers: Headers = rest[0] if rest else ()
            place = ("t", 0, len(found), len(found) + 1, key, value, start_ms + time_ms)
            found.append(HeaderMessage(*place, headers) if headers else Message(*place))
    return found


@settings(deadline=None)
@given(runs=st.lists(RUN, min_size=1, max_size=4), codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]))
def test_runs_of_messages_are_encoded_as_each_of_them(runs: list[Run], codec: str) -> None:
    producer = BatchProducer(5, 1, 77, is_transactional=True)
    expected = encode_record_batch(as_messages(runs, 1_000_000), codec, producer=producer)
    assert encode_producer_batch(runs, codec, 1_000_000, producer) == expected


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8193, 16_385, 40_000])
def test_numbers_of_more_bytes_are_encoded_within_a_run(count: int) -> None:
    rows = [(None, b"v%d" % number) for number in range(count)]
    assert encode_producer_batch([(rows, 0)], "none", 9) == encode_record_batch(rows, timestamp_ms=9)


def test_what_a_broker_takes_follows_from_the_versions_that_it_serves() -> None:
    assert [takes_zstd({0: range(end)}) for end in (7, 8)] == [False, True]
    assert [takes_producer_ids(served) for served in ({}, {22: range(1)}, {22: range(5)})] == [False, True, True]
