"""Has the faults of a plan befall the requests of one broker of Kafka 0.8 or later."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import NoAnswer, Part, materialize
from zkconsumer.testing.embedded.disk.messages import ENTRY_OVERHEAD, entries
from zkconsumer.testing.embedded.disk.segment import last_offset
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC
from zkconsumer.testing.embedded.protocol import TopicPartition

_LENGTH = struct.Struct(">i")
_BEFORE: Final = (faults.MOVE_LEADER, faults.MOVE_COORDINATOR, faults.KILL, faults.DELAY)
_AFTER: Final = (faults.CLOSE, faults.GARBAGE, faults.STALL, faults.WRONG_CORRELATION_ID, faults.CUT_TAIL)


@dataclass(frozen=True)
class Befallen:
    """A request, as far as faults go by it.

    Attributes:
        api: its name.
        client_id: of the client.
        where: its partitions; -1 means a whole topic.
        fetched: of a fetch, partition and offset of each message set in the answer, in their order. The set of the n-th
            is part 2n + 1 of the answer, and its length ends part 2n.
    """

    api: str
    client_id: str
    where: Sequence[TopicPartition]
    fetched: Sequence[tuple[TopicPartition, int]] = field(default=())


class Mishaps:
    """The faults of one broker.

    Threads: every method from any thread.
    """

    def __init__(
        self,
        plan: FaultPlan,
        broker_id: int,
        stopping: threading.Event,
        move_leader: Callable[[str, int, int], None],
        kill: Callable[[int], None],
    ) -> None:
        self._plan = plan
        self._broker_id = broker_id
        self._stopping = stopping
        self._move_leader = move_leader
        self._kill = kill

    def take(self, kinds: Iterable[str], request: Befallen) -> list[Fault]:
        """Return the faults of these kinds that befall a request, and count them down."""
        return self._plan.take(kinds, self._broker_id, request.api, request.client_id, request.where)

    def before(self, request: Befallen) -> None:
        """Move leaders, end the broker and wait, as faults want it before a request is looked at.

        Raises:
            NoAnswer: the broker has ended.
        """
        for fault in self.take(_BEFORE, request):
            if fault.kind == faults.MOVE_LEADER:
                self._move_leader(fault.topic or "", int(fault.partition or 0), fault.to_broker)
            elif fault.kind == faults.MOVE_COORDINATOR:
                self._move_leader(OFFSETS_TOPIC, 0, fault.to_broker)
            elif fault.kind == faults.KILL:
                self._kill(self._broker_id)
                raise NoAnswer("the broker was killed")
            else:
                self._plan.wait_out(fault, self._stopping)

    def loading_wait(self) -> Callable[[], None] | None:
        """Return what to wait for before groups are loaded, as a fault wants it; None without one."""
        found = self.take((faults.DELAY,), Befallen(faults.GROUP_LOADING, "", [("", -1)]))

        def wait() -> None:
            for fault in found:
                self._plan.wait_out(fault, self._stopping)

        return wait if found else None

    def errors(self, request: Befallen) -> dict[TopicPartition, int]:
        """Return the error codes that are to be answered, by partition."""
        codes: dict[TopicPartition, int] = {}
        for fault in self.take((faults.ERROR,), request):
            for topic, partition in request.where:
                if fault.hits(topic, partition):
                    one = partition == -1 and fault.partition is not None
                    codes[topic, int(fault.partition or 0) if one else partition] = fault.code
        return codes

    def after(self, request: Befallen) -> list[Fault]:
        """Return the faults of an answer."""
        return self.take(_AFTER, request)

    def spoil(self, request: Befallen, parts: list[Part], after: Sequence[Fault]) -> list[Part]:
        """Damage the message sets of a fetch."""
        corrupting = self._plan.pending(faults.CORRUPT) if request.fetched else []
        cutting = [fault for fault in after if fault.kind == faults.CUT_TAIL]
        for number, (where, offset) in enumerate(request.fetched):
            for fault in corrupting:
                if fault.matches(self._broker_id, request.api, request.client_id, [where]):
                    self._corrupt(fault, parts, 2 * number + 1, offset)
            for fault in cutting:
                if fault.hits(*where):
                    _cut(parts, 2 * number + 1, fault.count_bytes)
        return parts

    def _corrupt(self, fault: Fault, parts: list[Part], at: int, asked_offset: int) -> None:
        parts[at] = whole = materialize(parts[at])
        if asked_offset > fault.offset:
            return
        data = bytearray(whole)
        for position, size in entries(data):
            if last_offset(data, position) >= fault.offset:
                data[position + ENTRY_OVERHEAD + size - 1] ^= 0xFF
                parts[at] = bytes(data)
                self._plan.take_one(fault)
                return


def _cut(parts: list[Part], at: int, count_bytes: int) -> None:
    if parts[at - 1] == b"":
        return  # the answer does not have the partition
    data = materialize(parts[at])
    data = data[: max(len(data) - count_bytes, 0)]
    parts[at] = data
    head = parts[at - 1]
    if isinstance(head, bytes):
        parts[at - 1] = head[: -_LENGTH.size] + _LENGTH.pack(len(data))
