"""SaslAuthenticate: carries the tokens of an authentication.

Source: SaslAuthenticateRequest.json, SaslAuthenticateResponse.json (4.3).
"""

from __future__ import annotations

from typing import NamedTuple

from simpleconsumer.primitives import (
    encode_bytes,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_nullable_string,
    require_end,
)
from simpleconsumer.types import Buffer

__all__ = ["SaslAnswer", "decode_sasl_authenticate", "encode_sasl_authenticate"]


class SaslAnswer(NamedTuple):
    """The broker's side of one step of an authentication.

    Attributes:
        error_code: 0, or why the client is refused.
        message: The reason in the broker's words, or None.
        token: What the broker says under the mechanism.
        lifetime_ms: When the client must authenticate again; 0: never, or not said (version 0).
    """

    error_code: int
    message: str | None
    token: bytes
    lifetime_ms: int


def encode_sasl_authenticate(token: bytes) -> bytes:
    """Return a request with a token, the same in versions 0 and 1."""
    return encode_bytes(token)


def decode_sasl_authenticate(answer: Buffer, version: int) -> SaslAnswer:
    """Return what the broker answered."""
    code, offset = read_int16(answer, 0)
    message, offset = read_nullable_string(answer, offset)
    if read_int32(answer, offset)[0] == -1:
        token, offset = b"", offset + 4
    else:
        view, offset = read_bytes(answer, offset)
        token = bytes(view)
    lifetime_ms = 0
    if version >= 1:
        lifetime_ms, offset = read_int64(answer, offset)
    require_end(answer, offset, "SASL authenticate response")
    return SaslAnswer(code, message, token, lifetime_ms)
