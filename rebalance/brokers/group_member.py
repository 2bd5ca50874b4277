"""The identity and the settings of a member of a group that brokers coordinate. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rebalance.brokers.assignor import Assignor, RangeAssignor, RebalanceProtocol
from rebalance.ports import Member
from rebalance.subscription import Partition, Subscription, thread_ids


@dataclass(frozen=True, slots=True)
class BrokerGroupMember(Member):
    """A member that joins a group at its coordinator; times in seconds.

    Attributes:
        assignors: The assignors that the member can lead with and is assigned by; the preferred one comes first.
        instance_id: Of a static member.
        session_s: After which the coordinator removes a member without heartbeats.
        rebalance_s: How long the coordinator waits for the member when the group is assigned anew.
        heartbeat_s: Between two heartbeats.
        retry_s: Before a request is sent again.
        metadata_age_s: After which topics are read again, to find new topics and partitions.
        exclude_internal_topics: Whether filters leave out topics of Kafka's own.
        rack: Where the member runs, for assignors.
    """

    assignors: Sequence[Assignor] = (RangeAssignor(),)
    instance_id: str | None = None
    session_s: float = 10.0
    rebalance_s: float = 60.0
    heartbeat_s: float = 3.0
    retry_s: float = 0.1
    metadata_age_s: float = 300.0
    exclude_internal_topics: bool = True
    rack: str | None = None

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while the group is assigned anew: all of the assignors have to allow it."""
        return all(RebalanceProtocol.COOPERATIVE in each.supported_protocols for each in self.assignors)

    def assignor(self, name: str) -> Assignor | None:
        """Return the assignor of that name, which all members of the group have."""
        return next((each for each in self.assignors if each.name == name), None)


def threads_of_assigned(
    consumer_id: str, subscription: Subscription, assigned: Collection[Partition], held: dict[Partition, str]
) -> dict[Partition, str]:
    """Return which thread of a member gets each of its partitions: those of a topic in equal parts.

    A partition that a thread has stays there unless the parts would differ by more than one.

    Args:
        assigned: The partitions of the member.
        held: Partition -> the thread that has it now.
    """
    by_topic: dict[str, list[Partition]] = {}
    for partition in sorted(assigned):
        by_topic.setdefault(partition[0], []).append(partition)
    found: dict[Partition, str] = {}
    for topic, partitions in by_topic.items():
        threads = thread_ids(consumer_id, subscription.streams_of(topic))
        found.update(_divided(partitions, threads, held) if threads else {})
    return found


def _divided(partitions: list[Partition], threads: list[str], held: dict[Partition, str]) -> dict[Partition, str]:
    share, larger = divmod(len(partitions), len(threads))
    parts: dict[str, list[Partition]] = {thread: [] for thread in threads}
    for partition in partitions:
        thread = held.get(partition)
        if thread in parts:
            parts[thread].append(partition)
    # Threads with the most keep one more, where there is one.
    order = sorted(threads, key=lambda thread: (-len(parts[thread]), threads.index(thread)))
    sizes = {thread: share + (index < larger) for index, thread in enumerate(order)}
    kept = {partition: thread for thread in threads for partition in parts[thread][: sizes[thread]]}
    free = iter([thread for thread in threads for _ in range(sizes[thread] - len(parts[thread][: sizes[thread]]))])
    return {partition: kept[partition] if partition in kept else next(free) for partition in partitions}
