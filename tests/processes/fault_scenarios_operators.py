"""Manual edits of a group's nodes in ZooKeeper, and nodes of clients outside the group."""

from __future__ import annotations

import time

from fault_players import JavaPlayer
from fault_scenario import SESSION_ENDED, Scenario
from fault_stage import RATE_PER_S, Stage

from zkconsumer.testing.history import Event, Place
from zkconsumer.testing.history.limits import OPERATOR

MOVED = 20
STRANGE_07 = {
    "empty": b"",
    "null": b"null",
    "no-json": b"topic1",
    "number": b"7",
    "no-utf-8": b"\xff\xfe{",
    "one-star": b"*2",
    "no-count": b"*two*regex",
    "large": b'{ "x": "' + b"x" * 900_000,
}
"""Registrations that no member of Kafka 0.7 can read."""
# Registrations that no member can read, of people and of other clients. With those of Kafka 0.7 nobody may join.
STRANGE = {
    "empty": b"",
    "null": b"null",
    "braces": b"{}",
    "no-json": b"topic1",
    "text-counts": b'{"version":1,"subscription":{"t":"2"},"pattern":"static","timestamp":"1"}',
    "no-utf-8": b"\xff\xfe{",
    "large": b'{"version":1,"x":"' + b"x" * 900_000,
}


def owner_deleted(stage: Stage) -> None:
    """An operator deletes the owner node of a partition that is being read."""
    stage.limits = SESSION_ENDED
    place = stage.owned_by(stage.hit)[0]
    stage.mark()
    stage.cluster.client.delete(_owner_path(stage, place))
    stage.wait_full()


def owner_foreign(stage: Stage) -> None:
    """A member dies, and one of its owner nodes has been replaced by another client's, for ten seconds."""
    place = stage.owned_by(stage.hit)[0]
    path = _owner_path(stage, place)
    stage.mark()
    stage.hit.kill()
    # ZooKeeper 3.3 has no transactions. Nobody claims in between: the dead member is registered for four seconds more.
    stage.cluster.client.delete(path)
    stage.cluster.client.create(path, f"{stage.group}_dead-0".encode())
    stage.load.grow(int(10 * RATE_PER_S))
    stage.notes.append(f"of the other partitions {len(stage.owned_by(stage.other))} of {len(stage.places) - 1} owned")
    stage.mark()
    stage.cluster.client.delete(path)
    stage.wait_full()


def registration_deleted(stage: Stage) -> None:
    """An operator deletes the registration of a member whose session is alive."""
    stage.limits = SESSION_ENDED
    stage.mark()
    stage.cluster.client.delete(f"/consumers/{stage.group}/ids/{stage.hit.id}")
    stage.wait_full()


def offsets_at_rest(stage: Stage) -> None:
    """In an empty group one offset is made unreadable, one lowered and one raised; then two members come."""
    before = list(stage.players)
    for player in before:
        player.leave()
    spoilt, lowered, raised = stage.places[:3]
    stage.load.grow(2 * MOVED * len(stage.places))  # until the log has what the raised offset names
    _set(stage, spoilt, -1)
    _set(stage, lowered, stage.messages_from(lowered, _stored(stage, lowered), -MOVED))
    _set(stage, raised, stage.messages_from(raised, _stored(stage, raised), MOVED))
    stage.mark()
    for number, player in enumerate(before):
        stage.launch(stage.prepare(f"new{number}", like=player))
    stage.wait_full()
    stage.notes.append(f"{MOVED} skipped by a manual edit")


def offsets_under_owners(stage: Stage) -> None:
    """The same under members that read; then another one joins."""
    spoilt, lowered, raised = stage.places[:3]
    stage.mark()
    _set(stage, spoilt, -1)
    _set(stage, lowered, max(0, stage.messages_from(lowered, _stored(stage, lowered), -MOVED)))
    path = _offset_path(stage, raised)
    stage.cluster.client.set(path, b"%d" % stage.messages_from(raised, _stored(stage, raised), MOVED))
    stage.load.grow(int(2 * RATE_PER_S))
    stage.wait_committed()
    stage.launch(stage.prepare("late"))
    stage.wait_full()
    stage.most_repeats = 0


def poisoned(stage: Stage) -> None:
    """Registrations that cannot be read lie in the group for ten seconds, and a member joins.

    A Java member gives up meanwhile, and comes back when they go. If those were its first tries, it has no streams.
    """
    base = f"/consumers/{stage.group}/ids/{stage.group}_"
    strange = STRANGE_07 if stage.is_07 else STRANGE
    for name, data in strange.items():
        stage.cluster.client.create(f"{base}{name}", data)
        stage.foreign.add(f"{stage.group}_{name}")
    stage.mark()
    late = stage.prepare("late")
    stage.launch(late)
    stage.load.grow(int(10 * RATE_PER_S))
    owned = sum(len(stage.owned_by(player)) for player in stage.players)
    stage.notes.append(f"poisoned: {owned} of {len(stage.places)} owned")
    assert stage.java or stage.is_full()
    stage.mark()
    for name in strange:
        stage.cluster.client.delete(f"{base}{name}")
    stage.foreign.clear()
    stage.wait_full()
    if isinstance(late, JavaPlayer) and not stage.is_java_alone and late.gave_up_at_its_start():
        # It owns its share by now, which no stream reads, and no rebalance helps: only a new process has streams.
        stage.notes.append("late never had streams, restarted")
        late.kill()
        again = stage.prepare("again")
        stage.launch(again)
        again.wait_ready()
        stage.wait_full()


def _owner_path(stage: Stage, place: Place) -> str:
    return f"/consumers/{stage.group}/owners/{place[0]}/{place[1]}"


def _offset_path(stage: Stage, place: Place) -> str:
    return f"/consumers/{stage.group}/offsets/{place[0]}/{place[1]}"


def _stored(stage: Stage, place: Place) -> int:
    return int(stage.cluster.client.get(_offset_path(stage, place))[0])


def _set(stage: Stage, place: Place, offset: int) -> None:
    """Set a stored offset as an operator, below 0 to a text that is none; the history records it."""
    stage.operator_events.append(Event(time.monotonic_ns(), "offset_node", "", *place, offset, OPERATOR))
    stage.cluster.client.set(_offset_path(stage, place), b"%d" % offset if offset >= 0 else b"not an offset")


OURS_IS_HIT = ("ours", "java", "mixed")

HAND_FAULTS = (
    # A Java member does not notice that its own nodes were deleted.
    Scenario("owner node deleted", owner_deleted, casts=OURS_IS_HIT),
    Scenario("registration deleted", registration_deleted, casts=OURS_IS_HIT),
    # The members that are left are affected; a Java member may give up for good, before the node goes or after.
    Scenario("foreign owner node", owner_foreign, casts=("ours", "java", "mixed-java-hit")),
    # A Java member that is dealt the spoilt offset never comes to own anything.
    Scenario("offsets set manually, no member there", offsets_at_rest, casts=OURS_IS_HIT),
    Scenario("offsets set manually, while owned", offsets_under_owners),
    Scenario("poison registrations", poisoned),
)
