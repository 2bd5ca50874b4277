"""Transactions: messages of several partitions that readers with `read_committed` get together, or not at all.

    NEW --init--> READY --begin--> OPEN --commit--> WAITING --its messages are acknowledged--> COMMITTING --> READY
    COMMITTING --no answer in time--> COMMITTING: the outcome is not known before another commit
    OPEN, WAITING --a message failed or was refused, or a partition could not be added--> FAILED
    OPEN, FAILED --abort--> ABORTING --> READY, with a new epoch if requests of the last one may be on their way
    ABORTING --no answer in time--> ABORTING: abort again
    ABORTING --numbers are lost, and the broker is older than Kafka 2.5--> SPENT, which is final
    any --another producer with the id has started, or the time is over--> FENCED, which is final

A new epoch is asked for under the id and epoch of before (KIP-360), so that a producer that has been replaced gets
none. Yet a coordinator with an open transaction aborts that one, and fences its producer, before it compares epochs
(2.5 to 4.3). So it is asked first to abort under the epoch of before: it refuses that if another producer has the name,
and else nothing changes. Brokers before Kafka 2.5 give an epoch to whoever asks: only the first `init` asks them.

Threads: any may send; one at a time calls init, begin, commit and abort. The coordinator is asked one thing at a time,
under `_asking`; under `_lock` nobody waits. A partition is added, and a message is taken, while the transaction is OPEN
alone: what comes later would be in no transaction.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9), KIP-98, KIP-360.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, VersionNotServed
from simpleconsumer.producer_batches import NO_ID, ProducerId
from simpleconsumer.throttling import HELD_S
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.errors import ProducerError, ProducerFenced, TransactionFailed
from zkconsumer.producer.sending.produce_codes import FENCED
from zkconsumer.producer.transactions.coordinator import Asked, Coordinator, FencedFirst
from zkconsumer_error import ErrorCode

__all__ = ["TransactionState", "Transactions"]

T = TypeVar("T")



class TransactionState(enum.Enum):
    """Where a transactional producer is."""

    NEW = "init_transactions() was not called"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    WAITING = "the transaction is being committed"
    COMMITTING = "the outcome of its commit is not known: commit again"
    FAILED = "a message of the transaction failed: abort it"
    ABORTING = "its abort has begun: abort again"
    SPENT = ("it is not known whether its last messages are stored, and brokers before Kafka 2.5 cannot give this "
             "producer a new epoch without fencing a later producer: close it, and create another producer")
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

    def has_lost_numbers(self) -> bool:
        """Return whether it is not known which number a broker expects, so that a new epoch is needed."""


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
        self._producer = NO_ID
        self._enlisted: set[TopicPartition] = set()
        self._is_begun = False  # for the coordinator: it may know a partition
        self._is_unsure = False  # an end was asked for, and its answer did not come
        self._needs_epoch = False  # a request of the last one may still come to the coordinator
        self._is_renewing = False  # a new epoch was asked for, and the answer did not come
        self._failure: BaseException | None = None  # the first one of the transaction

    def init(self, sends: Sends, timeout_s: float) -> None:
        """Get an id and an epoch, which ends what producers of the same name had begun, and fences them.

        A producer that has them gets its next epoch, if it is still the one of its name.
        """
        self._check(TransactionState.NEW, TransactionState.READY)
        deadline = time.monotonic() + timeout_s
        if self.state is TransactionState.NEW:
            self._start(sends, NO_ID, deadline)
        else:
            with self._lock:  # without an answer the epoch is not known, as in an abort
                self.state, self._needs_epoch = TransactionState.ABORTING, True
            self._renew(sends, deadline)

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
                [code] = self._coordinator.ask(request, lambda codes: codes[0], deadline, throttle_s=HELD_S).answer
                if code:
                    raise self._refusal(code)
            except BaseException as error:  # an interrupt, too: the coordinator may add it later
                with self._lock:
                    self._needs_epoch = True
                self._fail(error)
                raise
            with self._lock:
                self._enlisted.add(name)

    def message_failed(self, error: ProducerError) -> None:
        """Take over that a message of the open transaction failed."""
        cause = error.__cause__
        if isinstance(cause, BrokerError) and cause.code in FENCED:
            with self._lock:
                self.state = TransactionState.FENCED
        else:
            self._fail(error)

    def message_refused(self, error: BaseException) -> None:
        """Take over that a message was not taken that belongs to the open transaction, if there is one."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Have the transaction aborted, and its further calls name what failed first."""
        with self._lock:
            if self.state in (TransactionState.OPEN, TransactionState.WAITING):
                self.state = TransactionState.FAILED
                self._failure = error

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
            said = f"{error.reason}; whether it is committed is not known: commit again"
            raise TransactionFailed(self.id, said, True) from error
        if not code:
            self._change(TransactionState.COMMITTING, TransactionState.READY)
            return
        refusal = self._refusal(code)
        # No coordinator says InvalidTxnState of a transaction that was committed.
        if self._is_unsure and code != ErrorCode.INVALID_TXN_STATE:
            said = f"{refusal.reason}; whether it was committed before is not known"
            raise type(refusal)(self.id, said, True) from refusal
        with self._lock:
            if self.state is TransactionState.COMMITTING:
                self.state, self._failure, self._needs_epoch = TransactionState.FAILED, refusal, True
        raise refusal

    def abort(self, sends: Sends, timeout_s: float) -> None:
        """Fail what waits, and have nothing of the transaction read."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._check(TransactionState.OPEN, TransactionState.FAILED, TransactionState.ABORTING)
            self.state = TransactionState.ABORTING
        sends.abandon("the transaction was aborted")
        if not sends.flush(timeout_s):
            raise self._unfinished(timeout_s)
        self._check(TransactionState.ABORTING)
        code = self._ask_to_end(False, deadline)
        if code and code != ErrorCode.INVALID_TXN_STATE:  # that is: no partition has come to the coordinator
            raise self._refusal(code)
        with self._lock:
            self._is_begun = False
            self._enlisted.clear()
        if self._needs_epoch or sends.has_lost_numbers():
            self._renew(sends, deadline)
        else:
            self._get_ready()

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def _start(self, sends: Sends, before: ProducerId, deadline: float) -> None:
        """Get an id and an epoch: any with `NO_ID`, else the ones after those."""
        with self._turn(deadline):
            code, producer = self._ask_for_epoch(before, deadline)
        if code:
            raise self._refusal(code)
        sends.start_numbers(producer)
        with self._lock:
            self._producer = producer
            self._enlisted.clear()
        self._get_ready()

    def _ask_for_epoch(self, before: ProducerId, deadline: float) -> tuple[int, ProducerId]:
        """Return error code, and id and epoch.

        Whether another producer has the name is asked first, unless a new epoch was asked for before, and the answer
        did not come: the one of before may then have been replaced by this producer's own.
        """
        is_sure = before != NO_ID and not self._is_renewing
        request = KAFKA011.producer_id(self.id, self._timeout_ms, before)
        first = KAFKA011.end_transaction(self.id, before, commit=False) if is_sure else None
        was_renewing, self._is_renewing = self._is_renewing, True  # an interrupt leaves it so
        try:
            answer = self._coordinator.ask(request, lambda answer: answer[0], deadline, first).answer
        except FencedFirst as error:
            return error.code, NO_ID
        except TransactionFailed as error:
            self._is_renewing = was_renewing or error.outcome_is_unknown
            raise
        self._is_renewing = False
        return answer

    def _renew(self, sends: Sends, deadline: float) -> None:
        """Get the next epoch; go on with the one of now where brokers are too old, and all numbers are known."""
        try:
            self._start(sends, self._producer, deadline)
        except TransactionFailed as error:
            if not isinstance(error.__cause__, VersionNotServed):
                raise
            if sends.has_lost_numbers():
                with self._lock:
                    self.state = TransactionState.SPENT
                raise TransactionFailed(self.id, self.state.value) from error
            self._get_ready()

    def _get_ready(self) -> None:
        with self._lock:
            self._is_begun = self._is_unsure = self._needs_epoch = False
            self._failure = None
            if self.state is not TransactionState.FENCED:
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
            raise TransactionFailed(self.id, "another request to its coordinator is always in flight")
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
        return TransactionFailed(self.id, f"some messages have no outcome after {timeout_s:g} s")

    def _change(self, from_state: TransactionState, to_state: TransactionState) -> None:
        with self._lock:
            if self.state is from_state:
                self.state = to_state

    def _check(self, *allowed: TransactionState) -> None:
        if self.state is TransactionState.FENCED:
            raise ProducerFenced(self.id, self.state.value)
        if self.state not in allowed:
            reason = self.state.value
            if self.state is TransactionState.FAILED:
                reason = f"{reason} ({self._failure})"
            failed = TransactionFailed(self.id, reason, self.state is TransactionState.COMMITTING)
            raise failed from (self._failure if self.state is TransactionState.FAILED else None)
