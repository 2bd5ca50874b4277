"""Reads ZooKeeper requests out of a byte stream, to count them. Pure.

A frame is a 4-byte length, then `int xid, int type`, then the record. A multi is counted by its parts.
Source: ZooKeeper 3.4.6, zookeeper.jute, ZooDefs.java (OpCode), MultiTransactionRecord.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

KINDS = {
    1: "create", 2: "delete", 3: "exists", 4: "get_data", 5: "set_data", 6: "get_acl", 7: "set_acl", 8: "get_children",
    9: "sync", 11: "ping", 12: "get_children", 13: "check", 14: "multi", 15: "create", 19: "create", 21: "create",
    100: "auth", 101: "set_watches", 105: "set_watches", -11: "close",
}  # fmt: skip
MULTI = 14
WITH_PATH = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 19, 21}
CREATES = {1, 15, 19, 21}
CREATE_TTL = 21
MAX_FRAME_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ZooKeeperRequest:
    """One request or one part of a multi: what kind, on which path (empty where it has none).

    `frame` counts the frames of its connection; the parts of a multi share it.
    """

    kind: str
    path: str = ""
    in_multi: bool = False
    frame: int = field(default=0, compare=False)


class RequestReader:
    """Requests of one client connection, fed as they arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._greeted = False
        self._deaf = False
        self._frames = 0

    def feed(self, chunk: bytes) -> list[ZooKeeperRequest]:
        """The requests that `chunk` completes.

        The first frame is the connect request (kind `connect`). A four-letter word, or a length out of bounds, ends the
        reading of this connection.
        """
        if self._deaf:
            return []
        self._buffer += chunk
        found: list[ZooKeeperRequest] = []
        while len(self._buffer) >= 4:
            (length,) = struct.unpack_from(">i", self._buffer)
            if not 0 <= length <= MAX_FRAME_BYTES:
                self._deaf = True
                found.append(ZooKeeperRequest("four_letter" if not self._greeted else "unreadable"))
                break
            if len(self._buffer) < 4 + length:
                break
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            if self._greeted:
                self._frames += 1
                found += [replace(each, frame=self._frames) for each in parse_request(body)]
            else:
                self._greeted = True
                found.append(ZooKeeperRequest("connect"))
        return found


def parse_request(body: bytes) -> list[ZooKeeperRequest]:
    """The request in one frame (without its length); the parts of a multi.

    Raises:
        ValueError: the frame ends too early, or a multi has a part of unknown type.
    """
    try:
        _, kind = struct.unpack_from(">ii", body)
        if kind == MULTI:
            return _parts(body, 8)
        path = _string(body, 8)[0] if kind in WITH_PATH else ""
    except struct.error as error:
        raise ValueError(f"ZooKeeper request of {len(body)} bytes: {error}") from error
    return [ZooKeeperRequest(KINDS.get(kind, f"type {kind}"), path)]


def _parts(body: bytes, at: int) -> list[ZooKeeperRequest]:
    parts: list[ZooKeeperRequest] = []
    while True:
        kind, done, _ = struct.unpack_from(">i?i", body, at)
        at += 9
        if done:
            return parts
        path, at = _string(body, at)
        parts.append(ZooKeeperRequest(KINDS.get(kind, f"type {kind}"), path, in_multi=True))
        if kind in CREATES:
            at = _skip_string(body, at)
            (entries,) = struct.unpack_from(">i", body, at)
            at += 4
            for _ in range(max(entries, 0)):
                at = _skip_string(body, _skip_string(body, at + 4))
            at += 4 + (8 if kind == CREATE_TTL else 0)
        elif KINDS.get(kind) == "set_data":
            at = _skip_string(body, at) + 4
        elif KINDS.get(kind) in ("delete", "check"):
            at += 4
        else:
            raise ValueError(f"part of type {kind} in a multi of {len(body)} bytes")


def _string(body: bytes, at: int) -> tuple[str, int]:
    end = _skip_string(body, at)
    return body[at + 4 : end].decode("utf-8", "replace"), end


def _skip_string(body: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">i", body, at)
    return at + 4 + max(int(length), 0)
