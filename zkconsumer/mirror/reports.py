"""How far the lanes of a mirror are, computed from the logs of both clusters.

No process of the mirror is asked, and none has to run.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.errors import MessageError, SimpleConsumerError
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.mirror.compared_records import Side, entry_record, record_at
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane, LaneMap, RunCause, Stretch
from zkconsumer.mirror.lane_settings import lag_in_ms
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.state_log import read_runs
from zkconsumer.topic_reader.topic_reader import read_topic

_OF_TRANSACTIONS: Final = (RunCause.MARKER, RunCause.ABORTED, RunCause.TAKEN)
"""What follows a marker of `--pin-producers`."""


@dataclass(frozen=True)
class LaneProgress:
    """How far a lane is.

    Attributes:
        lane: What is copied.
        position: The next offset of the source.
        source_start, source_end: The bounds of the source's log; None if they are not known.
        target_end: Where the target's log ends; None if that is not known.
        runs: How many runs it has.
        holes: The offsets of the source that are not copied, with their causes: first, end, cause.
        lag_ms: How old the oldest record is that is not copied, by its own time. 0 only without a lag; None: not known.
        is_guarded: Whether the target's brokers know the producer, and so refuse repeats; None: not known.
    """

    lane: Lane
    position: int | None
    source_start: int | None
    source_end: int | None
    target_end: int | None
    runs: int
    holes: tuple[tuple[int, int, str], ...] = ()
    lag_ms: int | None = None
    is_guarded: bool | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are to be copied; None if that is not known."""
        if self.position is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.position)


def mirror_status(settings: MirrorSettings) -> list[LaneProgress]:
    """Return the state of each lane.

    Raises:
        ReadFailed: There is no such mirror on the target.
        MirrorRefused: A cluster cannot be told from others.
    """
    with ExitStack() as stack:
        both = Both(settings, stack)
        return lane_states(both, both.settings)


def lane_states(both: Both, settings: MirrorSettings) -> list[LaneProgress]:
    """Return the state of each lane that has a run."""
    maps = lane_maps(both, settings)
    sources = both.source.cluster.log_ends([lane.source for lane in maps], [EARLIEST, LATEST], read_committed=True)
    targets = both.target.cluster.log_ends([lane.target for lane in maps], [LATEST])
    states = [
        _state(both, lane, found, sources[lane.source], targets[lane.target]) for lane, found in sorted(maps.items())
    ]
    states = [
        dataclasses.replace(each, is_guarded=guard_of(both.target, settings, maps[each.lane], each.target_end))
        for each in states
    ]
    return [_with_lag(settings, each) for each in states]


def guard_of(target: Side, settings: MirrorSettings, runs: LaneMap, target_end: int | None) -> bool | None:
    """Return whether the target's brokers know the producer of a lane, by the time of its last record.

    They know it as well for a day after a transaction. Those before Kafka 0.11 know none.

    Returns:
        None: The last record cannot be read, or nothing was copied.
    """
    if settings.target_zookeeper is not None:
        return False
    if not target_end or not runs.runs:
        return None
    if runs.runs[-1].cause in _OF_TRANSACTIONS:
        return True
    try:
        last = record_at(target, runs.lane.target, target_end - 1)
    except (SimpleConsumerError, MessageError, ClusterSilent):
        return None
    if last is None:
        return None
    return (last.timestamp_ms or -1) >= time.time() * 1000 - settings.forgotten_after_ms


def _with_lag(settings: MirrorSettings, state: LaneProgress) -> LaneProgress:
    """Return the state with its lag in time; without a lag if no record is left, but markers and compacted ones are."""
    if state.lag == 0:
        return dataclasses.replace(state, lag_ms=0)
    if state.lane.is_counted:  # messages of Kafka 0.7 have no times
        return state
    if state.position is None or state.source_end is None or state.source_start is None:
        return state
    if state.position < state.source_start:  # the oldest record is gone, and its time with it
        return state
    found = read_log(settings.source_zookeeper, settings.source, state.lane.source, (state.position, state.source_end))
    first = next(found, None)
    if first is None:
        return dataclasses.replace(state, position=state.source_end, lag_ms=0)
    time_ms = -1 if first.timestamp_ms is None else first.timestamp_ms
    return dataclasses.replace(state, lag_ms=lag_in_ms(state.lag, time_ms, time.time()))


def _state(both: Both, lane: Lane, runs: LaneMap, source: Any, target: Any) -> LaneProgress:
    start, end = (None, None) if isinstance(source, str) else source
    target_end = None if isinstance(target, str) else target[0]
    run = None if target_end is None else runs.at(target_end)
    position = None
    if run is not None and target_end is not None:
        position = run.source_at(target_end)
        if lane.is_counted:
            position = None if end is None else entry_record(both.source, lane.source, run.place_at(target_end))[1]
    holes = () if target_end is None else tuple(_holes(runs, target_end))
    return LaneProgress(lane, position, start, end, target_end, len(runs.runs), holes)


def _holes(runs: LaneMap, target_end: int) -> Iterator[tuple[int, int, str]]:
    if runs.lane.is_counted:
        for run in runs.runs:
            if run.lost_first >= 0:
                yield run.lost_first, run.source_first, run.cause.value
        return
    before: Stretch | None = None
    for stretch in runs.stretches(target_end):
        if before is not None and stretch.run.source_first > before.source_end:
            yield before.source_end, stretch.run.source_first, stretch.run.cause.value
        before = stretch


def lane_maps(both: Both, settings: MirrorSettings) -> dict[Lane, LaneMap]:
    """Return the runs of the lanes of this source."""
    found = read_runs(None, settings.target, settings.state_topic)
    ours = {lane: runs for lane, runs in found.items() if lane.cluster == both.source_id}
    if not ours:
        others = sorted({lane.cluster for lane in found})
        copied = (
            f"it copies cluster {', '.join(others)}, and not {both.source_id}" if others else "it has copied nothing"
        )
        raise MirrorRefused(f"mirror {settings.name!r} has no partition of this source: {copied}",
                            "see --name and the options of the source")  # fmt: skip
    return ours


def read_log(
    zookeeper: str | None, properties: Mapping[str, Any], name: TopicPartition, bounds: tuple[int, int]
) -> Iterator[Message]:  # fmt: skip
    """Yield the committed records of a partition between two offsets, and maybe some after them."""
    if bounds[0] >= bounds[1]:
        return
    given = {**properties, "isolation.level": "read_committed", "on.message.error": "stop"}
    start = {name.partition: bounds[0]}
    with read_topic(zookeeper, name.topic, [name.partition], start=start, properties=given) as reader:
        yield from reader
