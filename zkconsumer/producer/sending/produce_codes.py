"""What each error code of Produce means: whether the batch may be stored, and what becomes of its sequence numbers.

A leader checks a batch, appends it, and then waits for replicas. So an error of a check leaves nothing in the log, and
the next batch takes the numbers. After any other error the batch may be in the log, or come there: it keeps its numbers
for a repeat. If no repeat is acknowledged, the producer id is given up: under the same numbers a broker would take the
next batch for this one, and acknowledge it without storing it. The same goes for every code that is not listed here.

Source: kafka.server.ReplicaManager.appendRecords, DelayedProduce, kafka.cluster.Partition,
kafka.log.UnifiedLog.append, ProducerStateManager (0.8.2 to 4.3).

A batch that a broker refuses because of a message in it is cut, until that message is alone. Pure.

Brokers do not say which message it is. Of a batch that is too large, the halves are tried. A compacted topic takes no
message without a key: brokers from 2.4 on answer that a record is invalid, those of 0.9 to 2.3 the same as for a wrong
checksum. So a batch is cut where messages with keys and without meet, and those with keys are stored.

Source: kafka.log.LogValidator (1.1.1, 2.8.2), kafka.message.ByteBufferMessageSet (0.9.0.1).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from simpleconsumer.errors import BrokerError, ConnectionFailed
from zkconsumer.producer.batching.batch_queues import Pair, has_headers, time_of
from zkconsumer_error import ErrorCode


class Stored(enum.Enum):
    """Whether a batch is in the log behind an error."""

    NO = "no"
    MAYBE = "maybe"
    MAYBE_WITH_ALL = "with `request.required.acks=-1`"
    IF_SENT_BEFORE = "yes, if it was sent before"


class Numbers(enum.Enum):
    """What becomes of the sequence numbers of an idempotent batch, and of its producer id."""

    FREE = "the next batch takes its numbers"
    KEPT = "kept for a repeat; a new producer id when the tries run out"
    GIVEN_UP = "a new producer id"
    FENCED = "final with `transactional.id`; else a new producer id"
    STORED = "it is acknowledged if it was sent before; else a new producer id"


class ProduceCode(NamedTuple):
    """What an error code of Produce means.

    Attributes:
        code: The code.
        stored: Whether the batch is in the log.
        numbers: What becomes of its numbers.
        reason: Why, a clause.
    """

    code: int
    stored: Stored
    numbers: Numbers
    reason: str

    def may_be_stored(self, acks: int) -> bool:
        """Return whether the request that was answered so may have brought the batch into the log, with these acks."""
        return self.stored is Stored.MAYBE or (self.stored is Stored.MAYBE_WITH_ALL and acks == -1)


def _refused(code: int, reason: str, numbers: Numbers = Numbers.FREE) -> ProduceCode:
    return ProduceCode(code, Stored.NO, numbers, reason)


_NOT_APPENDED: Final = "a check before the append"
PRODUCE_CODES: Final = {
    row.code: row
    for row in (
        ProduceCode(-1, Stored.MAYBE, Numbers.KEPT, "whatever failed, before or after the append"),
        _refused(2, _NOT_APPENDED),
        ProduceCode(3, Stored.MAYBE_WITH_ALL, Numbers.KEPT, "the partition was deleted while replicas were waited for"),
        ProduceCode(6, Stored.MAYBE_WITH_ALL, Numbers.KEPT, "leadership was lost while replicas were waited for"),
        ProduceCode(7, Stored.MAYBE, Numbers.KEPT, "appended, and not acknowledged by all replicas in time"),
        _refused(10, _NOT_APPENDED),
        _refused(17, _NOT_APPENDED),
        _refused(18, _NOT_APPENDED),
        _refused(19, "too few replicas before the append; also: the transaction cannot be verified now"),
        ProduceCode(20, Stored.MAYBE, Numbers.KEPT, "appended, and too few replicas since"),
        _refused(21, "the request is refused as a whole"),
        _refused(29, "the request is refused before the append"),
        _refused(31, "the request is refused before the append"),
        _refused(32, _NOT_APPENDED),
        _refused(35, "not sent, or refused as a whole"),
        _refused(42, "the request is refused as a whole"),
        _refused(43, "not sent, or a check before the append"),
        _refused(45, "a batch before it is missing", Numbers.GIVEN_UP),
        ProduceCode(46, Stored.IF_SENT_BEFORE, Numbers.STORED, "a batch with its numbers is stored"),
        _refused(47, "a later producer has the id", Numbers.FENCED),
        _refused(48, "it belongs to no open transaction"),
        _refused(49, "the id is of another transactional id", Numbers.GIVEN_UP),
        _refused(51, "the transaction before is still being ended"),
        _refused(53, "the request is refused before the append"),
        ProduceCode(56, Stored.MAYBE, Numbers.KEPT, "the disk failed, maybe when the batch was appended and flushed"),
        _refused(59, "the broker has forgotten the producer", Numbers.GIVEN_UP),
        _refused(76, "not sent, or a check before the append"),
        _refused(87, _NOT_APPENDED),
        _refused(90, "a later producer has the id", Numbers.FENCED),
        _refused(120, "the transaction can only be aborted"),
    )
}
"""By code."""

DUPLICATE: Final = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
"""The batch is stored already, if it was sent before."""
OUT_OF_STEP: Final = frozenset(
    row.code for row in PRODUCE_CODES.values() if row.numbers not in (Numbers.FREE, Numbers.KEPT)
)
"""The broker expects other numbers than those of this producer."""
FENCED: Final = frozenset(row.code for row in PRODUCE_CODES.values() if row.numbers is Numbers.FENCED)
"""Another producer with the same transactional id has taken over; final."""


def may_be_stored(code: int, acks: int) -> bool:
    """Return whether a leader that answered with an error may have the batch, or another replica."""
    row = PRODUCE_CODES.get(code)
    return code != 0 and (row is None or row.may_be_stored(acks))


TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
INVALID: Final = ErrorCode.INVALID_RECORD
WRONG_CHECKSUM: Final = ErrorCode.CORRUPT_MESSAGE
NO_HEADERS: Final = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
"""Of messages with headers or times of their own, for a broker that stores none; not sent."""
TIMES_SINCE: Final = "brokers only store times from Kafka 0.10 on"
BAD_TIME: Final = ErrorCode.INVALID_TIMESTAMP
NO_ZSTD: Final = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
"""For a broker that does not know zstd; not sent."""
NO_IDEMPOTENCE: Final = ErrorCode.UNSUPPORTED_VERSION
"""For a broker without producer ids; not sent."""
_REMEDIES: Final[Mapping[int, str]] = {
    NO_ZSTD: "zstd needs brokers of Kafka 2.1 or later: set another compression.codec",
    NO_IDEMPOTENCE: "enable.idempotence and transactional.id need brokers of Kafka 0.11 or later",
}
MOST_CHECKSUM_TRIES: Final = 3
"""Of messages without keys, since a compacted topic refuses them for ever."""


def is_about_a_message(code: int, pairs: Sequence[Pair]) -> bool:
    """Return whether a broker's error is about some message among these, and would be the same for it again."""
    if code == WRONG_CHECKSUM:
        return any(pair[0] is None for pair in pairs)
    if code == BAD_TIME:  # without a time of its own it is about a clock
        return any(time_of(pair) is not None for pair in pairs)
    return code in TOO_LARGE or code in (INVALID, NO_HEADERS)


def remedy_for(reason: object, pairs: Sequence[Pair]) -> str:
    """Return what to do about messages that failed, if the error does not say so; else empty."""
    if isinstance(reason, ConnectionFailed):
        return reason.remedy
    if isinstance(reason, BrokerError) and reason.code in _REMEDIES:
        return _REMEDIES[reason.code]
    if isinstance(reason, BrokerError) and reason.code in (NO_HEADERS, BAD_TIME):
        return _remedy_for_part(reason.code, pairs)
    is_refused = isinstance(reason, BrokerError) and reason.code in (INVALID, WRONG_CHECKSUM)
    has_no_keys = is_refused and all(pair[0] is None for pair in pairs)
    return "it has no key, which topics with cleanup.policy=compact need" if has_no_keys else ""


def _remedy_for_part(code: int, pairs: Sequence[Pair]) -> str:
    """Return what to do about headers or times that brokers do not store."""
    if code == NO_HEADERS and any(map(has_headers, pairs)):
        return "it has headers, which brokers only store from Kafka 0.11 on"
    times_ms = [time_ms for pair in pairs if (time_ms := time_of(pair)) is not None]
    if not times_ms:
        return ""
    first, last = min(times_ms), max(times_ms)
    said = f"it has the time {first}" if first == last else f"its batch has times from {first} to {last}"
    if code == NO_HEADERS:
        return f"{said} (timestamp_ms), but {TIMES_SINCE}"
    return f"{said} (timestamp_ms): see message.timestamp.difference.max.ms of the topic, from Kafka 3.6 on " \
           "message.timestamp.before.max.ms and message.timestamp.after.max.ms"  # fmt: skip


def cut_at(code: int, pairs: Sequence[Pair]) -> int | None:
    """Return how many messages come into the first part; None if they stand and fall together."""
    if len(pairs) < 2:
        return None
    middle = len(pairs) // 2
    if code in TOO_LARGE or code == BAD_TIME:
        return middle
    differs_by = _kept_since if code == NO_HEADERS else _has_no_key
    borders = [at for at in range(1, len(pairs)) if differs_by(pairs[at]) != differs_by(pairs[at - 1])]
    if borders:
        return min(borders, key=lambda at: abs(at - middle))
    if code == NO_HEADERS:
        return None
    return None if pairs[0][0] is None or code == WRONG_CHECKSUM else middle


def _has_no_key(pair: Pair) -> object:
    return pair[0] is None


def _kept_since(pair: Pair) -> object:
    """Return what of a message older formats do not store: headers, and its time."""
    return has_headers(pair), time_of(pair) is not None
