"""Transactions: messages of several partitions that readers with `read_committed` get together, or not at all.

    NEW --init--> READY --begin--> OPEN --commit, abort--> READY
    OPEN --a message failed--> FAILED --abort, with a new epoch--> READY
    any --another producer with the id has started--> FENCED, which is final

Threads: any may send; one at a time calls init, begin, commit and abort. No lock is held while brokers are asked.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9), KIP-98.
"""

from __future__ import annotations

import enum
import threading
import time
from typing import Protocol

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import BrokerError
from simpleconsumer.producer_batches import ProducerId
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.coordinator import Coordinator
from zkconsumer.producer.errors import ProducerError, ProducerFenced, TransactionFailed
from zkconsumer.producer.numbering import FENCED

__all__ = ["TransactionState", "Transactions"]


class TransactionState(enum.Enum):
    """Where a transactional producer is."""

    NEW = "init_transactions() was not called"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    FAILED = "a message of the transaction failed: abort it"
    FENCED = "another producer with the same transactional.id has taken over"


class Sends(Protocol):
    """What sends the messages; `Delivery`."""

    def flush(self, timeout_s: float | None) -> bool:
        """Return whether everything that was taken before has its outcome within the time."""

    def abandon(self, reason: str) -> None:
        """Fail everything that waits."""

    def start_numbers(self, producer: ProducerId) -> None:
        """Number all batches from 0 under a new id."""


class Transactions:
    """The transactions of one producer.

    Args:
        transactional_id: Names the producer; of those with the same name, the last one that starts fences the others.
        timeout_ms: When the coordinator aborts a transaction that is not ended.
        coordinator: Is asked.

    Attributes:
        id: The transactional id.
        state: Where it is.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, coordinator: Coordinator) -> None:
        self.id = transactional_id
        self.state = TransactionState.NEW
        self._timeout_ms = timeout_ms
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._producer = ProducerId(-1, -1)
        self._enlisted: set[TopicPartition] = set()

    def init(self, sends: Sends, timeout_s: float) -> None:
        """Get an id and an epoch, which ends what producers of the same name had begun, and fences them."""
        self._check(TransactionState.NEW, TransactionState.READY)
        self._start(sends, time.monotonic() + timeout_s)

    def _start(self, sends: Sends, deadline: float) -> None:
        request = KAFKA011.producer_id(self.id, self._timeout_ms)
        code, producer = self._coordinator.ask(request, lambda answer: answer[0], deadline)
        self._raise(code)
        sends.start_numbers(producer)
        with self._lock:
            self._producer = producer
            self._enlisted.clear()
            self.state = TransactionState.READY

    def begin(self) -> None:
        """Open a transaction; nothing is asked."""
        with self._lock:
            self._check(TransactionState.READY)
            self.state = TransactionState.OPEN

    def enlist(self, name: TopicPartition, timeout_s: float) -> None:
        """Add a partition to the open transaction, before the first message for it is taken."""
        with self._lock:
            self._check(TransactionState.OPEN)
            if name in self._enlisted:
                return
            request = KAFKA011.add_to_transaction(self.id, self._producer, [name])
        [code] = self._coordinator.ask(request, lambda codes: codes[0], time.monotonic() + timeout_s)
        self._raise(code)
        with self._lock:
            self._enlisted.add(name)

    def message_failed(self, error: ProducerError) -> None:
        """Take over that a message of the open transaction failed."""
        cause = error.__cause__
        with self._lock:
            if isinstance(cause, BrokerError) and cause.code in FENCED:
                self.state = TransactionState.FENCED
            elif self.state is TransactionState.OPEN:
                self.state = TransactionState.FAILED

    def commit(self, sends: Sends, timeout_s: float) -> None:
        """Wait for all messages, and have the transaction read."""
        self._check(TransactionState.OPEN)
        deadline = time.monotonic() + timeout_s
        if not sends.flush(timeout_s):
            raise TransactionFailed(self.id, f"there are messages without an outcome after {timeout_s:g} s")
        self._check(TransactionState.OPEN)
        self._end(True, deadline)

    def abort(self, sends: Sends, timeout_s: float) -> None:
        """Fail what waits, and have nothing of the transaction read."""
        self._check(TransactionState.OPEN, TransactionState.FAILED)
        deadline = time.monotonic() + timeout_s
        sends.abandon("the transaction was aborted")
        if not sends.flush(timeout_s):
            raise TransactionFailed(self.id, f"there are messages without an outcome after {timeout_s:g} s")
        self._check(TransactionState.OPEN, TransactionState.FAILED)
        has_failed = self.state is TransactionState.FAILED
        self._end(False, deadline)
        if has_failed:  # which numbers brokers expect is not known
            self._start(sends, deadline)

    def _end(self, is_commit: bool, deadline: float) -> None:
        if self._enlisted:
            request = KAFKA011.end_transaction(self.id, self._producer, commit=is_commit)
            self._raise(self._coordinator.ask(request, lambda code: code, deadline))
        with self._lock:
            self._enlisted.clear()
            self.state = TransactionState.READY

    def _raise(self, code: int) -> None:
        if not code:
            return
        reason = BrokerError(code, None, None)
        if code in FENCED:
            self.state = TransactionState.FENCED
            raise ProducerFenced(self.id, str(reason)) from reason
        if self.state is TransactionState.OPEN:
            self.state = TransactionState.FAILED
        raise TransactionFailed(self.id, str(reason)) from reason

    def _check(self, *allowed: TransactionState) -> None:
        if self.state is TransactionState.FENCED:
            raise ProducerFenced(self.id, self.state.value)
        if self.state not in allowed:
            raise TransactionFailed(self.id, self.state.value)
