"""The errors of mirrors and lanes: each names the partition, what was expected and what was found. Pure.

ZkConsumerError
└── LaneError
    ├── LaneStopped          the lane sends nothing more
    │   ├── AnotherWriter    somebody else has written to the partition, or has taken the producer id over
    │   ├── Misplaced        the broker has acknowledged batches at other offsets than their own
    │   ├── NumberRefused    the broker refuses the right next sequence number: it has forgotten the producer
    │   ├── BatchRefused     the broker refuses a batch for good
    │   └── BelowRun         the log ends before the first offset of the run
    ├── TransactionLost      the coordinator has ended the lane's transaction, or does not know its producer any more
    ├── LaneStuck            what was asked of the lane did not happen in time; it can be asked again
    └── LaneClosed           the lane was closed
MirrorError                  of a whole mirror
├── MirrorRefused            it cannot be started as it is asked for
├── MirrorUnfinished         the last batches were not acknowledged in time
├── StateUnreadable          the state topic has a record that is not of a mirror, or of a later version
└── SourceLost               messages that were not copied are not in the source any more, or it is another topic now
"""

# The names say what happened; an "Error" behind each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simpleconsumer.errors import broker_error
from simpleconsumer.types import TopicPartition
from zkconsumer_error import ZkConsumerError, first_few


class LaneError(ZkConsumerError):
    """Root of the errors of lanes.

    Attributes:
        topic: Where the lane writes.
        partition: Where the lane writes.
    """

    def __init__(self, name: TopicPartition, *more: object) -> None:
        super().__init__(name, *more)
        self.topic, self.partition = name

    @property
    def place(self) -> str:
        """Topic and partition, as texts have them."""
        return f"{self.topic}/{self.partition}"


class LaneStopped(LaneError):
    """The lane sends nothing more."""


class AnotherWriter(LaneStopped):
    """Somebody else has written to the partition, or has taken the producer id over.

    Attributes:
        expected: What the lane had to find, a clause.
        found: What it has found, a clause.
    """

    def __init__(self, name: TopicPartition, expected: str, found: str) -> None:
        super().__init__(name, expected, found)
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        return f"{self.place}: another writer: expected {self.expected}, found {self.found}"


class MisplacedBatch(NamedTuple):
    """A batch that the broker has acknowledged at another offset than its own.

    Attributes:
        expected_offset: The offset of its first record, by its sequence number.
        found_offset: The offset that the broker has answered.
        records: How many records it has.
    """

    expected_offset: int
    found_offset: int
    records: int


class Misplaced(LaneStopped):
    """The broker has acknowledged batches at other offsets than their own: it had forgotten the producer.

    Attributes:
        batches: Those batches.
    """

    remedy = "read the end of the log before anything else is written: records may be there twice, or out of order"

    def __init__(self, name: TopicPartition, batches: Sequence[MisplacedBatch]) -> None:
        super().__init__(name, tuple(batches))
        self.batches = tuple(batches)

    def __str__(self) -> str:
        rows = [
            f"{each.records} records expected at {each.expected_offset}, found at {each.found_offset}"
            for each in self.batches
        ]
        return f"{self.place}: the broker has stored batches at other offsets: {first_few(*rows, between='; ')}"


class NumberRefused(LaneStopped):
    """The broker refuses the right next sequence number, as those of Kafka 0.11 and 1 do that have forgotten the id.

    Attributes:
        code: What the broker answers: 45 in Kafka 0.11, 59 in Kafka 1.
        offset: Where the log ends.
        sequence: The number that belongs there.
    """

    remedy = (
        "go on with the same producer id, the next epoch and sequence 0, in a new run that starts at the end of the log"
    )

    def __init__(self, name: TopicPartition, code: int, offset: int, sequence: int) -> None:
        super().__init__(name, code, offset, sequence)
        self.code = code
        self.offset = offset
        self.sequence = sequence

    def __str__(self) -> str:
        row = broker_error(self.code)
        return (
            f"{self.place}: the log ends at {self.offset}, and the broker refuses the right next sequence number "
            f"{self.sequence}: {row.name} (code {self.code}), {row.meaning}"
        )


class BatchRefused(LaneStopped):
    """The broker refuses a batch, or a question about the partition, for good.

    Attributes:
        code: What the broker answers.
        offset: Where the batch was to be stored; None for a question.
    """

    def __init__(self, name: TopicPartition, code: int, offset: int | None) -> None:
        super().__init__(name, code, offset)
        self.code = code
        self.offset = offset

    def __str__(self) -> str:
        row = broker_error(self.code)
        what = "where the log ends" if self.offset is None else f"the batch for offset {self.offset}"
        return f"{self.place}: the broker refuses {what}: {row.name} (code {self.code}), {row.meaning}"


class BelowRun(LaneStopped):
    """The log ends before the first offset of the run: it was cut off further than the run reaches.

    Attributes:
        first_offset: Where the run starts.
        end: Where the log ends.
    """

    remedy = "go on with the run that has this offset"

    def __init__(self, name: TopicPartition, first_offset: int, end: int) -> None:
        super().__init__(name, first_offset, end)
        self.first_offset = first_offset
        self.end = end

    def __str__(self) -> str:
        return f"{self.place}: the log ends at {self.end}, before offset {self.first_offset}, where the run starts"


class TransactionLost(LaneError):
    """The coordinator has ended the lane's transaction, or does not know its producer any more: a new epoch is needed.

    Attributes:
        code: Its answer.
    """

    def __init__(self, name: TopicPartition, code: int) -> None:
        super().__init__(name, code)
        self.code = code

    def __str__(self) -> str:
        fault = broker_error(self.code)
        return f"{self.place}: the transaction of the lane was ended, or its producer is not known: {fault}"


class LaneStuck(LaneError):
    """What was asked of the lane did not happen in time; nothing is lost, and it can be asked again.

    Attributes:
        waited_s: For how long, in seconds.
        reason: The last fault, a clause.
    """

    def __init__(self, name: TopicPartition, waited_s: float, reason: str) -> None:
        super().__init__(name, waited_s, reason)
        self.waited_s = waited_s
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: the lane got no further within {self.waited_s:g} s: {self.reason}"


class LaneClosed(LaneError):
    """The lane was closed, maybe while the call was waiting."""

    def __str__(self) -> str:
        return f"{self.place}: the lane was closed"


class MirrorError(ZkConsumerError):
    """Root of the errors of a mirror as a whole."""


class MirrorRefused(MirrorError):
    """A mirror cannot be started as it is asked for.

    Attributes:
        reason: Why, a clause with the values.
        remedy: What helps.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return self.reason


class MirrorUnfinished(MirrorError):
    """The last batches were not acknowledged in time."""

    remedy = "run it again: it goes on by itself"

    def __str__(self) -> str:
        return "the last batches were not acknowledged in time"


class StateUnreadable(MirrorError):
    """The state topic has a record that is not of a mirror, or of a later version.

    Attributes:
        place: Topic, partition and offset of the record.
        reason: What is wrong, a clause.
    """

    remedy = "give the mirror a --name of its own, whose state topic nobody else writes"

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place}: the record of the mirror's state cannot be read: {self.reason}"


class SourceLost(MirrorError):
    """Messages that were not copied are not in the source any more, or the source is another topic now.

    Attributes:
        place: Topic and partition of the source.
        position: The offset that was to be copied next.
        go_on_at: Where the copy goes on if what is lost is skipped; None if it cannot.
        cause: The name of the cause, as the runs have it.
        reason: What was found, a clause.
    """

    def __init__(self, place: str, position: int, go_on_at: int | None, cause: str, reason: str) -> None:
        super().__init__(place, position, go_on_at, cause, reason)
        self.remedy = (
            "copy it into another topic: --rename, under another --name" if go_on_at is None
            else "--on-data-loss skip goes on after what is lost, and records it as a hole"
        )  # fmt: skip
        self.place = place
        self.position = position
        self.go_on_at = go_on_at
        self.cause = cause
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.place} at offset {self.position}: {self.reason}"
