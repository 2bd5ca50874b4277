"""Authenticates a connection to a broker by SASL, before its first request, and again before its session ends.

    ApiVersions -> SaslHandshake -> tokens

Brokers of 1.0 and later are sent tokens in requests of their own, which are answered with the reason of a refusal, and
from 2.2 on with the time after which the client has to authenticate again (KIP-368). Older ones are sent bare tokens,
and close the connection without a word.

Source: Kafka 4.3.1, SaslClientAuthenticator; KIP-43, 152, 368.

The SASL session of a connection: begun when it is opened, and renewed before the broker ends it.

Tells a refusal from a broker that died, where both are a connection that is lost during the authentication.

Brokers before Kafka 1.0 close the connection without a word if they refuse a user. A connection that is lost there is
made again, a few times: who refuses does so each time, and who has died takes no connection. More tries than these
could have a user locked out.

Asks a broker whether a port demands SASL, of a connection without it whose first request was not answered.

A port with SASL takes the requests ApiVersions and SaslHandshake, and closes the connection upon any other. No
credentials are sent: the handshake names a mechanism alone.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator (0.10.2.2, 4.3.1).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from simpleconsumer.errors import BrokerError, DecodeError
from simpleconsumer.kafka011.topic_requests import served_versions
from simpleconsumer.messages import apis
from simpleconsumer.messages.api import Api
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import encode_bytes
from simpleconsumer.security.sasl import MECHANISMS, Sasl, SaslLost, SaslRefused, conversation
from simpleconsumer.types import SaslAnswer
from zkconsumer_error import ErrorCode

Exchange = Callable[[bytes, int | None], memoryview]
"""Sends a frame over a connection that is being opened, and returns the body of the answer after the correlation id,
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
            SaslLost: The connection was lost upon a token, to a broker that does not say why.
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
            raise SaslRefused(
                f"the broker does not offer {self._sasl.mechanism}; it offers {', '.join(offered) or 'no mechanism'}"
            )
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


_EARLIEST_SHARE: Final = 0.85
_LATEST_SHARE: Final = 0.95
"""Shares of its lifetime between which a session is renewed, as in Java's client; chance spreads the connections."""


class Session:
    """The session of one connection.

    Args:
        sasl: Who the client is.
        client_id: Name of the client in the broker's logs.
    """

    def __init__(self, sasl: Sasl, client_id: str) -> None:
        self._authentication = Authentication(sasl, client_id)
        self._renew_at: float | None = None

    def start(self, exchange: Exchange) -> None:
        """Authenticate a new connection; errors are those of `Authentication.authenticate`."""
        self._begin(self._authentication.authenticate(exchange))

    def renew(self, exchange: Exchange) -> None:
        """Authenticate it again; no request may be under way."""
        self._begin(self._authentication.again(exchange))

    def is_due(self) -> bool:
        """Return whether it is time to renew it."""
        return self._renew_at is not None and time.monotonic() >= self._renew_at

    def _begin(self, lifetime_ms: int) -> None:
        share = random.uniform(_EARLIEST_SHARE, _LATEST_SHARE)
        self._renew_at = time.monotonic() + lifetime_ms / 1000 * share if lifetime_ms > 0 else None


T = TypeVar("T")
PAUSES_S: Final = (0.1, 0.5)
"""Waits before the second try, and before the third and last one."""


def in_tries(attempt: Callable[[], T], deadline: float, pause: Callable[[float], bool]) -> T:
    """Return the result of an attempt to make an authenticated connection.

    Args:
        attempt: Raises SaslLost for a connection that was lost upon a token.
        deadline: In seconds of the monotonic clock; no try starts after it.
        pause: Waits for so many seconds; returns whether nothing is wanted any more.

    Raises:
        SaslRefused: The connection was lost in every try.
        Errors of `attempt`.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return attempt()
        except SaslLost as error:
            is_last = tries > len(PAUSES_S) or time.monotonic() + PAUSES_S[tries - 1] >= deadline
            if is_last or pause(PAUSES_S[tries - 1]):
                counted = f" {tries} times in a row" if tries > 1 else ""
                reason = f"the broker closed the connection during the authentication{counted}"
                raise SaslRefused(
                    f"{reason}, which brokers before Kafka 1.0 do if user or password is wrong"
                ) from error


_ID: Final = 1


def sasl_demand(exchange: Exchange, client_id: str, protocol: str) -> str | None:
    """Return, for a port that demands SASL, what to set; None for one without SASL.

    Args:
        exchange: Over a new connection, which is of no use afterwards.
        client_id: Name of the client in the broker's logs.
        protocol: The `security.protocol` of the connection, PLAINTEXT or SSL.

    Raises:
        DecodeError: The answer makes no sense.
        Errors of `exchange`.
    """
    body = apis.SASL_HANDSHAKE.request.encode(0, {"mechanism": MECHANISMS[0]})
    answer = apis.SASL_HANDSHAKE.decode(0, exchange(apis.SASL_HANDSHAKE.frame(0, _ID, client_id, body), _ID))
    if answer["error_code"] not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        return None
    wanted = "SASL_PLAINTEXT" if protocol == "PLAINTEXT" else f"SASL_{protocol}"
    mechanisms = ", ".join(answer["mechanisms"])
    return f"this port demands SASL ({mechanisms}); set security.protocol to {wanted} (it is {protocol})"
