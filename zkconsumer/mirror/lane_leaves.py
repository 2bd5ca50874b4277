"""Leaves: what a mirror notes of the records that it has copied, so that the target can be proved without the source.

Pure. A part is a range of offsets of the source at which every record was read from the source and is known to be on
the target. It has an ordered hash, which anyone can compute from the target alone. Parts are aligned to leaves of
65,536 offsets of the source.

    stored     batches that were copied whole: hashes of their records as they are stored, still compressed
    decoded    batches that were encoded anew: hashes of their records without times (`zkconsumer.log.record_hash`)

Rules, and which failure each prevents:
- A part has what the target has acknowledged, and nothing else: a part never promises a record that is not there.
- A part never crosses a gap, and begins in one leaf; its last batch may reach over the end of the leaf.
- The hash of a part depends on its range and its kind alone: two processes that copy the same records may both write
  parts, and they may overlap. The reader chooses.
- A part that was not written, as a process was killed, is a gap, and never a wrong part.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from simpleconsumer.types import Buffer, TopicPartition
from zkconsumer.mirror.errors import StateUnreadable
from zkconsumer.mirror.lane_runs import Lane

LEAF_OFFSETS: Final = 65_536
DECODED: Final = 0
"""`LeafPart.codecs` of a part whose records were hashed one by one."""
DIGEST_BYTES: Final = 16
_FORMAT: Final = 1
_MOST_PARTS: Final = 256
"""Parts of one record of the state topic, at most."""
_MOST_RECORDS: Final = 64
"""Records that wait to be written, at most; the oldest ones are dropped, and are gaps then."""
_WRITE_S: Final = 5.0
_WRITE_OPEN_S: Final = 60.0
_PUT_OFF_S: Final = 60.0


class LeafPart(NamedTuple):
    """A range of the source whose records were copied.

    Attributes:
        first, end: Offsets of the source.
        size_bytes: Bytes of the records as stored; of keys and values, if they were decoded.
        codecs: A bit for each codec number of the batches; `DECODED` if the records were hashed one by one.
        digest: The ordered hash, as hexadecimal digits.
    """

    first: int
    end: int
    size_bytes: int
    codecs: int
    digest: str

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.end - self.first


def batch_digest(records_section: Buffer) -> bytes:
    """Return the hash of the records of a batch as they are stored: the bytes after its head."""
    return blake2b(records_section, digest_size=DIGEST_BYTES, person=b"zkc-batch-v1").digest()


class OrderedHash:
    """The hash of hashes of batches or of records, in their order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_BYTES, person=b"zkc-leaf-v1")

    def add(self, digests: bytes) -> None:
        """Add the hashes of one or more batches or records."""
        self._hash.update(digests)

    def hexdigest(self) -> str:
        """Return the hash of what was added so far."""
        return self._hash.hexdigest()


class CopiedRange(NamedTuple):
    """A batch that was sent to the target.

    Attributes:
        first: Its first offset in the source.
        target_first: Its first offset in the target.
        records: How many records it has.
        size_bytes, codecs: As in `LeafPart`.
        digests: The hash of the batch, or those of its records.
    """

    first: int
    target_first: int
    records: int
    size_bytes: int
    codecs: int
    digests: bytes


# -- the state topic ---------------------------------------------------------------------------------------------------


class LeafRecord(NamedTuple):
    """Some parts of one leaf, as they are stored.

    Attributes:
        lane: Whose parts they are.
        writer: Differs for each process and each position from which it has copied.
        first: The first offset of the first part. Lane, writer and this are the key: a record that has grown replaces
            the one before.
        parts: In the order of their offsets.
    """

    lane: Lane
    writer: str
    first: int
    parts: tuple[LeafPart, ...]

    def encoded(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        lane = [self.lane.cluster, *self.lane.source, *self.lane.target]
        key = {"format": _FORMAT, "lane": lane, "leaf": self.first, "writer": self.writer}
        return _json(key), _json({"parts": self.parts})


def decoded_leaf(place: str, key: bytes | None, value: bytes | None) -> LeafRecord | None:
    """Return the parts that a record of the state topic holds; None for a record of another kind.

    Args:
        place: Topic, partition and offset, for errors.

    Raises:
        StateUnreadable: It is no record of a mirror.
    """
    if key is None or value is None or b'"leaf":' not in key:
        return None
    try:
        names = json.loads(key)
        if "leaf" not in names:
            return None
        cluster, *places = names["lane"]
        lane = Lane(str(cluster), TopicPartition(*places[:2]), TopicPartition(*places[2:]))
        parts = tuple(LeafPart(int(a), int(b), int(c), int(d), str(e)) for a, b, c, d, e in json.loads(value)["parts"])
        return LeafRecord(lane, str(names["writer"]), int(names["leaf"]), parts)
    except (ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(place, f"{type(error).__name__}: {error}") from None


def chosen(parts: Iterable[LeafPart]) -> list[LeafPart]:
    """Return parts that do not overlap, in order, which have as many records as possible."""
    by_end = sorted(set(parts), key=lambda part: (part.end, part.first, part.codecs, part.digest))
    ends = [part.end for part in by_end]
    best = [0]  # of the first n parts: the most records
    before = [bisect_right(ends, part.first) for part in by_end]
    for index, part in enumerate(by_end):
        best.append(max(best[index], best[before[index]] + part.records))
    found: list[LeafPart] = []
    index = len(by_end)
    while index:
        part = by_end[index - 1]
        if best[index] > best[index - 1]:
            found.append(part)
            index = before[index - 1]
        else:
            index -= 1
    return found[::-1]


# -- what a lane notes -------------------------------------------------------------------------------------------------


@dataclass
class _OpenPart:
    """A part that may grow."""

    first: int
    end: int
    target_end: int
    size_bytes: int
    codecs: int
    digests: OrderedHash = field(default_factory=OrderedHash)

    @property
    def part(self) -> LeafPart:
        return LeafPart(self.first, self.end, self.size_bytes, self.codecs, self.digests.hexdigest())

    def continues_with(self, copied: CopiedRange) -> bool:
        return (
            self.end == copied.first
            and self.target_end == copied.target_first
            and (self.codecs == DECODED) == (copied.codecs == DECODED)
            and self.first // LEAF_OFFSETS == copied.first // LEAF_OFFSETS
        )

    def add(self, copied: CopiedRange) -> None:
        self.end = copied.first + copied.records
        self.target_end = copied.target_first + copied.records
        self.size_bytes += copied.size_bytes
        self.codecs |= copied.codecs
        self.digests.add(copied.digests)


class LeafNotes:
    """What one lane has copied since it was started, as far as that is not written yet.

    Args:
        lane: The lane.
        writer: See `LeafRecord`.
        now: Seconds.
    """

    def __init__(self, lane: Lane, writer: str, now: float) -> None:
        self._lane = lane
        self._writer = writer
        self._sent: deque[CopiedRange] = deque()
        self._open: _OpenPart | None = None
        self._parts: list[LeafPart] = []  # of the record that is open, without the open part
        self._finished: deque[LeafRecord] = deque(maxlen=_MOST_RECORDS)
        self._written_at = now
        self._written_end = -1  # of the open part

    def sent(self, copied: CopiedRange) -> None:
        """Take note of a batch that was sent."""
        self._sent.append(copied)

    def acknowledge(self, target_end: int) -> None:
        """Take note of where on the target the batches end that are stored."""
        while self._sent and self._sent[0].target_first + self._sent[0].records <= target_end:
            self._fold(self._sent.popleft())

    def _fold(self, copied: CopiedRange) -> None:
        part = self._open
        if part is not None and part.continues_with(copied):
            part.add(copied)
            return
        if part is not None:
            self._parts.append(part.part)
            is_next_leaf = part.first // LEAF_OFFSETS != copied.first // LEAF_OFFSETS
            if is_next_leaf or len(self._parts) >= _MOST_PARTS:
                self._finish()
        self._open = _OpenPart(copied.first, copied.first, copied.target_first, 0, copied.codecs)
        self._open.add(copied)

    def _finish(self) -> None:
        self._finished.append(LeafRecord(self._lane, self._writer, self._parts[0].first, tuple(self._parts)))
        self._parts = []

    def due(self, now: float, *, is_end: bool = False) -> list[LeafRecord]:
        """Return what is to be written now; `written` says that it was.

        Finished records are written every few seconds. An open part is written when it has become twice as long, and
        every minute if it has grown at all.

        Args:
            now: Seconds.
            is_end: Nothing follows: all is written.
        """
        since_s = now - self._written_at
        if since_s < _WRITE_S and not is_end:
            return []
        found, part = list(self._finished), self._open
        if part is not None and part.end != self._written_end:
            has_doubled = part.end - part.first >= 2 * (self._written_end - part.first)
            if found or has_doubled or since_s >= _WRITE_OPEN_S or is_end:
                parts = (*self._parts, part.part)
                found.append(LeafRecord(self._lane, self._writer, parts[0].first, parts))
        return found

    def written(self, records: Sequence[LeafRecord], now: float) -> None:
        """Take note of records that were stored."""
        done = set(records)
        self._finished = deque((each for each in self._finished if each not in done), maxlen=_MOST_RECORDS)
        self._written_at = now
        self._written_end = -1 if self._open is None else self._open.end

    def put_off(self, now: float) -> None:
        """Take note that nothing can be stored now: it is tried again in a minute, as each try may take long."""
        self._written_at = now + _PUT_OFF_S - _WRITE_S

    def restart(self, writer: str) -> None:
        """Go on at another position: what was sent and is not known to be stored is left out."""
        self._sent.clear()
        if self._open is not None:
            self._parts.append(self._open.part)
            self._open = None
        if self._parts:
            self._finish()
        self._writer = writer
        self._written_end = -1


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
