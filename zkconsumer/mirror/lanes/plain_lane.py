"""What the end of a log says that brokers without sequence numbers keep: when it may be believed, what is there. Pure.

A request whose answer was lost may be stored later: it may wait in the broker, or be on its way to it. So may the last
one of a process that was killed. If it is stored after it was sent again, the last records are not those of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simpleconsumer.types import TopicPartition
from zkconsumer.mirror.errors import AnotherWriter, RepeatedRequest
from zkconsumer.mirror.lane_runs import RunRecord

QUIET_S: Final = 3.0
"""How long the end stays the same before it is believed. A broker that works stores what has come within milliseconds;
one that was frozen for longer, with a request in its hands, may store it later."""


class LogEndWatch:
    """Readings of the end of one log.

    Args:
        quiet_s: How long the end has to stay the same while a request may be on its way.

    Attributes:
        reason: Why the end is not believed yet, a clause.
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._is_doubted = True
        self._seen: int | None = None
        self._since_s = 0.0
        self.reason = ""

    def doubt(self) -> None:
        """Note that a request was sent, and that its answer is lost."""
        self._is_doubted = True
        self._seen = None

    def see(self, end: int, appended: int, now_s: float) -> int | None:
        """Return the end of the log if it is to be believed; None: read it again.

        Args:
            end: What all in-sync replicas have.
            appended: What the leader has.
            now_s: When that was read.
        """
        if self._seen != appended:
            self._seen, self._since_s = appended, now_s
        if end != appended:
            self.reason = f"replicas have the offsets before {end}, the leader those before {appended}"
            return None
        left_s = self._since_s + self._quiet_s - now_s
        if self._is_doubted and left_s > 0:
            self.reason = f"a request may still arrive: the log has to end at {end} for {left_s:.1f} s more"
            return None
        self._is_doubted = False
        return end


def first_difference(
    copied: Mapping[int, bytes], origins: Mapping[int, bytes], run: RunRecord, source_end: int
) -> int | None:
    """Return the first offset of the target at which another record is than in the source; None if all are equal.

    Args:
        copied: Offset of the target -> hash of its record.
        origins: Offset of the source -> hash of its record; those that were deleted are left out.
        run: To which the offsets of the target belong.
        source_end: Where the source's log ends.
    """
    for offset in sorted(copied):
        at = run.source_at(offset)
        if at >= source_end or origins.get(at, copied[offset]) != copied[offset]:
            return offset
    return None


def what_is_wrong(
    target: TopicPartition, source: TopicPartition, copied: Mapping[int, bytes], origins: Mapping[int, bytes],
    run: RunRecord, wrong: int,
) -> RepeatedRequest | AnotherWriter:  # fmt: skip
    """Return what the records from an offset on are: one request once more, or those of somebody else.

    Args:
        target, source: The partitions.
        copied: Offset of the target -> hash of its record, up to its end.
        origins: Offset of the source -> hash of its record.
        run: To which the offsets of the target belong.
        wrong: The first offset of the target with another record.
    """
    first, end, goes_on_at = min(copied), max(copied) + 1, run.source_at(wrong)
    before = [copied.get(offset) for offset in range(first, wrong)]
    tail = [copied.get(offset) for offset in range(wrong, end)]
    for at in range(wrong - first):
        # All that follows may be a part of a request, or a whole one, after which the next one has arrived.
        for count in {min(len(tail), wrong - first - at), len(before) - at}:
            rest = tail[count:]
            if before[at : at + count] == tail[:count] and all(
                origins.get(goes_on_at + index, each) == each for index, each in enumerate(rest)
            ):
                return RepeatedRequest(target, wrong, wrong + count, first + at)
    return AnotherWriter(
        target, f"at offset {wrong} the record at offset {goes_on_at} of {source.topic}/{source.partition}",
        "another record: somebody else has written to the target, or the source was cut off",
    )  # fmt: skip
