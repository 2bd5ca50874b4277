"""Asks a broker whether a port demands SASL, of a connection without it whose first request was not answered.

A port with SASL takes the requests ApiVersions and SaslHandshake, and closes the connection upon any other. No
credentials are sent: the handshake names a mechanism alone.

Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator (0.10.2.2, 4.3.1).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages import apis
from simpleconsumer.security.authentication import Exchange
from simpleconsumer.security.sasl import MECHANISMS
from zkconsumer_error import ErrorCode

__all__ = ["sasl_demand"]

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
