"""Where batches go behind a callback handler: to the brokers, or to an event handler of the application."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from zkconsumer.producer.batching.counters import Counters
from zkconsumer.producer.batching.outcome import BatchOutcome, SentMessage
from zkconsumer.producer.errors import MessageNotSent, ProducerClosed, ProducerError
from zkconsumer.producer.messages.handlers import EventHandler, QueueItem, as_event_handler
from zkconsumer.producer.messages.placing import Placer
from zkconsumer.producer.sending.delivery import Delivery
from zkconsumer.producer.statistics import ProducerStatistics
from zkconsumer_error import shown

__all__ = ["BrokerDispatch", "EventDispatch"]

Report = Callable[[QueueItem, SentMessage | ProducerError], None]
"""Is called with the outcome of a message, sooner or later, in any thread."""


class BrokerDispatch:
    """Encodes messages, chooses their partitions, and gives them to the delivery, which sends them at once.

    Args:
        placer: Encodes and chooses partitions.
        delivery: Takes the messages.

    Attributes:
        owner: Marks the threads of the producer; see `outcome.running`.
    """

    def __init__(self, placer: Placer, delivery: Delivery) -> None:
        self.owner = delivery.owner
        self._placer = placer
        self._delivery = delivery

    def dispatch(self, items: Sequence[QueueItem], report: Report) -> None:
        """Take a batch; the brokers' answers are its outcomes."""
        for item in items:
            try:
                placed = self._placer.place(
                    item.topic, item.data, item.key, item.partition, item.part_key, item.headers
                )
                outcome, index = self._delivery.add(*placed, wait_s=None)
            except MessageNotSent as error:
                self._delivery.refused(error)
                report(item, error)
            except ProducerClosed as error:
                report(item, MessageNotSent(item.topic, item.partition, str(error)))
            except BaseException as error:  # noqa: BLE001  (an encoder or partitioner of the application raised it)
                report(item, MessageNotSent(item.topic, item.partition, f"it cannot be sent: {shown(error)}"))
            else:
                outcome.when_done(partial(_report, report, item, outcome, index))
        self._delivery.close_batches()

    def statistics(self) -> ProducerStatistics:
        """Return what was counted so far."""
        return self._delivery.statistics()

    def close(self, timeout_s: float | None) -> None:
        """Send what waits, for so long; what is left has failed."""
        self._delivery.close(timeout_s)


def _report(report: Report, item: QueueItem, outcome: BatchOutcome, index: int) -> None:
    report(item, outcome.of_message(index))


class EventDispatch:
    """Gives batches to an event handler.

    Args:
        handler: The event handler.
        client_id: For the statistics.
    """

    def __init__(self, handler: EventHandler, client_id: str) -> None:
        self.owner = object()
        self._handler = as_event_handler(handler)
        self._client_id = client_id
        self._started_at = time.monotonic()
        self._counters = Counters()

    def dispatch(self, items: Sequence[QueueItem], report: Report) -> None:
        """Take a batch; what the handler raises is the outcome of all its messages."""
        try:
            self._handler.handle([item.message() for item in items])
        except BaseException:
            for item in items:
                self._counters.refused(item.topic)
            raise
        for item in items:
            self._counters.taken(item.topic)
            report(item, SentMessage(item.topic, -1 if item.partition is None else item.partition, None))

    def statistics(self) -> ProducerStatistics:
        """Return what was counted so far; sizes are not known."""
        uptime_s = time.monotonic() - self._started_at
        return ProducerStatistics(self._client_id, uptime_s, 0, 0, self._counters.topics())

    def close(self, timeout_s: float | None) -> None:
        """Close the handler."""
        if hasattr(self._handler, "close"):
            self._handler.close()
