"""Stores the offsets of a stream in `/consumers/[group]/offsets`, for monitoring tools and members of the group.

Rules, and what each prevents:
- Each node is written at the version at which it was read, and its offset never decreases: a commit of another process
  is not undone. An offset from before the topic was created anew, and text that is no number, is overwritten.
- An offset of a topic that was created anew since is not written: it would be taken for one of the new topic.
- Nothing is written while the group has members, unless that is allowed: the members would continue from their own
  positions, and an offset that two processes commit means nothing.

Threads: any but the port's callback thread; each call blocks its caller, with a deadline.

Source: docs/SEMANTICS.md, "Fencing"; node format as kafka.utils.ZkUtils, 0.8.2.2.

Stores the offsets of a running stream for its group, and tries again after an error.

Threads: one at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from rebalance.errors import UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Exists, Fault, GetChildren, GetData, Multi, SetData, ZooKeeperPort
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_reads import read_all
from zkconsumer.spark.errors import SparkSourceError
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets
from zkconsumer_error import first_few

__all__ = ["GroupHasMembers", "GroupOffsets", "OffsetsNotStored", "StreamGroup"]


_WRITES: Final = 200
"""Operations in one multi; ZooKeeper's default limit of a request is 1 MB."""
_ROUNDS: Final = 5
_Write = Create | SetData


class GroupHasMembers(SparkSourceError):  # noqa: N818 - as in `errors`, the name says what happened
    """The group whose offsets should be written has members.

    Attributes:
        members: their consumer ids.
    """

    def __init__(self, group: str, members: Sequence[str]) -> None:
        super().__init__(group, members)
        self.group = group
        self.members = list(members)

    remedy = "stop them, use another group.id, or set commitToLiveGroup to true"

    def _sentence(self) -> str:
        shown = first_few(*self.members, rest=", ...")
        verb = "consumer is" if len(self.members) == 1 else "consumers are"
        return f"the offsets of group {self.group!r} are not written: {len(self.members)} {verb} in it ({shown})"


class OffsetsNotStored(SparkSourceError):  # noqa: N818
    """ZooKeeper did not accept offsets.

    Attributes:
        partitions: those whose offsets may not be stored.
    """

    def __init__(self, group: str, partitions: Sequence[TopicPartition], reason: str) -> None:
        super().__init__(group, partitions, reason)
        self.group = group
        self.partitions = list(partitions)
        self.reason = reason

    def _sentence(self) -> str:
        names = first_few(*[f"{topic}-{number}" for topic, number in self.partitions], rest=", ...")
        return f"offsets of group {self.group!r} are not stored for {names}: {self.reason}"


class GroupOffsets:
    """The offset nodes of one group.

    Args:
        port: a connected ZooKeeper port.
        group: whose `/offsets`.
        is_live_allowed: whether to write although the group has members.
        timeout_s: for each call.
    """

    def __init__(self, port: ZooKeeperPort, group: str, is_live_allowed: bool = False, timeout_s: float = 10.0) -> None:
        self._port = port
        self._group = group
        self._is_live_allowed = is_live_allowed
        self._timeout_s = timeout_s
        self._parents: set[str] = set()

    def refuse_members(self) -> None:
        """Raise if the group has members and that is not allowed.

        Raises:
            GroupHasMembers: the text names them.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        self._check_members(read_all(self._port, [GetChildren(znodes.ids_path(self._group))], self._timeout_s)[0])

    def _check_members(self, listing: tuple[list[str], object] | None) -> None:
        members = [] if listing is None else sorted(listing[0])
        if members and not self._is_live_allowed:
            raise GroupHasMembers(self._group, members)

    def commit(self, offsets: Mapping[TopicPartition, int], created_zxids: Mapping[str, int]) -> int:
        """Store offsets that are higher than the stored ones; return how many were written.

        Args:
            created_zxids: topic -> the transaction that created it. An offset that was stored before that transaction
                is of an earlier incarnation of the topic and may be overwritten. Offsets of a topic that was created
                anew since are left out.

        Raises:
            GroupHasMembers: nothing was written.
            OffsetsNotStored: some may not have been written.
            ZooKeeperSilent: ZooKeeper does not answer.
        """
        ends_at = time.monotonic() + self._timeout_s
        written, reason = 0, "other processes keep writing them"
        left = dict(offsets)
        for _ in range(_ROUNDS):
            writes = self._needed(left, created_zxids, ends_at)
            if not writes:
                return written
            self._make_parents(writes, ends_at)
            names = list(writes)
            for first in range(0, len(names), _WRITES):
                batch = names[first : first + _WRITES]
                reply = call(self._port, Multi(tuple(writes[name] for name in batch)), _until(ends_at))
                if reply.fault is not None:
                    if not reply.fault.is_unknown:
                        raise OffsetsNotStored(self._group, names[first:], reply.reason or reply.fault.value)
                    reason = reply.reason
                    break
                self._refuse_rights(batch, reply.value)
                if not any(isinstance(result, Fault) for result in reply.value):
                    written += len(batch)
            self._parents.clear()  # a parent node may have been deleted
            left = {name: left[name] for name in names}
        raise OffsetsNotStored(self._group, list(left), reason)

    def _refuse_rights(self, names: Sequence[TopicPartition], results: Sequence[Any]) -> None:
        """Raise for errors that another round would not repair."""
        passing = (Fault.BAD_VERSION, Fault.NO_NODE, Fault.NODE_EXISTS, Fault.ROLLED_BACK)
        for name, result in zip(names, results, strict=True):
            if isinstance(result, Fault) and result not in passing:
                path = znodes.offset_path(self._group, *name)
                raise OffsetsNotStored(self._group, names, f"{result.value}: {refusal_of('write', path, result)}")

    def _needed(
        self, offsets: Mapping[TopicPartition, int], created_zxids: Mapping[str, int], ends_at: float
    ) -> dict[TopicPartition, _Write]:
        """The writes that raise the nodes to the offsets."""
        paths = {name: znodes.offset_path(self._group, *name) for name in offsets}
        topics = sorted({name.topic for name in offsets} & created_zxids.keys())
        reads: list[GetChildren | Exists | GetData] = [GetChildren(znodes.ids_path(self._group))]
        reads += [Exists(znodes.topic_path(topic)) for topic in topics]
        reads += [GetData(path) for path in paths.values()]
        members, *found = read_all(self._port, reads, _until(ends_at))
        self._check_members(members)
        stats, values = found[: len(topics)], found[len(topics) :]
        recreated = {topic for topic, stat in zip(topics, stats, strict=True)
                  if stat is not None and stat.czxid != created_zxids[topic]}  # fmt: skip
        writes: dict[TopicPartition, _Write] = {}
        for (name, path), value in zip(paths.items(), values, strict=True):
            if name.topic in recreated:
                continue
            data = znodes.format_offset(offsets[name])
            if value is None:
                writes[name] = Create(path, data)
            elif _is_to_be_written(path, value, offsets[name], created_zxids.get(name.topic, 0)):
                writes[name] = SetData(path, data, value[1].version)
        return writes

    def _make_parents(self, writes: Mapping[TopicPartition, _Write], ends_at: float) -> None:
        topics = {name.topic for name, write in writes.items() if isinstance(write, Create)} - self._parents
        if not topics:
            return
        folders: dict[str, None] = {}
        for topic in sorted(topics):
            parts = znodes.offsets_path(self._group, topic).split("/")[1:]
            folders.update(dict.fromkeys("/" + path for path in accumulate(parts, "{}/{}".format)))
        for folder in folders:
            reply = call(self._port, Create(folder), _until(ends_at))
            if reply.fault in (None, Fault.NODE_EXISTS):
                continue
            # ZooKeeper checks the access list of the parent first, even if the node exists already.
            if reply.fault is not Fault.NO_AUTH or read_all(self._port, [Exists(folder)], _until(ends_at)) == [None]:
                refusal = refusal_of("create", folder, reply.fault, reply.reason)
                raise OffsetsNotStored(self._group, list(writes), refusal)
        self._parents |= topics


def _is_to_be_written(path: str, value: tuple[bytes, Any], offset: int, created_zxid: int) -> bool:
    data, stat = value
    try:
        stored = znodes.parse_offset(path, data)
    except UnreadableNode:
        return True
    return stored < offset or (stored != offset and stat.mzxid < created_zxid)


def _until(ends_at: float) -> float:
    return max(0.01, ends_at - time.monotonic())


log = logging.getLogger(__name__)

_RETRY_S: Final = 5.0
"""Between two tries to store the same offsets."""


class StreamGroup:
    """The group of a stream.

    Args:
        group: Where the offsets are stored.
    """

    def __init__(self, group: GroupOffsets) -> None:
        self._group = group
        self._stored: StreamOffsets | None = None
        self._refused: StreamOffsets | None = None
        self._retry_at = 0.0

    def store(self, offsets: StreamOffsets, is_connected: bool) -> None:
        """Store offsets, unless they are stored. An error is logged once, and tried again after some seconds.

        Args:
            is_connected: Whether ZooKeeper is connected.
        """
        if offsets == self._stored or (offsets == self._refused and time.monotonic() < self._retry_at):
            return
        try:
            if not is_connected:
                raise SparkSourceError("ZooKeeper is not connected")
            self._group.commit(offsets.offsets, offsets.created_zxids)
        except Exception as error:  # noqa: BLE001 - it would end the query, and the offsets are in the checkpoint
            if offsets != self._refused:
                log.warning("offsets are kept in the checkpoint and not stored for the group yet: %s", error)
            self._refused, self._retry_at = offsets, time.monotonic() + _RETRY_S
        else:
            self._stored = offsets
