"""The runs of a lane: which record of the source is at which offset of the target. Pure.

A lane is one partition of the source that is copied into one partition of the target. In a run, both offsets rise
together, so one addition translates between them. A new run starts where the source has a hole (compaction, a marker,
an aborted transaction, retention), or where the brokers of the target have forgotten the producer.

The position of a lane is stored nowhere: it is computed from the end of the target's log, so that nothing can disagree
with what is in the log.

Positions of Kafka 0.7 are bytes, and all messages of a compressed entry share one. A run of such a source starts at an
entry, and its records are counted from there; new runs start often enough that little has to be counted.

Rules, and which failure each prevents:
- A run is stored before its first record is sent: a record whose place nobody knows would be copied once more.
- Records of one lane are numbered, and the first one with a number counts: of two processes that both start the next
  run, one has to follow the other.
- A run that starts at or before others on the target replaces them: the log was cut off there, or they are empty.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from simpleconsumer.types import ProducerId, TopicPartition
from zkconsumer.mirror.errors import StateUnreadable
from zkconsumer.mirror.lanes.lane_events import Run as Numbering

_FORMAT: Final = 1


class RunCause(enum.Enum):
    """Why a run starts."""

    START = "start"
    TRANSACTION = "transaction"
    COMPACTED = "compacted"
    RETENTION = "retention"
    TRUNCATED = "truncated"
    RECREATED = "recreated"
    COUNTED = "counted"
    MARKER = "marker"
    ABORTED = "aborted"
    TAKEN = "taken"
    FORGOTTEN = "forgotten"
    CUT = "cut"


class SourcePlace(NamedTuple):
    """A position in the source.

    Attributes:
        offset: Of a record; in Kafka 0.7 of an entry.
        skip: How many records from there on come before it; 0 but in Kafka 0.7.
    """

    offset: int
    skip: int = 0


class Lane(NamedTuple):
    """One partition of the source, and where it is copied to.

    Attributes:
        cluster: The id of the source's cluster.
        source: The partition that is read.
        target: The partition that is written.
    """

    cluster: str
    source: TopicPartition
    target: TopicPartition

    @property
    def is_counted(self) -> bool:
        """Whether the source is of Kafka 0.7, so that records are counted from the start of a run."""
        return isinstance(self.source.partition, str)

    @property
    def place(self) -> str:
        """Both partitions, as texts have them."""
        to = "" if self.target == self.source else f" -> {self.target.topic}/{self.target.partition}"
        return f"{self.source.topic}/{self.source.partition}{to}"


class RunRecord(NamedTuple):
    """One run, as it is stored.

    Attributes:
        lane: Whose run it is.
        number: 1 for the first run of the lane; each other one is one more.
        producer: Id and epoch under which its batches are sent.
        first_sequence: The sequence number of its first record.
        source_first: The offset of its first record in the source.
        target_first: The offset of its first record in the target.
        cause: Why it starts.
        incarnation: Which topic of this name the source is, as far as the source tells; empty if it does not.
        skip: How many records from `source_first` on come before its first one; 0 but in Kafka 0.7.
        lost_first: Where what the source has lost before this run begins; -1 if it starts without such a hole, or is
            not of Kafka 0.7.
        gap: How many offsets of the target before its first record hold none.
    """

    lane: Lane
    number: int
    producer: ProducerId
    first_sequence: int
    source_first: int
    target_first: int
    cause: RunCause
    incarnation: str = ""
    skip: int = 0
    lost_first: int = -1
    gap: int = 0

    @property
    def numbering(self) -> Numbering:
        """The run as the sender of a lane has it."""
        return Numbering(self.producer, self.target_first, self.first_sequence)

    def source_at(self, target_offset: int) -> int:
        """Return the source offset of what is at an offset of the target, as if the run had no end. Not for 0.7."""
        return self.source_first + target_offset - self.target_first

    def place_at(self, target_offset: int) -> SourcePlace:
        """Return where in the source is what is at an offset of the target, as if the run had no end."""
        if self.lane.is_counted:
            return SourcePlace(self.source_first, self.skip + target_offset - self.target_first)
        return SourcePlace(self.source_at(target_offset))

    def encoded(self, writer: str) -> tuple[bytes, bytes]:
        """Return key and value.

        Args:
            writer: Differs for each attempt to store it. So no two records have the same key, and compaction leaves
                the first one with a number, which counts.
        """
        lane = [self.lane.cluster, *self.lane.source, *self.lane.target]
        key = {"format": _FORMAT, "lane": lane, "run": self.number, "writer": writer}
        value = {
            "producer_id": self.producer.producer_id, "epoch": self.producer.epoch,
            "first_sequence": self.first_sequence, "source_first": self.source_first,
            "target_first": self.target_first, "cause": self.cause.value, "incarnation": self.incarnation,
        }  # fmt: skip
        if self.lane.is_counted:
            value.update(skip=self.skip, lost_first=self.lost_first)
        if self.gap:
            value.update(gap=self.gap)
        return _json(key), _json(value)


def decoded(place: str, key: bytes | None, value: bytes | None) -> RunRecord | None:
    """Return the run that a record of the state topic holds; None for a record of another kind.

    Args:
        place: Topic, partition and offset, for errors.

    Raises:
        StateUnreadable: It is no record of a mirror, or one of a later version.
    """
    try:
        names = json.loads(key or b"")
        if not isinstance(names, dict) or names.get("format") != _FORMAT:
            raise StateUnreadable(place, f"its format is not {_FORMAT}")
        if value is None or "run" not in names:
            return None
        cluster, *places = names["lane"]
        lane = Lane(str(cluster), TopicPartition(*places[:2]), TopicPartition(*places[2:]))
        found: dict[str, Any] = json.loads(value)
        return RunRecord(
            lane, int(names["run"]), ProducerId(found["producer_id"], found["epoch"]), found["first_sequence"],
            found["source_first"], found["target_first"], RunCause(found["cause"]), found["incarnation"],
            found.get("skip", 0), found.get("lost_first", -1), found.get("gap", 0),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise StateUnreadable(place, f"{type(error).__name__}: {error}") from None


class Stretch(NamedTuple):
    """The part of a run that has records.

    Attributes:
        run: The run.
        target_end: The offset after its last record in the target.
    """

    run: RunRecord
    target_end: int

    @property
    def records(self) -> int:
        """How many records it has."""
        return self.target_end - self.run.target_first

    @property
    def source_end(self) -> int:
        """The offset after its last record in the source; not in Kafka 0.7."""
        return self.run.source_first + self.records


@dataclass
class LaneMap:
    """The runs of one lane, in the order of both offsets.

    Attributes:
        lane: Whose runs they are.
        number: Of the last record that counts; 0 before the first one.
        runs: The runs in force: no later one has replaced them.
    """

    lane: Lane
    number: int = 0
    runs: list[RunRecord] = field(default_factory=list)

    def apply(self, record: RunRecord) -> bool:
        """Take a record, in the order of the state topic; return whether it counts."""
        if record.number != self.number + 1:
            return False
        self.number, gap = record.number, record.gap
        while self.runs and self.runs[-1].target_first >= record.target_first:
            replaced = self.runs.pop()
            if replaced.target_first == record.target_first:  # what is before it is still no record
                gap = gap or replaced.gap
        self.runs.append(record._replace(gap=gap))
        return True

    def copy(self) -> LaneMap:
        """Return the same runs, which do not change with this map."""
        return LaneMap(self.lane, self.number, list(self.runs))

    def at(self, target_offset: int) -> RunRecord | None:
        """Return the run to which an offset of the target belongs; None before the first one."""
        for run in reversed(self.runs):
            if run.target_first <= target_offset:
                return run
        return None

    def after(self, target_offset: int) -> RunRecord | None:
        """Return the first run that starts after an offset of the target."""
        later = None
        for run in reversed(self.runs):
            if run.target_first <= target_offset:
                break
            later = run
        return later

    def numbering(self, run: RunRecord) -> Numbering:
        """Return where offsets and numbers of a producer begin to rise together: one sender may write from there."""
        index = next(i for i, each in enumerate(self.runs) if each.number == run.number)
        first = run
        for earlier in reversed(self.runs[:index]):
            if earlier.producer != run.producer or first.gap:
                break
            first = earlier
        return first.numbering

    def gap_at(self, target_end: int) -> RunRecord | None:
        """Return the run before whose first record offsets are to be filled, where the target's log ends."""
        run = self.after(target_end)
        return run if run is not None and run.gap and run.target_first - run.gap <= target_end else None

    def stretches(self, target_end: int) -> Iterator[Stretch]:
        """Yield the runs that have records, where the target's log ends at an offset."""
        ends: Sequence[int] = [*(run.target_first - run.gap for run in self.runs[1:]), target_end]
        for run, end in zip(self.runs, ends, strict=True):
            if run.target_first < min(end, target_end):
                yield Stretch(run, min(end, target_end))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
