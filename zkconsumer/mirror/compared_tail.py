"""Compares the last records of a target without sequence numbers with the source, and names what does not belong there.

The position of a lane follows from the end of the target's log. A broker that stored a request late, after it was sent
again, or somebody else who writes there, moves that end: the last records are then not those of the source. So as many
are compared as the last two requests can have. If all of them are equal, the copy is right, whoever has written them.

Threads: any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from simpleconsumer.consumer import EARLIEST, LATEST
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import FetchRequest, TopicPartition
from zkconsumer.mirror.compared_records import Side, hash_of
from zkconsumer.mirror.errors import LaneStuck
from zkconsumer.mirror.lane_runs import LaneMap
from zkconsumer.mirror.lanes.plain_lane import first_difference, what_is_wrong
from zkconsumer_error import ErrorCode

_WINDOWS: Final = (16, 128, 1_024, 8_192)
"""So many records are compared, in the first of these that has the last two requests."""
_ENOUGH_BYTES: Final = 1 << 20
_FETCH_BYTES: Final = 1 << 20
_LARGEST_BYTES: Final = 1 << 30
_SOURCE_S: Final = 15.0
"""How long a source whose log ends too early is waited for: a new leader says less for a moment."""
_AGAIN_S: Final = 0.5


def compare_tail(source: Side, target: Side, runs: LaneMap, end: int, stopping: threading.Event) -> None:
    """Compare the last records of the target with those of the source from which they were copied.

    Records that are not in the source any more prove nothing.

    Args:
        source, target: The two clusters.
        runs: Of the lane.
        end: Where the target's log ends.
        stopping: Ends a wait for the source.

    Raises:
        RepeatedRequest: The last records are there twice.
        AnotherWriter: They are not those of the source.
        LaneStuck: A log has no leader now.
        BrokerError, SimpleConsumerError, MessageError: A record cannot be read.
    """
    run, target_start = runs.at(end - 1), _bound(target, runs.lane.target, EARLIEST)
    if run is None or target_start >= end:
        return
    lane = runs.lane
    oldest = max(run.target_first, target_start)
    copied: Mapping[int, bytes] = {}
    for window in _WINDOWS:
        first = max(oldest, end - window)
        copied, size_bytes = hashes_between(target, lane.target, first, end)
        if size_bytes >= _ENOUGH_BYTES or first == oldest:
            break
    source_end = _end_from(source, lane.source, run.source_at(end), stopping)
    start = max(_bound(source, lane.source, EARLIEST), run.source_at(first))
    origins, _ = hashes_between(source, lane.source, start, min(run.source_at(end), source_end))
    wrong = first_difference(copied, origins, run, source_end)
    if wrong is not None:
        raise what_is_wrong(lane.target, lane.source, copied, origins, run, wrong)


def hashes_between(side: Side, name: TopicPartition, first: int, end: int) -> tuple[dict[int, bytes], int]:
    """Return the hashes of the records from an offset up to another one, by offset, and the bytes that were fetched.

    Offsets that hold no record, or none any more, are left out.

    Raises:
        BrokerError: The partition has no leader now, or it refuses.
        LaneStuck: The log cannot be read up to its end now.
    """
    leader = side.cluster.leaders([name]).get(name)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *name)
    dialect = dialect_of(leader)
    found: dict[int, bytes] = {}
    size_bytes, fetched_bytes = _FETCH_BYTES, 0
    with side.connect(leader) as client:
        while first < end:
            [answer] = client.multifetch([FetchRequest(*name, first, size_bytes)], 0, 1)
            if answer.error_code:
                raise BrokerError(answer.error_code, *name)
            data = answer.message_set
            _, next_offset, _ = dialect.set_end(data, first)
            if next_offset is None or next_offset <= first:
                if len(data) < size_bytes or size_bytes > _LARGEST_BYTES:
                    raise LaneStuck(name, 0.0, f"offset {first} cannot be read now, and the log ends at {end} or later")
                size_bytes *= 8
                continue
            for message in dialect.decode_messages(data, *name, first):
                if message.offset < end:
                    found[message.offset] = hash_of(message)
            fetched_bytes += len(data)
            first = next_offset
    return found, fetched_bytes


def _end_from(source: Side, name: TopicPartition, wanted: int, stopping: threading.Event) -> int:
    """Return where a log ends, once it reaches an offset, or after some seconds: new leaders say less at first."""
    deadline = time.monotonic() + _SOURCE_S
    while True:
        end = _bound(source, name, LATEST)
        if end >= wanted or time.monotonic() > deadline or stopping.wait(_AGAIN_S):
            return end


def _bound(side: Side, name: TopicPartition, which: int) -> int:
    found = side.cluster.log_ends([name], [which])[name]
    if isinstance(found, str):
        raise LaneStuck(name, 0.0, found)
    return int(found[0] or 0)
