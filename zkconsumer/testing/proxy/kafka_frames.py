"""Pairs Kafka responses with their requests in two byte streams and lets a function change the responses. Pure."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

MAX_FRAME_BYTES = 128 * 1024 * 1024
MAX_WAITING = 10_000
PRODUCE, MULTIPRODUCE_07 = 0, 3


@dataclass(frozen=True)
class Exchange:
    """One response with the request it answers, both without their 4-byte length.

    `version` and `correlation_id` are 0 in the 0.7 protocol, which has neither.
    """

    api: int
    version: int
    correlation_id: int
    request: bytes
    response: bytes


class RawReply(bytes):
    """Returned by a rewriting function to have bytes sent as they are, without a length before them; empty: nothing."""


Rewrite = Callable[[Exchange], bytes | None]


class Frames:
    """Whole length-prefixed frames out of a byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The bodies of the frames that `chunk` completes.

        Raises:
            ValueError: a length is negative or above 128 MiB.
        """
        self._buffer += chunk
        bodies = []
        at = 0
        while len(self._buffer) - at >= 4:
            (length,) = struct.unpack_from(">i", self._buffer, at)
            if not 0 <= length <= MAX_FRAME_BYTES:
                raise ValueError(f"frame of {length} bytes, at most {MAX_FRAME_BYTES} are read")
            if len(self._buffer) - at < 4 + length:
                break
            bodies.append(bytes(self._buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        del self._buffer[:at]
        return bodies


class KafkaRewriter:
    """The two directions of one connection to a broker."""

    def __init__(self, rewrite: Rewrite, generation_07: bool = False) -> None:
        """Prepare a connection.

        Args:
            rewrite: given each exchange; returns the new body of the response, a `RawReply`, or None for no change.
            generation_07: the connection speaks the protocol of Kafka 0.7, in which produce requests have no response.
        """
        self._rewrite = rewrite
        self._generation_07 = generation_07
        self._requests = Frames()
        self._responses = Frames()
        self._waiting: deque[bytes] = deque()

    def upstream(self, chunk: bytes) -> bytes:
        """The bytes to send to the broker: `chunk` itself; its requests are kept until they are answered."""
        for request in self._requests.feed(chunk):
            if not (self._generation_07 and struct.unpack_from(">h", request)[0] in (PRODUCE, MULTIPRODUCE_07)):
                self._waiting.append(request)
        if len(self._waiting) > MAX_WAITING:
            raise ValueError(f"more than {MAX_WAITING} requests wait for an answer on one connection")
        return chunk

    def downstream(self, chunk: bytes) -> bytes:
        """The bytes to send to the client instead of `chunk`; incomplete responses are held back."""
        return b"".join(self._answer(response) for response in self._responses.feed(chunk))

    def _answer(self, response: bytes) -> bytes:
        exchange = self._match(response)
        changed = self._rewrite(exchange) if exchange else None
        if isinstance(changed, RawReply):
            return bytes(changed)
        body = response if changed is None else changed
        return struct.pack(">i", len(body)) + body

    def _match(self, response: bytes) -> Exchange | None:
        """The oldest waiting request with the response's correlation id; older ones had no response (acks 0)."""
        while self._waiting:
            request = self._waiting.popleft()
            if self._generation_07:
                return Exchange(struct.unpack_from(">h", request)[0], 0, 0, request, response)
            api, version, correlation_id = struct.unpack_from(">hhi", request)
            if response[:4] == struct.pack(">i", correlation_id):
                return Exchange(api, version, correlation_id, request, response)
        return None
