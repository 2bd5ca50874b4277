"""Reads the positions of groups out of a data folder of ZooKeeper, without a server."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from simpleconsumer.codecs import SNAPPY, decompress
from simpleconsumer.errors import BufferUnderflow, DecodeError, LimitExceeded
from zkconsumer.log.groups import StoredPosition
from zkconsumer.log.segment_file import ReadOnlyFile
from zkconsumer.log.values import LogFailed
from zkconsumer.log.zookeeper_files import (
    MOST_FIELD_BYTES,
    JuteStream,
    LogFault,
    OffsetNode,
    OffsetTree,
    TransactionLog,
    nodes_of_snapshot,
)
from zkconsumer_error import first_few

_FOLDER: Final = "version-2"
_NAME: Final = re.compile(r"(?P<kind>snapshot|log)\.(?P<zxid>[0-9a-f]{1,16})(?P<codec>\.gz|\.snappy)?")
_PIECE_BYTES: Final = 1024 * 1024
_GZIP_WINDOW: Final = 31
_SNAPPY_HEAD_BYTES: Final = 16
_SIZE: Final = Struct(">I")
_OFFSET: Final = re.compile(rb"-?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_FIRST_EPOCH: Final = 1
"""The epoch of the first leader of an ensemble; a server that runs alone stays in epoch 0."""


class DataFile(NamedTuple):
    """A file of ZooKeeper: its path, the zxid in its name, and how it is compressed."""

    path: Path
    zxid: int
    codec: str


class ZooKeeperPositions(NamedTuple):
    """The positions of groups that a data folder has.

    Attributes:
        positions: Those of each cluster, by the path under which the cluster has its nodes; empty for the root.
        unreadable: Paths of nodes with offsets that are no numbers, by the path of their cluster as above.
        zxid: The last transaction that is in them.
        time_ms: Its time; -1 if no log has it.
        faults: What is damaged or missing, and may have changed a position.
        notes: What looks like a fault and is none.
    """

    positions: dict[str, list[StoredPosition]]
    unreadable: dict[str, list[str]]
    zxid: int
    time_ms: int
    faults: list[str]
    notes: list[str]


def is_zookeeper_folder(folder: Path) -> bool:
    """Return whether a folder is a data folder of ZooKeeper, or the `version-2` folder in one.

    A broker's folder may have a `version-2`, too: partition 2 of the topic `version`.
    """
    inner = folder if folder.resolve().name == _FOLDER else folder / _FOLDER
    try:
        return any(_NAME.fullmatch(path.name) for path in inner.iterdir())
    except OSError:
        return False


def read_positions(folders: Sequence[Path]) -> ZooKeeperPositions:
    """Return the positions of groups in `dataDir` and `dataLogDir` of a ZooKeeper server; files are only read.

    The newest sound snapshot counts, and each transaction after it.

    Raises:
        LogFailed: A folder has no such files, or one cannot be read or changes meanwhile.
    """
    snapshots, logs = _files(folders)
    faults: list[str] = []
    notes: list[str] = []
    nodes = _from_snapshots(snapshots, notes)
    if not logs and snapshots[0].zxid:
        faults.append(f"no transaction log is there, so nothing after {snapshots[0].path.name} is read: "
                      "give the dataLogDir of the server, too")  # fmt: skip
    after = -1 if nodes.zxid is None else nodes.zxid
    first = max((number for number, file in enumerate(logs) if file.zxid <= after + 1), default=0)
    for file in logs[first:]:
        _apply(file, nodes, faults, notes)
    newest = max((file.zxid for file in snapshots), default=0)
    if newest > (nodes.zxid or 0):
        faults.append(f"transactions {(nodes.zxid or 0) + 1:#x} to {newest:#x} are in no sound file")
    found: dict[str, list[StoredPosition]] = {}
    unreadable: dict[str, list[str]] = {}
    for node in nodes.rows():
        if _OFFSET.fullmatch(node.value):
            found.setdefault(node.root, []).append(_position(node))
        else:
            path = f"{node.root}/consumers/{node.group}/offsets/{node.topic}/{node.partition}"
            unreadable.setdefault(node.root, []).append(path)
    return ZooKeeperPositions(found, unreadable, nodes.zxid or 0, nodes.time_ms, faults, notes)


def _position(node: OffsetNode) -> StoredPosition:
    is_number = _NUMBER.fullmatch(node.partition) is not None
    return StoredPosition(node.group, node.topic, int(node.partition) if is_number else node.partition,
                          int(node.value), -1, "", node.changed_ms, "zookeeper")  # fmt: skip


def _files(folders: Sequence[Path]) -> tuple[list[DataFile], list[DataFile]]:
    """Return snapshots, the newest one first, and logs, the oldest one first."""
    found: dict[str, list[DataFile]] = {"snapshot": [], "log": []}
    for given in folders:
        folder = given / _FOLDER if (given / _FOLDER).is_dir() else given
        try:
            paths = sorted(folder.iterdir())
        except OSError as error:
            raise LogFailed(f"{folder} cannot be listed: {error.strerror or error}") from error
        matches = [(path, _NAME.fullmatch(path.name)) for path in paths]
        here = [(path, match) for path, match in matches if match is not None]
        if not here:
            raise LogFailed(f"{given} has no data of ZooKeeper",
                            "give its dataDir, which has version-2 with snapshot.* and log.* in it")  # fmt: skip
        for path, match in here:
            found[match["kind"]].append(DataFile(path, int(match["zxid"], 16), match["codec"] or ""))
    snapshots = sorted(found["snapshot"], key=lambda file: file.zxid, reverse=True)
    return snapshots, sorted(found["log"], key=lambda file: file.zxid)


def _from_snapshots(snapshots: Sequence[DataFile], notes: list[str]) -> OffsetTree:
    """Return what the newest sound snapshot has; nothing if there is none.

    A server that was killed while it wrote a snapshot leaves a part of it. The logs after the one before have the same.
    """
    for number, file in enumerate(snapshots):
        nodes = OffsetTree(file.zxid)
        with ReadOnlyFile(file.path) as opened:
            try:
                for path, data, changed_ms in nodes_of_snapshot(JuteStream(_pieces(opened, file.codec))):
                    nodes.put(path, data, changed_ms)
            except DecodeError as error:
                instead = "an older one is read" if number + 1 < len(snapshots) else "only the logs are read"
                notes.append(f"{file.path} is no whole snapshot: {_with_pages(str(error), opened)}; {instead}")
                continue
            opened.check()
        return nodes
    return OffsetTree()


def _apply(file: DataFile, nodes: OffsetTree, faults: list[str], notes: list[str]) -> None:
    """Apply the transactions of a log."""
    with ReadOnlyFile(file.path) as opened:
        for item in TransactionLog(opened.read, opened.size):
            if isinstance(item, LogFault):
                said = f"{file.path}, bytes {item.start} to {item.end}: {item.reason}"
                if item.is_torn and not opened.is_unreadable(item.start, item.end):
                    notes.append(f"{said}; the server had not acknowledged it")
                else:
                    faults.append(said)
                continue
            if nodes.zxid is None and item.zxid >> 32 > _FIRST_EPOCH:
                faults.append(f"no sound snapshot is there, and {file.path} starts with transaction {item.zxid:#x}: "
                              "give the dataDir of the server, too")  # fmt: skip
            if missing := nodes.apply(item):
                faults.append(f"{file.path}: transactions {missing[0]:#x} to {missing[1]:#x} are missing there")
        if opened.unreadable:
            faults.append(f"{file.path}: {_unreadable(opened)}; what was there is not in the positions")
        opened.check()


def _with_pages(reason: str, file: ReadOnlyFile) -> str:
    return f"{reason}; {_unreadable(file)}" if file.unreadable else reason


def _unreadable(file: ReadOnlyFile) -> str:
    ranges = (f"{start} to {end}" for start, end in file.unreadable_ranges())
    return f"the disk cannot read bytes {first_few(*ranges)}"


def _pieces(file: ReadOnlyFile, codec: str) -> Iterator[bytes]:
    """Yield the bytes of a snapshot, decompressed."""
    if codec == ".snappy":
        return _unsnappy(file)
    raw = (file.read(at, min(_PIECE_BYTES, file.size - at)) for at in range(0, file.size, _PIECE_BYTES))
    return _gunzip(raw) if codec == ".gz" else raw


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for piece in pieces:
            left = piece
            while left and not stream.eof:
                yield stream.decompress(left, _PIECE_BYTES)
                left = stream.unconsumed_tail
    except zlib.error as error:
        raise DecodeError(f"gzip: {error}") from error
    if not stream.eof:
        raise BufferUnderflow("gzip: the file is cut off")


def _unsnappy(file: ReadOnlyFile) -> Iterator[bytes]:
    """Yield the blocks of a stream that snappy-java has written: a head, then length and block."""
    position = _SNAPPY_HEAD_BYTES
    while position < file.size:
        if file.size - position < _SIZE.size:
            raise BufferUnderflow(f"snappy: the file is cut off at byte {position}")
        [length] = _SIZE.unpack(file.read(position, _SIZE.size))
        position += _SIZE.size
        if length > MOST_FIELD_BYTES:
            raise LimitExceeded(f"snappy: a block has {length} bytes, of at most {MOST_FIELD_BYTES}")
        if length > file.size - position:
            raise BufferUnderflow(f"snappy: a block of {length} bytes is cut off at byte {file.size}")
        yield decompress(SNAPPY, file.read(position, length), MOST_FIELD_BYTES)
        position += length
