"""The errors of a producer: each names the message's place, and whether it may have been stored all the same. Pure.

ZkConsumerError
└── ProducerError
    ├── MessageNotSent       a message that no broker has acknowledged
    │   └── OversizedMessage one that is larger than the limit here, or than the broker takes
    ├── MessagesNotSent      some messages of `send_all` failed; all others were sent
    ├── QueueFull            no room in the queue within queue.enqueue.timeout.ms; the message was not taken
    ├── ProducerClosed       the call came after close()
    └── TransactionFailed    a call about a transaction failed
        └── ProducerFenced   another producer with the same transactional.id has taken over; final
"""

# The names say what happened; an "Error" at the end of each would only repeat the tree above.
# ruff: noqa: N818
from __future__ import annotations

from collections.abc import Sequence

from simpleconsumer.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NoSuchRequest, VersionNotServed
from zkconsumer_error import ZkConsumerError


def without_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error and its causes: their frames would keep whole requests as long as the error."""
    left, seen = [error], set()
    while left:
        each = left.pop()
        seen.add(id(each))
        each.__traceback__ = None
        left += [other for other in (each.__cause__, each.__context__) if other is not None and id(other) not in seen]


def may_have_been_sent(error: Exception) -> bool:
    """Return whether a broker may have got the produce request that ended with this error."""
    if isinstance(error, ConnectionFailed):
        return error.is_sent
    # These come before the request: nobody was authenticated, or the broker does not say what it serves.
    return not isinstance(error, AuthenticationFailed | BrokerError | NoSuchRequest | VersionNotServed)


class ProducerError(ZkConsumerError):
    """Root of the producer's errors, apart from `ValueError` and `TypeError` for wrong arguments."""


class MessageNotSent(ProducerError):
    """A message that no broker has acknowledged.

    Attributes:
        topic: Its topic.
        partition: Its partition; None if none was chosen yet.
        reason: The failure of the last try, a clause.
        tries: How often it was sent, or a leader was looked for.
        may_be_stored: A connection was lost, or a broker did not answer, after the message was sent to it.
    """

    def __init__(
        self, topic: str, partition: int | str | None, reason: str, tries: int = 1, may_be_stored: bool = False
    ) -> None:
        super().__init__(topic, partition, reason, tries, may_be_stored)
        self.topic = topic
        self.partition = partition
        self.reason = reason
        self.tries = tries
        self.may_be_stored = may_be_stored

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}/{self.partition}"
        tried = f" in {self.tries} attempts" if self.tries > 1 else ""
        stored = "; it may be stored nevertheless" if self.may_be_stored else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"a message for {place} was not acknowledged{tried}: {self.reason}{stored}{remedy}"


class OversizedMessage(MessageNotSent):
    """A message is larger than the limit here, or than the broker accepts; it was not stored."""


class MessagesNotSent(ProducerError):
    """Some messages of `Producer.send_all` were not sent; all others were.

    Attributes:
        sent: How many were acknowledged.
        failed: How many were not.
        failures: The number of the message among those given, from 0, and its error, of the first hundred that failed.
    """

    def __init__(self, sent: int, failed: int, failures: Sequence[tuple[int, Exception]]) -> None:
        super().__init__(sent, failed, failures)
        self.sent = sent
        self.failed = failed
        self.failures = failures

    def __str__(self) -> str:
        number, error = self.failures[0]
        total = self.sent + self.failed
        return f"{self.failed} of {total} messages were not sent; the first one is number {number}: {error}"


class QueueFull(ProducerError):
    """There was no room in the queue within `queue.enqueue.timeout.ms`; the message was not accepted.

    Attributes:
        topic: The topic of the message.
        limit: The limit that the queue has reached, such as `10000 messages`.
    """

    def __init__(self, topic: str, limit: str) -> None:
        super().__init__(topic, limit)
        self.topic = topic
        self.limit = limit
        self.remedy = "wait, or set queue.enqueue.timeout.ms to -1, which waits for room"

    def __str__(self) -> str:
        return f"the queue has no room for a message for {self.topic}: it has {self.limit}"


class ProducerClosed(ProducerError):
    """The call came after `close()`."""


class TransactionFailed(ProducerError):
    """A call about a transaction failed.

    Attributes:
        transactional_id: Names the producer.
        reason: The failure, a clause.
        outcome_is_unknown: The request may have succeeded all the same: repeat a commit to find out.
    """

    def __init__(self, transactional_id: str, reason: str, outcome_is_unknown: bool = False) -> None:
        super().__init__(transactional_id, reason, outcome_is_unknown)
        self.transactional_id = transactional_id
        self.reason = reason
        self.outcome_is_unknown = outcome_is_unknown

    def __str__(self) -> str:
        return f"transaction of {self.transactional_id!r}: {self.reason}"


class ProducerFenced(TransactionFailed):
    """Another producer with the same transactional.id has taken over, or a transaction was open for too long: close it.

    The coordinator aborts a transaction that is open for `transaction.timeout.ms`, and answers as to a fenced producer.
    """
