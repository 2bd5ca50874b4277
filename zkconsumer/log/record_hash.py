"""One hash of a record, the same from every format that has the same message. Pure.

The hash is BLAKE2b with a digest of 16 bytes and the personalization `zkc-record-v1`, over:

    bytes    int32 length and the bytes, big-endian; -1 and nothing for null, 0 for empty
    record   bytes key, bytes value, int32 number of headers, each: bytes name in UTF-8, bytes value
    time     only if it is hashed, too: int64 milliseconds, after the byte 1; the byte 0 alone for none

A message of Kafka 0.7 has neither key nor headers, one of 0.8 no headers, one of before 0.10 no time. So the hash
without the time is the same for a message that was copied into any newer format.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from simpleconsumer.types import Headers

HASH_VERSION: Final = 1
"""Changes if the same record gets another hash."""
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PERSON: Final = b"zkc-record-v1"
_BYTES: Final = 16


def record_hash(
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
    *,
    timestamp_ms: int | None = None,
    with_time: bool = False,
) -> bytes:
    """Return the hash of a record, 16 bytes.

    Args:
        key: None for null, which has another hash than an empty key.
        headers: Names and values, in their order.
        timestamp_ms: None for none; looked at only with `with_time`.
        with_time: Whether the time is a part of the hash. Leave it out to compare with formats that have none.

    >>> record_hash(b"k", b"v").hex() == record_hash(b"k", b"v", timestamp_ms=5).hex()
    True
    >>> record_hash(None, b"") == record_hash(b"", None)
    False
    """
    pieces = [_sized(key), _sized(value), _INT32.pack(len(headers))]
    for name, data in headers:
        pieces += (_sized(name.encode("utf-8", "surrogatepass")), _sized(data))
    if with_time:
        pieces.append(b"\0" if timestamp_ms is None else b"\1" + _INT64.pack(timestamp_ms))
    return blake2b(b"".join(pieces), digest_size=_BYTES, person=_PERSON).digest()


def _sized(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data
