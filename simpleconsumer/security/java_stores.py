"""Reads the certificates of a truststore of Java in the format JKS, which is not encrypted. Pure.

Source: OpenJDK 17, sun.security.provider.JavaKeyStore.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

__all__ = ["JKS_MAGIC", "read_jks"]

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_PRIVATE_KEY, _TRUSTED = 1, 2
_SALT = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_MOST_ENTRIES = 10_000


def read_jks(data: bytes, password: str | None) -> list[bytes]:
    """Return the trusted certificates, as DER.

    Args:
        password: Shows that nobody has changed the file; None does not look.

    Raises:
        ValueError: The file is no JKS file, is cut off, or another password closes it.
    """
    if not data.startswith(JKS_MAGIC) or len(data) < 12 + _DIGEST_BYTES:
        raise ValueError("it is not a JKS file")
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        wanted = hashlib.sha1(password.encode("utf-16-be") + _SALT + body).digest()
        if not hmac.compare_digest(wanted, digest):
            raise ValueError("the password does not open it, or the file was changed")
    try:
        return _certificates(body)
    except struct.error:
        raise ValueError("it is truncated") from None


def _certificates(body: bytes) -> list[bytes]:
    version, count = struct.unpack_from(">II", body, 4)
    if version not in _VERSIONS or count > _MOST_ENTRIES:
        raise ValueError(f"it is of version {version} with {count} entries, which is not possible")
    found, at = [], 12
    for _ in range(count):
        (tag,) = struct.unpack_from(">I", body, at)
        at = _behind_text(body, at + 4) + 8  # the time at which it was made
        chain = 1
        if tag == _PRIVATE_KEY:
            _, at = _bytes(body, at)
            (chain,) = struct.unpack_from(">I", body, at)
            at += 4
        elif tag != _TRUSTED:
            raise ValueError(f"it has an entry of the unknown type {tag}")
        for _ in range(min(chain, _MOST_ENTRIES)):
            if version > 1:
                at = _behind_text(body, at)  # X.509
            certificate, at = _bytes(body, at)
            if tag == _TRUSTED:
                found.append(certificate)
    return found


def _behind_text(body: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">H", body, at)
    return int(at + 2 + length)


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise ValueError("it is truncated")
    return body[at + 4 : end], int(end)
