"""The fetch answers of tests/golden that hold record batches, and what an independent reader found in them."""

from __future__ import annotations

import ast
import re
import struct
from typing import NamedTuple

import golden_frames

from simpleconsumer.types import AbortedTransaction

VERSIONS = ("1.1.1", "2.8.2", "4.3.1")


class GoldenRecord(NamedTuple):
    """A record as `batches-decoded.txt` has it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attributes: int


class GoldenAnswer(NamedTuple):
    """A fetch answer of one partition.

    Attributes:
        records: All of them, those of control batches and of aborted transactions too.
    """

    version: str
    name: str
    high_watermark: int
    aborted: tuple[AbortedTransaction, ...]
    record_set: bytes
    records: list[GoldenRecord]


def answers() -> list[GoldenAnswer]:
    """Return every recorded fetch of version 4 that has an expectation."""
    return [_answer(version, name, records) for version in VERSIONS for name, records in _decoded(version).items()]


def answer(version: str, name: str) -> GoldenAnswer:
    """Return one of them by its name, without `hand-Fetch-v4-` and `-response`."""
    return next(each for each in answers() if (each.version, each.name) == (version, name))


def _answer(version: str, name: str, records: list[GoldenRecord]) -> GoldenAnswer:
    body = golden_frames.answer(version, f"hand-Fetch-v4-{name}-response")
    _, topics, length = struct.unpack_from(">iih", body)
    assert topics == 1
    at = 10 + length
    partitions, partition, code, high_watermark, _, aborted = struct.unpack_from(">iihqqi", body, at)
    assert (partitions, partition, code) == (1, 0, 0)
    at += struct.calcsize(">iihqqi")
    found = []
    for _ in range(max(aborted, 0)):
        found.append(AbortedTransaction(*struct.unpack_from(">qq", body, at)))
        at += 16
    (size,) = struct.unpack_from(">i", body, at)
    assert at + 4 + size == len(body)
    return GoldenAnswer(version, name, high_watermark, tuple(found), body[at + 4 :], records)


def _decoded(version: str) -> dict[str, list[GoldenRecord]]:
    found: dict[str, list[GoldenRecord]] = {}
    attributes = 0
    for line in (golden_frames.GOLDEN / f"kafka-{version}" / "batches-decoded.txt").read_text().splitlines():
        if line.startswith("== "):
            name = re.match(r"== hand-Fetch-v4-(.*)-response: ", line)
            assert name is not None
            records = found.setdefault(name[1], [])
        elif line.startswith("batch "):
            shown = re.search(r"crc=\w+ ok attributes=(0x\w+)", line)
            assert shown is not None
            attributes = int(shown[1], 16)
        elif line.strip():
            records.append(_record(line, attributes))
    return found


def _record(line: str, attributes: int) -> GoldenRecord:
    shown = re.fullmatch(r"  record offset=(\d+) ts=(\d+) key=(.*) value=(.*) headers=(\[.*\])", line)
    assert shown is not None, line
    value = shown[4]
    if attributes & 0x20:
        content: bytes | None = bytes.fromhex(value)
    elif value.endswith(" (400 bytes)"):
        content = (b"abcdefghij" * 40)[:400]
    else:
        text = ast.literal_eval(value)
        content = None if text is None else text.encode()
    return GoldenRecord(
        int(shown[1]), int(shown[2]), ast.literal_eval(shown[3]), content, tuple(ast.literal_eval(shown[5])), attributes
    )
