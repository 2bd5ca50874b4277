"""The values of a log on disk: its entries, what is damaged, and the offsets that are missing.

Pure.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from zkconsumer_error import RemediedError

NO_MARKER: Final = -1
ABORT: Final = 0
COMMIT: Final = 1


class LogFailed(RemediedError):  # noqa: N818 - the name says what happened
    """A folder or a file of a log cannot be read, or it changes while it is read."""


class GapKind(enum.StrEnum):
    """Why offsets have no message. Each missing offset has exactly one of these reasons."""

    BELOW_LOG_START = "below_log_start"
    """Retention or DeleteRecords has deleted it."""
    COMPACTED = "compacted"
    """The cleaner has removed it: a later message has the same key."""
    TRANSACTION = "transaction"
    """The marker that ends a transaction takes it."""
    SEGMENT_MISSING = "segment_missing"
    """It was in a file that is not there, or in a part of it that is."""
    DAMAGED = "damaged"
    """Its bytes are damaged."""
    UNEXPLAINED = "unexplained"
    """Nothing says why."""

    @property
    def is_loss(self) -> bool:
        """Whether a message may be lost; the other kinds are in every sound log."""
        return self in (GapKind.SEGMENT_MISSING, GapKind.DAMAGED, GapKind.UNEXPLAINED)


class DiskEntry(NamedTuple):
    """An entry of a segment whose checksum fits: a record batch, or a message or a wrapper of an older format.

    Attributes:
        start, end: Its bytes in the file.
        first, last: Its offsets, those without a message included; in Kafka 0.7 the positions of its bytes.
        messages: How many it holds; markers are none.
        magic: Format; in Kafka 0.7 the same numbers mean other formats.
        attributes: Of the entry.
        first_ms, last_ms: Times of its first and its latest message; -1 where there is none.
        leader_epoch: -1 if it has none.
        producer_id: -1 if it has none.
        marker: `ABORT` or `COMMIT` for a control batch, another number for one of another kind; else `NO_MARKER`.
        head: What to read in place of the first bytes; empty if these are right.
        faults: Offset and reason for each message inside that cannot be read although the checksum of the entry fits.
        entries: How many entries it stands for: more than one for a run of plain ones that is read as one.
    """

    start: int
    end: int
    first: int
    last: int
    messages: int
    magic: int
    attributes: int
    first_ms: int = -1
    last_ms: int = -1
    leader_epoch: int = -1
    producer_id: int = -1
    marker: int = NO_MARKER
    head: bytes = b""
    faults: tuple[tuple[int, str], ...] = ()
    entries: int = 1


class WalkedDamage(NamedTuple):
    """Damaged bytes of one file, before anything is known of the offsets around them.

    Attributes:
        start, end: The bytes in the file.
        reason: What is wrong, as a clause.
        is_repaired: All messages are there all the same: what is wrong is known from other bytes.
        is_rest: Nothing sound is behind them in the file.
        is_torn: They look like a write that a crash has cut off.
    """

    start: int
    end: int
    reason: str
    is_repaired: bool = False
    is_rest: bool = False
    is_torn: bool = False


class LogTail(NamedTuple):
    """What is behind the last entry of the last segment and is no damage.

    Attributes:
        start, end: The bytes in the file.
        kind: `zeros` for room that the broker has reserved, `torn` for a write that a crash has cut off.
    """

    start: int
    end: int
    kind: str


class Damage(NamedTuple):
    """Damage of a log.

    Attributes:
        file: Name of the file.
        start_byte, end_byte: The damaged bytes, from the first one up to before the last one.
        first_offset, last_offset: The offsets that are lost; None if no offset is, or if nothing says up to which.
        reason: What is wrong, as a clause.
        is_repaired: No message is lost: what is wrong is known from other bytes.
        is_undecoded: The checksum fits, and what it covers cannot be decoded.
    """

    file: str
    start_byte: int
    end_byte: int
    first_offset: int | None
    last_offset: int | None
    reason: str
    is_repaired: bool = False
    is_undecoded: bool = False


class Gap(NamedTuple):
    """Offsets without a message.

    Attributes:
        kind: Why.
        first_offset, last_offset: Where they are.
        missing: How many they are: fewer than the range has offsets if there are messages between them.
        file: The segment in which they are, or before which; empty for none.
        reason: More about it, as a clause; may be empty.
    """

    kind: GapKind
    first_offset: int
    last_offset: int
    missing: int
    file: str = ""
    reason: str = ""
