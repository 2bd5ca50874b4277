"""SCRAM, by which client and broker prove to each other that they know a password, without showing it. Pure.

Source: RFC 5802, RFC 7677; Kafka's ScramSaslClient (4.3.1). As there, names and passwords are taken as they are,
without SASLprep, and there is no channel binding.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

FEWEST_ITERATIONS: Final = 4096
"""Fewer make a password easy to guess for who has recorded a conversation (RFC 7677)."""
MOST_ITERATIONS: Final = 1_000_000
"""More would let a broker keep a processor busy for seconds."""

_NO_CHANNEL_BINDING = "n,,"


class ScramRefused(Exception):  # noqa: N818 - says what happened
    """The conversation cannot go on; the text says why, without secrets."""


class ScramClient:
    """The client's side of one conversation.

    Args:
        hash_name: As `hashlib` has it.
        username: Its name.
        password: Its password.
        nonce: Text without commas that was never used before.
    """

    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash = hash_name
        self._password = password
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the answer to the server's first message: the proof.

        Raises:
            ScramRefused: The server has refused the user, or sends a message that the mechanism does not allow.
        """
        text = _text(server_first)
        fields = _fields(text)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramRefused("the broker's nonce does not continue that of the client")
        count = int(iterations) if iterations.isascii() and iterations.isdigit() and len(iterations) < 10 else 0
        if not FEWEST_ITERATIONS <= count <= MOST_ITERATIONS:
            bounds = f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS} are accepted"
            raise ScramRefused(f"the broker asks for {iterations[:20]!r} iterations; {bounds}")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), _bytes(salt), count)
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Return if the server's last message proves that it knows the password, too.

        Raises:
            ScramRefused: It does not, or the server refuses the proof.
        """
        signature = _fields(_text(server_final)).get("v", "")
        if not self._server_signature or not hmac.compare_digest(_bytes(signature), self._server_signature):
            raise ScramRefused("the broker does not prove that it knows the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("the broker sends a message that is not text") from None


def _fields(text: str) -> dict[str, str]:
    """The fields `name=value` of a message; ScramRefused if it is the server's refusal."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if "e" in fields:
        raise ScramRefused(f"the broker rejects user or password: {fields['e'][:100]!r}")
    return fields


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramRefused("the broker sends a value that is not base64") from None
