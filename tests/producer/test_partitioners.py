"""Keys go where Java's producers of each version put them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from zkconsumer.producer.partitioners import (
    PARTITIONERS,
    array_hash,
    java_hash,
    partition_07,
    partition_08,
    partition_082,
    partition_murmur2,
    partition_of_key,
)

VECTORS = Path(__file__).parents[1] / "golden" / "partitioners"
OURS = {"0.7": partition_07, "0.8.0": partition_08, "0.8.2.2": partition_082, "murmur2": partition_murmur2}
Row = tuple[object, int, int]


def rows_of(file: str) -> list[Row]:
    """Key, number of partitions, and what Java chose."""
    found: list[Row] = []
    for line in (VECTORS / f"{file}.txt").read_text(encoding="ascii").splitlines():
        _, kind, text, count, partition = line.split(" ")
        data = base64.b64decode(text[1:]) if text.startswith("=") else b""
        key: object = int(text) if kind == "int" else data.decode() if kind == "text" else data
        found.append((key, int(count), int(partition)))
    return found


@pytest.mark.parametrize("file", OURS)
def test_a_key_goes_to_the_partition_that_java_chooses(file: str) -> None:
    partition: Callable[[object, int], int] = OURS[file]
    rows = rows_of(file)
    assert len(rows) >= 300
    for key, count, wanted in rows:
        if wanted < 0:
            with pytest.raises(ValueError, match=r"has no partition for the key .* hash is -2147483648"):
                partition(key, count)
        else:
            assert (key, count, partition(key, count)) == (key, count, wanted)


def test_the_vectors_hold_what_the_versions_differ_in() -> None:
    assert any(wanted < 0 for _, _, wanted in rows_of("0.7"))
    assert rows_of("0.8.0") != rows_of("0.8.2.2")
    hashes = [java_hash(key) for key, _, _ in rows_of("0.8.2.2")]
    assert -(2**31) in hashes
    assert any(-(2**31) < value < 0 for value in hashes)
    assert {type(key) for key, _, _ in rows_of("0.8.2.2")} == {str, bytes, int}


@pytest.mark.parametrize("key", [1.5, True, 2**63, ("a",), bytearray(b"a")])
def test_a_key_without_a_hash_is_refused_by_name(key: object) -> None:
    for partition in (partition_07, partition_08, partition_082):
        with pytest.raises(TypeError, match=f"no partition for a key of {type(key).__name__}"):
            partition(key, 3)


def test_murmur2_takes_text_as_utf_8_and_no_number() -> None:
    assert partition_murmur2("ä", 100) == partition_murmur2("ä".encode(), 100)
    with pytest.raises(TypeError, match="murmur2 needs bytes or text"):
        partition_murmur2(7, 3)


def test_the_partitioners_have_the_names_of_java() -> None:
    assert PARTITIONERS["kafka.producer.DefaultPartitioner"] is PARTITIONERS["default"] is partition_082
    assert PARTITIONERS["kafka.producer.ByteArrayPartitioner"] is partition_082


def test_partitions_count_by_their_numbers_whatever_order_they_come_in() -> None:
    assert partition_of_key(b"abc", [2, 0, 1]) == partition_of_key(b"abc", [0, 1, 2])
    assert array_hash(b"abc") == 126145
