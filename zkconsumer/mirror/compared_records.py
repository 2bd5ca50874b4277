"""Reads single records of both sides, and compares the last one that was copied.

Threads: any.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import BrokerError
from simpleconsumer.types import FetchRequest, Message, TopicPartition
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.log.record_hash import record_hash
from zkconsumer.mirror.errors import SourceLost
from zkconsumer.mirror.lane_runs import LaneMap, RunCause, SourcePlace
from zkconsumer_error import ErrorCode

_FETCH_BYTES: Final = 1 << 20
_LARGEST_BYTES: Final = 1 << 30


class Side:
    """One of the two clusters.

    Args:
        new_cluster: Returns what finds leaders; one thread at a time uses it.
        connect: Returns a new connection to a broker; with `read_committed=True` one that gets committed messages.

    Threads: Any.
    """

    def __init__(self, new_cluster: Callable[[], Cluster], connect: Callable[..., SimpleConsumer]) -> None:
        self.new_cluster = new_cluster
        self._of_thread = threading.local()
        self.connect = connect

    @property
    def cluster(self) -> Cluster:
        """What finds leaders, for the calling thread."""
        found: Cluster | None = getattr(self._of_thread, "cluster", None)
        if found is None:
            found = self._of_thread.cluster = self.new_cluster()
        return found


def hash_of(message: Message) -> bytes:
    """Return the hash of a record without its time, which targets may set anew."""
    return record_hash(message.key, message.value, message.headers)


def record_at(side: Side, name: TopicPartition, offset: int) -> Message | None:
    """Return the record at an offset; None if there is none, or not any more.

    Raises:
        BrokerError: The partition has no leader now, or the broker refuses.
        SimpleConsumerError: The broker does not answer.
        MessageError: The record cannot be read.
    """
    leader = side.cluster.leaders([name]).get(name)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *name)
    dialect = dialect_of(leader)
    size_bytes = _FETCH_BYTES
    with side.connect(leader) as client:
        while size_bytes <= _LARGEST_BYTES:
            [found] = client.multifetch([FetchRequest(*name, offset, size_bytes)], 0, 1)
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            if found.error_code:
                raise BrokerError(found.error_code, *name)
            for message in dialect.decode_messages(found.message_set, *name, offset):
                return message if message.offset == offset else None
            if len(found.message_set) < size_bytes:
                return None
            size_bytes *= 8
    return None


def entry_record(side: Side, name: TopicPartition, place: SourcePlace) -> tuple[Message | None, int]:
    """Return the record at a place of Kafka 0.7, None if there is none; and where its entry starts, or the log ends.

    Raises:
        As `record_at`.
    """
    offset, left = place
    leader = side.cluster.leaders([name]).get(name)
    if leader is None:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, *name)
    dialect, size_bytes = dialect_of(leader), _FETCH_BYTES
    with side.connect(leader) as client:
        while size_bytes <= _LARGEST_BYTES:
            [found] = client.multifetch([FetchRequest(*name, offset, size_bytes)], 0, 1)
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None, offset
            if found.error_code:
                raise BrokerError(found.error_code, *name)
            last: Message | None = None
            for last in dialect.decode_messages(found.message_set, *name, offset):
                if not left:
                    return last, last.offset
                left -= 1
            if last is not None:
                offset, size_bytes = last.next_offset, _FETCH_BYTES
            elif not found.message_set:
                return None, offset
            else:
                size_bytes *= 8
    return None, offset


def compare_last(where: str, source: Side, target: Side, runs: LaneMap, end: int) -> None:
    """Compare the last record of the target with the one of the source from which it was copied.

    A record that is not there any more proves nothing.

    Args:
        where: Topic and partition of the source.
        source, target: The two clusters.
        runs: Of the lane.
        end: Where the target's log ends.

    Raises:
        SourceLost: They differ.
        What `record_at` raises.
    """
    run, here = runs.at(end - 1), runs.at(end)
    if run is None or here is None or (here.gap and here.target_first == end):  # what is before is no record
        return
    copied = record_at(target, runs.lane.target, end - 1)
    if copied is None:
        return
    place = run.place_at(end - 1)
    if runs.lane.is_counted:
        origin, offset = entry_record(source, runs.lane.source, place)
    else:
        origin, offset = record_at(source, runs.lane.source, place.offset), place.offset
    if origin is None or hash_of(origin) == hash_of(copied):
        return
    reason = (
        f"the record at offset {offset} is not the one that was copied to offset {end - 1} of the target: the log was "
        "cut off, or it is another topic of this name"
    )
    raise SourceLost(where, offset, None, RunCause.TRUNCATED.value, reason)
