"""Keys go where Kafka 0.8.2.2 puts them."""

from __future__ import annotations

import pytest

from zkconsumer.cluster.partitioning import array_hash, partition_of_key

# key in hex, java.util.Arrays.hashCode(key), new kafka.producer.ByteArrayPartitioner(null).partition(key, 8) and
# (key, 7), printed by a JVM with the jars of Kafka 0.8.2.2.
FROM_THE_JVM = """
|1|1|1
61|128|0|2
616263|126145|1|5
757365722d3432|1595627679|7|2
7ac3bc72696368|838399630|6|5
ff80007f|770849|1|2
74686520717569636b2062726f776e20666f78|893510946|2|6
6f726465722d31303031|-1088770496|0|2
637573746f6d6572|-1201279265|1|4
706172746974696f6e|-1996323831|7|5
716c6d6d72707a|-2147483648|0|0
"""
ROWS = [line.split("|") for line in FROM_THE_JVM.strip().splitlines()]


@pytest.mark.parametrize(("key", "java_hash", "of_eight", "of_seven"), ROWS)
def test_a_key_goes_to_the_partition_that_the_jvm_chooses(
    key: str, java_hash: str, of_eight: str, of_seven: str
) -> None:
    data = bytes.fromhex(key)
    assert array_hash(data) == int(java_hash)
    assert partition_of_key(data, range(8)) == int(of_eight)
    assert partition_of_key(data, range(7)) == int(of_seven)


def test_the_vectors_hold_negative_hashes_and_the_smallest_of_all() -> None:
    hashes = [int(row[1]) for row in ROWS]
    assert -(2**31) in hashes
    assert any(-(2**31) < value < 0 for value in hashes)


def test_partitions_count_by_their_numbers_whatever_order_they_come_in() -> None:
    assert partition_of_key(b"abc", [2, 0, 1]) == partition_of_key(b"abc", [0, 1, 2])
