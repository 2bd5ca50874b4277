"""FetchCalls: fetches messages of one broker, as they are, decoded, or as columns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import MAX_DECODED_BYTES
from simpleconsumer.dialect_types import MAX_ANSWER_BYTES, AnyRequest, Outcome
from simpleconsumer.errors import (
    BrokenFraming,
    BrokerError,
    ConnectionFailed,
    DecodeError,
    MessageError,
    MessageTooLarge,
)
from simpleconsumer.primitives import check_numbers
from simpleconsumer.throttling import Throttle, throttled_beyond
from simpleconsumer.types import MAX_INT64, AbortedTransaction, Buffer, FetchedPartition, FetchRequest, Message

_MAX_BYTES = 0x7FFFFFFF
_NOT_SAID_S: Final = 0.1
"""How long to wait when a throttled answer is of version 0, which does not say it; the broker reads nothing anyway."""
T = TypeVar("T")
_Decode = Callable[[int, Buffer, Sequence[AbortedTransaction]], Iterator[T]]


class FetchCalls(BrokerClient):
    """Fetches messages."""

    def fetch(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        version: int = 0,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> list[Message[bytes, bytes]]:
        """Return the messages from an offset on, decoded; an empty list means that none came within `max_wait_ms`.

        If a message in the middle cannot be delivered, those before it are returned; the next fetch from there raises
        the error.

        Raises:
            BrokerError: The broker refused; `OffsetOutOfRange` and `NotLeaderForPartition` are the usual ones.
            MessageTooLarge: The message at that offset does not fit into `max_bytes`.
            MessageError: The message at that offset cannot be delivered; `next_offset` is the offset after it.
            BrokenFraming: The message set has an entry of impossible size.
        """

        def decode(at: int, data: Buffer, aborted: Sequence[AbortedTransaction]) -> Iterator[Message[bytes, bytes]]:
            return self.dialect.decode_messages(
                data, topic, partition, at, max_decoded_bytes=max_decoded_bytes, aborted=aborted
            )

        request = FetchRequest(topic, partition, offset, max_bytes)
        return self._fetched(request, decode, max_wait_ms, min_bytes, version)

    def fetch_columns(
        self,
        topic: str,
        partition: int | str,
        offset: int,
        max_bytes: int = 1024 * 1024,
        *,
        columns: Sequence[str] | None = None,
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        version: int = 0,
        max_decoded_bytes: int = MAX_DECODED_BYTES,
    ) -> list[Any]:
        """Return the messages from an offset on as `pyarrow.RecordBatch`es, otherwise as `fetch` does, errors too.

        Args:
            columns: Some of those of the dialect (`simpleconsumer.columns`); None for all of them.

        Raises:
            ImportError: numpy and pyarrow are not installed (`pip install 'zkconsumer[columns]'`).
        """
        wanted = self.dialect.columns if columns is None else columns
        try:  # a wrong column is reported before anything is sent
            self.dialect.decode_columns(b"", topic, partition, 0, columns=wanted)
        except ImportError as error:
            error.add_note("record batches need numpy and pyarrow: pip install 'zkconsumer[columns]'")
            raise

        def decode(at: int, data: Buffer, aborted: Sequence[AbortedTransaction]) -> Iterator[Any]:
            return self.dialect.decode_columns(
                data, topic, partition, at, columns=wanted, max_decoded_bytes=max_decoded_bytes, aborted=aborted
            )

        request = FetchRequest(topic, partition, offset, max_bytes)
        return self._fetched(request, decode, max_wait_ms, min_bytes, version)

    def multifetch(
        self,
        requests: Sequence[FetchRequest],
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        *,
        version: int = 0,
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> list[FetchedPartition]:
        """Return the messages of several partitions, in the order of the requests.

        Message sets are views of the receive buffer (`decode_messages` reads them); each comes with an error code.
        While the broker throttles this client and sends nothing, it is asked again when the throttle time is over.

        Args:
            max_wait_ms: How long the broker may wait for `min_bytes`; must be below the deadline of the call.
            min_bytes: With 0 the broker answers at once.
            max_bytes: Most bytes of the whole answer, but for its first entry; Kafka 0.10.1 and later.

        Raises:
            ValueError: No requests, the same partition twice, or an impossible offset, size or wait.
            Throttled: The broker throttles this client for longer than the deadline of a call.
        """
        deadline = time.monotonic() + self._connection.timeout_s
        while True:
            answers = self.multifetch_once(requests, max_wait_ms, min_bytes, version=version, max_bytes=max_bytes)
            if answers:
                return list(answers)
            if time.monotonic() + self.throttled_s > deadline:
                raise throttled_beyond(self.host, self.port, self.throttled_s)

    def multifetch_once(
        self,
        requests: Sequence[FetchRequest],
        max_wait_ms: int = 100,
        min_bytes: int = 1,
        *,
        version: int = 0,
        max_bytes: int = MAX_ANSWER_BYTES,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[FetchedPartition]:
        """Return what `multifetch` does, or nothing at all if the broker throttles this client (`throttled_s`).

        After some such answers the next ones are asked for with less bytes (`pace`). If no messages come,
        and the last answer to the same request had the same bytes, the call returns the same list object as before.

        Args:
            meanwhile: As for `Connection.call`.
        """
        limit = self.pace.limit(min(max_bytes, sum(each[3] for each in requests)))  # plain tuples will do
        most_bytes = max_bytes if self.pace.most_bytes is None else limit

        def make(wanted: list[FetchRequest]) -> AnyRequest[list[FetchedPartition]]:
            self._check_fetch(wanted, max_wait_ms, min_bytes)
            return self.dialect.fetch(
                wanted, max_wait_ms, min_bytes, version, read_committed=self._read_committed, rack=self._rack,
                max_bytes=most_bytes,
            )  # fmt: skip

        asked = self._fetches.request(requests, (max_wait_ms, min_bytes, version, most_bytes), make)
        patience, sent_at = self._patience("fetch", max_wait_ms), time.monotonic()
        try:
            answers = self._calls.ask(asked, meanwhile, patience=patience)
        except ConnectionFailed as error:
            if error.is_sent and isinstance(error.__cause__, TimeoutError) and not self._calls.mutes:
                self.pace.unanswered()
            raise
        throttle = self._calls.throttle
        if throttle is None and self._is_late:  # version 0 does not say it
            late_ms = int((time.monotonic() - sent_at) * 1000)
            throttle = Throttle(self.host, self.port, "fetch", late_ms, True)
            self._calls.report(throttle)
        if not answers:
            if not self.throttled_s:
                self._connection.mute(_NOT_SAID_S if throttle is None else throttle.throttle_ms / 1000)
            self.pace.refused()
        else:
            held_ms = throttle.throttle_ms if throttle is not None and throttle.is_held else 0
            self.pace.answered(sum(len(answer.message_set) for answer in answers), held_ms)
        return answers

    @property
    def limits_answers(self) -> bool:
        """Whether the broker keeps to `max_bytes`: Kafka 0.10.1 and later."""
        return self.dialect.limits_answers(self._calls.known)

    def _fetched(
        self, request: FetchRequest, decode: _Decode[T], max_wait_ms: int, min_bytes: int, version: int
    ) -> list[T]:
        """Return the decoded result of one fetch; while there is nothing to deliver, fetch and decode again.

        Callers continue after the last message. Markers, aborted transactions and emptied batches have no message, and
        they would be fetched again for ever.
        """
        while True:
            fetched = self.multifetch([request], max_wait_ms, min_bytes, version=version)[0]
            if fetched.error_code:
                raise BrokerError(fetched.error_code, request.topic, request.partition, request.offset)
            found = _before_error(decode(request.offset, fetched.message_set, fetched.aborted))
            if found:
                return found
            if not self.dialect.chooses_versions:
                return self._nothing(request, fetched.message_set)
            result = self.dialect.classify(fetched, request.offset, request.max_bytes, request.max_bytes)
            if result.outcome is not Outcome.CHUNK:
                return self._nothing(request, fetched.message_set)
            request = request._replace(offset=result.next_offset)

    def _check_fetch(self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int) -> None:
        if not requests:
            raise ValueError("no partitions to fetch")
        if not 0 <= max_wait_ms < self._connection.timeout_s * 1000:
            # KAFKA-1147: each answer would come after the connection was closed.
            raise ValueError(
                f"max_wait_ms is {max_wait_ms}; it must be 0 or more, and less than the time-out of a "
                f"call, {self._connection.timeout_s} s"
            )
        if min_bytes < 0:
            raise ValueError(f"min_bytes is {min_bytes}; it must be 0 or more")
        for request in requests:
            if not 1 <= request.max_bytes <= _MAX_BYTES:
                raise ValueError(
                    f"{request.topic}/{request.partition}: max_bytes is {request.max_bytes}; it must be "
                    f"from 1 to {_MAX_BYTES}"
                )
            if not ~MAX_INT64 <= request.offset <= MAX_INT64:
                limit = MAX_INT64 if request.offset > 0 else ~MAX_INT64
                raise ValueError(f"{request.topic}/{request.partition}: offset {request.offset} is beyond {limit}")
        check_numbers([(request.topic, request.partition) for request in requests])
        if len({(request.topic, request.partition) for request in requests}) != len(requests):
            raise ValueError("a partition is requested twice; name each partition once")

    def _nothing(self, request: FetchRequest, message_set: Buffer) -> list[Any]:
        """Return no messages; raise an error if there are none because the first one was cut off."""
        if not len(message_set) or self.dialect.set_end(message_set, request.offset)[2]:
            return []
        answer = FetchedPartition(request.topic, request.partition, 0, -1, memoryview(message_set))
        result = self.dialect.classify(answer, request.offset, request.max_bytes, request.max_bytes)
        if result.outcome is Outcome.BROKEN:
            raise BrokenFraming(f"{request.topic}/{request.partition} at {request.offset}: {result.reason}")
        reason = f"the message is larger than the fetch of {request.max_bytes} bytes; ask for {result.size_bytes}"
        raise MessageTooLarge(request.topic, request.partition, request.offset, result.next_offset, reason)


def _before_error(decoding: Iterator[T]) -> list[T]:
    """Return the items before the first error; raise the error if nothing does."""
    found: list[T] = []
    try:
        for each in decoding:
            found.append(each)  # noqa: PERF402 - the items before an error are kept
    except (MessageError, DecodeError):
        if not found:
            raise
    return found
