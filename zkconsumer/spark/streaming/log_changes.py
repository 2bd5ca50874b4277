"""Compares logs with the positions of a stream or a load: lost offsets, and the next readable ones. Pure.

Rules, and what each prevents:
- A new partition takes one step that only stores its start. So what is read afterwards has both of its ends in the
  checkpoint, and a batch that is repeated reads the same, whatever was deleted meanwhile.
- A log that ends before the position is continued at its end, one that starts after the position at its start, and a
  topic that was created anew at its start. Each of these is a loss, which the caller refuses or counts.
- A log that has other messages than before below the position, although it ends after it, was truncated and has grown
  since. Messages after the position are new, and are read; which ones before it were replaced is unknown.
- A partition that is gone keeps its position: a topic that is created anew is recognized by its `created_zxid`. On
  Kafka 0.7, where partitions go and return with their brokers, that is no loss, and neither is a log start above 0 of a
  partition that comes later.
- A log that is known to be another one is read from its start.
- A log of which the leader's epochs show where it was cut is read on from there, however long it is now: everything
  after that place is new.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simpleconsumer.types import TopicPartition
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets

_UNKNOWN = -1
_CUT = "its log was truncated there when its leader changed"


@dataclass(frozen=True)
class Logs:
    """The state of the logs at one moment.

    Attributes:
        partitions: the existing ones that the query reads.
        ends: the ends of partitions whose leaders answered.
        created_zxids: topic -> the transaction that created it.
        cluster_ms: when the cluster was set up; `None` if that is not known.
        may_return: a partition that does not exist is away with its broker (Kafka 0.7), and not deleted.
        replaced: why logs are other ones than those of the position, a clause for each; only what is known of them.
        epochs: the epochs of the leaders that reported the ends (Kafka 2.1 and later).
        cuts: of logs that were cut below the position, where; only what is known of them.
    """

    partitions: frozenset[TopicPartition]
    ends: Mapping[TopicPartition, int]
    created_zxids: Mapping[str, int]
    cluster_ms: int | None = None
    may_return: bool = False
    replaced: Mapping[TopicPartition, str] = field(default_factory=dict)
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    cuts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def is_of_another_cluster(self, start: StreamOffsets) -> bool:
        """Whether the position of the stream is of another cluster."""
        return None not in (self.cluster_ms, start.cluster_ms) and self.cluster_ms != start.cluster_ms

    def is_recreated(self, topic: str, start: StreamOffsets) -> bool:
        """Whether the topic was deleted and created anew since."""
        zxid = self.created_zxids.get(topic)
        return zxid is not None and zxid != start.created_zxids.get(topic, zxid)


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that should have been read and are gone.

    Attributes:
        begin: offset of the first one.
        end: offset after the last one; `None` if that is unknown.
        reason: what happened, a clause.
    """

    partition: TopicPartition
    begin: int
    end: int | None
    reason: str

    @property
    def messages(self) -> int:
        """How many messages at most, on Kafka 0.7 bytes; 0 if that is unknown."""
        return 0 if self.end is None else self.end - self.begin

    def __str__(self) -> str:
        upto = "on" if self.end is None else f"to {self.end}"
        return f"{self.partition.topic}-{self.partition.partition} from offset {self.begin} {upto}: {self.reason}"


@dataclass
class Step:
    """The ranges that the next micro-batch may read.

    Attributes:
        positions: where reading continues.
        ends: where the logs end.
        losses: the lost offsets.
        new_partitions: partitions that are new.
    """

    positions: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    new_partitions: list[TopicPartition] = field(default_factory=list)

    def _stay(self, name: TopicPartition, at: int) -> None:
        self.positions[name] = self.ends[name] = at


def shrunk(start: StreamOffsets, logs: Logs) -> list[TopicPartition]:
    """The partitions whose logs seem to end before the position; a leader that was just elected may be wrong."""
    return [name for name, end in logs.ends.items()
            if end < start.offsets.get(name, _UNKNOWN) and name not in logs.cuts
            and not logs.is_recreated(name.topic, start)]  # fmt: skip


def needing_log_start(start: StreamOffsets, logs: Logs) -> list[TopicPartition]:
    """The partitions whose log start `next_step` needs: new, recreated and cut ones, and those with new messages."""
    return sorted(
        name
        for name in logs.partitions
        if name not in start.offsets
        or name in logs.cuts
        or logs.is_recreated(name.topic, start)
        or logs.ends.get(name, _UNKNOWN) > start.offsets[name]
    )


def next_step(
    start: StreamOffsets,
    logs: Logs,
    log_starts: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None = None,
    selects: Callable[[TopicPartition], bool] = lambda name: True,
    kept_ends: Mapping[TopicPartition, int] | None = None,
) -> Step:
    """The ranges that may be read next.

    Args:
        start: the position of the stream.
        log_starts: the log starts of `needing_log_start`, without those whose leader did not answer.
        target: the ends up to which the run reads; other partitions are not read.
        selects: whether the query would read a partition if it existed: a topic that was removed from the subscription
            is no loss.
        kept_ends: of logs that were truncated, the offset up to which they are unchanged. Logs that do not end before
            the position now have grown since.
    """
    step = Step()
    kept_ends = kept_ends or {}
    for name in sorted(start.offsets.keys() | logs.partitions):
        at = start.offsets.get(name)
        if at is None:
            _add_new(step, name, start, logs, log_starts, target)
        elif name in logs.replaced:
            step.losses.append(Loss(name, at, None, logs.replaced[name]))
            step._stay(name, log_starts.get(name, at))
        elif logs.is_recreated(name.topic, start):
            step.losses.append(Loss(name, at, None, "its topic was deleted and created again"))
            if name in logs.partitions:
                step._stay(name, log_starts.get(name, 0))
        elif name in logs.cuts:
            _go_back(step, name, at, logs.cuts[name], log_starts.get(name))
        elif name in logs.partitions:
            _continue(step, name, at, logs.ends.get(name), log_starts.get(name), target, kept_ends.get(name))
        elif logs.may_return and selects(name):
            # The run reads up to its target: the task waits for the broker, or fails.
            step.positions[name], step.ends[name] = at, at if target is None else max(at, target.get(name, at))
        else:
            if selects(name):
                step.losses.append(Loss(name, at, None, "it no longer exists"))
            step._stay(name, at)
    return step


def _add_new(
    step: Step,
    name: TopicPartition,
    start: StreamOffsets,
    logs: Logs,
    log_starts: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int] | None,
) -> None:
    """Store the start of a new partition, once it is known."""
    if name not in log_starts or (target is not None and name not in target):
        return
    log_start = log_starts[name]
    if log_start > 0 and not logs.may_return and any(known.topic == name.topic for known in start.offsets):
        step.losses.append(Loss(name, 0, log_start, "deleted before this query knew the partition"))
    step._stay(name, log_start)
    step.new_partitions.append(name)


def _go_back(step: Step, name: TopicPartition, at: int, cut: int, log_start: int | None) -> None:
    """Go on where a log was cut, or where it starts now."""
    step.losses.append(Loss(name, cut, at, _CUT))
    if log_start is not None and log_start > cut:
        step.losses.append(Loss(name, cut, log_start, "deleted before it was read"))
        cut = log_start
    step._stay(name, cut)


def _continue(
    step: Step,
    name: TopicPartition,
    at: int,
    end: int | None,
    log_start: int | None,
    target: Mapping[TopicPartition, int] | None,
    kept_end: int | None,
) -> None:
    """Continue a known partition at its position, or where its log continues."""
    if end is not None and end < at:
        where = "there" if kept_end is None or kept_end >= end else f"at {end}"
        first_lost = end if kept_end is None else min(kept_end, end)
        step.losses.append(Loss(name, first_lost, at, f"its log was truncated and now ends {where}"))
        step._stay(name, end)
        return
    if kept_end is not None:
        how_far = "up to the end" if end == at else "past the end"
        step.losses.append(Loss(name, kept_end, at, f"its log was truncated, and has since grown {how_far}"))
    if target is not None:
        # A leader that does not answer now may answer the task: the run reads up to its target, or fails.
        goal = target.get(name, at)
        end = goal if end is None else min(goal, end)
    if log_start is not None and log_start > at:
        step.losses.append(Loss(name, at, log_start, "deleted before it was read"))
        at = log_start
    step.positions[name] = at
    step.ends[name] = at if end is None else max(at, end)


def remaining_ranges(
    start: StreamOffsets,
    end: StreamOffsets,
    logs: Logs,
    log_starts: Mapping[TopicPartition, int],
    selects: Callable[[TopicPartition], bool] = lambda name: True,
) -> tuple[dict[TopicPartition, tuple[int, int]], list[Loss]]:
    """The ranges of a batch that was planned, perhaps long ago, as far as they still exist, and their lost parts.

    Args:
        log_starts: the starts of their logs, without those whose leader did not answer.
        selects: whether the query would read a partition now. Other partitions stay in the batch, which must be the
            same as before. The state of their logs is unknown; the tasks will report what is missing.
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
        if name not in logs.partitions and logs.may_return:
            ranges[name] = (at, until)
            continue
        if name not in logs.partitions:
            losses.append(Loss(name, at, until, "it no longer exists"))
            continue
        if logs.is_recreated(name.topic, end):
            losses.append(Loss(name, at, until, "its topic was deleted and created again"))
            continue
        first = max(at, log_starts.get(name, at))
        last = min(until, logs.ends.get(name, until), logs.cuts.get(name, until))
        if first > at:
            losses.append(Loss(name, at, min(first, until), "deleted before it was read"))
        if last < until:
            reason = _CUT if last == logs.cuts.get(name) else "its log was truncated and ends before"
            losses.append(Loss(name, max(at, last), until, reason))
        if first < last:
            ranges[name] = (first, last)
    return ranges, losses
