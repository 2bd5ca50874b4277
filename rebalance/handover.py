"""From what is held to what should be held: the least that has to move.

Source: docs/SEMANTICS.md, "Only what moves, moves".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Handover", "Partition", "handover"]

Partition = tuple[str, int | str]
"""Topic and partition as the znode is named: an integer in 0.8, `broker-partition` in 0.7."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What to do with each partition; no partition stands in two of them.

    Attributes:
        keep: stays with the thread that has it; nothing happens to it.
        release: goes to another member.
        claim: comes, with the thread that shall have it.
        rethread: stays with this member but moves to another of its threads.
    """

    keep: frozenset[Partition]
    release: frozenset[Partition]
    claim: Mapping[Partition, str]
    rethread: Mapping[Partition, str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing moves."""
        return not (self.release or self.claim or self.rethread)


def handover(held: Mapping[Partition, str], target: Mapping[Partition, str]) -> Handover:
    """The difference between the partitions held and those assigned.

    >>> handover({("t", 0): "a-0", ("t", 1): "a-0"}, {("t", 1): "a-0", ("t", 2): "a-1"}).release
    frozenset({('t', 0)})
    """
    keep = frozenset(partition for partition, thread in held.items() if target.get(partition) == thread)
    return Handover(
        keep=keep,
        release=frozenset(held.keys() - target.keys()),
        claim={partition: thread for partition, thread in target.items() if partition not in held},
        rethread={
            partition: thread for partition, thread in target.items() if partition in held and partition not in keep
        },
    )
