"""What hands do in the nodes of a simulated group; see `tests.simulator.faults`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rebalance import znodes
from rebalance.registration import REGISTRATIONS_MODULO
from tests.simulator.plan import GROUP, Step
from tests.simulator.stage import Stage

__all__ = [
    "CLOSED", "POISONS", "closed", "name_taken", "offset_set", "owner_deleted", "owner_replaced", "poison",
    "unregistered",
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
"""Registrations that nobody stands behind."""

CLOSED: Final = ("stranger", "stranger opened", "member", "members", "topic", "topics", "owner", "offset")
"""What may not be read for a while; what it is called in a step."""

_ELSEWHERE: Final = b'{"version":1,"subscription":{"elsewhere":1},"pattern":"static","timestamp":"1"}'
_GARBAGE: Final = b"not an offset"


def owner_deleted(world: Stage, step: Step) -> None:
    world.by_hand(lambda: world.zookeeper.delete(znodes.owner_path(GROUP, step.target, step.number)))


def owner_replaced(world: Stage, step: Step) -> None:
    """Somebody else's node stands where the owner's was: for good, or (`ephemeral`) as long as its session."""
    _replace(world, step, znodes.owner_path(GROUP, step.target, step.number), b"g_stranger-0")


def _replace(world: Stage, step: Step, path: str, data: bytes) -> bool:
    """Put somebody else's node in the place of one, for a while; whether that could be done."""
    stranger = world.controller_port.session_id
    owner = stranger if step.word == "ephemeral" and stranger in world.zookeeper.sessions else 0
    born = 0

    def replace() -> None:
        nonlocal born
        world.zookeeper.delete(path)
        world.zookeeper.create(path, data, owner=owner, parents=True)
        found = world.zookeeper.read(path)
        born = 0 if found is None else found[1].czxid

    def remove() -> None:
        found = world.zookeeper.read(path)
        if found is not None and found[1].czxid == born:
            world.zookeeper.delete(path)

    if not world.by_hand(replace):
        return False
    world.undo_later(step.for_s, lambda: world.by_hand_surely(remove))
    return True


def offset_set(world: Stage, step: Step) -> None:
    """A stored offset is moved by so many, or (`garbage`, `deleted`) spoilt."""
    path = znodes.offset_path(GROUP, step.target, step.number)
    found = world.zookeeper.read(path)
    if found is None:
        return

    def remove_garbage() -> None:
        spoilt = world.zookeeper.read(path)
        if spoilt is not None and spoilt[0] == _GARBAGE:
            world.zookeeper.delete(path)

    if step.word == "deleted":
        world.by_hand(lambda: world.zookeeper.delete(path))
    elif step.word == "garbage":
        world.by_hand(lambda: world.zookeeper.set_data(path, _GARBAGE))
        # A Java member never gets over it; whoever healed the rest would see it.
        world.undo_later(world.faults_left_s, lambda: world.by_hand_surely(remove_garbage))
    elif found[0].isdigit():
        moved = b"%d" % max(0, int(found[0]) + step.amount)
        world.by_hand(lambda: world.zookeeper.set_data(path, moved))


def unregistered(world: Stage, step: Step) -> None:
    world.by_hand(lambda: world.zookeeper.delete(znodes.registration_path(GROUP, f"{GROUP}_{step.target}")))
    member = world.living(step.target)
    if member is not None:
        world.trouble(0.0, member.name)


def poison(world: Stage, step: Step) -> None:
    path = znodes.registration_path(GROUP, f"{GROUP}_poison{step.number}")
    if world.by_hand(lambda: world.zookeeper.create(path, POISONS[step.word], parents=True)):
        world.undo_later(step.for_s, lambda: world.by_hand_surely(lambda: world.zookeeper.delete(path)))


def closed(world: Stage, step: Step) -> None:
    """A node that nobody but its owner may read; after a while it can be read again, or it vanishes.

    Words: a registration that comes closed, and vanishes (`stranger`) or is opened (`stranger opened`); that of a
    member (`member`), their list (`members`), a topic's node (`topic`), the list of topics (`topics`), the owner node
    of a partition (`owner`) or its offset (`offset`).
    """
    if step.word.startswith("stranger"):
        _closed_stranger(world, step)
        return
    path = {
        "member": znodes.registration_path(GROUP, f"{GROUP}_{step.target}"),
        "members": znodes.ids_path(GROUP),
        "topic": znodes.topic_path(step.target),
        "topics": znodes.TOPICS,
        "owner": znodes.owner_path(GROUP, step.target, step.number),
        "offset": znodes.offset_path(GROUP, step.target, step.number),
    }[step.word]
    if world.zookeeper.read(path) is None or not world.by_hand(lambda: world.zookeeper.set_access(path, True)):
        return
    # Who has read it before goes on with what he knows, who has not does not.
    world.hidden(step.for_s)
    world.undo_later(step.for_s, lambda: world.by_hand_surely(lambda: world.zookeeper.set_access(path, False)))


def _closed_stranger(world: Stage, step: Step) -> None:
    path = znodes.registration_path(GROUP, f"{GROUP}_closed{step.number}")

    def remove() -> None:
        world.by_hand_surely(lambda: world.zookeeper.delete(path))

    def reopen() -> None:
        world.hidden(0.0)
        world.by_hand_surely(lambda: world.zookeeper.set_access(path, False))

    if not world.by_hand(lambda: world.zookeeper.create_closed(path, _ELSEWHERE)):
        return
    if step.word == "stranger":
        world.undo_later(step.for_s, remove)
    else:
        world.undo_later(step.for_s, reopen)
        world.undo_later(world.faults_left_s, remove)


def name_taken(world: Stage, step: Step) -> None:
    """Somebody else's registration stands under a member's name, in the place of its own: see `owner_replaced`.

    At a version that no registration of ours has: the fence knows its member by that alone (docs/REBALANCE.md, Limits).
    """
    path = znodes.registration_path(GROUP, f"{GROUP}_{step.target}")
    found = world.zookeeper.read(path)
    data = POISONS["ghost"] if found is None else found[0]
    if _replace(world, step, path, data):
        for _ in range(REGISTRATIONS_MODULO):
            world.by_hand(lambda: world.zookeeper.set_data(path, data))
        member = world.living(step.target)
        world.trouble(step.for_s, step.target if member is None else member.name)
