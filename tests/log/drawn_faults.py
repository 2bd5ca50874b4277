"""Draws a fault of a log, does it to its files, and says what a check must find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.log.written_logs import TOPIC, Row, WrittenLog, file_name

PAGE: Final = 4096
Range = tuple[str, int, int]


@dataclass
class Expected:
    """What a check must find.

    Attributes:
        lost: the entries whose messages are lost.
        damaged: the bytes that must be named; each range exactly.
        repaired: bytes that must be named by damage that costs no message, somewhere in a range.
        gap: the kind of the gap in which the lost offsets are.
        note: a file about which something is said.
        said: what was done.
    """

    said: str
    lost: list[Row] = field(default_factory=list)
    damaged: list[Range] = field(default_factory=list)
    repaired: list[Range] = field(default_factory=list)
    gap: str = "damaged"
    note: str = ""


Fault = Callable[[WrittenLog, random.Random], Expected | None]


def flip(log: WrittenLog, draw: random.Random) -> Expected | None:
    """One bit of an entry; heads more often than their bytes are many."""
    row = draw.choice(log.rows)
    at = draw.randrange(min(row.end - row.start, 30) if draw.random() < 0.5 else row.end - row.start)
    bit = 1 << draw.randrange(8)
    path = log.path(row.file)
    data = bytearray(path.read_bytes())
    data[row.start + at] ^= bit
    place = row.start + at
    expected = Expected(f"bit {bit:#x} of byte {at} of entry {row.first} ({row.form} {row.codec}) in {row.file}")
    is_covered = _is_covered(row, at, bit, data)
    if log.is_compacted and at < 8:
        return None  # offsets have room there: a wrong one cannot be told from a right one
    path.write_bytes(data)
    if is_covered:
        expected.lost, expected.damaged = [row], [(row.file, row.start, row.end)]
    else:
        expected.repaired = [(row.file, place, place + 1)]
    return expected


def _is_covered(row: Row, at: int, bit: int, data: bytearray) -> bool:
    """Whether a message is lost with a bit: what no checksum covers is known from other bytes."""
    if row.form == "07":
        codec = data[row.start + 5] & 3
        return at >= 6 or (at == 5 and bit <= 2 and not (codec == 0 and row.codec != "none"))
    return at >= (17 if row.form == "2" else 12)


def cut(log: WrittenLog, draw: random.Random) -> Expected | None:
    """The end of a file."""
    file = draw.choice(log.files)
    rows = log.of(file)
    at = draw.randrange(1, rows[-1].end)
    if any(row.start == at for row in rows):
        return None
    path = log.path(file)
    path.write_bytes(path.read_bytes()[:at])
    lost = [row for row in rows if row.end > at]
    if file == log.files[-1] and log.is_07:
        return Expected(f"{file} cut at {at}, the end of the log", lost, gap="")
    return Expected(f"{file} cut at {at}", lost, [(file, lost[0].start, at)])


def hole(log: WrittenLog, draw: random.Random) -> Expected | None:
    """Some bytes in a file are left out."""
    file = draw.choice(log.files)
    rows = log.of(file)
    start = draw.randrange(rows[-1].end)
    end = min(rows[-1].end, start + draw.choice((1, 7, 100, 1000, PAGE)))
    touched = log.touched(file, start, end)
    if end == rows[-1].end or touched[0].start == start or touched[-1].end == end:
        return None
    path = log.path(file)
    data = path.read_bytes()
    if _slid(log, file, data, start, end, -1) != touched or _slid(log, file, data, start, end, 1) != touched:
        return None  # the same bytes are left if others are left out
    path.write_bytes(data[:start] + data[end:])
    said = f"bytes {start} to {end} of {file} left out"
    if log.is_07 and file == log.files[-1] and touched[-1] is rows[-1]:
        return Expected(f"{said}, at the end of the log", touched, gap="")
    return Expected(said, touched, [(file, touched[0].start, touched[-1].end - end + start)])


def _slid(log: WrittenLog, file: str, data: bytes, start: int, end: int, step: int) -> list[Row]:
    """The entries that a hole touches that is moved as far as what is left stays the same."""
    while start > 0 and end < len(data) and data[start - (step < 0)] == data[end - (step < 0)]:
        start, end = start + step, end + step
    return log.touched(file, start, end)


def zeros(log: WrittenLog, draw: random.Random) -> Expected | None:
    """A page of zeros."""
    file = draw.choice(log.files)
    rows = log.of(file)
    start = draw.randrange(rows[-1].end)
    end = min(rows[-1].end, start + draw.choice((64, 512, PAGE)))
    path = log.path(file)
    data = bytearray(path.read_bytes())
    changed = [at for at in range(start, end) if data[at]]
    if not changed:
        return None
    touched = log.touched(file, changed[0], changed[-1] + 1)
    for row in (touched[0], touched[-1]):
        if all(at - row.start < 18 for at in changed if row.start <= at < row.end):
            return None  # what is wrong with a head alone may be repaired
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    ends_file = file == log.files[-1] and end == rows[-1].end
    if ends_file and log.is_07:
        return Expected("zeros at the end of the log", touched, gap="")
    said = f"zeros in bytes {start} to {end} of {file}"
    return Expected(said, touched, [(file, touched[0].start, touched[-1].end)])


def swap(log: WrittenLog, draw: random.Random) -> Expected | None:
    """Two files have each other's names."""
    if log.is_07:
        return None
    one, other = draw.sample(log.files, 2)
    first, second = log.path(one).read_bytes(), log.path(other).read_bytes()
    log.path(one).write_bytes(second)
    log.path(other).write_bytes(first)
    return Expected(f"{one} and {other} swapped", repaired=[(one, 0, len(second)), (other, 0, len(first))])


def double(log: WrittenLog, draw: random.Random) -> Expected | None:
    """A file is there twice, the second time under a new name or in the place of another one."""
    if log.is_07:
        return None
    one, other = draw.sample(log.files, 2)
    data = log.path(one).read_bytes()
    if draw.random() < 0.5:
        log.path(other).write_bytes(data)
        said = f"{one} in the place of {other}"
        return Expected(said, log.of(other), repaired=[(other, 0, len(data))], gap="")
    bases = {log.base(file) for file in log.files}
    bases.add(log.of(one)[0].first)  # which of the two is the copy could not be said
    free = [row.last for row in log.rows if row.last not in bases]
    if not free:
        return None
    name = file_name(draw.choice(free))
    log.path(name).write_bytes(data)
    return Expected(f"{one} is there again as {name}", repaired=[(name, 0, len(data))])


def foreign(log: WrittenLog, draw: random.Random) -> Expected | None:
    """A file that is no segment."""
    if draw.random() < 0.3:
        name = draw.choice(("notes.txt", "42.log", "core"))
        log.path(name).write_bytes(draw.randbytes(100))
        return Expected(f"{name} is there", note=name)
    if log.is_07:
        return None
    bases = {log.base(file) for file in log.files}
    free = [row.last for row in log.rows[:-1] if row.last not in bases and row.last < log.base(log.files[-1])]
    if not free:
        return None
    name = file_name(draw.choice(free))
    data = draw.choice((draw.randbytes(3000), b"some text of somebody\n" * 200))
    log.path(name).write_bytes(data)
    return Expected(f"{name} is no segment", damaged=[(name, 0, len(data))])


def remove(log: WrittenLog, draw: random.Random) -> Expected | None:
    """A file is not there; its index may be."""
    file = draw.choice(log.files)
    log.path(file).unlink()
    index = log.path(file).with_suffix(".index")
    rows = log.of(file)
    if draw.random() < 0.5:
        for name in (".index", ".timeindex", ".txnindex"):
            index.with_suffix(name).unlink(missing_ok=True)
        if file == log.files[0]:
            return Expected(f"{file} is gone, and its index", rows, gap="below_log_start")
    if file == log.files[0] or (file == log.files[-1] and log.is_07):
        return Expected(f"{file} is gone", rows, gap="" if log.is_07 else "segment_missing")
    if log.is_compacted and not index.exists() and file != log.files[-1]:
        return Expected(f"{file} is gone, and it may have been compacted", rows, gap="compacted")
    return Expected(f"{file} is gone", rows, gap="segment_missing")


FAULTS: Final[tuple[Fault, ...]] = (flip, flip, flip, cut, hole, zeros, swap, double, foreign, remove)
__all__ = ["FAULTS", "TOPIC", "Expected", "Fault"]
