"""The audit of a mirror: reads the logs of its lanes on both sides, or on the target alone, and compares them.

No process of the mirror is asked, and none has to run. Each side has fetchers of its own, and several lanes are
compared at a time.

Source: docs/MIRROR.md.

Threads: `audit` by one; each lane that is compared has its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.errors import BrokenFraming, MessageError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import PartitionStopped
from zkconsumer.mirror.audit.audit_comparison import LaneComparison, SourceLog, lost_tail
from zkconsumer.mirror.audit.audit_findings import HourCount, LaneAudit
from zkconsumer.mirror.audit.counted_audit import CountedComparison, unproved
from zkconsumer.mirror.compared_records import Side
from zkconsumer.mirror.errors import MirrorRefused, SourceLost
from zkconsumer.mirror.lane_leaves import LeafPart, chosen
from zkconsumer.mirror.lane_runs import Lane, LaneMap
from zkconsumer.mirror.lane_source import LaneSource, SourcePool
from zkconsumer.mirror.pieces import LogSpan, log_spans
from zkconsumer.mirror.reports import guard_of, lane_maps, read_log
from zkconsumer.mirror.sides import Both, MirrorSettings, opened_target
from zkconsumer.mirror.state_log import read_leaves, read_runs
from zkconsumer.mirror.topics.source_samples import node_settings, source_settings
from zkconsumer.mirror.topics.topic_settings import overrides

_AT_A_TIME: Final = 4
_WAIT_S: Final = 0.5
_STALL_S: Final = 60.0
_HOUR_MS: Final = 3_600_000
_NO_HOUR: Final = -1
_QUEUED_BYTES: Final = 16 << 20
"""Of each log that is read at a time."""


def audit(settings: MirrorSettings, *, target_only: bool = False, hours: bool = False) -> Iterator[LaneAudit]:
    """Yield the comparison of each lane.

    Args:
        settings: Of the mirror.
        target_only: Compare the target with the leaves alone; the source is not connected to.
        hours: Count the records by the hours of their times, too. Each record is decoded for that.

    Raises:
        ReadFailed: There is no such mirror on the target.
        MirrorRefused: A cluster cannot be told from others, or the mirror has copied nothing.
        PartitionStopped: A partition cannot be read: it is not called equal.
    """
    with ExitStack() as stack:
        logs = _Logs(settings, target_only, stack)
        logs.counts_hours = hours
        lanes = sorted(logs.lanes())
        # The ends first, and then the runs and leaves: a run is stored before its records, and a leaf after them.
        bounds = {lane: _bounds(logs.target, lane.target) for lane in lanes}
        maps = logs.lanes()
        leaves = read_leaves(logs.settings.target, settings.state_topic)
        workers = ThreadPoolExecutor(_AT_A_TIME, "audit")
        stack.callback(workers.shutdown, wait=True, cancel_futures=True)
        stack.callback(logs.stop)  # first: it ends the reading of a lane that is being compared
        parts = {lane: [part for record in found.values() for part in record.parts] for lane, found in leaves.items()}
        running = [
            workers.submit(_audit_lane, logs, maps[lane], bounds[lane], parts.get(lane, [])) for lane in lanes
        ]  # fmt: skip
        for each in running:
            yield each.result()


class _Logs:
    """The clusters whose logs are read.

    Args:
        settings: Of the mirror.
        target_only: Whether only the target is read.
        stack: Closes them.

    Attributes:
        settings: Of the mirror; its properties of the target name brokers as `bootstrap.servers`.
        target_port: ZooKeeper of a target before Kafka 0.11; None for later ones.
        both: Both sides; None if only the target is read.
        target: The target.
        target_config: Settings of its consumers.
        is_stopped: Whether reading is to end.
        counts_hours: Whether records are counted by their times.
    """

    def __init__(self, settings: MirrorSettings, target_only: bool, stack: ExitStack) -> None:
        self.both: Both | None = None
        self.is_stopped = self.counts_hours = False
        if target_only:
            self.target, self.target_config, self.target_port, self.settings = opened_target(settings, stack)
        else:
            self.both = Both(settings, stack)
            self.target, self.target_config = self.both.target, self.both.target_config
            self.target_port, self.settings = self.both.target_port, self.both.settings

    def lanes(self) -> dict[Lane, LaneMap]:
        """Return the lanes of this mirror, with their runs."""
        if self.both is not None:
            return lane_maps(self.both, self.settings)
        found = read_runs(None, self.settings.target, self.settings.state_topic)
        if not found:
            raise MirrorRefused(f"mirror {self.settings.name!r} has copied nothing", "see --name")
        return found

    def is_compacted(self, topic: str) -> bool:
        """Return whether a topic of the target is compacted."""
        port = self.target_port
        found = overrides(self.target, topic) if port is None else node_settings(port, topic)
        return "compact" in found.get("cleanup.policy", "")

    def stop(self) -> None:
        """End the reading."""
        self.is_stopped = True


# -- one lane ----------------------------------------------------------------------------------------------------------


def _audit_lane(logs: _Logs, runs: LaneMap, target_bounds: tuple[int, int], parts: list[LeafPart]) -> LaneAudit:
    found = _compared(logs, runs, target_bounds, parts)
    found.is_guarded = guard_of(logs.target, logs.settings, runs, target_bounds[1])
    return found


def _compared(logs: _Logs, runs: LaneMap, target_bounds: tuple[int, int], parts: list[LeafPart]) -> LaneAudit:
    lane = runs.lane
    if lane.is_counted:
        return _audit_counted(logs, runs, target_bounds)
    start, end = target_bounds
    if logs.is_compacted(lane.target.topic):
        parts = []  # the target removes records, and nothing proves which
    source = _source_log(logs, lane)
    usable = chosen(parts)
    comparison = LaneComparison(
        lane, list(runs.stretches(end)), usable, source, start, lambda: _bounds(logs.target, lane.target)[0]
    )  # fmt: skip
    if lost_tail(runs, usable, end) is not None:
        end_now = _bounds(logs.target, lane.target)[1]  # a mirror that runs has written the leaves since
        lost = lost_tail(runs, usable, end_now)
        if lost is not None:
            comparison.note_lost(*lost, end_now)
    theirs: Iterator[LogSpan] = iter(())
    if source is not None and logs.both is not None:
        theirs = _spans(logs, logs.both.source, logs.both.source_config, lane.source, (source.start, source.end))
    ours = _spans(logs, logs.target, logs.target_config, lane.target, target_bounds)
    if not logs.counts_hours:
        return comparison.compare(theirs, ours)
    at_source: Counter[int] = Counter()
    on_target: Counter[int] = Counter()
    source_end = 0 if source is None else source.end
    found = comparison.compare(_counted(theirs, at_source, source_end), _counted(ours, on_target, end))
    found.hours = [
        HourCount(None if hour == _NO_HOUR else hour * _HOUR_MS, at_source[hour], on_target[hour])
        for hour in sorted(at_source | on_target)
    ]
    return found


def _audit_counted(logs: _Logs, runs: LaneMap, target_bounds: tuple[int, int]) -> LaneAudit:
    both, lane, settings = logs.both, runs.lane, logs.settings
    if both is None:
        return unproved(runs, target_bounds)
    comparison = CountedComparison(
        runs,
        lambda first, end: read_log(settings.source_zookeeper, settings.source, lane.source, (first, end)),
        lambda first, end: read_log(None, settings.target, lane.target, (first, end)),
    )
    return comparison.compare(_bounds(both.source, lane.source), target_bounds)


def _counted(spans: Iterator[LogSpan], hours: Counter[int], end: int) -> Iterator[LogSpan]:
    """Yield what a log has, after its records before an offset were counted by the hours of their times."""
    for span in spans:
        for message in span.messages():
            if message.offset < end:
                time_ms = message.timestamp_ms
                hours[_NO_HOUR if time_ms is None or time_ms < 0 else time_ms // _HOUR_MS] += 1
        yield span


def _source_log(logs: _Logs, lane: Lane) -> SourceLog | None:
    both = logs.both
    if both is None:
        return None
    start, end = _bounds(both.source, lane.source)
    compacts = "compact" in source_settings(both, lane.source.topic).get("cleanup.policy", "")
    return SourceLog(start, end, lambda: _bounds(both.source, lane.source)[0], compacts)


def _spans(
    logs: _Logs, side: Side, config: ConsumerConfig, name: TopicPartition, bounds: tuple[int, int]
) -> Iterator[LogSpan]:  # fmt: skip
    """Yield what a log has between two offsets; a batch is to be used before the next one is asked for."""
    start, end = bounds
    if start >= end:
        return
    bounded = dataclasses.replace(config, queued_max_bytes=min(config.queued_max_bytes, _QUEUED_BYTES))
    pool = SourcePool(bounded, side.new_cluster(), 1)  # one for each log: two lanes may have one partition in common
    log = LaneSource(pool, name)
    log.start(start)
    try:
        yield from _read_to(logs, log, name, start, end)
    finally:
        log.stop()
        pool.stop()


def _read_to(logs: _Logs, log: LaneSource, name: TopicPartition, start: int, end: int) -> Iterator[LogSpan]:
    position, heard_at = start, time.monotonic()
    while position < end and not logs.is_stopped:
        try:
            chunk = log.next_chunk(_WAIT_S)
        except SourceLost as error:
            if error.go_on_at is None or position != start:
                raise
            position = start = error.go_on_at  # the first records were deleted meanwhile
            log.start(position)
            continue
        if chunk is None:
            if log.is_empty_to(end):
                return
            if time.monotonic() - heard_at > _STALL_S:
                reason = log.trouble or f"nothing came for {_STALL_S:g} s"
                raise PartitionStopped(*name, position, reason, "read it again when a broker leads it")
            continue
        for span in log_spans(chunk, name, position):
            if span.first_offset < end:
                yield span._replace(messages=partial(_readable, span.messages, name, position))
        if chunk.error is not None:
            raise PartitionStopped(*name, position, str(chunk.error))
        position = max(position, chunk.next_offset)
        log.done(chunk)
        heard_at = time.monotonic()


def _readable(messages: Callable[[], Iterator[Message]], name: TopicPartition, position: int) -> Iterator[Message]:
    """Yield messages; one that is damaged ends the audit of its partition."""
    try:
        for message in messages():
            position = message.offset
            yield message
    except (MessageError, BrokenFraming) as error:
        remedy = "`zkconsumer log check` on the disks of its brokers says where it is damaged"
        raise PartitionStopped(*name, position, str(error), remedy) from error


def _bounds(side: Side, name: TopicPartition) -> tuple[int, int]:
    found = side.cluster.log_ends([name], [EARLIEST, LATEST], read_committed=True)[name]
    if isinstance(found, str):
        raise MirrorRefused(f"{name.topic}/{name.partition} cannot be read: {found}", "try again when it has a leader")
    return int(found[0] or 0), int(found[1] or 0)
