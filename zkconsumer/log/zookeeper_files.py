"""Reads snapshots and transaction logs of ZooKeeper 3.3 to 3.9. Pure.

    snapshot  "ZKSN", int32 2, int64 database; sessions; access lists; nodes (string path, buffer data, int64 access
              list, 60 bytes of times and versions) up to the path "/"; int64 Adler-32 of everything before it, and
              the string "/"; from 3.6 on more
    log       "ZKLG", int32 2, int64 database; transactions, then zeros: int64 Adler-32 of the buffer, buffer, byte "B".
              A buffer holds int64 session, int32 request, int64 zxid, int64 time, int32 type, and what is changed

A server writes a snapshot while nodes change. So it may hold later changes than the zxid in its name: transactions
after that zxid are applied again, and one that the snapshot has already changes nothing.

Only nodes with offsets of groups are kept.

Source: org.apache.zookeeper.server.persistence.FileSnap, FileTxnLog, SnapStream; server.DataTree; zookeeper.jute
(3.3.6, 3.4.14, 3.9.5).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import adler32

from simpleconsumer.errors import BufferUnderflow, DecodeError, LimitExceeded

MOST_FIELD_BYTES: Final = 64 * 1024 * 1024
"""The largest field, and the largest transaction; servers take 1 MB (`jute.maxbuffer`)."""
_FRAME: Final = Struct(">QI")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_FILE_HEAD: Final = Struct(">4siq")
_VERSION: Final = 2
_SESSION_BYTES: Final = 12
_NODE_STAT: Final = Struct(">q24xq28x")
"""Number of the access list; zxids and time of its creation; time of its last change; versions, owner, zxid."""
_HEAD: Final = Struct(">qiqqi")
_MOST_LISTS: Final = 10_000_000
_MOST_VALUE_BYTES: Final = 64
_OFFSET_NODE: Final = re.compile(r"((?:/[^/]+)*)/consumers/([^/]+)/offsets/([^/]+)/([^/]+)")
_CREATES: Final = frozenset({1, 15, 19, 21})  # create, create2, createContainer, createTTL
_DELETES: Final = frozenset({2, 20})  # delete, deleteContainer
_SET_DATA: Final = 5
_MULTI: Final = 14
_ERROR: Final = -1
_READ_BYTES: Final = 1024 * 1024
_FIRST_BYTES: Final = 64
"""So many bytes behind a fault are looked at first, then more: mostly the next transaction is near."""
_CHECKSUM: Final = "the Adler-32 of a transaction does not fit"
_CANDIDATE: Final = re.compile(rb"(?s)(?=\x00{4}.{4}(?!\x00{4})[\x00-\x04].{3})")
"""Where a transaction may start: a checksum of 4 bytes, and a length that is not zero."""
_LOOKAHEAD: Final = 12
_TRIED_BYTES: Final = 64 * 1024 * 1024
_TRIED_A_BYTE: Final = 16
"""So many bytes are read and checked at most, and so many more for each byte of the file."""
_TRIED_PLACE: Final = 64
"""A place that is tried counts as so many bytes."""


class OffsetNode(NamedTuple):
    """A node with an offset of a group.

    Attributes:
        root: The path under which the cluster has its nodes; empty for the root.
        partition: The name of the node; `broker-partition` in Kafka 0.7.
        value: Its data, or the first bytes of data that are too long for a number.
        changed_ms: When it was written.
    """

    root: str
    group: str
    topic: str
    partition: str
    value: bytes
    changed_ms: int


class TreeTransaction(NamedTuple):
    """What a transaction changes in nodes with offsets: their data by path, None for a node that is deleted."""

    zxid: int
    time_ms: int
    changes: list[tuple[str, bytes | None]]


class JuteStream:
    """Reads fields from a stream, and computes the checksum of what was read.

    Args:
        pieces: The bytes, in any pieces.

    Attributes:
        position: How many bytes were read.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._data = b""
        self._at = 0
        self._summed = 0
        self._adler = 1
        self._before = 0

    @property
    def position(self) -> int:
        return self._before + self._at

    def checksum(self) -> int:
        """Return the Adler-32 of all bytes that were read."""
        self._adler = adler32(memoryview(self._data)[self._summed : self._at], self._adler)
        self._summed = self._at
        return self._adler

    def skip(self, size: int) -> None:
        """Pass by so many bytes."""
        self._have(size)
        self._at += size

    def int32(self) -> int:
        self._have(4)
        self._at += 4
        return int(_INT32.unpack_from(self._data, self._at - 4)[0])

    def int64(self) -> int:
        return self.fields(_INT64)[0]

    def fields(self, form: Struct) -> tuple[int, ...]:
        self._have(form.size)
        self._at += form.size
        return form.unpack_from(self._data, self._at - form.size)

    def buffer(self) -> bytes:
        """Return a buffer; null is empty."""
        size = self.int32()
        if size <= 0:
            if size < -1:
                raise DecodeError(f"byte {self.position - 4}: a field has the length {size}")
            return b""
        return self.bytes(size)

    def bytes(self, size: int) -> bytes:
        self._have(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def string(self) -> str:
        return self.buffer().decode("utf-8", "surrogateescape")

    def _have(self, size: int) -> None:
        """Have so many bytes in hand.

        Raises:
            LimitExceeded: A field is larger than any server writes.
            BufferUnderflow: The stream ends before.
        """
        if len(self._data) - self._at >= size:
            return
        if size > MOST_FIELD_BYTES:
            raise LimitExceeded(f"byte {self.position}: a field has {size} bytes, of at most {MOST_FIELD_BYTES}")
        self.checksum()
        self._before += self._at
        pieces = [self._data[self._at :]]
        held = len(pieces[0])
        while held < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise BufferUnderflow(f"byte {self._before}: a field has {size} bytes, and the file ends after {held}")
            pieces.append(piece)
            held += len(piece)
        self._data, self._at, self._summed = b"".join(pieces), 0, 0


def nodes_of_snapshot(stream: JuteStream) -> Iterator[tuple[str, bytes, int]]:
    """Yield path, data and time of the nodes with offsets in a snapshot, then compare its checksum.

    What was yielded before an error may be wrong.

    Raises:
        DecodeError: It is not a snapshot, is cut off, or its checksum does not fit.
    """
    check_head(stream.bytes(_FILE_HEAD.size), b"ZKSN")
    stream.skip(_count(stream, "sessions") * _SESSION_BYTES)
    for _ in range(_count(stream, "access lists")):
        stream.int64()
        for _ in range(_count(stream, "entries of an access list")):
            stream.int32()
            stream.buffer()
            stream.buffer()
    while (path := stream.string()) != "/":
        data = stream.buffer()
        _, changed_ms = stream.fields(_NODE_STAT)
        if _is_offset(path):
            yield path, data, changed_ms
    computed, stated = stream.checksum(), stream.int64()
    if computed != stated:
        raise DecodeError(f"byte {stream.position - 8}: the Adler-32 is {computed:#x}, the snapshot says {stated:#x}")
    if (mark := stream.string()) != "/":
        raise DecodeError(f"byte {stream.position - len(mark)}: the end mark is {mark[:20]!r}, and it must be '/'")


def _count(stream: JuteStream, what: str) -> int:
    count = stream.int32()
    if not -1 <= count <= _MOST_LISTS:
        raise LimitExceeded(f"byte {stream.position - 4}: it has {count} {what}, of at most {_MOST_LISTS}")
    return max(count, 0)


def check_head(head: bytes, magic: bytes) -> None:
    """Check the first 16 bytes of a file.

    Raises:
        DecodeError: They are those of another kind of file, or of a version that no server writes.
    """
    if len(head) < _FILE_HEAD.size:
        raise BufferUnderflow(f"it has {len(head)} bytes, fewer than its head")
    found, version, _ = _FILE_HEAD.unpack_from(head)
    if found != magic or version != _VERSION:
        raise DecodeError(f"it starts with {found!r} and version {version}, not with {magic!r} and version {_VERSION}")


def transaction_of(data: bytes) -> TreeTransaction:
    """Return the transaction in a frame of a log whose checksum fits.

    Raises:
        DecodeError: It is too short for its fields.
    """
    stream = JuteStream(iter((data,)))
    _, _, zxid, time_ms, kind = stream.fields(_HEAD)
    return TreeTransaction(zxid, time_ms, _changes(stream, kind))


def _changes(stream: JuteStream, kind: int) -> list[tuple[str, bytes | None]]:
    """Return what a transaction changes; fields that follow, and kinds that change no data, are passed by."""
    if kind == _MULTI:
        parts = [(stream.int32(), stream.buffer()) for _ in range(_count(stream, "parts"))]
        if any(part == _ERROR for part, _ in parts):
            return []  # all of them or none
        return [change for part, body in parts for change in _changes(JuteStream(iter((body,))), part)]
    if kind in _DELETES:
        path = stream.string()
        return [(path, None)] if _is_offset(path) else []
    if kind in _CREATES or kind == _SET_DATA:
        path = stream.string()
        return [(path, stream.buffer())] if _is_offset(path) else []
    return []


def _is_offset(path: str) -> bool:
    return "/offsets/" in path and _OFFSET_NODE.fullmatch(path) is not None


class OffsetTree:
    """The nodes with offsets, as snapshot and transactions leave them.

    Attributes:
        zxid: The last transaction that is in them; None before any.
        time_ms: Its time; -1 if only the snapshot is known.
    """

    def __init__(self, zxid: int | None = None) -> None:
        self.zxid = zxid
        self.time_ms = -1
        self._nodes: dict[str, tuple[bytes, int]] = {}

    def put(self, path: str, data: bytes, changed_ms: int) -> None:
        """Take a node of a snapshot."""
        self._nodes[path] = data[:_MOST_VALUE_BYTES], changed_ms

    def apply(self, transaction: TreeTransaction) -> tuple[int, int] | None:
        """Take a transaction, if it is later than the last one.

        Returns:
            The first and the last zxid of transactions between the two that are missing; None for none. Each leader
            counts from 1 in its epoch, and leaves out no number.
        """
        before, self.zxid = self.zxid, max(transaction.zxid, -1 if self.zxid is None else self.zxid)
        if before is not None and transaction.zxid <= before:
            return None
        self.time_ms = transaction.time_ms
        for path, data in transaction.changes:
            if data is None:
                self._nodes.pop(path, None)
            else:
                self.put(path, data, transaction.time_ms)
        return missing_between(before, transaction.zxid)

    def rows(self) -> Iterator[OffsetNode]:
        """Yield the nodes, by path."""
        for path in sorted(self._nodes):
            data, changed_ms = self._nodes[path]
            if (found := _OFFSET_NODE.fullmatch(path)) is not None:
                yield OffsetNode(found[1], found[2], found[3], found[4], data, changed_ms)


def missing_between(before: int | None, zxid: int) -> tuple[int, int] | None:
    """Return the zxids that are missing before one, in its epoch; None for none.

    An epoch in which nothing was changed has no transactions, and nothing says which one is the last of an epoch.

    >>> missing_between(0x100000005, 0x100000009), missing_between(0x100000005, 0x300000001)
    ((4294967302, 4294967304), None)
    >>> missing_between(0x100000005, 0x200000003)
    (8589934593, 8589934594)
    """
    expected = (before if before is not None and before >> 32 == zxid >> 32 else zxid >> 32 << 32) + 1
    return (expected, zxid - 1) if zxid > expected else None


class LogFault(NamedTuple):
    """Bytes of a log in which no transaction can be read.

    Attributes:
        is_torn: They look like a write that a crash has cut off: the server had not acknowledged it.
    """

    start: int
    end: int
    reason: str
    is_torn: bool


class TransactionLog:
    """The transactions of one log file.

    Args:
        read: Returns bytes of the file: so many from a position on.
        size: Of the file.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._budget = _TRIED_BYTES + _TRIED_A_BYTE * size
        self._piece = b""
        self._piece_at = 0

    def __iter__(self) -> Iterator[TreeTransaction | LogFault]:
        """Yield the transactions, and where none can be read; reading goes on at the next frame that fits."""
        try:
            check_head(self._bytes(0, min(_FILE_HEAD.size, self._size)), b"ZKLG")
        except DecodeError as error:
            yield LogFault(0, self._size, str(error), isinstance(error, BufferUnderflow) or self._is_zero(0))
            return
        position = _FILE_HEAD.size
        while position < self._size:
            found = self._frame(position)
            if isinstance(found, tuple):
                transaction, position = found
                yield transaction
                continue
            if self._is_zero(position):
                return
            end = self._next_frame(position + 1)
            if end is None:
                reason = f"{found}; too much behind it looks like transactions, and nothing more is read"
                yield LogFault(position, self._size, reason, is_torn=False)
                return
            yield LogFault(position, end, found, is_torn=end == self._size and found != _CHECKSUM)
            position = end

    def _frame(self, position: int) -> tuple[TreeTransaction, int] | str:
        """Return the transaction at a position and where the next one starts, or why there is none."""
        if self._size - position <= _FRAME.size:
            return "too few bytes for a transaction"
        stated, length = _FRAME.unpack_from(self._bytes(position, _FRAME.size))
        end = position + _FRAME.size + length
        if length < _HEAD.size or length > MOST_FIELD_BYTES:
            return f"a transaction has the length {length}"
        if end >= self._size:
            return f"a transaction has the length {length}, and the file ends before its end"
        if self._byte(end) != b"B":
            return "the end mark of a transaction is missing"
        data = self._bytes(position + _FRAME.size, length)
        self._budget -= length
        if adler32(data) != stated:
            return _CHECKSUM
        try:
            return transaction_of(data), end + 1
        except DecodeError as error:
            return f"its checksum fits, and it cannot be read: {error}"

    def _next_frame(self, position: int) -> int | None:
        """Return where the next frame that fits starts, or the end of the file; None if too much looked like one."""
        length = 4 * _FIRST_BYTES
        while position < self._size:
            piece = self._bytes(position, min(length, self._size - position))
            for match in _CANDIDATE.finditer(piece):
                self._budget -= _TRIED_PLACE
                if self._budget < 0:
                    return None
                if isinstance(self._frame(position + match.start()), tuple):
                    return position + match.start()
            position += max(len(piece) - _LOOKAHEAD, 1)
            length = min(4 * length, _READ_BYTES)
        return self._size

    def _byte(self, position: int) -> bytes:
        """Return one byte; the piece stays where it is, because the byte mostly says that no frame is there."""
        start = position - self._piece_at
        if 0 <= start < len(self._piece):
            return self._piece[start : start + 1]
        self._budget -= _TRIED_PLACE
        return self._read(position, 1)

    def _bytes(self, position: int, size: int) -> bytes:
        """Return bytes of the file, through a piece of it that is kept."""
        start = position - self._piece_at
        if start < 0 or start + size > len(self._piece):
            wanted = min(max(size, _READ_BYTES), self._size - position)
            self._budget -= wanted
            self._piece, self._piece_at, start = self._read(position, wanted), position, 0
        return self._piece[start : start + size]

    def _is_zero(self, position: int) -> bool:
        """Return whether the rest of the file is zeros: room that the server has reserved."""
        length = _FIRST_BYTES
        while position < self._size:
            piece = self._read(position, min(length, self._size - position))
            if piece.count(0) < len(piece):
                return False
            position += len(piece)
            length = min(4 * length, _READ_BYTES)
        return True
