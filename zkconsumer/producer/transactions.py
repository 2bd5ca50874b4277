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
alone: a later one would be in no transaction.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9), KIP-98, KIP-360.

Coordinator: asks the broker that coordinates the transactions of a producer, wherever it is.

One connection is kept for all requests, and closed when it fails or the coordinator moves. A coordinator that moves,
starts, or still ends the transaction before is asked again until the deadline. That does no harm: a new id replaces the
last one, and partitions that were added, or a transaction that was ended, are acknowledged once more.

Threads: one asks at a time; any may close.

Source: org.apache.kafka.clients.producer.internals.TransactionManager (3.9).
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, NO_ID, ProducerId
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import BrokerError, ConnectionFailed, SimpleConsumerError, Throttled, VersionNotServed
from simpleconsumer.throttling import HELD_S, Throttle
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.producer.errors import ProducerError, ProducerFenced, TransactionFailed, without_frames
from zkconsumer.producer.sending.produce_codes import FENCED
from zkconsumer_error import ErrorCode

T = TypeVar("T")
_MOVED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_AGAIN: Final = (*_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_BACKOFF: Final = Backoff(0.05, 1.0)
_SHORTEST_TRY_S: Final = 0.05


class Asked(NamedTuple, Generic[T]):
    """The answer of a coordinator.

    Attributes:
        answer: The answer.
        was_lost: An earlier try may have been done, too: its answer was lost.
    """

    answer: T
    was_lost: bool


class _Tried(NamedTuple, Generic[T]):
    """The result of one try.

    Attributes:
        answers: The answer, or nothing.
        reason: Why there is none; None if there is one.
        throttled_s: How long the coordinator throttles the producer.
        may_be_done: The request may have succeeded: its answer was lost.
    """

    answers: tuple[T, ...]
    reason: SimpleConsumerError | None
    throttled_s: float = 0.0
    may_be_done: bool = False


class Coordinator:
    """The coordinator of one transactional id.

    Args:
        transactional_id: Names the producer.
        brokers: Returns some brokers of the cluster.
        connect: Returns a new connection to a broker.

    Attributes:
        on_throttle: Called with each answer that says that a broker throttles the producer.
    """

    def __init__(
        self,
        transactional_id: str,
        brokers: Callable[[], Sequence[Broker]],
        connect: Callable[[Broker], SimpleConsumer],
    ) -> None:
        self._id = transactional_id
        self._brokers = brokers
        self._connect = connect
        self.on_throttle: Callable[[Throttle], None] = lambda throttle: None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._connection: SimpleConsumer | None = None
        self._looking: SimpleConsumer | None = None

    def ask(
        self,
        request: AnyRequest[T],
        code_of: Callable[[T], int],
        deadline: float,
        first: AnyRequest[int] | None = None,
        *,
        throttle_s: float = 0.0,
    ) -> Asked[T]:
        """Return the answer to a request, which may have an error code that another try would not change.

        Args:
            request: Of the dialect of Kafka 0.11 and later.
            code_of: Returns the error code of an answer.
            deadline: In seconds of the monotonic clock.
            first: Is asked right before each try, as long as no try may have been done.
            throttle_s: How much later than the deadline it may be when the coordinator throttles the producer.

        Raises:
            TransactionFailed: No coordinator has answered in time. With `outcome_is_unknown` a request was sent, and
                what was asked may have happened. Its cause is VersionNotServed if the coordinator is too old for it.
            FencedFirst: The answer to `first` says that another producer has the transactional id.
            AuthenticationFailed: A broker or the client refuse each other.
        """
        was_lost, failures = False, 0
        while True:
            try:
                tried = self._try(request, code_of, deadline, None if was_lost else first)
            except VersionNotServed as error:
                without_frames(error)
                raise TransactionFailed(self._id, str(error), was_lost) from error
            if tried.reason is None:
                return Asked(tried.answers[0], was_lost)
            was_lost |= tried.may_be_done
            extra_s = min(tried.throttled_s, throttle_s)
            deadline, throttle_s = deadline + extra_s, throttle_s - extra_s
            pause_s = tried.throttled_s or _BACKOFF.wait_s(failures)
            failures += not tried.throttled_s
            if time.monotonic() + pause_s > deadline or self._closed.wait(pause_s):
                said = f"its coordinator does not answer in time: {tried.reason}"
                if self._closed.is_set():
                    said = "the producer is closed"
                raise TransactionFailed(self._id, said, was_lost) from tried.reason

    def _try(
        self, request: AnyRequest[T], code_of: Callable[[T], int], deadline: float, first: AnyRequest[int] | None
    ) -> _Tried[T]:
        """Ask once."""
        is_tried = False
        try:
            connection = self._connected(deadline)
            code = 0 if first is None else connection.ask(first)
            if code in FENCED:
                raise FencedFirst(code)
            if code not in _AGAIN:
                is_tried = True
                answer = connection.ask(request)
                code = code_of(answer)
                if code not in _AGAIN:
                    return _Tried((answer,), None)
        except _NotFound as error:
            return _Tried((), error.reason)
        except Throttled as error:  # nothing was sent, and another connection would be throttled, too
            return _Tried((), error, connection.throttled_s)
        except VersionNotServed:
            raise
        except SimpleConsumerError as error:
            without_frames(error)
            self._forget()
            is_sent = not isinstance(error, ConnectionFailed) or error.is_sent
            return _Tried((), error, may_be_done=is_tried and is_sent)
        if code in _MOVED:
            self._forget()
        return _Tried((), BrokerError(code, None, None))

    def close(self) -> None:
        """Close the connection, and end a request that is under way."""
        self._closed.set()
        with self._lock:
            for each in (self._connection, self._looking):
                if each is not None:
                    each.close()

    def _connected(self, deadline: float) -> SimpleConsumer:
        """Return the connection to the coordinator, which waits no longer than the deadline.

        Raises:
            _NotFound: No broker says which one it is.
        """
        connection = self._connection
        if connection is None:
            connection = self._opened(self._look_up(deadline))
            with self._lock:
                self._connection = connection
        self._limit(connection, deadline)
        return connection

    def _forget(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _look_up(self, deadline: float) -> Broker:
        """Ask the brokers one after the other, and return what the first one says that knows the coordinator."""
        reason: SimpleConsumerError = BrokerError(_MOVED[1], None, None)
        for broker in self._brokers():
            if time.monotonic() > deadline or self._closed.is_set():
                break
            connection = self._opened(broker)
            try:
                with self._lock:
                    self._looking = connection
                self._limit(connection, deadline)
                code, found = connection.ask(KAFKA011.coordinator(self._id, of_transactions=True))
            except SimpleConsumerError as error:
                without_frames(error)
                reason = error
                continue
            finally:
                with self._lock:
                    self._looking = None
                connection.close()
            if not code:
                return found
            reason = BrokerError(code, None, None)
        raise _NotFound(reason)

    def _opened(self, broker: Broker) -> SimpleConsumer:
        connection = self._connect(broker)
        connection.report_throttles(self.on_throttle)
        if self._closed.is_set():
            connection.close()
        return connection

    @staticmethod
    def _limit(connection: SimpleConsumer, deadline: float) -> None:
        left_s = max(deadline - time.monotonic(), _SHORTEST_TRY_S)
        connection.limit_calls(left_s)


class FencedFirst(Exception):  # noqa: N818 - says what happened
    """Another producer has the transactional id; nothing was asked but that.

    Attributes:
        code: The answer.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _NotFound(Exception):  # noqa: N818 - says what happened
    """No broker names the coordinator; nothing was asked of it."""

    def __init__(self, reason: SimpleConsumerError) -> None:
        super().__init__(reason)
        self.reason = reason


class TransactionState(enum.Enum):
    """Where a transactional producer is."""

    NEW = "init_transactions() was not called"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    WAITING = "the transaction is being committed"
    COMMITTING = "the outcome of its commit is not known: commit again"
    FAILED = "a message of the transaction failed: abort it"
    ABORTING = "its abort has begun: abort again"
    SPENT = (
        "it is not known whether its last messages are stored, and brokers before Kafka 2.5 cannot give this "
        "producer a new epoch without fencing a later producer: close it, and create another producer"
    )
    FENCED = (
        "another producer with the same transactional.id has taken over, or a transaction was open for too long "
        "(transaction.timeout.ms)"
    )


class Sends(Protocol):
    """The sender of the messages; `Delivery`."""

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
