"""Faults of embedded brokers: declared beforehand, used up one by one, counted afterwards.

cluster.faults.add(Fault.error(6, api="fetch", topic="clicks", partition=0), times=3)
cluster.faults.add(Fault.delay(0.5, api="produce", broker=1))
cluster.faults.add(Fault.corrupt("clicks", 0, offset=17), times=None)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from zkconsumer.testing.embedded.protocol import API_NAMES as API_NAMES_08
from zkconsumer.testing.waiting import wait_until

ERROR: Final = "error"
DELAY: Final = "delay"
CLOSE: Final = "close"
GARBAGE: Final = "garbage"
CUT_TAIL: Final = "cut_tail"
WRONG_CORRELATION_ID: Final = "wrong_correlation_id"
CORRUPT: Final = "corrupt"
MOVE_LEADER: Final = "move_leader"
STALL: Final = "stall"
ABORTED: Final = "aborted"
MOVE_COORDINATOR: Final = "move_coordinator"
KILL: Final = "kill"
THROTTLE: Final = "throttle"

GROUP_LOADING: Final = "group_loading"
"""Not a request: a broker that loads the groups which it coordinates from now on. It can be delayed."""
API_NAMES: Final = (
    *API_NAMES_08.values(), "api_versions", "describe_groups", "init_producer_id", "offset_for_leader_epoch",
    "add_partitions_to_txn", "end_txn", "join_group", "sync_group", "heartbeat", "leave_group", "list_groups",
    "delete_groups", "create_topics", "create_partitions", "delete_topics", "delete_records", "describe_configs",
    "alter_configs", "incremental_alter_configs", "describe_producers", "describe_acls", "create_acls", "delete_acls",
    GROUP_LOADING,
)  # fmt: skip
"""The requests that a fault may name; the last ones are there from Kafka 0.9 on."""

TopicPartition = tuple[str, int | str]


@dataclass(frozen=True)
class Fault:
    """One kind of misbehaviour and the requests it befalls; made by its class methods.

    Attributes:
        kind: a constant of this module.
        api: produce, fetch, offsets, metadata, offset_commit, offset_fetch, consumer_metadata (FindCoordinator later),
            or later api_versions, init_producer_id, offset_for_leader_epoch, add_partitions_to_txn, end_txn,
            join_group, sync_group, heartbeat, leave_group, describe_groups, list_groups, delete_groups, create_topics,
            create_partitions, delete_topics, delete_records, describe_configs, alter_configs,
            incremental_alter_configs, describe_producers, describe_acls, create_acls, delete_acls; group_loading,
            which can be delayed; None: all.
        topic, partition, broker, client_id: None matches everything; a request matches by any of its partitions. A
            partition of Kafka 0.7 is named by its number or by `broker-number`.
    """

    kind: str
    api: str | None = None
    topic: str | None = None
    partition: int | str | None = None
    broker: int | None = None
    client_id: str | None = None
    code: int = 0
    seconds: float = 0.0
    count_bytes: int = 0
    data: bytes = b""
    offset: int = 0
    to_broker: int = -1
    aborted_transactions: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.api is not None and self.api not in API_NAMES:
            raise ValueError(f"api {self.api!r} is not one of {', '.join(API_NAMES)}")

    @classmethod
    def error(
        cls, code: int, api: str | None = None, topic: str | None = None, partition: int | str | None = None
    ) -> Self:
        """Answer with an error code (for the matching partitions) and do nothing else."""
        return cls(ERROR, api, topic, partition, code=code)

    @classmethod
    def delay(cls, seconds: float, api: str | None = None, topic: str | None = None) -> Self:
        """Wait before the request is looked at; no longer than the broker runs and the fault is not cleared."""
        return cls(DELAY, api, topic, seconds=seconds)

    @classmethod
    def close(cls, api: str | None = None, topic: str | None = None, *, after_bytes: int = 0) -> Self:
        """Do what was asked, send the first bytes of the answer (none by default) and close the connection."""
        return cls(CLOSE, api, topic, count_bytes=after_bytes)

    @classmethod
    def stall(cls, seconds: float, api: str | None = None, topic: str | None = None, *, after_bytes: int = 0) -> Self:
        """Do what was asked, send the first bytes of the answer, and the rest so many seconds later.

        The wait is no longer than the broker runs and the fault is not cleared.
        """
        return cls(STALL, api, topic, seconds=seconds, count_bytes=after_bytes)

    @classmethod
    def garbage(cls, data: bytes, api: str | None = None, topic: str | None = None) -> Self:
        """Do what was asked, and send these bytes instead of the answer, frame and all."""
        return cls(GARBAGE, api, topic, data=data)

    @classmethod
    def cut_tail(cls, count_bytes: int, topic: str, partition: int | str) -> Self:
        """Leave the last bytes of a fetched message set out, so that it ends in the middle of a message."""
        return cls(CUT_TAIL, "fetch", topic, partition, count_bytes=count_bytes)

    @classmethod
    def wrong_correlation_id(cls, api: str | None = None, topic: str | None = None) -> Self:
        """Answer under the correlation id of another request."""
        return cls(WRONG_CORRELATION_ID, api, topic)

    @classmethod
    def corrupt(cls, topic: str, partition: int | str, offset: int) -> Self:
        """Flip the bits of the last byte of the entry with this offset, in what is sent; the file stays as it is.

        Befalls only fetches whose answer holds that entry whole.
        """
        return cls(CORRUPT, "fetch", topic, partition, offset=offset)

    @classmethod
    def move_leader(cls, topic: str, partition: int | str, to_broker: int, api: str | None = None) -> Self:
        """Move a partition to another broker just before the request is looked at."""
        return cls(MOVE_LEADER, api, topic, partition, to_broker=to_broker)

    @classmethod
    def move_coordinator(cls, to_broker: int, api: str | None = None) -> Self:
        """Have another broker coordinate all groups, just before the request is looked at."""
        return cls(MOVE_COORDINATOR, api, to_broker=to_broker)

    @classmethod
    def kill(cls, api: str | None = None, topic: str | None = None) -> Self:
        """End the broker as SIGKILL does before the request is looked at; its session ends at once."""
        return cls(KILL, api, topic)

    @classmethod
    def throttle(cls, seconds: float, api: str | None = None, topic: str | None = None) -> Self:
        """Throttle the client as a quota does, and say so in the answer if its version can.

        Brokers before 2.0 do what was asked, and hold the answer back so long. Later ones answer at once, a fetch
        without any partition, and read no further request of the connection until the time is over; a request that
        comes meanwhile is counted in `FaultPlan.early_requests`.
        """
        return cls(THROTTLE, api, topic, seconds=seconds)

    @classmethod
    def aborted(cls, topic: str, partition: int | str, transactions: Sequence[tuple[int, int]]) -> Self:
        """Name these aborted transactions (producer id, first offset), in this order, instead of the true ones.

        Befalls only fetches with `isolation.level=read_committed`.
        """
        return cls(ABORTED, "fetch", topic, partition, aborted_transactions=tuple(transactions))

    def only(self, *, broker: int | None = None, client_id: str | None = None) -> Fault:
        """Return the same fault for requests to one broker, or of one client, alone."""
        return replace(self, broker=broker, client_id=client_id)

    def matches(self, broker: int, api: str, client_id: str, partitions: Iterable[TopicPartition]) -> bool:
        """True if a request is befallen; metadata requests name topics with partition -1, which matches all."""
        if self.broker not in (None, broker) or self.api not in (None, api) or self.client_id not in (None, client_id):
            return False
        return self.topic is None or any(self.hits(topic, partition) for topic, partition in partitions)

    def hits(self, topic: str, partition: int | str) -> bool:
        """True if a partition is befallen."""
        same = self.partition in (None, partition) or partition == -1
        return self.topic in (None, topic) and same


class FaultPlan:
    """The faults of a cluster. An empty plan costs nothing.

    Threads: every method from any thread.

    Attributes:
        early_requests: how many connections had sent a request before the time was over for which they were throttled.
    """

    def __init__(self, absent: Collection[str] = ()) -> None:
        """Make a plan without faults.

        Args:
            absent: kinds of faults that brokers of the cluster's generation cannot have.
        """
        self._absent = frozenset(absent)
        self._lock = threading.Lock()
        self._left: dict[int, tuple[Fault, int | None]] = {}
        self._used: Counter[Fault] = Counter()
        self.early_requests = 0
        self._numbers = 0
        self._waiting: dict[threading.Event, threading.Event] = {}  # end of a delay -> broker is stopping

    def add(self, fault: Fault, times: int | None = 1) -> Fault:
        """Return the fault, now in force for that many requests; None: until it is cleared."""
        if times is not None and times < 1:
            raise ValueError(f"times {times}: at least 1, or None")
        if fault.kind in self._absent:
            raise ValueError(f"brokers of this generation of Kafka cannot have the fault {fault.kind}")
        with self._lock:
            self._numbers += 1
            self._left[self._numbers] = (fault, times)
        return fault

    def take(
        self, kinds: Iterable[str], broker: int, api: str, client_id: str, partitions: Iterable[TopicPartition]
    ) -> list[Fault]:
        """Return the faults of these kinds that befall a request, and count them down."""
        if not self._left:
            return []
        wanted, where = set(kinds), list(partitions)
        with self._lock:
            found = [
                number
                for number, (fault, _) in self._left.items()
                if fault.kind in wanted and fault.matches(broker, api, client_id, where)
            ]
            return [self._use(number) for number in found]

    def take_one(self, fault: Fault) -> None:
        """Count down a fault that befalls only some of the requests it matches."""
        with self._lock:
            for number, (each, _) in list(self._left.items()):
                if each == fault:
                    self._use(number)
                    return

    def pending(self, kind: str) -> list[Fault]:
        """Return the faults of a kind that are in force."""
        with self._lock:
            return [fault for fault, _ in self._left.values() if fault.kind == kind]

    def _use(self, number: int) -> Fault:
        fault, times = self._left[number]
        self._used[fault] += 1
        if times is not None:
            if times == 1:
                del self._left[number]
            else:
                self._left[number] = (fault, times - 1)
        return fault

    def used(self, fault: Fault) -> int:
        """Return how often a fault befell a request; equal faults count together."""
        with self._lock:
            return self._used[fault]

    def wait_used(self, fault: Fault, times: int = 1, timeout_s: float = 30.0) -> None:
        """Return when a fault befell so many requests.

        Raises:
            WaitTimeout: it did not in time.
        """
        wait_until(lambda: self.used(fault) >= times, timeout_s, f"{fault} to befall {times} requests",
                   state=lambda: self.used(fault))  # fmt: skip

    def note_early(self) -> None:
        """Count a connection that has sent a request before its throttle time was over."""
        with self._lock:
            self.early_requests += 1

    def clear(self) -> None:
        """Drop all faults that are in force; requests that one of them delays go on."""
        with self._lock:
            self._left.clear()
            for done in self._waiting:
                done.set()

    def reset(self) -> None:
        """Drop all faults and all counts."""
        self.clear()
        with self._lock:
            self._used.clear()
            self.early_requests = 0

    # ---- delays

    def wait_out(self, fault: Fault, stopping: threading.Event) -> bool:
        """Wait for the time of a delay, or until faults are cleared or the broker stops; return whether it was cut."""
        done = threading.Event()
        with self._lock:
            self._waiting[done] = stopping
        try:
            # A broker sets `stopping` before it calls `wake_stopped()`: one of the two is seen.
            return stopping.is_set() or done.wait(fault.seconds)
        finally:
            with self._lock:
                del self._waiting[done]

    def wake_stopped(self) -> None:
        """Have the delayed requests of stopping brokers go on."""
        with self._lock:
            for done, stopping in self._waiting.items():
                if stopping.is_set():
                    done.set()


def correlation_id(asked: int, after: Iterable[Fault]) -> int:
    """Return the correlation id of an answer: the one that was asked with, or another one if a fault wants it."""
    return asked ^ 0x5A5A5A if any(fault.kind == WRONG_CORRELATION_ID for fault in after) else asked
