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

    Threads: One at a time.
    """

    def __init__(self, connection: Connection, dialect: Dialect, client_id: str) -> None:
        self._connection = connection
        self._dialect = dialect
        self._client_id = client_id
        self._correlation_id = 0
        self._served: Mapping[int, range] = {}
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

    def ask(self, asked: AnyRequest[T], meanwhile: Callable[[], None] | None = None) -> T:
        """Return the decoded answer; the connection is closed if it cannot be decoded.

        Args:
            asked: The request.
            meanwhile: Called when it is sent, before the answer is read; it must not raise.

        Raises:
            ConnectionFailed: The connection could not be made, was lost or timed out.
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
        )
        try:
            return sent[0].decode(answer)
        except DecodeError as error:
            self._connection.reset()
            error.add_note(f"in an answer of {len(answer)} bytes from {self._connection.host}:{self._connection.port}")
            raise

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
