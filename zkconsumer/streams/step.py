"""The step from one message of a stream to the next: what is done for each message.

The kernel has the same in compiled form (`simpleconsumer/kernel/step.pxi`). Whoever changes one changes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, Self

from simpleconsumer import kernel
from zkconsumer.fetching.partition_queue import InHand, PartitionQueue

__all__ = ["LeaseView", "PlainStep", "Step"]


class LeaseView(Protocol):
    """Until when messages may be handed over, on the clock of the stream."""

    @property
    def until(self) -> float: ...


class PlainStep:
    """The fast path of `KafkaStream`: a message out of the chunk that is open.

    Attributes:
        handed: The message or batch that the stream handed over last, which is in hand; None when nothing is.
        _reader: The thread that took the last message (`threading.get_ident`), or the asyncio task.
        _source: The messages of the chunk that is open; without one it is empty, which leads to the slow path.
        _queue: Where they came from.
        _decode: What decodes key and value of a message in place; None for nothing.
        _lease: Until when messages may be handed over.
        _clock: Seconds, the clock of the lease.
        _is_trouble: Returns whether an error is about the next message, and not an interrupt of the call.
        _interrupted: Makes sure that the next call decodes the message again which this call did not hand over.
        _next_slowly: Returns the next message, after waiting if need be.
    """

    handed: InHand | None
    _reader: object
    _source: Iterator[Any]
    _queue: PartitionQueue
    _decode: Callable[[Any], None] | None
    _lease: LeaseView
    _clock: Callable[[], float]
    _is_trouble: Callable[[BaseException], bool]
    _interrupted: Callable[[Any, BaseException], None]
    _next_slowly: Callable[[Any, Any, Any], Any]

    def __iter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __next__(self) -> Any:
        """Return the next message, and wait for it as long as `consumer.timeout.ms` allows."""
        message = trouble = None
        try:
            message = next(self._source)
            queue = self._queue
            queue.in_hand = message  # store, then check (zkconsumer.fetching.partition_queue)
            self._reader = get_ident()
            if self._decode is not None:
                self._decode(message)
            if queue.is_live and self._clock() < self._lease.until:
                self.handed = message
                return message
        except StopIteration:
            pass
        except BaseException as error:
            if not self._is_trouble(error):
                self._interrupted(message, error)
                raise
            trouble = error
        try:
            return self._next_slowly(message, trouble, None)
        finally:
            trouble = None  # its traceback holds this frame: a cycle for each error otherwise


if TYPE_CHECKING:
    Step = PlainStep
else:
    Step = PlainStep if kernel.compiled is None else kernel.compiled.Step
"""The compiled step where there is a kernel, else the one in Python."""
