"""Decides which replica leads a partition, as the controller does. Pure.

Source: kafka.controller.PartitionStateMachine, PartitionLeaderSelector, KafkaController.removeReplicaFromIsr (0.8.2.2).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

NO_LEADER: Final = -1
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,255}")


class PartitionState(NamedTuple):
    """The content of a partition's state node; leader -1 for none."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


def is_legal_topic(name: str) -> bool:
    """True for a name that Kafka 0.8.2 accepts for a new topic."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")


def decide(
    old: PartitionState | None, replicas: Sequence[int], alive: Collection[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state a partition should have; None while a new one has no living replica.

    The leader stays as long as it runs. Dead replicas leave the in-sync set (the last one stays in it), running ones
    join it, because here a follower takes over the leader's files and so never lags.
    """
    living = [replica for replica in replicas if replica in alive]
    if old is None:
        return PartitionState(controller_epoch, living[0], 0, tuple(living)) if living else None
    stays = old.leader in living
    leader = old.leader if stays else next((r for r in replicas if r in living and r in old.isr), NO_LEADER)
    # Without a leader no replica comes back into the set, and its last members are the ones that may lead again.
    isr = tuple(living) if leader != NO_LEADER else tuple(r for r in old.isr if r in living) or old.isr[:1]
    if (leader, isr) == (old.leader, old.isr):
        return old
    return PartitionState(controller_epoch, leader, old.leader_epoch + 1, isr)


def moved(old: PartitionState, replicas: Sequence[int], leader: int, controller_epoch: int) -> PartitionState:
    """Return the state after a broker became the leader by order."""
    isr = tuple(r for r in replicas if r in old.isr or r == leader)
    return PartitionState(controller_epoch, leader, old.leader_epoch + 1, isr)
