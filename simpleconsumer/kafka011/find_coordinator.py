"""FindCoordinator: the broker that coordinates a group, or the transactions of a producer.

Source: FindCoordinatorRequest.json, FindCoordinatorResponse.json (4.3).
"""

from __future__ import annotations

from simpleconsumer.primitives import (
    encode_string,
    read_int16,
    read_int32,
    read_nullable_string,
    read_string,
    require_end,
)
from simpleconsumer.types import Broker, Buffer

__all__ = ["decode_find_coordinator", "encode_find_coordinator"]


def encode_find_coordinator(name: str, version: int, *, of_transactions: bool = False) -> bytes:
    """Return a request for a coordinator.

    Args:
        name: Of the group, or the transactional id.
        of_transactions: Whether it is a transactional id; from version 1 on.

    Raises:
        ValueError: Version 0 for a transactional id.
    """
    if version < 1 and of_transactions:
        raise ValueError("FindCoordinator 0 finds coordinators of groups alone")
    return encode_string(name) + (bytes([of_transactions]) if version >= 1 else b"")


def decode_find_coordinator(answer: Buffer, version: int) -> tuple[int, Broker]:
    """Return error code and coordinator (id and port -1 with an error)."""
    offset = read_int32(answer, 0)[1] if version >= 1 else 0  # throttle time
    code, offset = read_int16(answer, offset)
    if version >= 1:
        _, offset = read_nullable_string(answer, offset)  # the error in words
    number, offset = read_int32(answer, offset)
    host, offset = read_string(answer, offset)
    port, offset = read_int32(answer, offset)
    require_end(answer, offset, "find coordinator response")
    return code, Broker(number, host, port, 2, "kafka011", 2)
