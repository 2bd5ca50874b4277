"""Where entries start: the walk in lanes compared with the plain walk, on bytes that mislead it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer import column_lanes, column_walk
from simpleconsumer.entry_walk import EntryLayout
from simpleconsumer.kafka07 import message_set as kafka07
from simpleconsumer.kafka07.message_encode import encode_entry
from simpleconsumer.kafka08.message_encode import encode_message
from simpleconsumer.kafka08.shallow import LAYOUT
from simpleconsumer.types import Buffer

entry_positions = partial(column_walk.entry_positions, layout=LAYOUT)

COUNT = 6000
Values = Callable[[random.Random], bytes | None]

HEAD_OF_ANOTHER = encode_message(3, None, b"a message in a message")
VALUES: dict[str, Values] = {
    "text": lambda draw: b"word " * draw.randrange(24),
    "random bytes": lambda draw: draw.randbytes(draw.randrange(120)),
    "zeros": lambda draw: bytes(draw.randrange(120)),
    "ones": lambda draw: b"\xff" * draw.randrange(120),
    "messages": lambda draw: HEAD_OF_ANOTHER * draw.randrange(1, 4),
    "seldom large": lambda draw: b"v" * (draw.randrange(3000) if draw.random() < 0.05 else draw.randrange(4)),
    "null or not": lambda draw: None if draw.random() < 0.5 else b"v" * draw.randrange(9),
}


def message_set(values: Values, key_bytes: int = 0, magic: int = 0, first_offset: int = 0, count: int = COUNT) -> bytes:
    """Return a set; `key_bytes` is the most that a key takes, 0 for no keys."""
    draw = random.Random(7)
    return b"".join(
        encode_message(
            first_offset + n, b"k" * draw.randrange(key_bytes) if key_bytes else None, values(draw), magic,
            timestamp_ms=1_500_000_000_000 + n,
        )
        for n in range(count)
    )  # fmt: skip


def one_by_one(data: Buffer) -> list[int]:
    found, position = [0], 0
    while position + 12 <= len(data):
        position += struct.unpack_from(">8xI", data, position)[0] + 12
        if position <= len(data):
            found.append(position)
    return found


@pytest.fixture
def walked_by_lanes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each use of lanes found."""
    counts: list[int] = []

    def counted(buffer: Buffer, known: column_lanes.Ints, layout: EntryLayout) -> column_lanes.Ints:
        found = column_lanes.positions_by_lanes(buffer, known, layout)
        counts.append(len(found) - 1)
        return found

    monkeypatch.setattr(column_walk, "positions_by_lanes", counted)
    return counts


@pytest.mark.parametrize("first_offset", [0, 2**32 - 3000, 2**40, 2**63 - COUNT, -3000])
@pytest.mark.parametrize("key_bytes", [0, 9])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("values", VALUES)
def test_lanes_find_what_the_walk_one_by_one_finds(values: str, magic: int, key_bytes: int, first_offset: int) -> None:
    data = message_set(VALUES[values], key_bytes, magic, first_offset)
    assert entry_positions(data).tolist() == one_by_one(data)


@pytest.mark.parametrize("key_bytes", [0, 9])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_set_of_text_is_walked_by_lanes_nearly_to_its_end(
    walked_by_lanes: list[int], kind: type[Buffer], magic: int, key_bytes: int
) -> None:
    data = message_set(VALUES["text"], key_bytes, magic)
    assert entry_positions(kind(data)).tolist() == one_by_one(data)
    assert sum(walked_by_lanes) > 0.95 * COUNT


def test_where_guesses_are_wrong_little_is_tried(walked_by_lanes: list[int]) -> None:
    data = message_set(VALUES["messages"])
    assert entry_positions(data).tolist() == one_by_one(data)
    assert len(walked_by_lanes) == 1


@pytest.fixture(scope="class")
def eager_lanes() -> Iterator[None]:
    """Lanes for small sets, so that examples get there; for all examples of a test, and for no other test."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (column_lanes, column_walk):
            patch.setattr(module, "WORTH_LANES", 8)
        patch.setattr(column_walk, "_LONG_BLOCK", 8)
        patch.setattr(column_lanes, "_ENTRIES_A_LANE", 4)
        patch.setattr(column_lanes, "_FIRST_STEPS", 3)
        yield


sizes = st.sampled_from([-(2**31), -12, -1, 0, 1, 13, 14, 26, 100, 3000, 2**31 - 1])


@given(
    values=st.sampled_from(sorted(VALUES)), count=st.integers(30, 300), cut=st.integers(0, 200),
    damages=st.lists(st.tuples(st.integers(0, 299), sizes | st.none()), max_size=3), shift=st.integers(-20, 20),
)  # fmt: skip
@settings(deadline=None)
@pytest.mark.usefixtures("eager_lanes")
def test_wrong_sizes_and_cuts_lead_lanes_where_they_lead_the_walk_one_by_one(
    values: str, count: int, cut: int, damages: list[tuple[int, int | None]], shift: int
) -> None:
    data = bytearray(message_set(VALUES[values], count=count))
    starts = one_by_one(data)
    for index, size in damages:
        if index < count:
            at = starts[index] + 8
            if size is None:  # a few bytes too far or too short
                size = max(0, struct.unpack_from(">i", data, at)[0] + shift)
            struct.pack_into(">i", data, at, size)
    del data[len(data) - cut :]
    assert entry_positions(data).tolist() == one_by_one(data)


def words(*sizes: int) -> bytes:
    """Entries of these sizes in which every word but the size is 20."""
    return b"".join(struct.pack(">iiI", 20, 20, size) + struct.pack(">i", 20) * (size // 4) for size in sizes)


@pytest.mark.parametrize(
    "data",
    [
        words(*[0] * 100),
        words(*[20] * 8, *[44] * 80),
        words(*[20] * 20, *[24] * 200),
        words(*[20] * 71, *[24] * 200),
        words(*[20] * 8) + struct.pack(">qI", 0, 1 << 31) + b"\x14" * 200,
        words(*[20] * 8) + struct.pack(">qId", 0, 0, 0) + words(*[20] * 8),
        words(*[20] * 8) + struct.pack(">qIi", 0, 0, 0x3440) + words(*[20] * 8),
    ],
    ids=["nothing but heads", "44 like 32 bytes", "from the 21st", "in the second look", "no size", "0.0", "20.0"],
)
def test_bytes_elsewhere_that_look_like_the_size_of_a_run_do_no_harm(data: bytes) -> None:
    assert entry_positions(data).tolist() == one_by_one(data)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries of one size each look for them found."""
    counts: list[int] = []
    look = column_walk._equal_entries

    def counted(buffer: Buffer, position: int, step: int, layout: EntryLayout) -> int:
        counts.append(look(buffer, position, step, layout))
        return counts[-1]

    monkeypatch.setattr(column_walk, "_equal_entries", counted)
    return counts


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ([20] * 8, [100]),
        ([24, 28, 24, 28, 24, 20, 20, 20], [100]),
        ([20, 20, 20, 20, 20, 24, 20, 20], []),
        ([20, 20, 20, 20, 20, 20, 24, 20], []),
        ([20, 20, 20, 20, 20, 20, 20, 24], []),
        ([20, 20, 20, 20, 20, 20, 24, 24], []),
        ([24, 24, 24, 24, 24, 24, 24, 24], [0]),
    ],
)
def test_a_run_is_looked_for_behind_three_entries_of_one_size(
    runs: list[int], block: list[int], found: list[int]
) -> None:
    data = words(*block, *[20] * 100)
    assert entry_positions(data).tolist() == one_by_one(data)
    assert runs == found


def test_a_set_of_one_size_is_walked_by_runs_again_and_again_behind_what_interrupts_them(runs: list[int]) -> None:
    data = words(*[*[20] * 1000, 24, 28] * 5)
    assert entry_positions(data).tolist() == one_by_one(data)
    assert len(runs) < 12
    assert sum(runs) > 4500


@pytest.mark.parametrize("size", [-1, -12, -13, -44, -(2**31)])
def test_a_negative_size_ends_the_walk(size: int) -> None:
    data = words(20, 20) + struct.pack(">qi", 0, size) + words(*[20] * 50)
    assert entry_positions(data).tolist() == [0, 32, 64]


def test_lanes_are_not_worth_it_for_few_entries(walked_by_lanes: list[int]) -> None:
    data = message_set(VALUES["text"], count=column_lanes.WORTH_LANES // 2)
    assert entry_positions(data).tolist() == one_by_one(data)
    assert walked_by_lanes == []


def test_lanes_walk_again_behind_what_they_cannot(walked_by_lanes: list[int]) -> None:
    text = message_set(VALUES["text"])
    data = text + encode_message(COUNT, None, b"word " * 3000) + text
    assert entry_positions(data).tolist() == one_by_one(data)
    assert len(walked_by_lanes) > 1
    assert sum(walked_by_lanes) > 1.8 * COUNT


# Kafka 0.7: no offsets, and heads of six bytes that look alike


def one_by_one_07(data: Buffer) -> list[int]:
    found, position = [0], 0
    while position + 4 <= len(data):
        position += struct.unpack_from(">I", data, position)[0] + 4
        if position <= len(data):
            found.append(position)
    return found


HEAD_OF_ANOTHER_07 = encode_entry(b"a message in a message")
VALUES_07: dict[str, Values] = {**VALUES, "messages": lambda draw: HEAD_OF_ANOTHER_07 * draw.randrange(1, 4)}


def message_set_07(values: Values, magic: int = 1, count: int = COUNT) -> bytes:
    draw = random.Random(7)
    return b"".join(encode_entry(values(draw) or b"", magic) for _ in range(count))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("values", VALUES_07)
def test_entries_of_kafka_0_7_are_found_by_lanes_as_one_by_one(values: str, magic: int) -> None:
    data = message_set_07(VALUES_07[values], magic)
    assert column_walk.entry_positions(data, kafka07.LAYOUT).tolist() == one_by_one_07(data)


def test_a_set_of_kafka_0_7_is_walked_by_lanes_nearly_to_its_end(walked_by_lanes: list[int]) -> None:
    data = message_set_07(VALUES["text"])
    assert column_walk.entry_positions(data, kafka07.LAYOUT).tolist() == one_by_one_07(data)
    assert sum(walked_by_lanes) > 0.95 * COUNT


@given(
    values=st.sampled_from(sorted(VALUES_07)), count=st.integers(30, 300), cut=st.integers(0, 200),
    damages=st.lists(st.tuples(st.integers(0, 299), sizes | st.none()), max_size=3), shift=st.integers(-20, 20),
)  # fmt: skip
@settings(deadline=None)
@pytest.mark.usefixtures("eager_lanes")
def test_wrong_sizes_lead_lanes_through_sets_of_kafka_0_7_where_they_lead_the_walk_one_by_one(
    values: str, count: int, cut: int, damages: list[tuple[int, int | None]], shift: int
) -> None:
    data = bytearray(message_set_07(VALUES_07[values], count=count))
    starts = one_by_one_07(data)
    for index, size in damages:
        if index < count:
            if size is None:  # a few bytes too far or too short
                size = max(0, struct.unpack_from(">i", data, starts[index])[0] + shift)
            struct.pack_into(">i", data, starts[index], size)
    del data[len(data) - cut :]
    assert column_walk.entry_positions(data, kafka07.LAYOUT).tolist() == one_by_one_07(data)
