"""Writes transactions of every outcome to a topic while brokers fail, and knows what became of each message."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Producer

from zkconsumer.testing.waiting import Deadline, wait_until

PATIENCE_S = 120.0
_CALL_S = 10.0
_PAUSE_S = 0.02


class TransactionLoad:
    """Three producers of librdkafka, on threads of their own, from `with` until `stop()`.

    One writes short transactions, and aborts every third. One writes a transaction that stays open for as long as it is
    `held()`. One writes outside of transactions. Values are `writer number`; the numbers of a writer rise in each
    partition.

    Attributes:
        kept: values of messages that are outside of transactions, or in committed ones.
        aborted: values of those in aborted ones.
        unsure: values of aborted ones that librdkafka gave up: they may be in the log.
    """

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        self.kept: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self._brokers, self._topic, self._partitions = brokers, topic, partitions
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._open: list[bytes] = []
        self._is_wanted = threading.Event()
        self._commits = itertools.cycle([True, False])
        writers = (self._write_short, self._write_long, self._write_plain)
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in writers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def stop(self) -> None:
        """End all transactions; returns when no writer runs, and raises what one of them has failed with."""
        self.__exit__()
        assert not self._failures, self._failures
        assert not any(thread.is_alive() for thread in self._threads)
        self.aborted -= self.unsure
        assert not self.kept & self.unsure, self.unsure

    @contextmanager
    def held(self) -> Iterator[list[bytes]]:
        """Keep one transaction open meanwhile; its values so far. The first one is committed, the next one aborted."""
        self._is_wanted.set()
        self.wait(lambda: len(self._open) > 10, "a transaction to be open")
        try:
            yield self._open
        finally:
            self._is_wanted.clear()
        self.wait(lambda: not self._open, "the transaction to end")

    def grow(self, count: int) -> None:
        """Return when so many more messages are kept."""
        wanted = len(self.kept) + count
        self.wait(lambda: len(self.kept) >= wanted, f"{count} more messages")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Return when a condition holds; AssertionError if a writer has failed."""
        wait_until(lambda: condition() or self._failures, PATIENCE_S, what)
        assert not self._failures, self._failures

    # ---- the writers

    def _run(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001 - top of the thread: `stop` raises it
            self._failures.append(error)

    def _write_short(self) -> None:
        producer = self._transactional("short")
        for number in itertools.count():
            if self._over.is_set():
                return
            producer.begin_transaction()
            values = [self._send(producer, b"short", number * 10 + each) for each in range(10)]
            self._settle(values, finish(producer, commit=number % 3 != 2))
            self._over.wait(_PAUSE_S)

    def _write_long(self) -> None:
        producer = self._transactional("long")
        numbers = itertools.count()
        while not self._over.is_set():
            if not self._is_wanted.wait(_PAUSE_S):
                continue
            producer.begin_transaction()
            values: list[bytes] = []
            self._open = values
            while self._is_wanted.is_set() and not self._over.is_set():
                values.append(self._send(producer, b"long", next(numbers)))
                time.sleep(_PAUSE_S)
            self._settle(values, finish(producer, commit=next(self._commits)))
            self._open = []

    def _write_plain(self) -> None:
        producer = Producer(self._settings(**{"enable.idempotence": True}))
        for number in itertools.count():
            if self._over.is_set():
                break
            self.kept.add(self._send(producer, b"plain", number))
            time.sleep(_PAUSE_S)
        assert producer.flush(PATIENCE_S) == 0

    def _transactional(self, name: str) -> Producer:
        """A producer whose transactions outlive what happens to brokers."""
        settings = {"transactional.id": f"{self._topic}-{name}", "transaction.timeout.ms": 600_000}
        producer = Producer(self._settings(**settings))
        producer.init_transactions(PATIENCE_S)
        return producer

    def _settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self._brokers, "acks": "all", "linger.ms": 5, "log_level": 0, **more}

    def _send(self, producer: Producer, writer: bytes, number: int) -> bytes:
        value = b"%s %d" % (writer, number)

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                self.unsure.add(value)

        try:
            producer.produce(
                self._topic, value, partition=number % self._partitions, headers=[("n", b"%d" % number)],
                on_delivery=delivered,
            )  # fmt: skip
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError._STATE:
                raise
            self.unsure.add(value)  # the transaction has failed already, and can only be aborted
        producer.poll(0)
        return value

    def _settle(self, values: list[bytes], is_committed: bool) -> None:
        (self.kept if is_committed else self.aborted).update(values)


def finish(producer: Producer, *, commit: bool) -> bool:
    """End a transaction, however long its coordinator is away; return whether it was committed.

    Raises:
        KafkaException: librdkafka has given up.
    """
    deadline = Deadline(PATIENCE_S)
    producer.flush(PATIENCE_S)  # an abort drops what was not written yet
    while True:
        try:
            (producer.commit_transaction if commit else producer.abort_transaction)(_CALL_S)
            return commit
        except KafkaException as raised:
            error = raised.args[0]
            if error.txn_requires_abort():
                commit = False
            elif not error.retriable() or deadline.expired:
                raise
