"""Reads the states of transactions from the log that their coordinator writes, and goes on where it ended."""

from __future__ import annotations

from zkconsumer.testing.embedded.internal_topics import TRANSACTIONS_TOPIC
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka011.log_records import records_from
from zkconsumer.testing.embedded.kafka011.transactions.transaction_records import decode_transaction
from zkconsumer.testing.embedded.kafka011.transactions.transaction_state import Transaction


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
