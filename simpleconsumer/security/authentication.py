"""Authenticates a connection to a broker by SASL, before its first request, and again before its session ends.

    ApiVersions -> SaslHandshake -> tokens

Brokers of 1.0 and later are sent tokens in requests of their own, which are answered with the reason of a refusal, and
from 2.2 on with the time after which the client has to authenticate again (KIP-368). Older ones are sent bare tokens,
and close the connection without a word.

Source: Kafka 4.3.1, SaslClientAuthenticator; KIP-43, 152, 368.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

from simpleconsumer.errors import BrokerError, DecodeError
from simpleconsumer.kafka011.topic_requests import served_versions
from simpleconsumer.messages import apis
from simpleconsumer.messages.api import Api
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import encode_bytes
from simpleconsumer.security.sasl import Sasl, SaslLost, SaslRefused, conversation
from simpleconsumer.types import SaslAnswer
from zkconsumer_error import ErrorCode

__all__ = ["Authentication", "Exchange"]

Exchange = Callable[[bytes, int | None], memoryview]
"""Sends a frame over a connection that is being opened, and returns the body of the answer behind the correlation id,
which must be the given one (None: answers carry none). It is valid until the next call. Errors are those of the call
for which the connection is opened, and its deadline holds."""

_FIRST_WITH_TOKENS_IN_REQUESTS: Final = 1


class Authentication:
    """Authenticates one connection.

    Args:
        sasl: Who the client is.
        client_id: Name of the client in the broker's logs.
    """

    def __init__(self, sasl: Sasl, client_id: str) -> None:
        self._sasl = sasl
        self._client_id = client_id
        self._numbers: Iterator[int] = itertools.count(1)
        self._token_version: int | None = None

    def authenticate(self, exchange: Exchange) -> int:
        """Authenticate a new connection; return the milliseconds after which it has to be done again, 0 for never.

        Raises:
            SaslLost: The connection was lost upon a token, to a broker that does not say what it refuses.
            SaslRefused: The broker refuses the client, or the client the broker.
            DecodeError: An answer makes no sense.
            Errors of `exchange`.
        """
        code, served = served_versions(self._ask(exchange, apis.API_VERSIONS, 0, {}))
        if code:
            raise SaslRefused(f"the broker does not say which requests it serves: {BrokerError(code, None, None)}")
        handshakes, tokens = served.get(apis.SASL_HANDSHAKE.key, range(0)), served.get(apis.SASL_AUTHENTICATE.key)
        if not handshakes:
            raise SaslRefused("the broker does not support SASL")
        if tokens and handshakes[-1] >= _FIRST_WITH_TOKENS_IN_REQUESTS:
            self._token_version = min(tokens[-1], apis.SASL_AUTHENTICATE.versions[-1])
        return self.again(exchange)

    def again(self, exchange: Exchange) -> int:
        """Authenticate a connection on which that has been done before, with no request under way; as above."""
        version = 0 if self._token_version is None else 1
        asked = {"mechanism": self._sasl.mechanism}
        shown = apis.SASL_HANDSHAKE.decode(version, self._ask(exchange, apis.SASL_HANDSHAKE, version, asked))
        code, offered = shown["error_code"], shown["mechanisms"]
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise SaslRefused(f"the broker does not offer {self._sasl.mechanism}; it offers "
                              f"{', '.join(offered) or 'no mechanism'}")
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            raise SaslRefused("the broker does not accept SASL on this port (security.protocol)")
        if code:
            raise SaslRefused(f"the broker rejects the handshake: {BrokerError(code, None, None)}")
        return self._converse(exchange)

    def _converse(self, exchange: Exchange) -> int:
        talk = conversation(self._sasl)
        lifetime_ms, token = 0, next(talk)
        while True:
            answer, lifetime_ms = self._say(exchange, token)
            try:
                token = talk.send(answer)
            except StopIteration:
                return lifetime_ms

    def _say(self, exchange: Exchange, token: bytes) -> tuple[bytes, int]:
        """The broker's token, and the lifetime of the session, once it has got that of the client."""
        if self._token_version is None:
            try:
                return bytes(exchange(encode_bytes(token), None)), 0
            except ConnectionError as error:
                raise SaslLost(str(error)) from error
        version = self._token_version
        data = self._ask(exchange, apis.SASL_AUTHENTICATE, version, {"auth_bytes": token})
        answer = SaslAnswer.of(apis.SASL_AUTHENTICATE.decode(version, data))
        if answer.error_code:
            raise SaslRefused(f"{BrokerError(answer.error_code, None, None)}: {(answer.message or '')[:300]}")
        return answer.token, answer.lifetime_ms

    def _ask(self, exchange: Exchange, api: Api, version: int, values: Values) -> memoryview:
        number = next(self._numbers)
        body = api.request.encode(version, values)
        try:
            return exchange(api.frame(version, number, self._client_id, body), number)
        except DecodeError as error:
            error.add_note(f"while a connection was authenticated, in an answer to {api.name}")
            raise
