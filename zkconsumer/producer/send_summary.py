"""SendSummary: what became of many messages, and Counts, which counts it."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from traceback import clear_frames
from typing import Final, NamedTuple, Self

from simpleconsumer.types import TopicPartition
from zkconsumer.producer.errors import MessagesNotSent, ProducerError, without_frames

__all__ = ["Counts", "SendSummary"]

_MOST_NAMED: Final = 100
"""Failures that are kept one by one; the others are only counted."""


class SendSummary(NamedTuple):
    """What became of many messages.

    Attributes:
        sent: How many were acknowledged (with acks 0: written to a socket).
        failed: How many were not.
        failures: The number of the message among those given, from 0, and its error, of the first hundred that failed.
    """

    sent: int
    failed: int
    failures: tuple[tuple[int, Exception], ...]

    def checked(self) -> Self:
        """Return this summary.

        Raises:
            MessagesNotSent: Some messages failed.
        """
        if self.failed:
            raise MessagesNotSent(*self)
        return self


class Counts:
    """Counts what becomes of many messages.

    Attributes:
        sent: How many messages were acknowledged so far.
        failed: How many were not.
        failures: The number and the error of the first hundred that failed, in the order in which that was found.
        sent_to: Partition -> how many messages it acknowledged so far.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.failures: list[tuple[int, Exception]] = []
        self.sent_to: Counter[TopicPartition] = Counter()
        self._first_failure: tuple[int, Exception] | None = None

    def count_sent(self, name: TopicPartition, messages: int) -> None:
        """Count messages that were acknowledged."""
        self.sent += messages
        self.sent_to[name] += messages

    def fail(self, number: int, error: Exception) -> None:
        """Count a message that was not sent, by its number among those given."""
        self.failed += 1
        if isinstance(error, ProducerError):
            without_frames(error)
        else:  # of an encoder or a partitioner: where it was raised is of use, what was encoded is not
            clear_frames(error.__traceback__)
        if len(self.failures) < _MOST_NAMED:
            self.failures.append((number, error))
        if self._first_failure is None or number < self._first_failure[0]:
            self._first_failure = number, error

    def summary(self) -> SendSummary:
        """Return what became of the messages so far; the first failure by number is among those that are named."""
        failures = sorted(self.failures, key=itemgetter(0))
        if self._first_failure is not None and self._first_failure[0] < failures[0][0]:
            failures = [self._first_failure, *failures[: _MOST_NAMED - 1]]
        return SendSummary(self.sent, self.failed, tuple(failures))
