"""Transactions: messages of several partitions that readers with `read_committed` get together, or not at all.

    NEW --init--> READY --begin--> OPEN --commit--> WAITING --its messages are acknowledged--> COMMITTING --> READY
    COMMITTING --no answer in time--> COMMITTING: the outcome is not known before another commit
    OPEN, WAITING --a message failed, or a partition could not be added--> FAILED
    OPEN, FAILED --abort--> ABORTING --> READY, behind a failure with a new epoch
    ABORTING --no answer in time--> ABORTING: abort again
    any --another producer with the id has started, or the time is over--> FENCED, which is final

Threads: any may send; one at a time calls init, begin, commit and abort. The coordinator is asked one thing at a time,
under `_asking`; under `_lock` nobody waits. A partition is added, and a message is taken, while the transaction is OPEN
alone: what comes later would be in no transaction.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9), KIP-98.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError
from simpleconsumer.producer_batches import ProducerId
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.coordinator import Asked, Coordinator
from zkconsumer.producer.errors import ProducerError, ProducerFenced, TransactionFailed
from zkconsumer.producer.numbering import FENCED

__all__ = ["TransactionState", "Transactions"]

T = TypeVar("T")

_INVALID_STATE: Final = 48
"""To the end of a transaction: none is open, or it has ended in the other way."""


class TransactionState(enum.Enum):
    """Where a transactional producer is."""

    NEW = "init_transactions() was not called"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    WAITING = "the transaction is being committed"
    COMMITTING = "the outcome of its commit is not known: commit it again"
    FAILED = "a message of the transaction failed: abort it"
    ABORTING = "its abort has begun: abort it again"
    FENCED = ("another producer with the same transactional.id has taken over, or a transaction was open for too long "
              "(transaction.timeout.ms)")


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
        self._asking = threading.Lock()
        self._lock = threading.Lock()  # of what follows
        self._producer = ProducerId(-1, -1)
        self._enlisted: set[TopicPartition] = set()
        self._is_begun = False  # for the coordinator: it may know a partition
        self._is_unsure = False  # an end was asked for, and its answer did not come
        self._needs_epoch = False  # which numbers brokers expect is not known

    def init(self, sends: Sends, timeout_s: float) -> None:
        """Get an id and an epoch, which ends what producers of the same name had begun, and fences them."""
        self._check(TransactionState.NEW, TransactionState.READY)
        self._start(sends, time.monotonic() + timeout_s)

    def begin(self) -> None:
        """Open a transaction; nothing is asked."""
        with self._lock:
            self._check(TransactionState.READY)
            self.state = TransactionState.OPEN

    def check_open(self) -> None:
        """Return if messages belong to a transaction now.

        Raises:
            TransactionFailed: They do not.
        """
        self._check(TransactionState.OPEN)

    def enlist(self, name: TopicPartition, timeout_s: float) -> None:
        """Add a partition to the open transaction, before the first message for it is taken."""
        with self._lock:
            self._check(TransactionState.OPEN)
            if name in self._enlisted:
                return
        deadline = time.monotonic() + timeout_s
        with self._turn(deadline):
            with self._lock:
                self._check(TransactionState.OPEN)
                if name in self._enlisted:  # by another thread
                    return
                self._is_begun = True
                request = KAFKA011.add_to_transaction(self.id, self._producer, [name])
            try:
                [code] = self._coordinator.ask(request, lambda codes: codes[0], deadline).answer
                if code:
                    raise self._refusal(code)
            except BaseException:  # an interrupt, too: the coordinator may add it later
                self._change(TransactionState.OPEN, TransactionState.FAILED)
                raise
            with self._lock:
                self._enlisted.add(name)

    def message_failed(self, error: ProducerError) -> None:
        """Take over that a message of the open transaction failed."""
        cause = error.__cause__
        with self._lock:
            if isinstance(cause, BrokerError) and cause.code in FENCED:
                self.state = TransactionState.FENCED
            elif self.state in (TransactionState.OPEN, TransactionState.WAITING):
                self.state = TransactionState.FAILED
            elif self.state is TransactionState.ABORTING:
                self._needs_epoch = True

    def commit(self, sends: Sends, timeout_s: float) -> None:
        """Wait for all messages, and have the transaction read."""
        deadline = time.monotonic() + timeout_s
        if self.state is not TransactionState.COMMITTING:
            self._wait_for_messages(sends, timeout_s)
        self._commit(deadline)

    def _wait_for_messages(self, sends: Sends, timeout_s: float) -> None:
        with self._lock:
            self._check(TransactionState.OPEN)
            self.state = TransactionState.WAITING  # no message is taken any more
        is_flushed = False
        try:
            is_flushed = sends.flush(timeout_s)
        finally:
            if not is_flushed:
                self._change(TransactionState.WAITING, TransactionState.OPEN)
        if not is_flushed:
            raise self._unfinished(timeout_s)
        with self._lock:
            self._check(TransactionState.WAITING)
            self.state = TransactionState.COMMITTING

    def _commit(self, deadline: float) -> None:
        try:
            code = self._ask_to_end(True, deadline)
        except TransactionFailed as error:
            if not self._is_unsure:  # nothing was sent
                self._change(TransactionState.COMMITTING, TransactionState.OPEN)
                raise
            said = f"{error.reason}; whether it is committed is not known: commit it again"
            raise TransactionFailed(self.id, said, True) from error
        if not code:
            self._change(TransactionState.COMMITTING, TransactionState.READY)
            return
        refusal = self._refusal(code)
        if self._is_unsure and code != _INVALID_STATE:  # of a transaction that was committed, no coordinator says that
            said = f"{refusal.reason}; whether it was committed before is not known"
            raise type(refusal)(self.id, said, True) from refusal
        self._change(TransactionState.COMMITTING, TransactionState.FAILED)
        raise refusal

    def abort(self, sends: Sends, timeout_s: float) -> None:
        """Fail what waits, and have nothing of the transaction read."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._check(TransactionState.OPEN, TransactionState.FAILED, TransactionState.ABORTING)
            self._needs_epoch = self._needs_epoch or self.state is TransactionState.FAILED
            self.state = TransactionState.ABORTING
        sends.abandon("the transaction was aborted")
        if not sends.flush(timeout_s):
            raise self._unfinished(timeout_s)
        self._check(TransactionState.ABORTING)
        code = self._ask_to_end(False, deadline)
        if code and code != _INVALID_STATE:  # that is: no partition has come to the coordinator
            raise self._refusal(code)
        with self._lock:
            self._is_begun = False
        if self._needs_epoch:
            self._start(sends, deadline)
        else:
            self._change(TransactionState.ABORTING, TransactionState.READY)

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _start(self, sends: Sends, deadline: float) -> None:
        request = KAFKA011.producer_id(self.id, self._timeout_ms)
        with self._turn(deadline):
            code, producer = self._coordinator.ask(request, lambda answer: answer[0], deadline).answer
        if code:
            raise self._refusal(code)
        sends.start_numbers(producer)
        with self._lock:
            self._producer = producer
            self._enlisted.clear()
            self._is_begun = self._is_unsure = self._needs_epoch = False
            self.state = TransactionState.READY

    def _ask_to_end(self, is_commit: bool, deadline: float) -> int:
        """Return the error code of the end of the transaction, 0 for one of which the coordinator knows nothing."""
        if not self._is_begun:
            return 0
        request = KAFKA011.end_transaction(self.id, self._producer, commit=is_commit)
        with self._turn(deadline):
            asked = self._ask_once_more(request, lambda code: code, deadline)
        if not asked.answer:
            with self._lock:
                self._enlisted.clear()
                self._is_begun = self._is_unsure = False
        return asked.answer

    def _ask_once_more(self, request: AnyRequest[T], code_of: Callable[[T], int], deadline: float) -> Asked[T]:
        """Return an answer; `_is_unsure` says whether an earlier try may have been done."""
        before, self._is_unsure = self._is_unsure, True  # an interrupt leaves it so
        try:
            asked = self._coordinator.ask(request, code_of, deadline)
        except TransactionFailed as error:
            self._is_unsure = before or error.outcome_is_unknown
            raise
        self._is_unsure = before or asked.was_lost
        return asked

    @contextmanager
    def _turn(self, deadline: float) -> Iterator[None]:
        """Have the coordinator asked by this thread alone."""
        if not self._asking.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise TransactionFailed(self.id, "another request to its coordinator is under way all the time")
        try:
            yield
        finally:
            self._asking.release()

    def _refusal(self, code: int) -> TransactionFailed:
        """Return the error of an answer, and take it over if it is final."""
        reason = BrokerError(code, None, None)
        is_fenced = code in FENCED
        with self._lock:
            if is_fenced:
                self.state = TransactionState.FENCED
        error = (ProducerFenced if is_fenced else TransactionFailed)(self.id, str(reason))
        error.__cause__ = reason
        return error

    def _unfinished(self, timeout_s: float) -> TransactionFailed:
        return TransactionFailed(self.id, f"there are messages without an outcome after {timeout_s:g} s")

    def _change(self, from_state: TransactionState, to_state: TransactionState) -> None:
        with self._lock:
            if self.state is from_state:
                self.state = to_state

    def _check(self, *allowed: TransactionState) -> None:
        if self.state is TransactionState.FENCED:
            raise ProducerFenced(self.id, self.state.value)
        if self.state not in allowed:
            raise TransactionFailed(self.id, self.state.value, self.state is TransactionState.COMMITTING)
