"""Keeps the positions of a stream at the starts of entries, where offsets are byte positions (Kafka 0.7).

Rules, and which failure each prevents:
- A micro-batch that is limited ends where an entry does: the end that admission has chosen is moved behind the entry
  around it. So each trigger takes at least one entry of a partition with new ones, and the limit may be exceeded by
  less than one entry for each partition.
- The position of a partition is looked at once in a run, and again after its broker was away: nothing in ZooKeeper says
  whether the log of Kafka 0.7 under that name is the same one. A position that is within an entry is that of another
  log. A log whose entries happen to start there, too, cannot be told from the old one.

Threads: one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.entry_positions import EntryPositions
from zkconsumer.spark.errors import PlanningFailed
from zkconsumer.spark.log_changes import Logs

__all__ = ["StreamEntries"]

log = logging.getLogger(__name__)

_Positions = Mapping[TopicPartition, int]


class StreamEntries:
    """The entries around the positions of one stream.

    Args:
        entries: Finds them.
    """

    def __init__(self, entries: EntryPositions) -> None:
        self._entries: Final = entries
        self._checked: set[TopicPartition] = set()
        self._waiting: set[TopicPartition] = set()

    def replaced(self, start: _Positions, logs: Logs, leaders: Mapping[TopicPartition, Broker]) -> Logs:
        """Return the logs, with a reason for each one that is not the log in which the stream has read before.

        A partition that cannot be asked now is left without an end, so that nothing of it is read yet.
        """
        self._checked &= logs.partitions
        reasons: dict[TopicPartition, str] = {}
        ends = dict(logs.ends)
        for name, at in start.items():
            end = logs.ends.get(name)
            if name in self._checked or end is None or end <= at or name not in leaders:
                continue
            try:
                found = self._entries.around(name, leaders[name], at)
            except PlanningFailed as error:
                if not error.is_lasting:
                    self._log_wait(name, error)
                    del ends[name]
                    continue
                reasons[name] = f"its log is another one, or damaged: {error}"
                continue
            if found.position_is is PositionIs.INSIDE:
                reasons[name] = (f"its log is another one: position {at} is within its entry from {found.start} to "
                                 f"{found.end}")
            else:
                self._checked.add(name)
                self._waiting.discard(name)
        return replace(logs, ends=ends, replaced=reasons)

    def batch_ends(
        self, positions: _Positions, admitted: _Positions, log_ends: _Positions,
        leaders: Mapping[TopicPartition, Broker], *, may_stay: bool,
    ) -> dict[TopicPartition, int]:  # fmt: skip
        """Return where a micro-batch ends: the admitted ends, moved behind the entries around them.

        Args:
            positions: Where it starts.
            log_ends: Where the logs end.
            may_stay: A partition whose broker cannot be asked waits for the next batch; otherwise all of it is read,
                and the task waits for the broker, or fails.

        Raises:
            PlanningFailed: No entry is found in a log.
        """
        found = dict(admitted)
        for name, end in admitted.items():
            at, log_end = positions[name], log_ends[name]
            if not at < end < log_end:
                continue
            leader = leaders.get(name)
            try:
                found[name] = log_end if leader is None else self._entries.behind(name, leader, at, end)
            except PlanningFailed as error:
                if error.is_lasting:
                    raise
                self._log_wait(name, error)
                leader = None
            else:
                self._waiting.discard(name)
            if leader is None:
                found[name] = at if may_stay else log_end
        return found

    def _log_wait(self, name: TopicPartition, error: PlanningFailed) -> None:
        """Log why a partition waits, once until its broker answers: Spark asks all the time."""
        if name not in self._waiting:
            self._waiting.add(name)
            log.warning("%s-%s waits: %s", *name, error)
