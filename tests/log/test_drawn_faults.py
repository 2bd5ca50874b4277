"""Faults of every kind, drawn over logs of every format: each is named exactly, and what survives is read once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from simpleconsumer.types import Message
from tests.log.drawn_faults import FAULTS, Expected
from tests.log.written_logs import WrittenLog, all_messages, write_log
from zkconsumer.log import Damage, Gap, LogReading, open_log
from zkconsumer.log.checking import FileNote, Finding, check_partition

FORMS: Final = (("07",), ("0",), ("1",), ("2",), ("2",), ("0", "1", "2"), ("1", "2"))
FEW, MANY = 60, 2000


def drawn(folder: Path, seed: int) -> WrittenLog:
    draw = random.Random(seed)
    forms = draw.choice(FORMS)
    is_compacted = "07" not in forms and draw.random() < 0.3
    start = 0 if "07" in forms and draw.random() < 0.5 else draw.choice((0, 7, 1000, 2**33))
    return write_log(folder, draw, forms, is_compacted=is_compacted, start=start)


def findings(log: WrittenLog) -> list[Finding]:
    [partition] = open_log(log.folder).partitions
    return list(check_partition(partition))


def messages(log: WrittenLog) -> list[Message]:
    [partition] = open_log(log.folder).partitions
    reading = LogReading(partition, "0-0" if log.is_07 else 0)
    return [event for event in reading.events() if isinstance(event, Message)]


def fields(found: list[Message]) -> list[tuple[object, ...]]:
    return [(message.offset, message.key, message.value, message.headers) for message in found]


def check(log: WrittenLog, expected: Expected) -> None:
    """Compare what is found with what was done."""
    found = findings(log)
    survivors = list(all_messages([row for row in log.rows if row not in expected.lost]))
    read = fields(messages(log))
    rescued = [row for row in expected.lost if row.codec != "none" and row.form != "2"]
    if rescued:  # parts of a compressed set that no codec has changed are messages as others are
        at = 2 if log.is_07 else 0
        parts = {message[at] for message in all_messages(rescued)} - {row[at] for row in survivors}
        read = [row for row in read if row[at] not in parts]
    if log.is_07:  # positions are those of bytes
        assert [row[2] for row in read] == [row[2] for row in survivors]
    else:
        assert read == survivors
    damage = [item for item in found if isinstance(item, Damage)]
    ranges = [(item.file, item.start_byte, item.end_byte) for item in damage
              if not item.is_repaired and item.start_byte < item.end_byte]  # fmt: skip
    if rescued and ranges != expected.damaged:
        file, start, end = expected.damaged[0] if expected.damaged else ranges[0]
        assert ranges[0][:2] == (file, start)
        assert all(item[0] == file and start <= item[1] < item[2] <= end for item in ranges)
    else:
        assert ranges == expected.damaged
    repaired = [item for item in damage if item.is_repaired]
    for file, start, end in expected.repaired:
        named = [item for item in repaired if item.file == file and item.start_byte < end and start < item.end_byte]
        assert named, file
    assert {item.file for item in repaired} == {file for file, _, _ in expected.repaired}
    gaps = [item for item in found if isinstance(item, Gap)]
    losses = [item for item in gaps if item.kind.is_loss]
    lost = [offset for row in expected.lost for offset in ((row.first,) if log.is_07 else (m[0] for m in row.messages))]
    if expected.gap in ("damaged", "segment_missing"):
        assert {item.kind for item in losses} <= {expected.gap}
        for offset in lost if not log.is_07 and not rescued else ():
            assert [item for item in losses if item.first_offset <= offset <= item.last_offset], offset
    elif expected.gap in ("below_log_start", "compacted"):
        assert not losses
    kept = {row[0] for row in survivors}
    if not log.is_07:
        for gap in losses:
            assert not kept & set(range(gap.first_offset, gap.last_offset + 1)), "a message is in no gap"
    assert [item.file for item in found if isinstance(item, FileNote)] == ([expected.note] if expected.note else [])


def try_fault(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    while True:
        log = drawn(folder / f"{draw.random()}", seed)
        fault = draw.choice(FAULTS)
        expected = fault(log, draw)
        if expected is not None:
            break
        seed += 1_000_003
    try:
        check(log, expected)
    except Exception as error:
        raise AssertionError(f"{expected.said}: {error}") from error


@pytest.mark.parametrize("seed", range(FEW))
def test_a_fault_is_named_exactly_and_what_survives_is_read_once(tmp_path: Path, seed: int) -> None:
    try_fault(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_faults(tmp_path: Path, part: int) -> None:
    for seed in range(FEW + part * MANY // 20, FEW + (part + 1) * MANY // 20):
        try_fault(tmp_path, seed)


@pytest.mark.parametrize("seed", range(20))
def test_a_sound_log_has_no_fault(tmp_path: Path, seed: int) -> None:
    log = drawn(tmp_path, seed)
    found = findings(log)
    assert [item for item in found if isinstance(item, Damage)] == []
    assert [item for item in found if isinstance(item, Gap) and item.kind.is_loss] == []
    read = fields(messages(log))
    assert [row[1:] for row in read] == [row[1:] for row in all_messages(log.rows)]
