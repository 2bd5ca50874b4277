"""The streams that tasks iterate: messages one by one, or batches."""

from __future__ import annotations

from asyncio import current_task
from collections.abc import Coroutine, Sequence
from threading import get_ident
from typing import Any, Generic, Self, cast

from simpleconsumer.types import K, Message, V
from zkconsumer.aio.reading import Reading, calling_task
from zkconsumer.streams.batches import MessageBatch, StreamBatches

__all__ = ["AsyncKafkaStream", "AsyncStreamBatches"]


class AsyncKafkaStream(Generic[K, V]):
    """A stream of messages: `async for message in stream`.

    `AsyncConsumerConnector.create_message_streams` returns streams; applications do not create them. A message is done
    when its task asks for the next one. A message whose task is cancelled, or fails, before that is not done: the next
    task that reads the stream gets it again. The last message of a task that has returned is done when another
    task asks for the next one. If the same task catches the cancellation (`asyncio.timeout`) and goes on, its message
    is done; `handed` says what it was.

    "Its task" is the one that calls `anext(stream)`. With `create_task(anext(stream))` another task takes the message
    for it. The first one may never look at the result. So this message is done when the next one is asked for, and no
    clean end and no `commit_offsets()` counts it before that.

    The iteration ends for ever when the connector shuts down. `break` leaves it, and it can be continued. With
    `consumer.timeout.ms` of 0 or more, ConsumerTimeout is raised when no message came in time; iterate again.

    `AsyncKafkaStream[K, V]` yields `Message[K, V]`: K and V are what the decoders of keys and values return, `bytes`
    without decoders.

    Raises by `anext()`:
        ConsumerTimeout, MessageError, DecoderFailed, PartitionStopped, StreamFailed: As for `KafkaStream`.
        ConcurrentStreamUse: Another task waits for a message of this stream, or still works on one.
        ForeignEventLoop: The stream belongs to another event loop.

    Threads: that of its event loop; one task at a time.
    """

    # `owner` is kept alive: a connector that is collected leaves its group.
    def __init__(self, reading: Reading, owner: object) -> None:
        self._reading = reading
        self._owner = owner

    @property
    def thread_id(self) -> str:
        """Identity in the group, `<consumer id>-<number>`."""
        return self._reading.stream.thread_id

    @property
    def handed(self) -> Message[K, V] | MessageBatch | None:
        """The message or batch that the stream handed over last, which is in hand; None when nothing is."""
        return cast("Message[K, V] | MessageBatch | None", self._reading.stream.handed)

    def __repr__(self) -> str:
        return f"AsyncKafkaStream({self.thread_id!r})"

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message[K, V]]:
        """Return the next message, and wait for it as long as `consumer.timeout.ms` allows."""
        # The task that calls, and not the one in which the coroutine runs: `asyncio.wait_for` makes one in Python 3.11.
        # `current_task()` without a loop asks the operating system for the process at each call, to notice a fork. In
        # the thread of the loop, which runs one loop at a time, the task of this loop is the same one.
        reading = self._reading
        task = current_task(reading.loop) if get_ident() == reading.thread else calling_task()
        return reading.take(task, reading.stream)

    def batches(
        self, *, max_messages: int | None = None, max_bytes: int | None = None, columns: Sequence[str] | None = None
    ) -> AsyncStreamBatches:
        """Return an asynchronous iterator of the same messages as `MessageBatch`es, each of one partition.

        Arguments and errors are those of `KafkaStream.batches`. A batch is decoded on the event loop, which takes some
        milliseconds for each MiB; `max_bytes` limits that. The first call in a process imports numpy and pyarrow, which
        takes about half a second: where that is too long, `import simpleconsumer.columns` before the loop runs.
        """
        stream = self._reading.stream
        return AsyncStreamBatches(
            self._reading, stream.batches(max_messages=max_messages, max_bytes=max_bytes, columns=columns), self._owner
        )


class AsyncStreamBatches:
    """Asynchronous iterator of the batches of one stream, as `AsyncKafkaStream.batches` returns it."""

    def __init__(self, reading: Reading, batches: StreamBatches, owner: object) -> None:
        self._reading = reading
        self._batches = batches
        self._owner = owner

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, MessageBatch]:
        """Return the next batch, and wait for it as long as `consumer.timeout.ms` allows."""
        return self._reading.take(calling_task(), self._batches)
