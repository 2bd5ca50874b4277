"""Where the fetching of each partition stands, what to ask next, and what each answer means.

Pure: time comes in as `now`; nothing is sent from here. Rules, and which failure each prevents:
- An answer counts only for the very position that was asked for: a late one is dropped, not delivered twice.
- One partition's error touches that partition: it is asked again later, the others at once.
- No answer moves a position but a message set, or a range that the leader confirmed, and a message set by offsets only
  that can be right (`simpleconsumer.kafka08.offset_order`): a damaged one would lead out of the log. "Out of range"
  does not: a broker that has just become leader, or one that is restarting, says so of positions that are good.
- A message that does not fit is asked for with its own size; bounded by the byte budget of the connector.

Source: kafka.consumer.ConsumerFetcherThread, kafka.server.AbstractFetcherThread (0.8.2.2).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokenFraming, broker_error
from simpleconsumer.kafka08.down_conversion import behind_marks, last_offset_of_batch, repeated_bytes
from simpleconsumer.kafka08.offset_order import begins_again, begins_below, end_in_order, is_sole_trusted, trusted_end
from simpleconsumer.kafka08.shallow import Walk, walk_entries
from simpleconsumer.types import Broker, FetchedPartition, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.fetching.byte_shares import Candidate

__all__ = [
    "BROKEN_TRIES",
    "EMPTY_TRIES",
    "LEADER_CODES",
    "FetchState",
    "Need",
    "Outcome",
    "RangeCheck",
    "Verdict",
    "check_range",
    "judge",
    "poll_wait_ms",
]

BROKEN_TRIES: Final = 3
"""How often a set with impossible sizes is fetched again before the partition is given up."""
EMPTY_TRIES: Final = 10
"""How often in a row nothing must come from a log that goes on before that is worth a line."""
LEADER_CODES: Final = (3, 5, 6)
"""What a broker says that does not lead the partition."""
_SHORTEST_POLL_MS: Final = 5
_TOO_FEW: Final = 2
"""How many entries of a set cannot tell yet whether the first of them is the one that was asked for."""
_ENTRY = Struct(">qi")


class Need(enum.Enum):
    """What a partition has to ask its leader next."""

    RESOLVE = "start position"
    BOUNDS = "both ends of the log"
    END_CHECK = "log end after a leader change"
    RANGE_CHECK = "range after out-of-range"
    FETCH = "messages"
    NOTHING = "stopped"


class Outcome(enum.Enum):
    """What an answer about one partition comes to."""

    CHUNK = "messages"
    NOTHING = "no messages yet"
    GROW = "the next message does not fit, ask with a larger size"
    TOO_LARGE = "the next message is larger than the limit"
    DAMAGED = "the next message says that it is another one; when that lasts, its offset is damaged"
    LEFT_OUT = "nothing came of a message that is there; when that lasts, it is larger than the limit"
    BROKEN = "impossible sizes"
    CHECK_RANGE = "the broker calls the position out of range"
    FIND_LEADER = "another broker leads"
    BACK_OFF = "ask again later"


class Verdict(NamedTuple):
    """What to do with an answer.

    Attributes:
        valid_bytes: CHUNK: where the whole entries end.
        first_byte: CHUNK: where they begin.
        next_offset: CHUNK, TOO_LARGE, DAMAGED, LEFT_OUT: offset behind what the answer is about.
        offset: TOO_LARGE, DAMAGED, LEFT_OUT: offset of the message.
        size_bytes: GROW: what to ask for; TOO_LARGE: what the message takes.
        reason: A clause for the log and the status, for every outcome that is no progress.
    """

    outcome: Outcome
    valid_bytes: int = 0
    next_offset: int = -1
    offset: int = -1
    size_bytes: int = 0
    reason: str = ""
    first_byte: int = 0


def judge(
    answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, *, may_be_converted: bool = False
) -> Verdict:
    """Return what the answer to a fetch of one partition means.

    Args:
        position: The offset that was asked for.
        asked_bytes: The size that was asked for.
        largest_bytes: The largest size that may ever be asked for.
        may_be_converted: Whether the broker may have converted what is in its log
            (`simpleconsumer.kafka08.down_conversion`).
    """
    code = answer.error_code
    if code:
        row = broker_error(code)
        reason = f"{row.name} (code {code}): {row.meaning}"
        if code == 1:
            return Verdict(Outcome.CHECK_RANGE, reason=reason)
        return Verdict(Outcome.FIND_LEADER if code in LEADER_CODES else Outcome.BACK_OFF, reason=reason)
    if not answer.message_set:
        return _nothing_came(answer, position, asked_bytes, largest_bytes, may_be_converted)
    behind = behind_marks(answer.message_set, position) if may_be_converted else None
    if behind is not None:
        return Verdict(Outcome.CHUNK, next_offset=behind)
    try:
        walk = walk_entries(answer.message_set)
    except BrokenFraming as error:
        return Verdict(Outcome.BROKEN, reason=str(error))
    if not walk.entries:
        return _does_not_fit(answer, position, asked_bytes, largest_bytes)
    if not may_be_converted and asked_bytes < largest_bytes and _is_doubtful(answer, walk, position, asked_bytes):
        reason = f"what came first says that it is not the message at {position}; what stands behind it tells"
        return Verdict(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    verdict = _usable(answer, walk, position, asked_bytes, may_be_converted)
    if verdict.outcome is not Outcome.CHUNK or verdict.next_offset > position:
        return verdict
    # The broker began at an entry of damaged offset, far before the position: with more bytes it gets there.
    reason = f"offset {position} was asked for, and messages below {verdict.next_offset} came"
    if asked_bytes < largest_bytes:
        return Verdict(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    return Verdict(Outcome.BACK_OFF, reason=reason)


def _is_doubtful(answer: FetchedPartition, walk: Walk, position: int, asked_bytes: int) -> bool:
    """Return whether a set holds too few entries to tell whether the offset of the first one is damaged."""
    message_set = answer.message_set
    if walk.entries == 1:
        is_cut = len(message_set) >= asked_bytes
        if not is_sole_trusted(message_set, walk.end, position, answer.high_watermark, is_cut=is_cut):
            return True
    return walk.entries <= _TOO_FEW and begins_again(message_set)


def _usable(
    answer: FetchedPartition, walk: Walk, position: int, asked_bytes: int, may_be_converted: bool
) -> Verdict:
    """Return the verdict on a set that holds whole entries."""
    message_set, first = answer.message_set, 0
    if may_be_converted:
        first = repeated_bytes(message_set[: walk.end], position)
    elif begins_below(message_set, position):
        found = _ENTRY.unpack_from(message_set)[0]
        reason = f"offset {position} was asked for, {found} came first, and {position} is not behind it"
        return Verdict(Outcome.DAMAGED, next_offset=position + 1, offset=position, reason=reason)
    behind = end_in_order(message_set, walk, answer.high_watermark) if walk.tail >= first else None
    if behind is not None:
        return Verdict(Outcome.CHUNK, walk.end, behind, first_byte=first)
    end, next_offset = trusted_end(
        message_set, first, max(walk.tail, first), walk.end, position, answer.high_watermark,
        is_cut=not may_be_converted and len(message_set) >= asked_bytes,
    )  # fmt: skip
    if end == first:
        return Verdict(Outcome.NOTHING)
    return Verdict(Outcome.CHUNK, end, next_offset, first_byte=first)


def _nothing_came(
    answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, may_be_converted: bool
) -> Verdict:
    """Return the verdict on an empty set: a broker of Kafka 3 sends it where the next batch does not fit, too."""
    if not may_be_converted or answer.high_watermark <= position:
        return Verdict(Outcome.NOTHING)
    reason = f"nothing came within {asked_bytes} bytes, though the log ends at {answer.high_watermark}"
    if asked_bytes < largest_bytes:
        return Verdict(Outcome.GROW, size_bytes=min(2 * asked_bytes, largest_bytes), reason=reason)
    reason += ": the next message is larger than that, and it is the limit"
    # Or the log has grown between the read and the look at its end; asking again tells.
    return Verdict(Outcome.LEFT_OUT, next_offset=position + 1, offset=position, size_bytes=asked_bytes, reason=reason)


def _does_not_fit(answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int) -> Verdict:
    """Return the verdict on a set that holds not even one whole entry."""
    if len(answer.message_set) < _ENTRY.size:
        offset, needed = position, asked_bytes * 2
        size = f"its size is not within the {len(answer.message_set)} bytes that came"
    else:
        offset, value_bytes = _ENTRY.unpack_from(answer.message_set)
        needed = value_bytes + _ENTRY.size
        size = f"it takes {needed} bytes"
    if needed <= asked_bytes:
        # The broker sent less than it was asked for, and less than one entry: its log ends in a cut-off message.
        return Verdict(Outcome.BROKEN, reason=f"{len(answer.message_set)} bytes came of an entry of {needed}")
    reason = f"the message at {offset} does not fit into {asked_bytes} bytes: {size}"
    if needed > largest_bytes and (len(answer.message_set) >= _ENTRY.size or asked_bytes >= largest_bytes):
        reason += f", and the limit is {largest_bytes}"
        last = last_offset_of_batch(answer.message_set)
        offset = offset if last is None else last
        if offset < position or 0 <= answer.high_watermark <= offset:  # damaged
            offset = position
        return Verdict(Outcome.TOO_LARGE, next_offset=offset + 1, offset=offset, size_bytes=needed, reason=reason)
    return Verdict(Outcome.GROW, size_bytes=min(needed, largest_bytes), reason=reason)


class RangeCheck(NamedTuple):
    """What the range of a log says about a position.

    Attributes:
        offset: Where to go on.
        is_reset: True when that is another place than the position.
    """

    offset: int
    is_reset: bool


def check_range(position: int, earliest: int, latest: int, policy: str) -> RangeCheck:
    """Return where to go on after a broker called the position out of range.

    Inside the range that the leader itself states, the position is kept: the error was passing.

    Args:
        policy: `smallest` or `largest` (auto.offset.reset).
    """
    if earliest <= position <= latest:
        return RangeCheck(position, False)
    return RangeCheck(earliest if policy == "smallest" else latest, True)


@dataclass(slots=True)
class FetchState:
    """What is known of one partition's fetching, in one ownership.

    Attributes:
        offset: Next offset to ask for; in Need.RESOLVE and Need.BOUNDS meaningless.
        size_bytes: Size to ask for; larger than the configured one while a larger message is ahead.
        is_single: True while the next message is known not to fit into a share of the budget.
        entry_bytes: Size of the last message that did not fit; 0 when smaller ones have come since.
        asked_at: When it was asked for last; negative before.
        leader: Who was last believed to lead it; None at first.
        high_watermark: Log end as the last answer told it, -1 when never told.
        retry_at: Ask nothing before that time.
        failures: How often in a row it went wrong; sets the back-off.
        broken: How often in a row the framing was wrong.
        full_since: Since when there is no room for more of it, in its queue or in the budget; None while there is.
        error: What went wrong last, None after a good answer.
        answered_at: When the last good answer came, None before.
        empty: How often in a row nothing came although the log goes on.

    Threads: changed by the one thread that has the partition at the moment (leader finder or a fetcher); others
        may read single attributes.
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
    high_watermark: int = -1
    retry_at: float = 0.0
    failures: int = 0
    broken: int = 0
    full_since: float | None = None
    error: str | None = None
    answered_at: float | None = None
    empty: int = 0

    def __post_init__(self) -> None:
        self.size_bytes = self.size_bytes or self.configured_bytes

    def answered(self, now: float, high_watermark: int | None = None) -> None:
        """Take note of a good answer."""
        self.answered_at = now
        self.error = None
        self.failures = self.broken = 0
        if high_watermark is not None:
            self.high_watermark = high_watermark

    def nothing_came(self, now: float, high_watermark: int) -> bool:
        """Take note of a good answer without messages; return whether it is time to say that none come any more."""
        self.answered(now, high_watermark)
        self.empty = self.empty + 1 if high_watermark > self.offset else 0
        if self.empty >= EMPTY_TRIES:
            self.error = (
                f"nothing comes from offset {self.offset} on, though the log ends at {high_watermark}: either "
                "compaction has taken the rest, or the broker takes an entry of damaged offset for the end"
            )
        return self.empty == EMPTY_TRIES

    def moved_on(self, next_offset: int, chunk_bytes: int = 0) -> None:
        """Go on at an offset behind so many bytes; a size that was grown for one message is given back."""
        self.offset = next_offset
        self.empty = 0
        self.size_bytes = self.configured_bytes
        self.is_single = False
        self.entry_bytes = min(self.entry_bytes, chunk_bytes)

    def grow(self, size_bytes: int) -> None:
        """Ask for the next message with a size in which it fits."""
        self.size_bytes = max(self.configured_bytes, size_bytes)
        self.entry_bytes = size_bytes
        self.is_single = True

    def candidate(self, stream: object) -> Candidate:
        """Return what to ask for, for the byte budget."""
        is_at_end = not self.is_single and 0 <= self.high_watermark <= self.offset
        return Candidate(stream, self.size_bytes, self.entry_bytes, is_at_end)

    def waits_for_room(self, now: float) -> float:
        """Take note that it is not asked for, as there is no room; return for how many seconds that lasts."""
        self.full_since = now if self.full_since is None else self.full_since
        return now - self.full_since

    def asked(self, now: float) -> None:
        """Take note that it is being asked for."""
        self.asked_at = now
        self.full_since = None

    def failed(self, reason: str, now: float, backoff: Backoff) -> bool:
        """Ask later, the longer the more often it failed in a row; return whether this failure is a new one."""
        is_new = self.error != reason
        self.error = reason
        self.retry_at = now + backoff.wait_s(self.failures)
        self.failures += 1
        return is_new

    def led_by(self, broker: Broker) -> None:
        """Take note of a leader; a position from before is checked against its log first."""
        if self.leader is not None and self.need is Need.FETCH:
            self.need = Need.END_CHECK
        self.leader = broker
        self.retry_at = 0.0


def poll_wait_ms(longest_ms: int, filled_for_s: float | None) -> int:
    """Return how long the broker may hold back an answer when there is no data.

    A partition for which there is just no room is left out of the request and is likely to have room again soon, so the
    others' long poll must not keep it waiting: it starts short and doubles with the time that it is left out.

    Args:
        longest_ms: `fetch.wait.max.ms`.
        filled_for_s: For how long the partition that was left out last is left out; None when none is.
    """
    if filled_for_s is None:
        return longest_ms
    return min(longest_ms, max(_SHORTEST_POLL_MS, int(filled_for_s * 1000)))
