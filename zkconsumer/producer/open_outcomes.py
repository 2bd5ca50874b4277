"""OpenOutcomes: the outcomes of one producer that have not come yet, and what sets them.

Threads: any. The lock is the delivery's. Callbacks of the application run without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from simpleconsumer.errors import BrokerError
from simpleconsumer.types import TopicPartition
from zkconsumer.producer.counters import Counters
from zkconsumer.producer.effects import Effect, Finished
from zkconsumer.producer.outcome import BatchOutcome
from zkconsumer.producer.transactions import Transactions

__all__ = ["OpenOutcomes"]


class OpenOutcomes:
    """What a producer owes its callers.

    Args:
        owner: Marks the threads that bring the outcomes; see `outcome.running`.
        lock: Guards it.
        counters: Count what is finished.
        codec_of: Topic -> codec.
        transactions: Those that messages belong to; None for none.
    """

    def __init__(
        self,
        owner: object,
        lock: threading.Lock,
        counters: Counters,
        codec_of: Callable[[str], str],
        transactions: Transactions | None,
    ) -> None:
        self._owner = owner
        self._lock = lock
        self._counters = counters
        self._codec_of = codec_of
        self._transactions = transactions
        self._open: dict[BatchOutcome, None] = {}

    def new(self, name: TopicPartition) -> BatchOutcome:
        """Return the outcome of a new batch. The lock is held."""
        outcome = BatchOutcome(*name, self._owner)
        self._open[outcome] = None
        return outcome

    def all(self) -> list[BatchOutcome]:
        """Return those that have not come."""
        with self._lock:
            return list(self._open)

    def count(self, effects: Sequence[Effect]) -> None:
        """Count what is finished, and make outcomes for halves. The lock is held."""
        for effect in effects:
            if isinstance(effect, Finished):
                self._counters.finished(effect.batch, effect.error is None)
                if effect.error is not None and self._transactions is not None:
                    self._transactions.message_failed(effect.error)
            else:
                self._counters.split_batches += 1
                for half in effect.halves:
                    half.outcome = self.new(half.name)
                self._open.pop(effect.batch.outcome, None)

    def finish(self, effects: Sequence[Effect]) -> list[Callable[[], None]]:
        """Set the outcomes of effects that were counted; return the callbacks to run."""
        callbacks: list[Callable[[], None]] = []
        for effect in effects:
            outcome = effect.batch.outcome
            if outcome is None:
                continue  # an interrupt ended the call that added its only message, and nobody has a future of it
            if isinstance(effect, Finished):
                self._explain(effect)
                callbacks += outcome.finish(effect.batch.name.partition, effect.offset, effect.error)
                with self._lock:
                    self._open.pop(outcome, None)
            else:
                first, second = effect.halves
                outcome.split(len(first.pairs), first.outcome, second.outcome)
        return callbacks

    def _explain(self, effect: Finished) -> None:
        """Say what to do about an error that brokers have no code for."""
        cause = None if effect.error is None else effect.error.__cause__
        is_unknown = isinstance(cause, BrokerError) and cause.code == -1
        if effect.error is not None and is_unknown and self._codec_of(effect.batch.name.topic) == "lz4":
            effect.error.remedy = "brokers before Kafka 0.8.2 have no lz4: set compression.codec to gzip or snappy"
