"""The hash of a record is the same from every format, and differs where the record does."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import Headers, Message
from tests.log.written_logs import TOPIC, encoded, file_name
from zkconsumer.log import HASH_VERSION, open_log, record_hash

DATA = st.none() | st.binary(max_size=5)
HEADERS = st.lists(st.tuples(st.text(max_size=3), DATA), max_size=3).map(tuple)


def test_version_1_is_what_it_was() -> None:
    """Stored hashes stay comparable: whoever changes these raises the version."""
    assert HASH_VERSION == 1
    headers = (("a", b"1"), ("a", None))
    assert record_hash(b"key", b"value", headers, timestamp_ms=5, with_time=True).hex() == WITH_ALL
    assert record_hash(None, None).hex() == WITH_NOTHING


WITH_ALL = "1fffbb1c6c5400c44c79ebdf2cf45d1c"
WITH_NOTHING = "ebcff47758f737cd1b276ba5b00e7690"


def test_what_differs_has_other_hashes() -> None:
    records: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, None, ()), (b"", None, ()), (None, b"", ()), (b"", b"", ()), (b"a", b"b", ()), (b"ab", b"", ()),
        (b"a", b"b", (("x", b""),)), (b"a", b"b", (("x", None),)), (b"a", b"b", (("x", b""), ("y", b""))),
        (b"a", b"b", (("y", b""), ("x", b""))), (b"a", b"b", (("", b""),)),
    ]  # fmt: skip
    hashes = [record_hash(*record) for record in records]
    hashes += [record_hash(b"a", b"b", timestamp_ms=time_ms, with_time=True) for time_ms in (None, 0, -1, 1)]
    assert all(one != other for one, other in combinations(hashes, 2))


@given(DATA, DATA, HEADERS, DATA, DATA, HEADERS)
def test_only_equal_records_have_equal_hashes(
    key: bytes | None, value: bytes | None, headers: Headers,
    other_key: bytes | None, other_value: bytes | None, other_headers: Headers,
) -> None:  # fmt: skip
    is_same = (key, value, headers) == (other_key, other_value, other_headers)
    assert (record_hash(key, value, headers) == record_hash(other_key, other_value, other_headers)) == is_same


def test_the_same_record_out_of_every_format(tmp_path: Path) -> None:
    value = random.Random(1).randbytes(100)
    found: dict[str, bytes] = {}
    for form, codec in (("07", "gzip"), ("0", "snappy"), ("1", "lz4"), ("2", "zstd")):
        folder = tmp_path / form / f"{TOPIC}-0"
        folder.mkdir(parents=True)
        message = Message(TOPIC, 0, 0, 1, None, value)
        (folder / file_name(0, form)).write_bytes(encoded([message], form, codec, 0, 0))
        [read] = open_log(folder).read_topic(TOPIC)
        found[form] = record_hash(read.key, read.value, read.headers)
    assert set(found.values()) == {record_hash(None, value)}
