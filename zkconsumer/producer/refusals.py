"""What to do about a batch that a broker refuses because of a message in it: where to cut it, until that one is alone.

Brokers do not say which message it is. Of a batch that is too large, the halves are tried. A compacted topic takes no
message without a key: brokers from 2.4 on answer that a record is invalid, those of 0.9 to 2.3 the same as for a wrong
checksum. So a batch is cut where messages with keys and without meet, and those with keys are stored.

Source: kafka.log.LogValidator (1.1.1, 2.8.2), kafka.message.ByteBufferMessageSet (0.9.0.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simpleconsumer.errors import BrokerError, ConnectionFailed
from zkconsumer.producer.batch import Pair

__all__ = [
    "INVALID", "MOST_CHECKSUM_TRIES", "NO_HEADERS", "NO_IDEMPOTENCE", "NO_ZSTD", "TOO_LARGE", "WRONG_CHECKSUM",
    "cut_at", "is_about_a_message", "remedy_for",
]  # fmt: skip

TOO_LARGE: Final = (10, 18)
INVALID: Final = 87
WRONG_CHECKSUM: Final = 2
NO_HEADERS: Final = 43
"""Of messages with headers, for a broker that stores none; not sent."""
NO_ZSTD: Final = 76
"""For a broker that does not know zstd; not sent."""
NO_IDEMPOTENCE: Final = 35
"""For a broker without producer ids; not sent."""
_REMEDIES: Final = {
    NO_HEADERS: "it has headers, which brokers store from Kafka 0.11 on",
    NO_ZSTD: "zstd needs brokers of Kafka 2.1 or later: set compression.codec to another one",
    NO_IDEMPOTENCE: "enable.idempotence and transactional.id need brokers of Kafka 0.11 or later",
}
MOST_CHECKSUM_TRIES: Final = 3
"""Of messages without keys, since a compacted topic refuses them for ever."""


def is_about_a_message(code: int, pairs: Sequence[Pair]) -> bool:
    """Return whether a broker's error is about some message among these, and would be the same for it again."""
    if code == WRONG_CHECKSUM:
        return any(pair[0] is None for pair in pairs)
    return code in TOO_LARGE or code in (INVALID, NO_HEADERS)


def remedy_for(reason: object, pairs: Sequence[Pair]) -> str:
    """Return what to do about messages that failed, if the error does not say so; else empty."""
    if isinstance(reason, ConnectionFailed):
        return reason.remedy
    if isinstance(reason, BrokerError) and reason.code in _REMEDIES:
        return _REMEDIES[reason.code]
    is_refused = isinstance(reason, BrokerError) and reason.code in (INVALID, WRONG_CHECKSUM)
    has_no_keys = is_refused and all(pair[0] is None for pair in pairs)
    return "it has no key: topics with cleanup.policy=compact need one" if has_no_keys else ""


def cut_at(code: int, pairs: Sequence[Pair]) -> int | None:
    """Return how many messages come into the first part; None if they stand and fall together."""
    if len(pairs) < 2:
        return None
    middle = len(pairs) // 2
    if code in TOO_LARGE:
        return middle
    if code == NO_HEADERS:
        return next((at for at in range(1, len(pairs)) if len(pairs[at]) != len(pairs[at - 1])), None)
    borders = [at for at in range(1, len(pairs)) if (pairs[at][0] is None) != (pairs[at - 1][0] is None)]
    if borders:
        return min(borders, key=lambda at: abs(at - middle))
    return None if pairs[0][0] is None or code == WRONG_CHECKSUM else middle
