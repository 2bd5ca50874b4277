"""The offset nodes of one group in ZooKeeper: reads them, and keeps what is known of each.

Source: node format as kafka.utils.ZkUtils, 0.8.2.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rebalance.assignment import Partition
from rebalance.errors import UnreadableNode, refusal_of
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Ask, create_parents
from rebalance.zookeeper.port.requests import GetData, Reply
from zkconsumer.offsets.known_offsets import KnownOffsets

__all__ = ["OffsetNodes"]

log = logging.getLogger(__name__)


class OffsetNodes:
    """The offset nodes of one group, as one member knows them.

    Args:
        ask: sends requests.
        group: whose `/offsets`.
        known: what the member knows of the stored offsets; reads are noted there.

    Attributes:
        records: partition -> what is known of its node, as in `known`.
        refused: partition -> why its node cannot be read, as a sentence.
        parents: topics whose parent node is known to exist.

    Threads: the coordinator's alone; `records` may be read from any thread.
    """

    def __init__(self, ask: Ask, group: str, known: KnownOffsets) -> None:
        self.ask = ask
        self.group = group
        self.records = known.records
        self.record = known.record
        self.refused: dict[Partition, str] = {}
        self.parents: set[str] = set()

    def path(self, partition: Partition) -> str:
        """The path of the node of a partition."""
        return znodes.offset_path(self.group, *partition)

    def read(self, partition: Partition, handle: Callable[[Reply], None]) -> None:
        """Read the node of a partition."""
        self.ask(GetData(self.path(partition)), handle)

    def read_refusal(self, partition: Partition, reply: Reply) -> str:
        """Why the node could not be read."""
        assert reply.fault is not None
        return refusal_of("read", self.path(partition), reply.fault, reply.reason)

    def note(self, partition: Partition, reply: Reply) -> bool:
        """Update the record from the answer to a read; `False` if the answer says nothing about the node."""
        if reply.fault is not None and reply.fault.is_refusal:
            refusal = self.read_refusal(partition, reply)
            if partition not in self.refused:
                log.warning("offset of %s-%s cannot be read: %s", *partition, refusal)
            self.refused[partition] = f"its offset cannot be read: {refusal}"
            return False
        if reply.fault is not None and reply.fault.is_lost:
            return False
        self.refused.pop(partition, None)
        if reply.fault is not None:
            self.record(partition).seen(None, None)
            return True
        data, stat = reply.value
        try:
            offset = znodes.parse_offset(self.path(partition), data)
        except UnreadableNode as error:
            log.warning("%s; treated as missing", error)
            self.record(partition).seen(None, stat.version, stat.mzxid)
        else:
            self.record(partition).seen(offset, stat.version, stat.mzxid)
        return True

    def create_parents(self, topics: Iterable[str], done: Callable[[Reply], None]) -> None:
        """Create the parent nodes of the offsets of some topics; `done` as for `claims.create_parents`."""
        group = znodes.group_path(self.group)
        paths = [znodes.CONSUMERS, group, f"{group}/offsets"]
        create_parents(self.ask, [*paths, *(znodes.offsets_path(self.group, topic) for topic in topics)], done)
