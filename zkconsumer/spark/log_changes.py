"""What became of the logs since the last micro-batch or the last load, and where the next one may go. Pure.

Rules, and what each prevents:
- A partition that is new takes one step that only writes down its beginning: what is read afterwards has both of its
  ends in the checkpoint, so that a batch that is done again reads the same, whatever was deleted meanwhile.
- A log that ends before the position goes on at its end, one that begins behind it at its begin, and the topic that was
  created anew at its beginning; each of them is a loss, which the caller refuses or counts.
- A log that is found to be another one below the position, though it ends behind it, was cut and has grown since: what
  lies behind the position is new, and is read; of what lies before it nobody knows.
- A partition that is gone keeps its position: a topic that comes back is noticed by its birth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.stream_offsets import StreamOffsets

__all__ = ["Logs", "Loss", "Step", "next_step", "remaining_ranges", "shrunk", "needing_log_start"]

_UNKNOWN = -1


@dataclass(frozen=True)
class Logs:
    """What is known of the logs at one moment.

    Attributes:
        partitions: those that the query reads and that exist.
        ends: the ends of those whose leaders answered.
        created_zxids: topic -> the transaction that created it.
        cluster_ms: when the cluster was set up; `None` where that is not known.
    """

    partitions: frozenset[TopicPartition]
    ends: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int]
    cluster_ms: int | None = None

    def is_of_another_cluster(self, start: StreamOffsets) -> bool:
        """Whether these are not the logs in which the stream stands."""
        return None not in (self.cluster_ms, start.cluster_ms) and self.cluster_ms != start.cluster_ms

    def is_recreated(self, topic: str, start: StreamOffsets) -> bool:
        """Whether the topic is another one of the same name."""
        zxid = self.created_zxids.get(topic)
        return zxid is not None and zxid != start.created_zxids.get(topic, zxid)


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that the query should have read and cannot.

    Attributes:
        begin: offset of the first one.
        end: offset behind the last one; `None` when nobody knows.
        reason: what happened, a clause.
    """

    partition: TopicPartition
    begin: int
    end: int | None
    reason: str

    @property
    def messages(self) -> int:
        """How many they are at most; 0 when nobody knows."""
        return 0 if self.end is None else self.end - self.begin

    def __str__(self) -> str:
        upto = "on" if self.end is None else f"to {self.end}"
        return f"{self.partition.topic}-{self.partition.partition} from offset {self.begin} {upto}: {self.reason}"


@dataclass
class Step:
    """Where the next micro-batch may go.

    Attributes:
        positions: where reading goes on.
        ends: the furthest it may go.
        losses: what was lost.
        new_partitions: partitions that are new.
    """

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    new_partitions: list[TopicPartition] = field(default_factory=list)

    def _stay(self, name: TopicPartition, at: int) -> None:
        self.positions[name] = self.ends[name] = at


def shrunk(start: StreamOffsets, logs: Logs) -> list[TopicPartition]:
    """The partitions whose logs seem to end before the position; a leader that was just chosen may not know better."""
    return [name for name, end in logs.ends.items()
            if end < start.offsets.get(name, _UNKNOWN) and not logs.is_recreated(name.topic, start)]


def needing_log_start(start: StreamOffsets, logs: Logs) -> list[TopicPartition]:
    """The partitions whose begin `next_step` needs: new ones, those of topics created anew, those with news."""
    return sorted(name for name in logs.partitions
                  if name not in start.offsets or logs.is_recreated(name.topic, start)
                  or logs.ends.get(name, _UNKNOWN) > start.offsets[name])


def next_step(
    start: StreamOffsets,
    logs: Logs,
    log_starts: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None = None,
    selects: Callable[[TopicPartition], bool] = lambda name: True,
    kept_ends: Mapping[TopicPartition, int] | None = None,
) -> Step:
    """What may be read next.

    Args:
        start: where the stream stands.
        log_starts: begins of the logs of `needing_log_start`, without those whose leader did not answer.
        target: the ends that must not be passed; other partitions are left alone.
        selects: whether the query would read a partition if it existed: a topic that was taken from the subscription is
            no loss.
        kept_ends: of logs that were cut, the ends of what is known to have stayed. Those that do not end before the
            position now have grown since.
    """
    step = Step()
    kept_ends = kept_ends or {}
    for name in sorted(start.offsets.keys() | logs.partitions):
        at = start.offsets.get(name)
        if at is None:
            _begin(step, name, start, log_starts, target)
        elif logs.is_recreated(name.topic, start):
            step.losses.append(Loss(name, at, None, "its topic was deleted and created anew"))
            if name in logs.partitions:
                step._stay(name, log_starts.get(name, 0))
        elif name in logs.partitions:
            _go_on(step, name, at, logs.ends.get(name), log_starts.get(name), target, kept_ends.get(name))
        else:
            if selects(name):
                step.losses.append(Loss(name, at, None, "it does not exist any more"))
            step._stay(name, at)
    return step


def _begin(
    step: Step, name: TopicPartition, start: StreamOffsets, log_starts: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None,
) -> None:
    """Write down where a new partition begins, once that is known."""
    if name not in log_starts or (target is not None and name not in target):
        return
    begin = log_starts[name]
    if begin > 0 and any(known.topic == name.topic for known in start.offsets):
        step.losses.append(Loss(name, 0, begin, "deleted before this query knew of the partition"))
    step._stay(name, begin)
    step.new_partitions.append(name)


def _go_on(
    step: Step, name: TopicPartition, at: int, end: int | None, begin: int | None,
    target: Mapping[TopicPartition, int] | None, kept_ends: int | None,
) -> None:
    if end is not None and end < at:
        where = "there" if kept_ends is None or kept_ends >= end else f"at {end}"
        new_partitions = end if kept_ends is None else min(kept_ends, end)
        step.losses.append(Loss(name, new_partitions, at, f"its log was cut and ends {where} now"))
        step._stay(name, end)
        return
    if kept_ends is not None:
        how_far = "up to the end" if end == at else "past the end"
        step.losses.append(Loss(name, kept_ends, at, f"its log was cut, and has grown {how_far} since"))
    if target is not None:
        # A leader that does not answer now may do so when it is read: what is fixed is read, or it is an error.
        goal = target.get(name, at)
        end = goal if end is None else min(goal, end)
    if begin is not None and begin > at:
        step.losses.append(Loss(name, at, begin, "deleted before it was read"))
        at = begin
    step.positions[name] = at
    step.ends[name] = at if end is None else max(at, end)


def remaining_ranges(
    start: StreamOffsets,
    end: StreamOffsets,
    logs: Logs,
    log_starts: Mapping[TopicPartition, int],
    selects: Callable[[TopicPartition], bool] = lambda name: True,
) -> tuple[dict[TopicPartition, tuple[int, int]], list[Loss]]:
    """The ranges of a batch that was planned, perhaps long ago, as far as they still exist, and what is lost of them.

    Args:
        log_starts: begins of their logs, without those whose leader did not answer.
        selects: whether the query would read a partition now. What it does not is still part of the batch, which must
            come out the same; nothing is known of those logs, the tasks will see.
    """
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    losses: list[Loss] = []
    for name, until in end.offsets.items():
        at = start.offsets.get(name, until)
        zxid = end.created_zxids.get(name.topic)
        if at >= until or start.created_zxids.get(name.topic, zxid) != zxid:  # a step to the start of a new incarnation
            continue
        if not selects(name):
            ranges[name] = (at, until)
            continue
        if name not in logs.partitions:
            losses.append(Loss(name, at, until, "it does not exist any more"))
            continue
        if logs.is_recreated(name.topic, end):
            losses.append(Loss(name, at, until, "its topic was deleted and created anew"))
            continue
        first, last = max(at, log_starts.get(name, at)), min(until, logs.ends.get(name, until))
        if first > at:
            losses.append(Loss(name, at, min(first, until), "deleted before it was read"))
        if last < until:
            losses.append(Loss(name, max(at, last), until, "its log was cut and ends before"))
        if first < last:
            ranges[name] = (first, last)
    return ranges, losses
