"""What a mirror has done, computed from the logs of both clusters: the state of its lanes, and the audit of its copies.

No process of the mirror is asked, and none has to run.

The audit reads both logs and joins them by the offsets of the source, as the runs map them. Records are compared by the
hash of key, value and headers; times are left out, as targets may set them. Leaves of 65,536 source offsets have a
count, bytes and an ordered hash on each side, so that two reports can be compared without the logs.

Source: docs/MIRROR.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.types import Message, TopicPartition
from zkconsumer.mirror.compared_records import entry_record, hash_of
from zkconsumer.mirror.copier import lag_in_ms
from zkconsumer.mirror.errors import MirrorRefused
from zkconsumer.mirror.lane_runs import Lane, LaneMap, Stretch
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.source_samples import source_settings
from zkconsumer.mirror.state_log import read_runs
from zkconsumer.topic_reader.topic_reader import read_topic

LEAF_OFFSETS: Final = 65_536
_MOST_NAMED: Final = 20


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
    """

    lane: Lane
    position: int | None
    source_start: int | None
    source_end: int | None
    target_end: int | None
    runs: int
    holes: tuple[tuple[int, int, str], ...] = ()
    lag_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """How many offsets are to be copied; None if that is not known."""
        if self.position is None or self.source_end is None:
            return None
        return max(0, self.source_end - self.position)


class Difference(NamedTuple):
    """A record that is not the same on both sides.

    Attributes:
        source_offset: Where it is, or belongs, in the source.
        target_offset: Where it is in the target; None if it is not there.
        what: What is different, a clause.
    """

    source_offset: int
    target_offset: int | None
    what: str


@dataclass
class Leaf:
    """The records at 65,536 offsets of the source, on both sides.

    Attributes:
        first: The first offset.
        records, size_bytes: Of the records that both sides have; the bytes are those of keys and values.
    """

    first: int
    records: int = 0
    size_bytes: int = 0
    _source: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16), repr=False)
    _target: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=16), repr=False)

    @property
    def source_hash(self) -> str:
        """The ordered hash of the source's records."""
        return str(self._source.hexdigest())

    @property
    def target_hash(self) -> str:
        """The ordered hash of the target's records."""
        return str(self._target.hexdigest())


@dataclass
class LaneAudit:
    """What the comparison of one lane has found.

    Attributes:
        lane: What was compared.
        records: How many are equal on both sides.
        only_target: Records that the source has deleted since; nothing proves them.
        only_source: Records that the target has deleted since; nothing proves them.
        not_copied: Records of the source after the position: they are still to be copied.
        differences: The first 20 records that differ.
        different: How many records differ.
        leaves: By the offsets of the source.
    """

    lane: Lane
    records: int = 0
    only_target: int = 0
    only_source: int = 0
    not_copied: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.different

    def note(self, difference: Difference) -> None:
        """Count a record that differs."""
        self.different += 1
        if len(self.differences) < _MOST_NAMED:
            self.differences.append(difference)

    def leaf(self, source_offset: int) -> Leaf:
        """Return the leaf of an offset."""
        first = source_offset // LEAF_OFFSETS * LEAF_OFFSETS
        if not self.leaves or self.leaves[-1].first != first:
            self.leaves.append(Leaf(first))
        return self.leaves[-1]


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
    maps = _maps(both, settings)
    sources = both.source.cluster.log_ends([lane.source for lane in maps], [EARLIEST, LATEST], read_committed=True)
    targets = both.target.cluster.log_ends([lane.target for lane in maps], [LATEST])
    states = [
        _state(both, lane, found, sources[lane.source], targets[lane.target]) for lane, found in sorted(maps.items())
    ]
    return [_with_lag(settings, each) for each in states]


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
    found = _read(settings.source_zookeeper, settings.source, state.lane.source, (state.position, state.source_end))
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


def audit(settings: MirrorSettings) -> Iterator[LaneAudit]:
    """Yield the comparison of each lane.

    Raises:
        As `mirror_status`; and what reading raises: a partition that cannot be read is not called equal.
    """
    with ExitStack() as stack:
        both = Both(settings, stack)
        settings = both.settings
        # The ends first, and then the runs once more: a run is stored before its records.
        bounds = {lane: _bounds(both.target, lane.target) for lane in sorted(_maps(both, settings))}
        maps = _maps(both, settings)
        for lane, target_bounds in bounds.items():
            if lane.is_counted:
                yield _audit_counted(both, settings, maps[lane], target_bounds)
            else:
                yield _audit_lane(both, settings, maps[lane], target_bounds)


def _maps(both: Both, settings: MirrorSettings) -> dict[Lane, LaneMap]:
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


def _audit_lane(
    both: Both, settings: MirrorSettings, runs: LaneMap, target_bounds: tuple[int, int]
) -> LaneAudit:  # fmt: skip
    lane = runs.lane
    found = LaneAudit(lane)
    source_bounds = _bounds(both.source, lane.source)
    compacts = "compact" in source_settings(both, lane.source.topic).get("cleanup.policy", "")
    stretches = list(runs.stretches(target_bounds[1]))
    ours = _mapped(stretches, _read(None, settings.target, lane.target, target_bounds))
    theirs = _read(settings.source_zookeeper, settings.source, lane.source, source_bounds)
    origin, copied = next(theirs, None), next(ours, None)
    while origin is not None or copied is not None:
        if copied is None or (origin is not None and origin.offset < copied[0]):
            assert origin is not None
            _note_only_source(found, origin, stretches, target_bounds[0], compacts)
            origin = next(theirs, None)
        elif origin is None or copied[0] < origin.offset:
            _note_only_target(found, both, copied, source_bounds, compacts)
            copied = next(ours, None)
        else:
            _compare(found, origin, copied[1])
            origin, copied = next(theirs, None), next(ours, None)
    return found


def _audit_counted(
    both: Both, settings: MirrorSettings, runs: LaneMap, target_bounds: tuple[int, int]
) -> LaneAudit:  # fmt: skip
    """Compare a lane whose source is of Kafka 0.7: its records are counted from the start of each run."""
    lane = runs.lane
    found = LaneAudit(lane)
    earliest, latest = _bounds(both.source, lane.source)
    stretches = list(runs.stretches(target_bounds[1]))
    for index, (run, target_end) in enumerate(stretches):
        start = max(run.target_first, target_bounds[0])
        read = _read(None, settings.target, lane.target, (start, target_end))
        copied = itertools.islice(read, max(0, target_end - start))
        if run.source_first < earliest:  # at which of its records the source's log starts now cannot be counted
            found.only_target += sum(1 for _ in copied)
            continue
        later = stretches[index + 1].run if index + 1 < len(stretches) else None
        theirs = itertools.islice(
            _read(settings.source_zookeeper, settings.source, lane.source, (run.source_first, latest)), run.skip, None
        )
        gone = min(max(0, target_bounds[0] - run.target_first), target_end - run.target_first)
        found.only_source += sum(1 for _ in itertools.islice(theirs, gone))
        for message in copied:
            origin = next(theirs, None)
            if origin is None:
                found.note(Difference(latest, message.offset, "the source does not have it"))
            else:
                _compare(found, origin, message)
        if later is None:
            found.not_copied += sum(1 for _ in theirs)
        elif not later.skip:
            end = later.lost_first if later.lost_first >= 0 else later.source_first
            for origin in theirs:
                if origin.offset >= end:
                    break
                found.note(Difference(origin.offset, None, "the target does not have it"))
    if not stretches:
        waiting = _read(settings.source_zookeeper, settings.source, lane.source, (earliest, latest))
        found.not_copied += sum(1 for _ in waiting)
    return found


def _note_only_target(
    found: LaneAudit, both: Both, copied: tuple[int, Message], bounds: tuple[int, int], compacts: bool
) -> None:  # fmt: skip
    is_deleted = copied[0] < bounds[0] or (compacts and copied[0] < bounds[1])
    # Maybe while it was read. After some real differences that does not matter any more, and would cost a request each.
    is_asked = not is_deleted and found.different < _MOST_NAMED
    if is_deleted or (is_asked and copied[0] < _bounds(both.source, found.lane.source)[0]):
        found.only_target += 1
    else:
        found.note(Difference(copied[0], copied[1].offset, "the source does not have it"))


def _compare(found: LaneAudit, origin: Message, copied: Message) -> None:
    ours, theirs = hash_of(copied), hash_of(origin)
    leaf = found.leaf(origin.offset)
    leaf.records += 1
    leaf.size_bytes += len(origin.key or b"") + len(origin.value or b"")
    leaf._source.update(theirs)
    leaf._target.update(ours)
    if ours == theirs:
        found.records += 1
    else:
        found.note(Difference(origin.offset, copied.offset, "key, value or headers differ"))


def _note_only_source(
    found: LaneAudit, origin: Message, stretches: Sequence[Stretch], target_start: int, compacts: bool
) -> None:  # fmt: skip
    if not stretches or origin.offset >= stretches[-1].source_end or origin.offset < stretches[0].run.source_first:
        found.not_copied += 1
        return
    of_stretch = [each for each in stretches if each.run.source_first <= origin.offset < each.source_end]
    if of_stretch and (compacts or _target_offset(of_stretch[-1], origin.offset) < target_start):
        found.only_source += 1
    else:
        found.note(Difference(origin.offset, None, "the target does not have it"))


def _target_offset(stretch: Stretch, source_offset: int) -> int:
    return stretch.run.target_first + source_offset - stretch.run.source_first


def _mapped(stretches: list[Stretch], messages: Iterator[Message]) -> Iterator[tuple[int, Message]]:
    """Yield the records of the target with the offset of the source that each was copied from."""
    index = 0
    for message in messages:
        while index < len(stretches) and message.offset >= stretches[index].target_end:
            index += 1
        if index == len(stretches):
            return
        if message.offset >= stretches[index].run.target_first:
            yield stretches[index].run.source_at(message.offset), message


def _bounds(side: Any, name: TopicPartition) -> tuple[int, int]:
    found = side.cluster.log_ends([name], [EARLIEST, LATEST])[name]
    if isinstance(found, str):
        raise MirrorRefused(f"{name.topic}/{name.partition} cannot be read: {found}", "try again when it has a leader")
    return int(found[0] or 0), int(found[1] or 0)


def _read(
    zookeeper: str | None, properties: Mapping[str, Any], name: TopicPartition, bounds: tuple[int, int]
) -> Iterator[Message]:  # fmt: skip
    if bounds[0] >= bounds[1]:
        return
    given = {**properties, "isolation.level": "read_committed", "on.message.error": "stop"}
    start = {name.partition: bounds[0]}
    with read_topic(zookeeper, name.topic, [name.partition], start=start, properties=given) as reader:
        yield from reader
