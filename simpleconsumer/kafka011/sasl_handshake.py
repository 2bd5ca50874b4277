"""SaslHandshake: chooses the mechanism of an authentication.

Source: SaslHandshakeRequest.json, SaslHandshakeResponse.json (4.3). After version 0 tokens follow in frames of their
own, after version 1 in requests of SaslAuthenticate.
"""

from __future__ import annotations

from simpleconsumer.primitives import encode_string, read_array, read_int16, read_string, require_end
from simpleconsumer.types import Buffer

__all__ = ["decode_sasl_handshake", "encode_sasl_handshake"]


def encode_sasl_handshake(mechanism: str) -> bytes:
    """Return a request for a mechanism, such as PLAIN, the same in versions 0 and 1."""
    return encode_string(mechanism)


def decode_sasl_handshake(answer: Buffer) -> tuple[int, list[str]]:
    """Return error code, and the mechanisms that the broker offers."""
    code, offset = read_int16(answer, 0)
    mechanisms, end = read_array(answer, offset, read_string, 2)
    require_end(answer, end, "SASL handshake response")
    return code, mechanisms
