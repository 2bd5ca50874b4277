"""The errors of polling: subscriptions that exclude each other, partitions that are not assigned, lost positions.

Pure.

    PollingError
    ├── SubscriptionConflict   topics, a pattern and assigned partitions exclude each other
    ├── NotSubscribed          a call needs a subscription of another kind
    ├── NotAssigned            a call names a partition that is not assigned
    ├── NoOffsetForPartition   nothing is committed, and `auto.offset.reset` is `none`
    ├── OffsetOutOfRange       the log does not have the position, and `auto.offset.reset` is `none`
    └── LogTruncated           the log was cut below the position, and `auto.offset.reset` is `none`

The errors of calls of KafkaConsumer: used by two threads, woken up, closed, forked, or not answered.
"""

# The names say what happened, as those of `zkconsumer.errors` do.
# ruff: noqa: N818

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from simpleconsumer.types import TopicPartition
from zkconsumer_error import RemediedError, first_few

NEEDS_GROUP: Final = "set group_id, or assign partitions"
"""The advice for a consumer without a group."""


class PollingError(RemediedError):
    """Root of the errors of polling."""


class SubscriptionConflict(PollingError):
    """A consumer cannot combine topics, a pattern and assigned partitions.

    Attributes:
        wanted: The request, such as `subscribe to a pattern`.
        present: The present state, such as `topics are subscribed to`.
    """

    def __init__(self, wanted: str, present: str) -> None:
        super().__init__(
            f"cannot {wanted}: {present}, and subscription to topics, partitions and pattern are mutually exclusive",
            "call unsubscribe() first",
        )
        self.args = (wanted, present)
        self.wanted = wanted
        self.present = present


class NotSubscribed(PollingError):
    """A call needs a subscription of another kind, or any at all.

    Attributes:
        wanted: The request, such as `poll`.
        present: The present state, such as `nothing is subscribed to`.
    """

    def __init__(self, wanted: str, present: str, remedy: str = "subscribe to topics or to a pattern") -> None:
        super().__init__(f"cannot {wanted}: {present}", remedy)
        self.args = (wanted, present, remedy)
        self.wanted = wanted
        self.present = present


class NotAssigned(PollingError):
    """A call names partitions that are not assigned to this consumer.

    Attributes:
        call: The call.
        partitions: The partitions that are not assigned.
        assigned: The assigned partitions.
    """

    def __init__(self, call: str, partitions: Iterable[TopicPartition], assigned: Iterable[TopicPartition]) -> None:
        self.call = call
        self.partitions = tuple(partitions)
        self.assigned = tuple(assigned)
        there = f"assigned are {shown(self.assigned)}" if self.assigned else "no partition is assigned"
        super().__init__(
            f"{call}: {shown(self.partitions)} {'is' if len(self.partitions) == 1 else 'are'} not assigned to this "
            f"consumer; {there}",
            "a group assigns its partitions in poll()",
        )
        self.args = (call, self.partitions, self.assigned)


class NoOffsetForPartition(PollingError):
    """Partitions have no committed offset, and no policy says where to start.

    Attributes:
        partitions: All of them.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        super().__init__(
            f"no offset is committed for {shown(self.partitions)}, and auto.offset.reset is none",
            "seek, commit an offset, or set auto.offset.reset to earliest or latest",
        )
        self.args = (self.partitions,)


class OffsetOutOfRange(PollingError):
    """The log does not have a position, and no policy says where to continue.

    Attributes:
        partition: Of which partition.
        offset: The position.
        log_start: First offset of the log; None when it is not known.
        log_end: The offset after the last one; None when it is not known.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, log_start: int | None = None, log_end: int | None = None
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end
        known = [
            f"{word} {limit}" for word, limit in (("starts at", log_start), ("ends at", log_end)) if limit is not None
        ]
        limits = f": the log {' and '.join(known)}" if known else ""
        super().__init__(
            f"{shown([partition])}: position {offset} is out of range{limits}, and auto.offset.reset is none",
            "seek to an offset of the log, or set auto.offset.reset to earliest or latest",
        )
        self.args = (partition, offset, log_start, log_end)


class LogTruncated(PollingError):
    """The log was truncated below a position, as after an unclean election, and no policy says where to continue.

    Attributes:
        partition: Of which partition.
        offset: The position.
        offset_epoch: The leader epoch of the record before it.
        divergent_offset: The first offset whose record may be another one than was read; None when it is not known.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, offset_epoch: int | None, divergent_offset: int | None = None
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.offset_epoch = offset_epoch
        self.divergent_offset = divergent_offset
        ended = (
            "the leader does not know this epoch" if divergent_offset is None
            else f"it matches the read log up to {divergent_offset}"
        )  # fmt: skip
        epoch = "" if offset_epoch is None else f" of leader epoch {offset_epoch}"
        super().__init__(
            f"{shown([partition])}: the log was truncated below position {offset}{epoch}: {ended}, and "
            "auto.offset.reset is none",
            "seek to an offset of the log, or set auto.offset.reset to earliest or latest",
        )
        self.args = (partition, offset, offset_epoch, divergent_offset)


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Return `topic/partition` of some partitions, and how many more there are."""
    return first_few(*[f"{topic}/{partition}" for topic, partition in partitions])


class ConcurrentConsumerUse(PollingError):
    """Two threads, or asyncio tasks, used this consumer at the same time."""

    def __init__(self, user: str, kind: str = "thread") -> None:
        which = "wakeup() may" if kind == "thread" else "calls that do not poll may"
        super().__init__(f"{kind} {user!r} is inside a call of this consumer; only one {kind} at a time may call it",
                         f"create a consumer for each {kind}; only {which} be called from others")  # fmt: skip


class ConsumerWokenUp(PollingError):
    """`wakeup` was called; the consumer can still be used."""

    def __init__(self) -> None:
        super().__init__("wakeup() was called", "poll again, or close the consumer")


class ConsumerClosed(PollingError):
    """The consumer is closed."""

    def __init__(self) -> None:
        super().__init__("this consumer is closed", "create another one")


class ForkedConsumer(PollingError):
    """A consumer was used in a process that was forked after it had been made.

    Attributes:
        owner_pid: The process that made it.
        pid: The process that used it.
    """

    def __init__(self, owner_pid: int, pid: int) -> None:
        super().__init__(f"this consumer belongs to process {owner_pid}, and process {pid} was forked from it",
                         "create a consumer in the process that uses it")  # fmt: skip
        self.args = (owner_pid, pid)
        self.owner_pid = owner_pid
        self.pid = pid


class PollTimeout(PollingError):
    """A call got no answer in time."""

    def __init__(self, what: str, timeout_s: float, reason: str = "") -> None:
        because = f": {reason}" if reason else ""
        super().__init__(f"{what} was not found within {timeout_s:g} s{because}",
                         "try again, or set a longer time-out (default.api.timeout.ms)")  # fmt: skip
        self.args = (what, timeout_s, reason)
