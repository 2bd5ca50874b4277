"""How far the fetching of each partition is, and what to ask its leader next.

Pure: time comes in as `now`; nothing is sent from here. Rules, and which failure each prevents:
- An answer counts only for the position that was asked for: a late one is dropped, not delivered twice.
- An error of one partition delays that partition only: the others are asked again at once.
- After "out of range" a position moves only if the leader itself states another range: a broker that has just become
  leader, or that is restarting, reports positions that are good.
- A nearer replica is fetched from for some minutes, and its leader is asked again after that, or after any error: only
  leaders know which replicas keep up, and how far the log reaches.
- A message that does not fit is asked for with its own size, within the byte budget of the connector.
- A broker that throttles this client is no failure: nothing is looked up for it, and it is no stall.
- A broker that is named as leader and denies it is reported once that lasts, and rarely after that: a line for each
  try would fill the log for as long as nobody mends the node that names it.

The dialect decides the meaning of an answer (`simpleconsumer.dialect.Dialect.classify`).

Source: kafka.consumer.ConsumerFetcherThread, kafka.server.AbstractFetcherThread (0.8.2.2).

How many messages and bytes of one partition were fetched, in total and per second.

Pure: time comes in as `now`. It counts once for each chunk, never for each message.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from simpleconsumer.types import Broker, EpochEnd, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.errors import ZkConsumerError
from zkconsumer.fetching.byte_shares import Candidate

OutOfRange = Callable[[TopicPartition, range, int], None]
"""Called with a partition whose position is outside its log, with the offsets of `FetchState.behind_end`, and with
where reading goes on."""
MOST_SEGMENTS: Final = 100_000
"""How many segments of a log a broker of Kafka 0.7 is asked for: more than any log has."""
BROKEN_TRIES: Final = 3
"""How many times a set with impossible sizes is fetched again before the partition is given up."""
EMPTY_TRIES: Final = 10
"""After so many empty answers in a row, from a log that continues, a warning is logged."""
DOUBT_S: Final = 5.0
"""How long a log must seem to end before what was read of it, in seconds: then it was cut off by an election, unless
the broker does not lead it any more, and does not know that yet."""
DENIALS_OF_A_LEADER: Final = 5
"""How often in a row a broker of Kafka 0.8 must deny that it leads a partition before that is a warning: a leader that
is new, or has just moved, does so once or twice."""
FOLLOWED_S: Final = 300.0
"""How long a partition is fetched from a nearer replica before its leader is asked again: Kafka's default of
`metadata.max.age.ms`. Replicas move, and nobody tells those who fetch from them."""
WARN_AGAIN_S: Final = 600.0
"""How long a warning about a leader that denies is not repeated, in seconds."""
_SHORTEST_POLL_MS: Final = 5


class Need(enum.Enum):
    """The next question to the leader of a partition."""

    RESOLVE = "start position"
    BOUNDS = "both ends of the log"
    END_CHECK = "log end after a leader change"
    RANGE_CHECK = "range after out-of-range"
    SEGMENTS = "where the segment of the position starts"
    WALK = "the entries before the position"
    COMPARE = "the last entry again"
    FETCH = "messages"
    NOTHING = "stopped"


FETCHED: Final = frozenset((Need.FETCH, Need.WALK, Need.COMPARE))
"""The needs that a fetch request serves."""


class OutOfLog(ZkConsumerError):  # noqa: N818 - the name says what happened
    """A position is outside the log of its partition, and reading must not continue elsewhere.

    Attributes:
        position: Where reading should have continued.
        earliest: Start of the log.
        latest: End of the log.
    """

    def __init__(self, position: int, earliest: int, latest: int) -> None:
        super().__init__(position, earliest, latest)
        self.position = position
        self.earliest = earliest
        self.latest = latest

    def __str__(self) -> str:
        return f"offset {self.position} is not in the log, which has {self.earliest} to {self.latest}"


class LogTruncated(OutOfLog):
    """Messages that were read are not in the log any more: it was cut off below the position, and may have grown since.

    Attributes:
        position: Where reading should have continued.
        latest: Where the log was cut off.
    """

    def __init__(self, position: int, cut_at: int) -> None:
        super().__init__(position, 0, cut_at)

    def __str__(self) -> str:
        return f"the log was truncated at offset {self.latest}, below {self.position}, when its leader changed"


class RangeCheck(NamedTuple):
    """Whether a position is within the range of its log.

    Attributes:
        offset: Where to continue.
        is_reset: True if that is not the position.
    """

    offset: int
    is_reset: bool


def start_of_recent(segments: Sequence[int], before: Sequence[int]) -> int:
    """Return the start of the oldest segment that was written since a time; the end of the log if none was.

    Args:
        segments: The starts of all segments and the end of the log, the newest first: what a broker of Kafka 0.7
            answers when it is asked for the latest offsets.
        before: Its answer when it was asked for that time after that: the start of the newest segment that was last
            written before the time; empty if there is none.
    """
    return min((start for start in segments if not before or start > before[0]), default=segments[0])


def check_range(position: int, earliest: int, latest: int, policy: str) -> RangeCheck:
    """Return where to continue after a broker reported the position as out of range.

    A position inside the range that the leader states is kept: the error was temporary.

    Args:
        policy: `smallest` or `largest` (auto.offset.reset).
    """
    if earliest <= position <= latest:
        return RangeCheck(position, False)
    return RangeCheck(earliest if policy == "smallest" else latest, True)


def truncated_at(state: FetchState, found: EpochEnd) -> int | None:
    """Return where a log was cut off below the position, as the leader of now says; None if it was not, or may not be.

    The log of a leader grows as long as its epoch lasts. If it is shorter within the epoch of now, then it is another
    log: its topic was deleted and created again.

    Args:
        found: Where the epoch ends in which the last message before the position was appended.
    """
    is_known = not found.error_code and found.leader_epoch >= 0 and found.end_offset >= 0
    is_over = found.leader_epoch < max(state.read_epoch, state.leader_epoch)
    return found.end_offset if is_known and is_over and found.end_offset < state.offset else None


class EntryMark(NamedTuple):
    """An entry of Kafka 0.7 that was fetched, to be compared with what its broker has later.

    Attributes:
        start: Position of its first byte.
        end: Position after it.
        crc: Of all its bytes.
    """

    start: int
    end: int
    crc: int

    @property
    def size_bytes(self) -> int:
        """How many bytes it takes."""
        return self.end - self.start


@dataclass(slots=True)
class FetchState:
    """The state of fetching one partition during one ownership.

    Attributes:
        offset: Next offset to ask for; unused in Need.RESOLVE and Need.BOUNDS.
        started_at: Where reading started, in this ownership or after the last reset.
        size_bytes: Size to ask for; larger than the configured one if the next message is larger.
        is_single: True while the next message is known not to fit into a share of the budget.
        entry_bytes: Size of the last message that did not fit; 0 when smaller ones have come since.
        asked_at: Time of the last request; negative before.
        leader: The last known leader, or the replica that it has named; None at first.
        leader_epoch: Its epoch; -1: not known. A broker that knows another one refuses a fetch.
        follows_until: When the partition is to be fetched from its leader again; None: it is.
        read_epoch: The epoch in which the last message before `offset` was appended; -1: not known.
        last_bytes: The end of what was fetched, if its last entry says that it has the largest offset there is; else
            nothing.
        high_watermark: End of the log according to the last answer; -1 before.
        retry_at: No request is sent before that time.
        failures: Number of failures in a row; sets the back-off.
        broken: Number of sets in a row with impossible sizes.
        denials: How many times in a row a broker that was named as leader has denied that it leads the partition.
        lost: The offsets that were read and then cut off the log, at its last cut; empty without a cut.
        warn_at: When the next warning about that is due.
        full_since: Since when there is no room for more of it, in its queue or in the budget; None if there is room.
        error: The last failure; None after a good answer.
        throttle, throttled_until: That the broker throttles this client, and until when as far as it is known.
        answered_at: Time of the last good answer; None before.
        fed_at: Time of the last answer with messages; negative before.
        empty: Number of empty answers in a row although the log continues.
        doubted_at: Since when the log has seemed to end before the position; None if it does not.
        is_start_checked: Whether an entry is known to start at the first position; in Kafka 0.7 alone it may not.
        is_start_walked: Whether the entries before a position of this ownership were walked through, or are now.
        doubt: Why no entry seems to start at the position, while the one around it is looked for.
        walk_from, walk_at: Where that search started, and where it is.
        last_entry: The last entry that was fetched in Kafka 0.7, mostly that before `offset`; None if it is not known.

    Threads: Changed by the thread that has the partition at the moment (leader finder or a fetcher); others may read
        single attributes.
    """

    partition: TopicPartition
    offset: int
    configured_bytes: int
    need: Need = Need.FETCH
    size_bytes: int = 0
    is_single: bool = False
    entry_bytes: int = 0
    asked_at: float = -1.0
    leader: Broker | None = None
    leader_epoch: int = -1
    read_epoch: int = -1
    last_bytes: bytes = b""
    follows_until: float | None = None
    high_watermark: int = -1
    retry_at: float = 0.0
    failures: int = 0
    broken: int = 0
    denials: int = 0
    warn_at: float = 0.0
    full_since: float | None = None
    error: str | None = None
    throttle: str = ""
    throttled_until: float = 0.0
    answered_at: float | None = None
    fed_at: float = -1.0
    empty: int = 0
    doubted_at: float | None = None
    is_start_checked: bool = False
    is_start_walked: bool = False
    doubt: str = ""
    walk_from: int = -1
    walk_at: int = -1
    last_entry: EntryMark | None = None
    started_at: int = -1
    lost: range = range(0)

    @property
    def asked_offset(self) -> int:
        """The offset to fetch from: the position, or the one that a check needs."""
        if self.need is Need.WALK:
            return self.walk_at
        return self.last_entry.start if self.need is Need.COMPARE and self.last_entry is not None else self.offset

    def __post_init__(self) -> None:
        self.started_at = self.offset
        self.size_bytes = self.size_bytes or self.configured_bytes

    def answered(self, now: float, high_watermark: int | None = None) -> None:
        """Take note of a good answer."""
        self.answered_at = now
        self.error = self.doubted_at = None
        self.throttled_until = 0.0
        self.failures = self.broken = self.denials = 0
        if high_watermark is not None:
            self.high_watermark = high_watermark

    def nothing_came(self, now: float, high_watermark: int) -> bool:
        """Take note of a good answer without messages; return whether to log that none come any more."""
        self.answered(now, high_watermark)
        self.empty = self.empty + 1 if high_watermark > self.offset else 0
        if self.empty >= EMPTY_TRIES:
            self.error = (
                f"the broker sends nothing from offset {self.offset} on, although the log ends at {high_watermark}: "
                "either compaction has removed the rest, or an entry has a damaged offset"
            )
        return self.empty == EMPTY_TRIES

    def moved_on(self, next_offset: int, chunk_bytes: int = 0) -> None:
        """Continue at an offset after so many bytes, with the configured size again."""
        self.offset = next_offset
        self.empty = 0
        self.size_bytes = self.configured_bytes
        self.is_single = False
        self.entry_bytes = min(self.entry_bytes, chunk_bytes)

    def start_again(self, offset: int) -> None:
        """Continue at an offset to which the position was reset."""
        self.moved_on(offset)
        self.read_epoch = -1
        self.started_at = offset

    def behind_end(self, latest: int) -> range:
        """Return the offsets that were read since the start and are after the end of the log: it became shorter."""
        return range(max(latest + 1, self.started_at), self.offset + 1)

    def grow(self, size_bytes: int) -> None:
        """Ask for the next message with a size in which it fits."""
        self.size_bytes = max(self.configured_bytes, size_bytes)
        self.entry_bytes = size_bytes
        self.is_single = True

    def is_doubtful(self, now: float) -> bool:
        """Take note that the log seems to end before the position; return whether that may be wrong.

        Only of a log that had the position, as it was read so far: one that was stored, or chosen, may be any number.
        """
        if self.offset <= self.started_at:
            return False
        self.doubted_at = now if self.doubted_at is None else self.doubted_at
        return now - self.doubted_at < DOUBT_S

    def doubted(self) -> None:
        """Ask again before the doubt is over, however often the leader was asked before."""
        if self.doubted_at is not None:
            self.retry_at = min(self.retry_at, self.doubted_at + DOUBT_S)

    def candidate(self, stream: object, most_bytes: int | None = None) -> Candidate:
        """Return the candidate for the byte budget.

        Args:
            most_bytes: To ask for as long as the next message is not known to be larger; None for no limit.
        """
        is_at_end = not self.is_single and 0 <= self.high_watermark <= self.offset
        size_bytes = self.size_bytes if most_bytes is None or self.is_single else min(self.size_bytes, most_bytes)
        return Candidate(stream, size_bytes, self.entry_bytes, is_at_end)

    def waits_for_room(self, now: float) -> float:
        """Take note that the queue or budget has no room for it; return for how many seconds that has lasted."""
        self.full_since = now if self.full_since is None else self.full_since
        return now - self.full_since

    def asked(self, now: float) -> None:
        """Take note that it is being asked for."""
        self.asked_at = now
        self.full_since = None

    def failed(self, reason: str, now: float, backoff: Backoff) -> bool:
        """Ask again after a back-off; return whether this failure differs from the last one."""
        is_new = self.error != reason
        self.error = reason
        self.retry_at = now + backoff.wait_s(self.failures)
        self.failures += 1
        return is_new

    def throttled(self, reason: str, until: float) -> None:
        """Take note that the broker throttles this client: nothing comes until then, and nothing is wrong."""
        self.throttle, self.throttled_until = reason, until

    def holds_up(self, now: float) -> str | None:
        """Return what delays the partition: a failure, or that the broker throttles this client; None: nothing."""
        return self.error or (self.throttle if now < self.throttled_until else None)

    def denied(self, now: float, first_warning: int) -> bool:
        """Take note that the broker that is named as leader denies it; return whether to warn of it now.

        Args:
            first_warning: How many denials in a row are worth the first warning.
        """
        self.denials += 1
        is_due = self.denials == first_warning or (self.denials > first_warning and now >= self.warn_at)
        if is_due:
            self.warn_at = now + WARN_AGAIN_S
        return is_due

    def led_by(self, broker: Broker, epoch: int = -1) -> None:
        """Take note of a new leader; a position that was fetched elsewhere is checked against its log first."""
        if self.leader is not None and self.need is Need.FETCH:
            self.need = Need.END_CHECK
        self.leader, self.leader_epoch = broker, epoch
        self.follows_until = None
        self.retry_at = 0.0

    def fetched_from(self, replica: Broker, now: float) -> None:
        """Take note that the leader has named a nearer replica, and that its log has the position."""
        self.leader = replica
        self.follows_until = now + FOLLOWED_S


def poll_wait_ms(longest_ms: int, filled_for_s: float | None) -> int:
    """Return how long the broker may hold back an answer when there is no data.

    A partition without room is left out of the request, and will probably have room again soon, so the long poll of the
    others must not delay it: the poll starts short and grows with the time for which the partition is left out.

    Args:
        longest_ms: `fetch.wait.max.ms`.
        filled_for_s: How long the partition that was left out last has been left out; None if none is left out.
    """
    if filled_for_s is None:
        return longest_ms
    return min(longest_ms, max(_SHORTEST_POLL_MS, int(filled_for_s * 1000)))


WINDOW_S: Final = 10.0
"""The rate covers the last ten to twenty seconds; the older half has less and less weight."""
_SHORTEST_S: Final = 1.0


class _Window(NamedTuple):
    started_at: float
    messages: int = 0
    size_bytes: int = 0
    messages_before: int = 0
    bytes_before: int = 0
    is_first: bool = False


class FetchMeter:
    """Totals and rates of one partition.

    Attributes:
        messages: Counted by offsets, so the holes of a compacted log count, too. In Kafka 0.7, where offsets count
            bytes, the entries: a compressed one counts once.
        size_bytes: Counted as fetched, that is compressed if the messages are.

    Threads: `add` by one thread at a time; the rest by any, as each state is one value that is replaced.
    """

    __slots__ = ("_window", "messages", "size_bytes")

    def __init__(self, now: float) -> None:
        self.messages = self.size_bytes = 0
        self._window = _Window(now, is_first=True)

    def add(self, now: float, messages: int, size_bytes: int) -> None:
        """Count a chunk that was fetched."""
        self.messages += messages
        self.size_bytes += size_bytes
        window = _rolled(self._window, now)
        self._window = window._replace(messages=window.messages + messages, size_bytes=window.size_bytes + size_bytes)

    def rates(self, now: float) -> tuple[float, float]:
        """Return messages and bytes per second."""
        window = _rolled(self._window, now)
        passed_s = min(max(now - window.started_at, 0.0), WINDOW_S)
        if window.is_first:
            span_s = max(passed_s, _SHORTEST_S)
            return window.messages / span_s, window.size_bytes / span_s
        kept = 1.0 - passed_s / WINDOW_S
        return (
            (window.messages_before * kept + window.messages) / WINDOW_S,
            (window.bytes_before * kept + window.size_bytes) / WINDOW_S,
        )


def _rolled(window: _Window, now: float) -> _Window:
    """Return the window of `now`, with the counts of the window before it."""
    passed_s = now - window.started_at
    if passed_s < WINDOW_S:
        return window
    if passed_s < 2 * WINDOW_S:
        return _Window(window.started_at + WINDOW_S, 0, 0, window.messages, window.size_bytes)
    return _Window(now - passed_s % WINDOW_S)
