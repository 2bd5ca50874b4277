"""What happens to a lane, and what it asks for: the events and actions of its state machine. Pure."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from simpleconsumer.types import ActiveProducer, ProducerId
from zkconsumer.mirror.errors import LaneStopped

SEQUENCES: Final = 1 << 31
"""So many sequence numbers there are; 0 follows the last one."""


class Run(NamedTuple):
    """A stretch of the partition in which offsets and sequence numbers of one producer rise together.

    Attributes:
        producer: Id and epoch of all batches of the run.
        first_offset: Where it starts in the partition.
        first_sequence: The number of the record there.
    """

    producer: ProducerId
    first_offset: int
    first_sequence: int = 0

    def sequence_at(self, offset: int) -> int:
        """Return the number of the record at an offset."""
        return (self.first_sequence + offset - self.first_offset) % SEQUENCES

    def next_epoch(self, end: int) -> Run:
        """Return the run to go on with at the end of the log where a broker refuses the right next number.

        With a new id instead, the first batch of the former one would still be accepted from a process that sleeps.
        """
        return Run(ProducerId(self.producer.producer_id, self.producer.epoch + 1), end)


class Moment(NamedTuple):
    """When something happens.

    Attributes:
        boot_s: Seconds of a clock that also counts while the machine sleeps (CLOCK_BOOTTIME).
        time_ms: Milliseconds since 1970.
        leased_until_s: Until when no other process can have the lane, by the same clock as `boot_s`.
    """

    boot_s: float
    time_ms: int
    leased_until_s: float = math.inf


class Tail(NamedTuple):
    """The last batch of the log.

    Attributes:
        producer: Who has written it; id -1 for somebody without an id.
        last_sequence: The number of its last record.
        last_offset: The offset of its last record.
        newest_ms: The largest time of its records; -1 for none.
    """

    producer: ProducerId
    last_sequence: int
    last_offset: int
    newest_ms: int


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a new connection to the leader, over which nothing was sent."""


@dataclass(frozen=True, slots=True)
class Lost:
    """No connection could be made, or the connection is lost; answers that have not come never come."""

    reason: str


@dataclass(frozen=True, slots=True)
class EndRead:
    """The leader has said on this connection where the log ends.

    Attributes:
        end: The offset after the last record that all replicas in sync have.
        appended: The offset after the last record that the leader has.
        tail: The batch with that record; None if it was deleted, or where the run has no record.
        known: What the leader knows of the producer of the lane; None for nothing, and before Kafka 2.8.
    """

    end: int
    appended: int
    tail: Tail | None = None
    known: ActiveProducer | None = None


@dataclass(frozen=True, slots=True)
class ReadRefused:
    """The broker answers the question for the end of the log with an error code."""

    code: int


@dataclass(frozen=True, slots=True)
class Offered:
    """There is a batch for the position of the lane, with so many records, of which the newest has this time."""

    records: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the earliest request under way: an error code, and the offset of the first record."""

    code: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class PutOff:
    """The broker throttles this client, and what was to be done next is not done: nothing was sent.

    Attributes:
        offset: Of the batch that was to be sent; None if the end was to be read.
    """

    offset: int | None = None


Event = Connected | Lost | EndRead | ReadRefused | Offered | Answered | PutOff


# -- actions -----------------------------------------------------------------------------------------------------------


class Cause(enum.Enum):
    """Why a lane goes on at another offset."""

    START = "the end of the log is known now"
    CUT = "the end of the log was cut off"
    MOVED = "others have written to the partition under the same run"


@dataclass(frozen=True, slots=True)
class Connect:
    """Close the connection, wait, find the leader and make a new one: Connected or Lost follows."""

    after_s: float
    is_denied: bool = False
    """The broker says that it does not lead the partition."""


@dataclass(frozen=True, slots=True)
class ReadEnd:
    """Wait, and ask the leader on this connection for the end: EndRead, ReadRefused, PutOff or Lost follows."""

    after_s: float = 0.0
    lag: str = ""
    """By how much replicas lag behind, for which the end is read again, a clause; empty if that is not why."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send the batch that was offered for this offset, if `may_send` says so; Answered, PutOff or Lost follows."""

    offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """All in-sync replicas have the records from an offset up to another one; their batches are not needed any more."""

    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """Offer batches from this offset on; none that was offered before is needed any more."""

    offset: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Stop:
    """Send nothing more."""

    error: LaneStopped


Action = Connect | ReadEnd | Send | Stored | GoOn | Stop
