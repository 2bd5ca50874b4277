"""The coordinator of all transactions of an embedded cluster: keeps their states in a log, and writes their markers.

It is on the broker that leads `__transaction_state`. Markers are written before EndTxn is answered, so the next
transaction need not wait as for a real broker. Where a partition has no leader they follow when it has one.

Source: kafka.coordinator.transaction.TransactionCoordinator, TransactionStateManager (2.8).

Reads the states of transactions from the log that their coordinator writes, and goes on where it ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Protocol

from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.cluster_image import Cluster
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.log import BatchLog, records_from
from zkconsumer.testing.embedded.kafka011.transaction_state import (
    Transaction,
    TransactionState,
    decode_transaction,
    encode_transaction,
)
from zkconsumer.testing.embedded.offsets import TRANSACTIONS_TOPIC
from zkconsumer.testing.embedded.protocol import TopicPartition
from zkconsumer_error import ErrorCode


class StateReader:
    """One reader of one log.

    Threads: one at a time.
    """

    def __init__(self, log: BatchLog) -> None:
        """Begin at the start of a log."""
        self.log = log
        self._offset = log.start_offset
        self._known: dict[str, Transaction] = {}

    def read(self) -> dict[str, Transaction]:
        """Return the transactional ids, each as it was last.

        Raises:
            Refusal: 6 the log was closed.
        """
        for message in records_from(self.log, TRANSACTIONS_TOPIC, self._offset):
            self._offset = message.next_offset
            found = decode_transaction(bytes(message.key or b""), bytes(message.value or b""))
            if found is not None:
                self._known[found[0]] = found[1]
        return dict(self._known)


_log = logging.getLogger(__name__)


class CoordinatingHost(Protocol):
    """The interface of a broker to its coordinator."""

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""

    @property
    def stopping(self) -> threading.Event:
        """Set when the broker ends."""

    def log(self, topic: str, partition: int) -> BatchLog:
        """The log of a partition that is led here; Refusal 3 or 6 otherwise."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TransactionCoordinator:
    """The transactions of one broker, as long as it leads their topic.

    Threads: every method from any thread. One of its own ends what is too late, and writes markers that are due.
    """

    def __init__(self, host: CoordinatingHost, *, max_timeout_ms: int, check_interval_ms: int) -> None:
        """Coordinate nothing yet.

        Args:
            max_timeout_ms: longest time for which a producer may keep a transaction open.
            check_interval_ms: how often transactions that are open for too long are looked for.
        """
        self._host = host
        self._max_timeout_ms = max_timeout_ms
        self._check_interval_s = check_interval_ms / 1000
        self._lock = threading.RLock()
        self._states: BatchLog | None = None
        self._known: dict[str, Transaction] = {}
        self._reader: StateReader | None = None

    # ---- requests

    def start(self, name: str, timeout_ms: int, expected: ProducerId) -> ProducerId:
        """Return id and epoch for a producer, which fence those before it.

        Raises:
            Refusal: 16 another broker coordinates, 42 an empty name, 50 a time-out that is not allowed; 51 and 90 as
                for `Transaction.started`, and 51 while an open transaction is aborted.
        """
        with self._lock:
            self._coordinate(name)
            if not 0 < timeout_ms <= self._max_timeout_ms:
                raise Refusal(
                    ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"time-out {timeout_ms} ms, at most {self._max_timeout_ms}"
                )
            known = self._known.get(name) or Transaction(self._host.cluster.next_producer_id())
            started = known.started(expected, timeout_ms, self._host.cluster.next_producer_id)
            self._store(name, started)
            if started.is_prepared:
                self._write_markers(name)
                raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {known.producer} is aborted")
            return started.producer

    def add(self, name: str, producer: ProducerId, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction of a producer.

        Raises:
            Refusal: 16 and 42 as for `start`, 49 the name is unknown; and what `Transaction.with_partitions` has.
        """
        with self._lock:
            known = self._find(name)
            added = known.with_partitions(producer, partitions, _now_ms())
            if added is not known:
                self._store(name, added)

    def end(self, name: str, producer: ProducerId, *, commit: bool) -> None:
        """End the transaction of a producer.

        Raises:
            Refusal: 16 and 42 as for `start`, 49 the name is unknown; and what `Transaction.ended` has.
        """
        with self._lock:
            known = self._find(name)
            ended = known.ended(producer, commit=commit)
            if ended is not known:
                self._store(name, ended)
                self._write_markers(name)

    def state(self, name: str) -> Transaction | None:
        """Return where a transactional id is; None if it is not known.

        Raises:
            Refusal: 16 another broker coordinates, 42 an empty name.
        """
        with self._lock:
            self._coordinate(name)
            return self._known.get(name)

    def require_added(self, name: str, producer: ProducerId, where: TopicPartition) -> None:
        """Return if a partition was added to the open transaction of a producer, whoever coordinates it.

        Raises:
            Refusal: 48 it was not, 90 another producer has the name.
        """
        known = self._read_states().get(name)
        if known is not None and known.producer_id == producer.producer_id and known.epoch > producer.epoch:
            raise Refusal(ErrorCode.PRODUCER_FENCED, f"{producer} is not {known.producer}")
        is_open = known is not None and known.state is TransactionState.ONGOING
        if known is None or not is_open or known.producer != producer or where not in known.partitions:
            raise Refusal(ErrorCode.INVALID_TXN_STATE, f"{where} was not added to a transaction of {producer}")

    def _read_states(self) -> dict[str, Transaction]:
        """The transactions that the coordinator has written, here or on another broker."""
        try:
            states = self._host.cluster.leading_log(TRANSACTIONS_TOPIC, 0)
            assert isinstance(states, BatchLog)
            with self._lock:
                if self._reader is None or self._reader.log is not states:
                    self._reader = StateReader(states)
                return self._reader.read()
        except Refusal:
            return {}

    # ---- states

    def _find(self, name: str) -> Transaction:
        self._coordinate(name)
        known = self._known.get(name)
        if known is None:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name} is unknown")
        return known

    def _coordinate(self, name: str) -> None:
        """Be the coordinator, with what the log says, or raise Refusal 16."""
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "an empty transactional id")
        try:
            states = self._host.log(TRANSACTIONS_TOPIC, 0)
        except Refusal as refusal:
            raise Refusal(ErrorCode.NOT_COORDINATOR, f"{TRANSACTIONS_TOPIC}/0 is not led here") from refusal
        if self._states is not states:
            self._known = StateReader(states).read()
            self._states = states
            threading.Thread(target=self._keep, args=(states,), name="transaction keeper", daemon=True).start()

    def _store(self, name: str, transaction: Transaction) -> None:
        assert self._states is not None
        now_ms = _now_ms()
        record = encode_transaction(name, transaction, now_ms)
        self._states.append_batch(encode_record_batch([record], timestamp_ms=now_ms))
        self._known[name] = transaction

    # ---- what is due

    def _keep(self, states: BatchLog) -> None:
        """End what is too late, until the broker ends or another one coordinates."""
        while True:
            try:
                with self._lock:
                    if self._states is not states or self._host.log(TRANSACTIONS_TOPIC, 0) is not states:
                        return
                    self._do_what_is_due()
            except Refusal as refusal:
                _log.info("transactions are coordinated elsewhere: %s", refusal)
                return
            if self._host.stopping.wait(self._check_interval_s):
                return

    def _do_what_is_due(self) -> None:
        now_ms = _now_ms()
        for name, transaction in list(self._known.items()):
            if transaction.is_late(now_ms):
                self._store(name, transaction.fenced())
            if self._known[name].is_prepared:
                self._write_markers(name)

    def _write_markers(self, name: str) -> None:
        """Write the markers of a prepared transaction where its partitions have leaders."""
        transaction = self._known[name]
        marked = [where for where in sorted(transaction.partitions) if self._mark(transaction, where)]
        after = transaction.without(marked)
        if after != transaction:
            self._store(name, after)

    def _mark(self, transaction: Transaction, where: TopicPartition) -> bool:
        """Return whether a partition has its marker, or is gone."""
        cluster = self._host.cluster
        if where[1] not in cluster.image.topics.get(where[0], {}):
            return True
        try:
            log = cluster.leading_log(*where)
            assert isinstance(log, BatchLog)
            log.append_marker(transaction.producer_id, commit=transaction.is_commit, producer_epoch=transaction.epoch)
        except Refusal as refusal:
            _log.info("a marker for %s/%d waits: %s", *where, refusal)
            return False
        return True
