"""Manual edits of a simulated group's nodes; see `tests.simulator.faults`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.session import REGISTRATIONS_MODULO
from tests.simulator.plan import GROUP, Step
from tests.simulator.stage import Stage

__all__ = [
    "CLOSED", "POISONS", "closed", "name_taken", "offset_in_kafka_set", "offset_set", "owner_deleted",
    "owner_replaced", "poison", "unregistered",
]  # fmt: skip

POISONS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "null": b"null",
    "braces": b"{}",
    "no json": b"topic1",
    "text counts": b'{"version":1,"subscription":{"t":"2"},"pattern":"static","timestamp":"1"}',
    "no utf-8": b"\xff\xfe{",
    "foreign filter": b'{"version":1,"subscription":{"t[[a-z]&&[def]]":1},"pattern":"white_list","timestamp":"1"}',
    "ghost": b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
}
"""Registrations of no member."""

_POISONS_07: Final[Mapping[str, bytes]] = {
    **POISONS,
    "text counts": b'{ "t": "2" }',
    "foreign filter": b"*1*t[[a-z]&&[def]]",
    "ghost": b'{ "t": 1 }',
}
"""The same of Kafka 0.7; those in the format of 0.8 stop its members as well."""

CLOSED: Final = ("stranger", "stranger opened", "member", "members", "topic", "topics", "owner", "offset")
"""The words of a step for what may not be read for a while."""

_ELSEWHERE: Final = b'{"version":1,"subscription":{"elsewhere":1},"pattern":"static","timestamp":"1"}'
_ELSEWHERE_07: Final = b'{ "elsewhere": 1 }'
_GARBAGE: Final = b"not an offset"


def owner_deleted(stage: Stage, step: Step) -> None:
    stage.operator_writes(lambda: stage.zookeeper.delete(_owner_path(stage, step)))


def owner_replaced(stage: Stage, step: Step) -> None:
    """The owner's node is replaced by another session's: for good, or (`ephemeral`) as long as that session lasts."""
    _replace(stage, step, _owner_path(stage, step), b"g_stranger-0")


def _owner_path(stage: Stage, step: Step) -> str:
    return znodes.owner_path(GROUP, step.target, stage.brokers.partition(step.target, step.number))


def _registration_path(stage: Stage, step: Step) -> str:
    member = stage.living(step.target)
    return znodes.registration_path(GROUP, f"{GROUP}_{step.target}" if member is None else member.actor.consumer_id)


def _offset_path(stage: Stage, step: Step) -> str:
    return znodes.offset_path(GROUP, step.target, stage.brokers.partition(step.target, step.number))


def _replace(stage: Stage, step: Step, path: str, data: bytes) -> bool:
    """Replace a node by one of another session, for a while; return whether that could be done."""
    other = stage.controller_port.session_id
    owner = other if step.word == "ephemeral" and other in stage.zookeeper.sessions else 0
    created_zxid = 0

    def replace() -> None:
        nonlocal created_zxid
        stage.zookeeper.delete(path)
        stage.zookeeper.create(path, data, owner=owner, parents=True)
        found = stage.zookeeper.read(path)
        created_zxid = 0 if found is None else found[1].czxid

    def remove() -> None:
        found = stage.zookeeper.read(path)
        if found is not None and found[1].czxid == created_zxid:
            stage.zookeeper.delete(path)

    if not stage.operator_writes(replace):
        return False
    stage.undo_later(step.for_s, lambda: stage.operator_retries(remove))
    return True


def offset_set(stage: Stage, step: Step) -> None:
    """A stored offset is moved by so many messages, or (`garbage`, `deleted`) made unreadable.

    In Kafka 0.7 by so many entries; or (`inside`) by so many bytes, to where most likely no entry starts.
    """
    path = _offset_path(stage, step)
    found = stage.zookeeper.read(path)
    if found is None:
        return

    def remove_garbage() -> None:
        stored = stage.zookeeper.read(path)
        if stored is not None and stored[0] == _GARBAGE:
            stage.zookeeper.delete(path)

    if step.word == "deleted":
        stage.operator_writes(lambda: stage.zookeeper.delete(path))
    elif step.word == "garbage":
        stage.operator_writes(lambda: stage.zookeeper.set_data(path, _GARBAGE))
        # A Java member never recovers from it; an operator who repaired the rest would repair this, too.
        stage.undo_later(stage.faults_left_s, lambda: stage.operator_retries(remove_garbage))
    elif found[0].isdigit():
        position = int(found[0])
        if step.word in ("beyond", "inside"):
            position += step.amount
        else:
            partition = stage.brokers.partition(step.target, step.number)
            position = stage.brokers.moved(step.target, partition, position, step.amount)
        moved = b"%d" % position
        stage.operator_writes(lambda: stage.zookeeper.set_data(path, moved))


def offset_in_kafka_set(stage: Stage, step: Step) -> None:
    """An offset in Kafka is moved by so many, or (`deleted`) expires; in groups that all store there."""
    offsets = stage.brokers.offsets
    stored = offsets.stored.get((step.target, step.number))
    if stored is not None and stage.is_stored_in_kafka:
        moved = None if step.word == "deleted" else max(0, stored + step.amount)
        offsets.set_by_operator((step.target, step.number), moved)


def unregistered(stage: Stage, step: Step) -> None:
    stage.operator_writes(lambda: stage.zookeeper.delete(_registration_path(stage, step)))
    member = stage.living(step.target)
    if member is not None:
        stage.trouble(0.0, member.name)


def poison(stage: Stage, step: Step) -> None:
    path = znodes.registration_path(GROUP, f"{GROUP}_poison{step.number}")
    data = (_POISONS_07 if stage.plan.generation == "0.7" else POISONS)[step.word]
    if stage.operator_writes(lambda: stage.zookeeper.create(path, data, parents=True)):
        stage.undo_later(step.for_s, lambda: stage.operator_retries(lambda: stage.zookeeper.delete(path)))


def closed(stage: Stage, step: Step) -> None:
    """A node that only its owner may read; after a while it can be read again, or it vanishes.

    Words: a registration that is created closed, and vanishes (`stranger`) or is opened (`stranger opened`); that of a
    member (`member`), their list (`members`), a topic's node (`topic`), the list of topics (`topics`), the owner node
    of a partition (`owner`) or its offset (`offset`).
    """
    if step.word.startswith("stranger"):
        _closed_stranger(stage, step)
        return
    path = {
        "member": _registration_path(stage, step),
        "members": znodes.ids_path(GROUP),
        "topic": znodes.topic_path(step.target),
        "topics": znodes.TOPICS,
        "owner": _owner_path(stage, step),
        "offset": _offset_path(stage, step),
    }[step.word]
    if stage.zookeeper.read(path) is None or not stage.operator_writes(lambda: stage.zookeeper.set_access(path, True)):
        return
    # A member that has read it before goes on with what it knows; one that has not cannot.
    stage.hidden(step.for_s)
    stage.undo_later(step.for_s, lambda: stage.operator_retries(lambda: stage.zookeeper.set_access(path, False)))


def _closed_stranger(stage: Stage, step: Step) -> None:
    path = znodes.registration_path(GROUP, f"{GROUP}_closed{step.number}")

    def remove() -> None:
        stage.operator_retries(lambda: stage.zookeeper.delete(path))

    def reopen() -> None:
        stage.hidden(0.0)
        stage.operator_retries(lambda: stage.zookeeper.set_access(path, False))

    data = _ELSEWHERE_07 if stage.plan.generation == "0.7" else _ELSEWHERE
    if not stage.operator_writes(lambda: stage.zookeeper.create_closed(path, data)):
        return
    if step.word == "stranger":
        stage.undo_later(step.for_s, remove)
    else:
        stage.undo_later(step.for_s, reopen)
        stage.undo_later(stage.faults_left_s, remove)


def name_taken(stage: Stage, step: Step) -> None:
    """A member's registration is replaced by one of another session: see `owner_replaced`.

    It gets a version that no registration of ours has: the fence identifies its member by that alone
    (docs/REBALANCE.md, Limits).
    """
    path = _registration_path(stage, step)
    found = stage.zookeeper.read(path)
    ghost = (_POISONS_07 if stage.plan.generation == "0.7" else POISONS)["ghost"]
    data = ghost if found is None else found[0]
    if _replace(stage, step, path, data):
        for _ in range(REGISTRATIONS_MODULO):
            stage.operator_writes(lambda: stage.zookeeper.set_data(path, data))
        member = stage.living(step.target)
        stage.trouble(step.for_s, step.target if member is None else member.name)
