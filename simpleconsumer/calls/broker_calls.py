"""Requests to one broker over one connection, each in a version that the broker serves.

A dialect that chooses versions asks each new connection first which ones there are: a broker that has been upgraded, or
replaced by an older one, behind the same address is spoken to as what it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from simpleconsumer.connection import Connection
from simpleconsumer.dialect import Dialect
from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.errors import BrokerError, DecodeError
from simpleconsumer.security.authentication import Exchange
from simpleconsumer.throttling import THROTTLE_LOG, Patience, Throttle
from simpleconsumer.version_choice import chosen_request

__all__ = ["BrokerCalls"]

T = TypeVar("T")

_MAX_CORRELATION_ID = 0x7FFFFFFF


class BrokerCalls:
    """Sends the requests of a dialect, and decodes their answers.

    Args:
        connection: To the broker; nobody else uses it, but to close it.
        dialect: What the broker speaks.
        client_id: Name under which the broker logs and counts requests.

    Attributes:
        on_throttle: Called with each answer that says that the broker throttles this client, on the thread of the call.
        throttle: What the last answer said of it; None for nothing.

    Threads: One at a time.
    """

    def __init__(self, connection: Connection, dialect: Dialect, client_id: str) -> None:
        self._connection = connection
        self._dialect = dialect
        self._client_id = client_id
        self._correlation_id = 0
        self._served: Mapping[int, range] = {}
        self.on_throttle: Callable[[Throttle], None] = lambda throttle: None
        self.throttle: Throttle | None = None
        if dialect.chooses_versions:
            connection.opening = self._learn_versions

    def served(self) -> Mapping[int, range]:
        """Return the versions that the broker serves, by API key; connects if there is no connection.

        Empty for a dialect that does not choose versions.

        Raises:
            ConnectionFailed, DecodeError, BrokerError: As for `ask`.
        """
        if self._dialect.chooses_versions:
            self._connection.call(b"", has_answer=False)
        return self._served

    def ask(
        self,
        asked: AnyRequest[T],
        meanwhile: Callable[[], None] | None = None,
        *,
        patience: Patience | None = None,
    ) -> T:
        """Return the decoded answer; the connection is closed if it cannot be decoded.

        If the answer says that the broker throttles this client, and reads no request until then, the next one waits.

        Args:
            asked: The request.
            meanwhile: As for `Connection.call`.
            patience: Waits longer than the deadline of a call for an answer that is held back.

        Raises:
            ConnectionFailed: The connection could not be made, was lost or timed out.
            Throttled: The broker throttles this client for longer than the call may take.
            DecodeError: The answer makes no sense.
            VersionNotServed: The broker serves no version of the request that is spoken here.
            BrokerError: The broker refused to say which versions it serves.
        """
        correlation_id = self._next_id()
        sent: list[Request[T]] = []

        def frame() -> list[bytes]:
            sent[:] = [chosen_request(asked, self._served, self._connection.host, self._connection.port)]
            return [self._dialect.frame(sent[0], correlation_id, self._client_id), *sent[0].tail]

        answer = self._connection.call(
            frame if self._dialect.chooses_versions else frame(),
            correlation_id=correlation_id if self._dialect.has_correlation_ids else None,
            resend=asked.can_resend,
            meanwhile=meanwhile,
            patience=patience,
        )
        self._note_throttle(sent[0], answer)
        try:
            return sent[0].decode(answer)
        except DecodeError as error:
            self._connection.reset()
            error.add_note(f"in an answer of {len(answer)} bytes from {self._connection.host}:{self._connection.port}")
            raise

    @property
    def known(self) -> Mapping[int, range]:
        """The versions that the broker served last, by API key; empty before the first connection."""
        return self._served

    @property
    def mutes(self) -> bool:
        """Whether the broker answers clients that it throttles at once, and reads nothing of them for the time."""
        return self._dialect.mutes(self._served)

    def _note_throttle(self, sent: Request[T], answer: memoryview) -> None:
        api, throttle_ms = self._dialect.throttle(sent, answer)
        self.throttle = None
        if not throttle_ms:
            return
        self.throttle = Throttle(self._connection.host, self._connection.port, api, throttle_ms, not self.mutes)
        if self.mutes:
            self._connection.mute(throttle_ms / 1000)
        self.report(self.throttle)

    def report(self, throttle: Throttle) -> None:
        """Log that the broker throttles, and pass it on."""
        THROTTLE_LOG.note(throttle, self._client_id)
        self.on_throttle(throttle)

    def tell(self, asked: AnyRequest[T]) -> None:
        """Send a request that no broker answers; errors are those of `ask`."""
        correlation_id = self._next_id()

        def frame() -> list[bytes]:
            chosen = chosen_request(asked, self._served, self._connection.host, self._connection.port)
            return [self._dialect.frame(chosen, correlation_id, self._client_id), *chosen.tail]

        self._connection.call(frame if self._dialect.chooses_versions else frame(), has_answer=False)

    def _learn_versions(self, exchange: Exchange) -> None:
        request, correlation_id = self._dialect.api_versions(), self._next_id()
        answer = exchange(self._dialect.frame(request, correlation_id, self._client_id), correlation_id)
        code, served = request.decode(answer)
        if code:
            raise BrokerError(code, None, None)
        self._served = served

    def _next_id(self) -> int:
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        return self._correlation_id
