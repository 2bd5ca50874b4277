"""Changes a real broker's answers to the fetch requests of one client; other clients and replicas get the right ones.

A `FetchFaults` object is the rewriting function of a `TcpProxy` in front of a broker. Layout of requests and answers:
fetch version 0, as in kafka.api.FetchRequest and FetchResponse, 0.8.2.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace

from zkconsumer.testing.proxy.kafka_frames import Exchange, RawReply

FETCH = 1


@dataclass(frozen=True)
class Piece:
    """One partition of a fetch answer."""

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    message_set: bytes


ChangePiece = Callable[[Piece], Piece]
ChangeAnswer = Callable[[bytes], bytes | RawReply]


class FetchFaults:
    """The fault of the moment, and how often it struck.

    Threads: set by the test, read by the proxy's thread.
    """

    def __init__(self) -> None:
        self.client_id = ""
        self.struck = 0
        self._piece: ChangePiece | None = None
        self._answer: ChangeAnswer | None = None
        self._times = 0

    def clear(self) -> None:
        """Change no more answers."""
        self._piece = self._answer = None
        self.struck = 0

    def in_pieces(self, client_id: str, change: ChangePiece, times: int = 1_000_000) -> None:
        """Change partitions of the answers to a client; `times` counts the partitions that were changed."""
        self.clear()
        self.client_id, self._times, self._piece = client_id, times, change

    def in_answers(self, client_id: str, change: ChangeAnswer, times: int = 1) -> None:
        """Change whole answers (with the correlation id in front) to a client."""
        self.clear()
        self.client_id, self._times, self._answer = client_id, times, change

    def __call__(self, exchange: Exchange) -> bytes | None:
        """What the proxy calls."""
        if exchange.api != FETCH or _client_id(exchange.request) != self.client_id or self.struck >= self._times:
            return None
        if self._answer is not None:
            self.struck += 1
            return self._answer(exchange.response)
        if self._piece is not None:
            return _map_pieces(exchange.response, self._strike)
        return None

    def _strike(self, piece: Piece) -> Piece:
        if self._piece is None or self.struck >= self._times:
            return piece
        changed = self._piece(piece)
        self.struck += changed != piece
        return changed


def _client_id(request: bytes) -> str:
    (length,) = struct.unpack_from(">h", request, 8)
    return request[10 : 10 + max(length, 0)].decode()


def _map_pieces(answer: bytes, change: ChangePiece) -> bytes:
    """The answer with each of its partitions changed."""
    out = [answer[:8]]
    (topics,) = struct.unpack_from(">i", answer, 4)
    at = 8
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, at)
        topic = answer[at + 2 : at + 2 + length].decode()
        (partitions,) = struct.unpack_from(">i", answer, at + 2 + length)
        out.append(answer[at : at + 6 + length])
        at += 6 + length
        for _ in range(partitions):
            partition, code, high_watermark, size = struct.unpack_from(">ihqi", answer, at)
            at += 18
            piece = change(Piece(topic, partition, code, high_watermark, answer[at : at + size]))
            at += size
            head = struct.pack(">ihqi", piece.partition, piece.error_code, piece.high_watermark, len(piece.message_set))
            out += [head, piece.message_set]
    return b"".join(out)


def entry_starts(message_set: bytes) -> dict[int, int]:
    """Offset -> where its whole entry starts, in a set without compression."""
    starts, at = {}, 0
    while at + 12 <= len(message_set):
        offset, size = struct.unpack_from(">qi", message_set, at)
        if at + 12 + size > len(message_set):
            break
        starts[offset] = at
        at += 12 + size
    return starts


def with_error(partition: int, code: int) -> ChangePiece:
    """Answers of one partition become an error without messages."""
    return lambda piece: (
        replace(piece, error_code=code, message_set=b"", high_watermark=-1) if piece.partition == partition else piece
    )


def with_flipped_byte(partition: int, offset: int) -> ChangePiece:
    """The last byte of one message is another, so that its checksum is wrong."""

    def change(data: bytearray, start: int) -> None:
        (size,) = struct.unpack_from(">i", data, start + 8)
        data[start + 12 + size - 1] ^= 0xFF

    return _in_entry(partition, offset, change)


def with_size(partition: int, offset: int, size: int) -> ChangePiece:
    """The size field of one message has an impossible value."""
    return _in_entry(partition, offset, lambda data, start: struct.pack_into(">i", data, start + 8, size))


def with_offset(partition: int, offset: int, found: int) -> ChangePiece:
    """The offset field of one message is changed."""
    return _in_entry(partition, offset, lambda data, start: struct.pack_into(">q", data, start, found))


def _in_entry(partition: int, offset: int, change: Callable[[bytearray, int], None]) -> ChangePiece:
    """Change one entry of a partition, in a copy of the set; `change` gets the copy and where the entry begins."""

    def changed(piece: Piece) -> Piece:
        start = entry_starts(piece.message_set).get(offset)
        if piece.partition != partition or start is None:
            return piece
        data = bytearray(piece.message_set)
        change(data, start)
        return replace(piece, message_set=bytes(data))

    return changed
