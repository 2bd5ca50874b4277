"""Keeps the positions of a stream at the starts of entries, where offsets are byte positions (Kafka 0.7).

Rules, and which failure each prevents:
- A micro-batch that is limited ends where an entry does: the end that admission has chosen is moved to the end of the
  entry around it. So each trigger takes at least one entry of a partition with new ones, and the limit may be exceeded
  by less than one entry for each partition.
- Nothing in ZooKeeper says whether the log of Kafka 0.7 under a name is the same one. So the last bytes before the end
  of each batch are kept, and compared before the next batch is read: brokers serve any position, and one small request
  a broker brings them of all its partitions. If they differ, the log is another one.
- Where they are not known, after a start of the query, or not in the log any more, the position is looked at once. One
  that is within an entry is that of another log. A log that was replaced between two runs of the query, and whose
  entries happen to start at the position, too, cannot be told from the old one.

Threads: one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from simpleconsumer.dialect_types import PositionIs
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.spark.errors import PlanningFailed
from zkconsumer.spark.reading.entry_positions import EntryPositions, Tail
from zkconsumer.spark.streaming.log_changes import Logs

log = logging.getLogger(__name__)

_Positions = Mapping[TopicPartition, int]
_TAIL_BYTES: Final = 1024
"""Of the log before the end of a batch, or less if the batch is smaller."""


class StreamEntries:
    """The entries around the positions of one stream.

    Args:
        entries: Finds them.
    """

    def __init__(self, entries: EntryPositions) -> None:
        self._entries: Final = entries
        self._checked: set[TopicPartition] = set()
        self._tails: dict[TopicPartition, Tail] = {}
        self._waiting: set[TopicPartition] = set()

    def replaced(self, start: _Positions, logs: Logs, leaders: Mapping[TopicPartition, Broker]) -> Logs:
        """Return the logs, with a reason for each one that is not the log in which the stream has read before.

        A partition that cannot be asked now is left without an end, so that nothing of it is read yet.
        """
        self._checked &= logs.partitions
        reasons: dict[TopicPartition, str] = {}
        ends = dict(logs.ends)
        news = {name: at for name, at in start.items() if name in leaders and logs.ends.get(name, at) > at}
        self._compare(news, leaders, ends, reasons)
        for name, at in news.items():
            if name in self._checked or name in reasons or name not in ends:
                continue
            try:
                found = self._entries.around(name, leaders[name], at)
            except PlanningFailed as error:
                if not error.is_lasting:
                    self._log_wait(name, error)
                    del ends[name]
                    continue
                reasons[name] = f"its log was replaced or is damaged: {error}"
                continue
            if found.position_is is PositionIs.INSIDE:
                reasons[name] = (
                    f"its log was replaced: position {at} is inside its entry from {found.start} to {found.end}"
                )
            else:
                self._checked.add(name)
                self._waiting.discard(name)
        return replace(logs, ends=ends, replaced=reasons)

    def _compare(
        self, news: _Positions, leaders: Mapping[TopicPartition, Broker], ends: dict[TopicPartition, int],
        reasons: dict[TopicPartition, str],
    ) -> None:  # fmt: skip
        """Compare the last bytes before positions with the bytes that were there when the last batch ended.

        Args:
            news: The positions after which there is more to read.
            ends: The ends of the logs; a partition that cannot be asked now is removed.
            reasons: Gets why a log is another one.
        """
        known = {name: self._tails[name] for name, at in news.items()
                 if name in self._tails and self._tails[name].position == at}  # fmt: skip
        self._checked -= known.keys()
        for broker, names in _by_broker(known, leaders).items():
            wanted = {name: (known[name].start, known[name].position) for name in names}
            try:
                found = self._entries.tails(broker, wanted)
            except PlanningFailed as error:
                for name in names:
                    self._log_wait(name, error)
                    del ends[name]
                continue
            for name, tail in found.items():
                if tail == known[name]:
                    self._checked.add(name)
                    self._waiting.discard(name)
                else:
                    reasons[name] = (
                        f"its log was replaced: the {tail.position - tail.start} bytes before position "
                        f"{tail.position} are not the bytes with which the last batch ended"
                    )

    def remember(self, starts: _Positions, ends: _Positions, leaders: Mapping[TopicPartition, Broker]) -> None:
        """Keep the last bytes before the end of a batch, of the partitions of which it reads something.

        Those of a broker that does not answer are not known; then the next position is only looked at.

        Args:
            starts: Where the batch starts.
            ends: Where it ends.
        """
        moved = {name: end for name, end in ends.items() if end > starts.get(name, end)}
        for broker, names in _by_broker(moved, leaders).items():
            wanted = {name: (max(starts[name], moved[name] - _TAIL_BYTES), moved[name]) for name in names}
            try:
                self._tails.update(self._entries.tails(broker, wanted))
            except PlanningFailed as error:
                log.debug("the ends of a batch cannot be kept for comparison: %s", error)

    def batch_ends(
        self, positions: _Positions, admitted: _Positions, log_ends: _Positions,
        leaders: Mapping[TopicPartition, Broker], *, may_stay: bool,
    ) -> dict[TopicPartition, int]:  # fmt: skip
        """Return where a micro-batch ends: the admitted ends, moved to the ends of the entries around them.

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


def _by_broker(
    names: Iterable[TopicPartition], leaders: Mapping[TopicPartition, Broker]
) -> dict[Broker, list[TopicPartition]]:
    """Return the partitions of each broker, without those whose leader is not known."""
    found: dict[Broker, list[TopicPartition]] = {}
    for name in names:
        if name in leaders:
            found.setdefault(leaders[name], []).append(name)
    return found
