"""The target of `zkconsumer offsets set`: the start or end of the log, an offset, a time, or a shift of what is stored.

Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from rebalance.zookeeper import znodes
from simpleconsumer.consumer import EARLIEST, LATEST
from zkconsumer.cluster.log_ends import LogOffsets
from zkconsumer.cluster.segment_times import refuse_seconds

__all__ = ["OffsetTarget", "parse_target", "shifted"]


class OffsetTarget(NamedTuple):
    """Where offsets shall be set.

    Attributes:
        text: The target as it was given.
        offset: The offset that was given, None for other targets.
        time_ms: Milliseconds since 1970, `EARLIEST` or `LATEST`; None for an offset.
    """

    text: str
    offset: int | None
    time_ms: int | None

    @property
    def times_ms(self) -> list[int]:
        """The times for which the leaders have to be asked: those of the bounds of the log, and the target's."""
        return [EARLIEST, LATEST, *([] if self.time_ms is None else [self.time_ms])]

    def resolve(self, found: LogOffsets, force: bool) -> int:
        """Return the offset in one partition.

        Args:
            found: The answers to `times_ms`.
            force: Take an offset as it is, also outside of the log.

        Raises:
            ValueError: The log does not have it; a clause.
        """
        if self.offset is not None and force:
            return self.offset
        earliest, latest = _bounds(found)
        if self.offset is None:
            at = found[2] if not isinstance(found, str) else None
            return latest if at is None else min(max(at, earliest), latest)  # None: no message is that recent
        if not earliest <= self.offset <= latest:
            raise ValueError(f"its log has {earliest} to {latest}")
        return self.offset


def _bounds(found: LogOffsets) -> tuple[int, int]:
    """Return start and end of a log.

    Raises:
        ValueError: They are not known; a clause.
    """
    if isinstance(found, str):
        raise ValueError(f"its log is not known ({found})")
    earliest, latest = found[0], found[1]
    if earliest is None or latest is None:
        raise ValueError("its log is not known (the leader names no offsets)")
    return earliest, latest


def shifted(offset: int, by: int, found: LogOffsets) -> tuple[int, str | None]:
    """Return an offset moved by a number of messages, and a clause about what was cut off at a bound of the log.

    >>> shifted(5, 10, (0, 8))
    (8, 'cut off at the end of its log, 8; 5+10 would be 15')

    Args:
        found: Start and end of the log.

    Raises:
        ValueError: The log is not known; a clause.
    """
    earliest, latest = _bounds(found)
    new = offset + by
    if new < earliest:
        return earliest, f"cut off at the start of its log, {earliest}; {offset}{by:+d} would be {new}"
    if new > latest:
        return latest, f"cut off at the end of its log, {latest}; {offset}{by:+d} would be {new}"
    return new, None


_NAMED: Final = {"earliest": EARLIEST, "beginning": EARLIEST, "smallest": EARLIEST,
                 "latest": LATEST, "end": LATEST, "largest": LATEST}  # fmt: skip
"""The words of Kafka's tools, of `consume --offset` and of `auto.offset.reset`."""
_TIME_DIGITS: Final = 16


def parse_target(text: str) -> OffsetTarget:
    """Return the target that a text names.

    >>> parse_target("42").offset, parse_target("2014-03-01T12:00:00Z").time_ms
    (42, 1393675200000)

    Raises:
        ValueError: It is none of the four.
    """
    if text in _NAMED:
        return OffsetTarget(text, None, _NAMED[text])
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit() and len(text) <= _TIME_DIGITS:
        refuse_seconds(text[1:])
        return OffsetTarget(text, None, int(text[1:]))
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        if int(digits[:20]) > znodes.MAX_OFFSET:
            raise ValueError(f"{text} is larger than any offset, 2^63-1")
        return OffsetTarget(text, int(digits), None)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not earliest, latest, an offset, or a time like 2014-03-01T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    time_ms = round(moment.timestamp() * 1000)
    if time_ms < 0:
        raise ValueError(f"{text} is before 1970")
    return OffsetTarget(text, None, time_ms)
