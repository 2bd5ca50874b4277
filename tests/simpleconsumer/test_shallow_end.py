"""Where a message set ends, by its definition, by the kernel and by plain Python."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import BrokenFraming
from simpleconsumer.kafka08.offset_order import plain, shallow_end, walk_entries
from simpleconsumer.primitives import plain_walk
from simpleconsumer.types import Buffer


def entry(offset: int, size: int) -> bytes:
    return struct.pack(">qi", offset, size) + b"\xab" * size


def by_definition(data: bytes) -> tuple[int, int | None, int]:
    position, next_offset, count = 0, None, 0
    while position + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        if position + 12 + size > len(data):
            break
        position, next_offset, count = position + 12 + size, offset + 1, count + 1
    return position, next_offset, count


def walked(data: bytes) -> list[tuple[int, int]]:
    """Where each whole entry begins and ends."""
    found, position = [], 0
    while position + 12 <= len(data):
        end = position + 12 + struct.unpack_from(">i", data, position + 8)[0]
        if end > len(data):
            break
        found.append((position, end))
        position = end
    return found


runs = st.lists(st.tuples(st.integers(14, 300), st.integers(1, 700)), max_size=4)


@given(runs=runs, cut=st.integers(0, 400), kind=st.sampled_from([bytes, bytearray, memoryview]))
def test_runs_of_any_sizes_and_lengths_end_where_the_definition_says(
    runs: list[tuple[int, int]], cut: int, kind: type[Buffer]
) -> None:
    sizes = [size for size, count in runs for _ in range(count)]
    data = b"".join(entry(offset, size) for offset, size in enumerate(sizes))
    data = data[: len(data) - cut]
    assert shallow_end(kind(data)) == by_definition(data)
    walk = walk_entries(data)
    assert plain_walk(kind(data), 8, 12, 14, 4) == (*walk, 14)
    starts = [position for position, _ in walked(data)]
    assert walk.entries == len(starts)
    if starts:
        assert (walk.last, starts[-walk.tail_entries]) == (starts[-1], walk.tail)
        assert min(4, walk.entries) <= walk.tail_entries < 192  # what is looked at of the largest set


@given(st.lists(st.sampled_from([14, 15, 270, 271]), max_size=400))
def test_mixed_sizes_end_where_the_definition_says(sizes: list[int]) -> None:
    data = b"".join(entry(offset * 3, size) for offset, size in enumerate(sizes))
    assert shallow_end(data) == by_definition(data) == (len(data), 3 * len(sizes) - 2 if sizes else None, len(sizes))
    assert walk_entries(data).tail_entries < 192


@pytest.mark.parametrize("before", [0, 1, 3, 4, 5, 67, 68, 69, 400])
@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
@pytest.mark.parametrize("varies", [False, True])
def test_an_impossible_size_is_found_behind_any_number_of_entries(before: int, size: int, varies: bool) -> None:
    good = b"".join(entry(offset, 20 + offset % 3 * varies) for offset in range(before))
    data = good + struct.pack(">qi", before, size)
    for behind in (b"", bytes(100), b"\x14" * 100, entry(before, 20) * 300):
        with pytest.raises(BrokenFraming, match=f"entry at byte {len(good)}, after {before} entries, has size {size}$"):
            shallow_end(data + behind)


def test_a_size_larger_than_the_rest_is_a_tail_that_was_cut_off() -> None:
    assert shallow_end(entry(7, 20) + struct.pack(">qi", 8, 2**31 - 1)) == (32, 8, 1)


@pytest.mark.parametrize("data", [b"", b"\0" * 11, struct.pack(">qi", 0, 14) + b"\0" * 13])
def test_no_whole_entry_gives_no_offset(data: bytes) -> None:
    assert shallow_end(data) == (0, None, 0)


def test_a_view_of_larger_items_is_read_as_bytes() -> None:
    data = entry(1, 20) * 3
    assert shallow_end(memoryview(data).cast("i")) == (96, 2, 3)
    for items in ("i", "b"):
        assert list(plain(memoryview(data).cast(items))) == list(data)
    for as_it_is in (data, bytearray(data), memoryview(data)):
        assert plain(as_it_is) is as_it_is


@pytest.mark.parametrize("offset", [0, 20 << 16, 20 << 32, 20 << 48 | 20 << 16])
@pytest.mark.parametrize(
    "sizes", [[20] * 67 + [24] * 90, [20] * 70 + [24] * 90, [20] * 70 + [24, 28] * 45, [20] * 5 + [24] * 90]
)
def test_bytes_elsewhere_in_an_entry_that_look_like_a_size_do_no_harm(sizes: list[int], offset: int) -> None:
    data = b"".join(struct.pack(">qi", offset, size) + struct.pack(">i", 20) * (size // 4) for size in sizes)
    assert shallow_end(data) == by_definition(data) == (len(data), offset + 1, len(sizes))


def test_two_sizes_of_many_that_differ_are_seen() -> None:
    """All that stands where a size is looked for is 20, but for the odd size itself and one offset."""
    looks_alike, odd = 20 << 32 | 20, 30
    sizes = [24 if index == odd else 20 for index in range(200)]
    offsets = [0 if index == odd + 5 else looks_alike for index in range(200)]
    data = b"".join(
        struct.pack(">qi", offset, size) + struct.pack(">i", 20) * (size // 4)
        for offset, size in zip(offsets, sizes, strict=True)
    )
    assert shallow_end(data) == (len(data), looks_alike + 1, 200)
