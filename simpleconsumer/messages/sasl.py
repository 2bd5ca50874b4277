"""The APIs of authentication. After SaslHandshake 0 tokens follow in frames of their own, after 1 in SaslAuthenticate.

Source: clients/src/main/resources/common/message (Kafka 4.3).
"""

from __future__ import annotations

from typing import Final

from simpleconsumer.messages.api import Api

SASL_HANDSHAKE: Final = Api(
    17, "SaslHandshake", (0, 1),
    request="""
        mechanism: string
    """,
    response="""
        error_code: int16
        mechanisms: []string
    """,
)  # fmt: skip

SASL_AUTHENTICATE: Final = Api(
    36, "SaslAuthenticate", (0, 1), 2,
    request="""
        auth_bytes: bytes
    """,
    response="""
        error_code: int16
        error_message: string?
        auth_bytes: bytes?
        session_lifetime_ms: int64 1+
    """,
)  # fmt: skip
