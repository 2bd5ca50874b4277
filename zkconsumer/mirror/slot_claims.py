"""Shares the slots of a mirror among its processes by nodes in the ZooKeeper of the target: for Kafka 0.8 to 0.10.

Brokers of 0.8 coordinate no groups, and those before 0.11 refuse no repeat. So a process copies a slot only while it
has its node, which ends with its session: of two processes one has it.

    /zkconsumer/mirrors/NAME/members/ID   ephemeral, one for each process
    /zkconsumer/mirrors/NAME/slots/N      ephemeral, holds the id of the process that copies the slot

Rules, and which failure each prevents:
- The lanes of a slot have ended before its node is deleted: the next owner would write beside them.
- A connection that is lost for most of a session counts as its end: another process may have the slots soon.
- Each look compares all nodes with what this process believes: a node whose creation was not answered is not lost.

Threads: the one of `Mirror.run`.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any, Final, Protocol

from rebalance.errors import AccessRefused, RebalanceError
from rebalance.zookeeper.port.kazoo_port import call
from rebalance.zookeeper.port.requests import Create, Delete, Exists, Fault, GetData, SessionChange
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import children, configured_connection, read_all
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.mirror.sides import MirrorSettings

log = logging.getLogger(__name__)

_ROOT: Final = "/zkconsumer/mirrors"
_POLL_S: Final = 0.2
_LOOK_S: Final = 1.0
_ANSWER_S: Final = 3.0
_LOST_S: Final = 6.0
"""So long after the connection was lost the session counts as ended; it lasts ten seconds."""


class SlotListener(Protocol):
    """Is told which slots this process has."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None: ...

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None: ...


class SlotClaims:
    """The slots of one process.

    Args:
        settings: Of the mirror; they name the ZooKeeper of the target.
        slots: How many there are.

    Raises:
        ZooKeeperUnavailable, ZooKeeperRefused, NamespaceMissing: There is no connection.
        AccessRefused: The nodes may not be written.
    """

    def __init__(self, settings: MirrorSettings, slots: int) -> None:
        self._topic = settings.state_topic
        self._slots = range(slots)
        self._root = f"{_ROOT}/{settings.name}"
        self._id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._owned: set[int] = set()
        self._looked_at = float("-inf")
        self._session = 0
        self._away_since: float | None = None
        self._is_ended = False
        self._stack = ExitStack()
        given = {name: value for name, value in settings.target.items() if name != "bootstrap.servers"}
        config = config_without_group(settings.target_zookeeper, given, f"mirror-{settings.name}")
        self._port = self._stack.enter_context(configured_connection(config, self._session_changed))

    def listen(self, listener: SlotListener) -> None:
        """Take part; `poll` tells the listener of its slots."""
        self._listener = listener
        self._make_folders()

    def poll(self) -> None:
        """Take part for a moment."""
        time.sleep(_POLL_S)
        away_since = self._away_since
        if self._is_ended or (away_since is not None and _now_s() - away_since > _LOST_S):
            self._is_ended = False
            self._lose(self._owned)
        if time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            self._look()
        except AccessRefused:
            raise
        except RebalanceError as error:
            log.warning("mirror: the slots cannot be looked up in ZooKeeper now: %s", error)

    def close(self) -> None:
        """Give all slots up; their lanes have ended before."""
        self._stack.close()  # the nodes end with the session

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _session_changed(self, change: SessionChange) -> None:
        """Note a change; runs on the thread of the port."""
        if change.what == "connected":
            self._is_ended = self._is_ended or self._session not in (0, change.session_id)
            self._session = change.session_id
            self._away_since = None
        elif change.what == "suspended":
            self._away_since = self._away_since or _now_s()
        else:
            self._is_ended = True

    def _make_folders(self) -> None:
        parts = f"{self._root}/members".split("/")[1:]
        folders = ["/" + each for each in itertools.accumulate(parts, "{}/{}".format)] + [f"{self._root}/slots"]
        stats = read_all(self._port, [Exists(folder) for folder in folders])
        for folder in (each for each, stat in zip(folders, stats, strict=True) if stat is None):
            self._create(folder, b"", ephemeral=False)

    def _look(self) -> None:
        """Compare the nodes with what this process has; take slots, or give some up."""
        members = set(children(self._port, f"{self._root}/members") or ())
        if self._id not in members:
            self._create(f"{self._root}/members/{self._id}", b"")
            members.add(self._id)
        owners = self._owners()
        mine = {slot for slot, owner in owners.items() if owner == self._id}
        self._lose(self._owned - mine)
        self._take(mine - self._owned)
        share = -(-len(self._slots) // len(members))
        if len(self._owned) > share:
            self._give_up(sorted(self._owned)[share:])
        elif len(self._owned) < share:
            self._claim([slot for slot in self._slots if slot not in owners], share - len(self._owned))

    def _owners(self) -> Mapping[int, str]:
        names = [name for name in children(self._port, f"{self._root}/slots") or () if name.isdecimal()]
        found: list[Any] = read_all(self._port, [GetData(f"{self._root}/slots/{name}") for name in names])
        return {int(name): each[0].decode() for name, each in zip(names, found, strict=True) if each is not None}

    def _claim(self, free: list[int], most: int) -> None:
        random.shuffle(free)  # processes that start together try different ones
        self._take({
            slot for slot in free[:most] if self._create(f"{self._root}/slots/{slot}", self._id.encode())
        })  # fmt: skip

    def _create(self, path: str, data: bytes, *, ephemeral: bool = True) -> bool:
        """Create a node; return whether it is new. What was not answered shows at the next look.

        Raises:
            AccessRefused: The node may not be written.
        """
        reply = call(self._port, Create(path, data, ephemeral), _ANSWER_S)
        if reply.fault is Fault.NO_AUTH:
            raise AccessRefused.of_node("create", path, reply.reason)
        return reply.fault is None

    # -- slots ---------------------------------------------------------------------------------------------------------

    def _take(self, slots: Collection[int]) -> None:
        if slots:
            self._owned |= set(slots)
            self._listener.on_partitions_assigned(self._names(slots))

    def _lose(self, slots: Collection[int]) -> None:
        lost = set(slots)
        if lost:
            self._owned -= lost
            self._listener.on_partitions_lost(self._names(lost))

    def _give_up(self, slots: Collection[int]) -> None:
        self._owned -= set(slots)
        self._listener.on_partitions_revoked(self._names(slots))
        for slot in slots:
            call(self._port, Delete(f"{self._root}/slots/{slot}"), _ANSWER_S)  # if not answered, it is taken again

    def _names(self, slots: Collection[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, slot) for slot in sorted(slots)]


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
