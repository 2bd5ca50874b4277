"""Runs of plain entries, and searching behind damage: the kernel and Python agree, and nothing is found differently."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from simpleconsumer import encode_message_set, kernel
from simpleconsumer.codecs import crc32c
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import Message
from tests.log.drawn_faults import FAULTS
from tests.log.test_drawn_faults import drawn
from tests.log.written_logs import file_name
from zkconsumer.log import Damage, Gap, LogReading, LogTail, open_log, runs
from zkconsumer.log.checking import check_partition
from zkconsumer.log.heads import KAFKA_FILE, DiskLayout
from zkconsumer.log.partition_log import DiskPartition, Placed
from zkconsumer.log.values import DiskEntry
from zkconsumer.log.walk import SegmentWalk

needs_kernel = pytest.mark.skipif(
    kernel.compiled is None, reason=f"needs the compiled kernel, here is {kernel.description}"
)
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def entry(draw: random.Random, offset: int) -> tuple[bytes, int]:
    """An entry of any form, mostly a plain batch, and the offset behind it."""
    values = [draw.randbytes(draw.choice((0, 10, 2000))) for _ in range(draw.randint(1, 4))]
    kind = draw.random()
    if kind < 0.2:
        magic = draw.randrange(2)
        codec = draw.choice(("none", "none", "gzip"))
        found = encode_message_set(values[:1], codec, magic, first_offset=offset)
        return found, offset + 1
    last = offset + len(values) - 1 + draw.choice((0, 0, 0, 2))
    found = encode_record_batch(
        values, draw.choice(CODECS) if kind < 0.4 else "none", first_offset=offset, last_offset=last,
        leader_epoch=draw.choice((3, 3, 3, 4)), timestamp_ms=draw.choice((None, 5, 1_700_000_000_000)),
        log_append_time_ms=9 if kind > 0.9 else None,
        producer=BatchProducer(7, 0, 0, is_transactional=kind > 0.8) if kind > 0.7 else BatchProducer(-1, -1, -1),
    )  # fmt: skip
    return found, last + 1


def some_entries(draw: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """Entries that follow each other, some of them damaged; with each place and its offset."""
    data, places, offset = bytearray(), [], draw.choice((0, 2**40))
    for _ in range(draw.randint(1, 12)):
        places.append((len(data), offset))
        if draw.random() < 0.1:
            offset += 3
        found, offset = entry(draw, offset)
        data += found
    for _ in range(draw.choice((0, 0, 1, 3))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data[: draw.randint(1, len(data))] if draw.random() < 0.2 else data), places


@needs_kernel
@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_finds_the_runs_that_python_finds(seed: int) -> None:
    draw = random.Random(seed)
    longest = 0
    for _ in range(30):
        data, places = some_entries(draw)
        for place, offset in places:
            if place <= len(data):
                given = memoryview(data), place, offset, draw.choice((-1, 3, 3))
                assert runs._plain_run(*given) == runs._compiled_run(*given)
                longest = max(longest, runs._plain_run(*given).entries)
    assert longest > 1


def test_the_largest_delta_is_no_plain_entry() -> None:
    """A batch holds no more messages than an int32 counts, so its count cannot fit to this delta."""
    data = bytearray(encode_record_batch([b"a"], first_offset=5, leader_epoch=3))
    struct.pack_into(">i", data, 23, 2**31 - 1)
    struct.pack_into(">i", data, 57, -(2**31))
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    assert runs.plain_run(memoryview(data), 0, 5, 3).entries == 0


@needs_kernel
@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_finds_the_places_that_python_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    compiled, found = kernel.compiled, 0
    for _ in range(30):
        data = b"".join(draw.choice((some_entries(draw)[0], draw.randbytes(50), bytes(50))) for _ in range(4))
        left, low = len(data) + draw.choice((0, 0, 5000)), draw.choice((0, 3))
        at, stop = draw.randint(0, len(data)), draw.choice((len(data), len(data) // 2))
        high, budget, refill = draw.choice((2**62, 50)), draw.choice((2**40, 0)), draw.choice((0, 9))
        given = memoryview(data), at, stop, left, low, high, budget, refill
        monkeypatch.setattr(kernel, "compiled", None)
        expected = runs.entry_start(*given)
        monkeypatch.setattr(kernel, "compiled", compiled)
        assert runs.entry_start(*given) == expected
        found += expected[0] >= 0
    assert found


def events(partition: DiskPartition, *, in_runs: bool) -> tuple[list[Damage | Gap | LogTail], list[DiskEntry]]:
    scanned = list(partition.scan(in_runs=in_runs))
    return (
        [event for event in scanned if not isinstance(event, Placed)],
        [event.entry for event in scanned if isinstance(event, Placed)],
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_scan_in_runs_finds_what_a_scan_of_entries_finds(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    log = drawn(tmp_path, seed)
    draw.choice(FAULTS)(log, draw)
    [partition] = open_log(log.folder).partitions
    found, joined = events(partition, in_runs=True)
    expected, entries = events(partition, in_runs=False)
    assert found == expected
    assert sum(each.entries for each in joined) == len(entries)
    assert sum(each.messages for each in joined) == sum(each.messages for each in entries)
    rest = list(entries)
    for each in joined:
        parts, rest = rest[: each.entries], rest[each.entries :]
        assert (each.start, each.end) == (parts[0].start, parts[-1].end)
        assert (each.first, each.last) == (parts[0].first, parts[-1].last)
        assert each.last_ms == max(part.last_ms for part in parts)


def test_an_entry_within_a_run_that_cannot_be_decoded_is_named_alone(tmp_path: Path) -> None:
    sound = [encode_record_batch([b"a", b"b"], first_offset=2 * number, timestamp_ms=5) for number in range(5)]
    batches = [bytearray(batch) for batch in sound]
    batches[2][61] = 0x7E  # the length of its first record
    batches[2][17:21] = crc32c(bytes(batches[2][21:])).to_bytes(4, "big")
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(b"".join(batches))
    [partition] = open_log(tmp_path).partitions
    [joined] = events(partition, in_runs=True)[1][1:]
    assert joined.entries == 4
    found = list(LogReading(partition, 0).events())
    damage = [event for event in found if isinstance(event, Damage)]
    size = len(batches[0])
    assert {(each.start_byte, each.end_byte) for each in damage} == {(2 * size, 3 * size)}
    assert [event.offset for event in found if isinstance(event, Message)] == [0, 1, 2, 3, 6, 7, 8, 9]


def test_damage_behind_the_range_is_not_told(tmp_path: Path) -> None:
    """All entries are one run, and those behind the last one that is read are in it."""
    batches = [bytearray(encode_record_batch([b"a"] * 10, first_offset=10 * at, timestamp_ms=5)) for at in range(6)]
    for broken in (batches[3], batches[5]):
        broken[61] = 0x7E  # the length of its first record
        broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(b"".join(batches))
    [partition] = open_log(tmp_path).partitions
    every = list(LogReading(partition, 0).events())
    assert {first_of(event) // 10 for event in every if isinstance(event, Damage)} == {3, 5}
    for end in range(61):
        expected = [event for event in every if first_of(event) < end]
        assert list(LogReading(partition, 0, end=end).events()) == expected, end


def first_of(event: Message | Damage | Gap | LogTail) -> int:
    return event.offset if isinstance(event, Message) else event.first_offset or 0  # type: ignore[union-attr]


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 2**31 + 10, 2**63 + 5])
def test_a_name_that_says_more_than_an_offset_can_be(tmp_path: Path, base: int) -> None:
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    (folder / file_name(base)).write_bytes(b"\x11" * 300)
    [partition] = open_log(tmp_path).partitions
    damage = [event for event in partition.scan(in_runs=True) if isinstance(event, Damage)]
    assert [(each.start_byte, each.end_byte) for each in damage] == [(0, 300)]


# -- what was made to look like entries --------------------------------------------------------------------------------

SIZE: Final = 1_000_000


def head(offset: int, size: int, magic: int = 2, attributes: int = 0) -> bytes:
    return struct.pack(">qiibIhiqqqhii", offset, size, 0, magic, 123, attributes, 0, 5, 5, -1, -1, -1, 1)


def sound(offset: int) -> bytes:
    return encode_record_batch([b"a"], first_offset=offset, timestamp_ms=5)


PATTERNS: Final[dict[str, Callable[[int], bytes]]] = {
    "heads of small entries": lambda number: head(number, 49),
    "heads of large entries": lambda number: head(number, 500_000),
    "heads that reach the end": lambda number: head(number, max(49, SIZE - 61 * number)),
    "heads of wrappers": lambda number: head(number, 1000, 1, 3),
    "sizes everywhere": lambda number: b"\0\0\0\x10",
    "zeros and sizes": lambda number: bytes(8) + b"\0\0\1\0",
    "sound entries between": lambda number: head(2 * number, 49) + sound(2 * number + 1),
    "sound entries between large ones": lambda number: head(2 * number, 500_000) + sound(2 * number + 1),
    "sound entries between that are passed over": lambda number: head(2 * number, 3 * 130 - 12) + sound(2 * number + 1),
    "zeros between": lambda number: bytes(100) + sound(number),
}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("has_end", [True, False])
def test_what_looks_like_entries_takes_time_by_its_size(tmp_path: Path, name: str, has_end: bool) -> None:
    data, number = bytearray(sound(0)), 1
    while len(data) < SIZE:
        data += PATTERNS[name](number)
        number += 1
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(data + (sound(2_000_000) if has_end else b""))
    begin = time.process_time()
    [partition] = open_log(tmp_path).partitions
    found = list(check_partition(partition))
    assert time.process_time() - begin < 30
    [counted] = [item for item in found if hasattr(item, "next_offset")]
    assert counted.next_offset >= (2_000_001 if has_end else 1)


@pytest.mark.parametrize("layout", [KAFKA_FILE(0)])
def test_the_same_for_kafka_07(layout: DiskLayout) -> None:
    data = b"\0\0\0\5\0" * (SIZE // 5)
    begin = time.process_time()
    found = list(SegmentWalk(lambda at, count: data[at : at + count], len(data), layout, 0))
    assert time.process_time() - begin < 30
    assert found[-1].end == len(data)
