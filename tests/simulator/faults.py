"""The faults that can happen to a simulated group, by the word that a plan uses for each.

Each fault does something now and, if it lasts, registers how it is undone; healing at the end undoes whatever
is not undone by then. A fault without anything to act on (a member that is not there, a ZooKeeper that takes no writes)
does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rebalance.zookeeper import znodes
from rebalance.zookeeper.port.requests import Create, Delete, Exists, GetChildren, GetData, Multi, Request, SetData
from tests.simulator import operator_faults
from tests.simulator.brokers_07 import Brokers07
from tests.simulator.kafka_offsets import MAX_RETRIES
from tests.simulator.member import OurMember
from tests.simulator.offset_storage import BACKOFF_S, TIMEOUT_S
from tests.simulator.participant import Participant
from tests.simulator.pipe import Latency
from tests.simulator.plan import GROUP, Step
from tests.simulator.stage import Stage

__all__ = ["KINDS", "OWN_PROFILE", "do"]

_OPERATIONS: Final[Mapping[str, type]] = {"create": Create, "set": SetData, "delete": Delete}

_OWNERS: Final = f"{znodes.group_path(GROUP)}/owners/"
_OFFSETS: Final = f"{znodes.group_path(GROUP)}/offsets/"
_ANSWERED_S: Final = 0.1
_CONNECTED_S: Final = 1.5
"""How long after a cut a client has a connection again."""

_BROKEN_S: Final = 0.2
_OFFSETS_S: Final = 2 * TIMEOUT_S + (MAX_RETRIES + 1) * BACKOFF_S
"""How long a commit that has failed meanwhile may still be tried."""

Fault = Callable[["Stage", Step], None]


def do(stage: Stage, step: Step) -> None:
    """Do a step now."""
    KINDS[step.kind](stage, step)


# -- members ---------------------------------------------------------------------------------------------------------


def _join(stage: Stage, step: Step) -> None:
    stage.join(step.target)


def _leave(stage: Stage, step: Step) -> None:
    """In order, within so many milliseconds, or the time that the member has for a drain."""
    member = stage.living(step.target)
    if member is not None and member.is_well:
        wait_s = step.amount / 1000 if step.amount or step.word == "at once" else member.spec.drain_s
        stage.write("leaving", member.name, message_id=f"{wait_s:g}" if member.spec.kind == "ours" else "")
        member.actor.leave(wait_s)


def _fault(stage: Stage, step: Step) -> None:
    """The coordinator of a member of ours fails in one of its loop's next calls, `before` or `behind` its work."""
    member = stage.living(step.target)
    if member is None or not isinstance(member.actor, OurMember) or not member.is_well:
        return
    actor = member.actor
    actor.plan_fault(step.amount, step.word or "before")
    stage.trouble(stage.faults_left_s, member.name)
    stage.undo_later(stage.faults_left_s, actor.forget_fault)


def _crash(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        stage.kill(member)
        if step.for_s:
            stage.undo_later(step.for_s, lambda: stage.join(step.target))


def _pause(stage: Stage, step: Step) -> None:
    """At once, or (`asking`, `proving`) as soon as any request, or the one about its registration, is on its way."""
    member = stage.living(step.target)
    if member is None:
        return

    def pause() -> None:
        member.process.pause()
        stage.trouble(step.for_s, member.name)
        stage.undo_later(step.for_s, member.process.resume)

    def asked(request: Request) -> None:
        if step.word == "asking" or isinstance(request, Exists):
            member.watched.when_asked = None
            stage.schedule.after(0.0, pause)

    if step.word:
        member.watched.when_asked = asked
    else:
        pause()


def _slow(stage: Stage, step: Step) -> None:
    """The application takes so many milliseconds for each message, for a while."""
    member = stage.living(step.target)
    if member is not None and member.is_well:
        member.actor.slow_down(step.amount / 1000, stage.schedule.now + step.for_s)


def _stuck(stage: Stage, step: Step) -> None:
    """The application works on its next message for long, but ends before everything is healed."""
    member = stage.living(step.target)
    if member is not None and member.is_well:
        member.actor.slow_down(min(step.for_s, stage.faults_left_s), stage.schedule.now + 0.5)


def _hold_up(stage: Stage, step: Step) -> None:
    """Its coordinator does not run for a while (a log handler blocks, say), and all other threads go on.

    At once, or (`moving`) as soon as it asks about an owner node; then its session ends meanwhile, too, so that the
    requests that follow from the answer are meant for the old session and sent under a new one.
    """
    member = stage.living(step.target)
    if member is None:
        return

    def hold_up() -> None:
        stage.trouble(step.for_s, member.name)
        member.actor.hold_up(stage.schedule.now + step.for_s)
        stage.undo_later(step.for_s, lambda: member.actor.hold_up(stage.schedule.now))
        if step.word == "moving":
            stage.schedule.after(_ANSWERED_S, stage.end_session, member)

    def asked(request: Request) -> None:
        if isinstance(request, GetData) and request.path.startswith(_OWNERS):
            member.watched.when_asked = None
            stage.schedule.after(0.0, hold_up)

    if step.word == "moving":
        member.watched.when_asked = asked
    else:
        hold_up()


def _wall_clock(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        member.wall_clock.jump_s += step.amount


# -- sessions and links ----------------------------------------------------------------------------------------------


def _end_session(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        stage.end_session(member)


def _stall(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.stall(member.port, answers_only=step.word == "answers")
        stage.trouble(step.for_s, member.name)
        stage.undo_later(step.for_s, lambda: stage.zookeeper.heal(member.port))


def _cut(stage: Stage, step: Step) -> None:
    """Connections break, and none is made for a while."""
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.cut(member.port)
        stage.trouble(step.for_s, member.name)
        stage.undo_later(step.for_s, lambda: stage.zookeeper.heal(member.port))


def _old_requests(stage: Stage, step: Step) -> None:
    """The session ends while there is no connection, and the next one starts right after it.

    What is asked between the two waits for the next connection; above all (`late`) if the coordinator runs again
    only when there is one: then it is sent under another session than it was meant for.
    """
    member = stage.living(step.target)
    if member is not None:
        _cut(stage, step)
        stage.end_session(member)
        if step.word == "late":
            held_s = step.for_s + _CONNECTED_S
            member.actor.hold_up(stage.schedule.now + held_s)
            stage.trouble(held_s, member.name)
            stage.undo_later(held_s, lambda: member.actor.hold_up(stage.schedule.now))


def _late_watch(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.delay_watch(member.port, step.for_s)
        stage.trouble(stage.faults_left_s + step.for_s, member.name)


def _matching(word: str) -> Callable[[Request], bool]:
    kind = _OPERATIONS.get(word)

    def matches(request: Request) -> bool:
        parts = request.operations if isinstance(request, Multi) else (request,)
        return kind is None or any(isinstance(part, kind) for part in parts)

    return matches


def _lost_reply(stage: Stage, step: Step) -> None:
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.lose_reply(member.port, _matching(step.word))
        stage.trouble(stage.faults_left_s, member.name)


def _lost_request(stage: Stage, step: Step) -> None:
    """The next write, or the next of a kind, or (`handover`) the first commit after a look at the members.

    That is most likely the commit of what it then gives up.
    """
    member = stage.living(step.target)
    if member is None:
        return
    stage.trouble(stage.faults_left_s, member.name)

    def asked(request: Request) -> None:
        if isinstance(request, GetChildren) and request.path == znodes.ids_path(GROUP):
            member.watched.when_asked = None
            stage.zookeeper.lose_request(member.port, _is_commit)

    if step.word == "handover":
        member.watched.when_asked = asked
    else:
        stage.zookeeper.lose_request(member.port, _matching(step.word))


def _is_commit(request: Request) -> bool:
    parts = request.operations if isinstance(request, Multi) else (request,)
    return any(isinstance(part, SetData) and part.path.startswith(_OFFSETS) for part in parts)


def _moved(stage: Stage, step: Step) -> None:
    """Another server owns its session, and the member is slow to reconnect."""
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.move_session(member.port, step.for_s)
        stage.trouble(stage.faults_left_s, member.name)


def _late_answers(stage: Stage, step: Step) -> None:
    """Answers and watch events are passed on late; session changes (with the word `cut`: a loss) are not."""
    member = stage.living(step.target)
    if member is not None:
        stage.zookeeper.delay_answers(member.port, step.for_s)
        stage.trouble(step.for_s, member.name)
        if step.word == "cut":
            stage.schedule.after(step.for_s / 2, _break, stage, member)


def _break(stage: Stage, member: Participant) -> None:
    stage.zookeeper.cut(member.port)
    stage.undo_later(_BROKEN_S, lambda: stage.zookeeper.heal(member.port))


def _refused(stage: Stage, step: Step) -> None:
    """ZooKeeper no longer accepts the credentials of a member of ours: it has failed for good."""
    member = stage.living(step.target)
    if member is not None and member.spec.kind == "ours" and member.is_well:
        stage.zookeeper.refuse(member.port)
        stage.trouble(0.0, member.name)


# -- ZooKeeper -------------------------------------------------------------------------------------------------------


def _server(stage: Stage, step: Step) -> int:
    return step.number % stage.plan.servers


def _outage(stage: Stage, step: Step) -> None:
    stage.zookeeper.outage()
    stage.trouble(step.for_s)
    stage.undo_later(step.for_s, stage.zookeeper.restore)


def _stop_server(stage: Stage, step: Step) -> None:
    server = _server(stage, step)
    stage.zookeeper.stop(server)
    stage.trouble(step.for_s)
    stage.undo_later(step.for_s, lambda: stage.zookeeper.start(server))


def _freeze(stage: Stage, step: Step) -> None:
    """A server, or with the word `all` each, is stopped without being ended."""
    servers = range(stage.plan.servers) if step.word == "all" else (_server(stage, step),)
    for server in servers:
        stage.zookeeper.freeze(server)
        stage.undo_later(step.for_s, lambda server=server: stage.zookeeper.thaw(server))  # type: ignore[misc]
    stage.trouble(step.for_s)
    stage.cut_off(step.for_s)


def _isolate(stage: Stage, step: Step) -> None:
    """A server receives nothing from the others; its clients go on asking it."""
    if stage.plan.servers > 1:
        server = _server(stage, step)
        stage.zookeeper.isolate(server)
        stage.trouble(step.for_s)
        stage.cut_off(step.for_s)
        stage.undo_later(step.for_s, lambda: stage.zookeeper.rejoin(server))


def _lag(stage: Stage, step: Step) -> None:
    """A server receives writes late."""
    server = _server(stage, step)
    stage.zookeeper.lag(server, Latency(0.0, step.amount / 1000))
    stage.trouble(step.for_s)
    stage.cut_off(step.for_s)
    stage.undo_later(step.for_s, lambda: stage.zookeeper.lag(server, stage.zookeeper.settings.peer_latency))


def _wipe(stage: Stage, step: Step) -> None:
    stage.wipe()


# -- brokers ---------------------------------------------------------------------------------------------------------


def _grow(stage: Stage, step: Step) -> None:
    stage.brokers.add_partitions(step.target, max(1, step.amount))


def _create_topic(stage: Stage, step: Step) -> None:
    stage.brokers.create_topic(step.target, max(1, step.amount))


def _delete_topic(stage: Stage, step: Step) -> None:
    """With a duration it is created again afterwards; with the word `offsets` the group's offsets are deleted, too."""
    topic = step.target
    partitions = stage.brokers.topics.get(topic)
    if partitions is None or not stage.brokers.delete_topic(topic):
        return
    if step.word == "offsets":
        stage.operator_writes(lambda: stage.zookeeper.delete(znodes.offsets_path(GROUP, topic), recursive=True))
    if step.for_s:
        stage.undo_later(step.for_s, lambda: stage.brokers.create_topic(topic, partitions))


def _leader(stage: Stage, step: Step) -> None:
    """A partition has no leader for a while, then another one."""
    before = stage.brokers.leader(step.target, step.number)
    if before is not None:
        stage.brokers.set_leader(step.target, step.number, None)
        stage.undo_later(step.for_s, lambda: stage.brokers.set_leader(step.target, step.number, 1 - before))


def _retention(stage: Stage, step: Step) -> None:
    """So many percent of the log of every partition of a topic are dropped."""
    for partition in stage.brokers.partitions.get(step.target, ()):
        ends = stage.brokers.ends(step.target, partition)
        if ends is not None:
            first, end = ends
            stage.brokers.trim(step.target, partition, first + (end - first) * step.amount // 100)


def _broker(stage: Stage, step: Step) -> None:
    """A broker of Kafka 0.7 ends: in order, `killed`, or (`deaf`) it only does not answer. It comes back.

    With the word `replaced` it comes back without its logs.
    """
    brokers = stage.brokers
    if isinstance(brokers, Brokers07) and brokers.stop(step.number, step.word):
        stage.undo_later(step.for_s, lambda: brokers.start(step.number, anew=step.word == "replaced"))


def _damaged_offset(stage: Stage, step: Step) -> None:
    """The offset field of a message near the end of a log is changed."""
    stage.brokers.damage_offset(step.target, step.number, step.amount, step.word)


# -- the offset manager ----------------------------------------------------------------------------------------------


def _manager_moved(stage: Stage, step: Step) -> None:
    """Another broker manages the offsets, and reads them for a while before it answers."""
    offsets = stage.brokers.offsets
    offsets.move()
    offsets.is_loading = True
    stage.unstored(step.for_s + _OFFSETS_S)
    stage.undo_later(step.for_s, lambda: setattr(offsets, "is_loading", False))


def _manager_dead(stage: Stage, step: Step) -> None:
    """There is no offset manager for a while; then another broker is it."""
    offsets = stage.brokers.offsets
    former = offsets.manager
    if former is None:
        return
    offsets.manager = None

    def elect() -> None:
        offsets.manager = former
        offsets.move()

    stage.unstored(step.for_s + _OFFSETS_S)
    stage.undo_later(step.for_s, elect)


def _manager_slow(stage: Stage, step: Step) -> None:
    """Its answers are so many milliseconds late, or (`mute`) are lost."""
    offsets = stage.brokers.offsets
    stage.unstored(step.for_s + _OFFSETS_S)
    if step.word == "mute":
        offsets.is_mute = True
        stage.undo_later(step.for_s, lambda: setattr(offsets, "is_mute", False))
    else:
        offsets.slow_s = step.amount / 1000
        stage.undo_later(step.for_s, lambda: setattr(offsets, "slow_s", 0.0))


KINDS: Final[Mapping[str, Fault]] = {
    "join": _join,
    "leave": _leave,
    "crash": _crash,
    "pause": _pause,
    "slow": _slow,
    "stuck": _stuck,
    "hold up": _hold_up,
    "fault": _fault,
    "wall clock": _wall_clock,
    "end session": _end_session,
    "stall": _stall,
    "cut": _cut,
    "old requests": _old_requests,
    "late answers": _late_answers,
    "moved": _moved,
    "refused": _refused,
    "late watch": _late_watch,
    "lost reply": _lost_reply,
    "lost request": _lost_request,
    "outage": _outage,
    "stop server": _stop_server,
    "freeze": _freeze,
    "isolate": _isolate,
    "lag": _lag,
    "wipe": _wipe,
    "grow": _grow,
    "create topic": _create_topic,
    "delete topic": _delete_topic,
    "leader": _leader,
    "broker": _broker,
    "retention": _retention,
    "damaged offset": _damaged_offset,
    "owner deleted": operator_faults.owner_deleted,
    "owner replaced": operator_faults.owner_replaced,
    "offset set": operator_faults.offset_set,
    "unregistered": operator_faults.unregistered,
    "poison": operator_faults.poison,
    "closed": operator_faults.closed,
    "name taken": operator_faults.name_taken,
    "manager moved": _manager_moved,
    "manager dead": _manager_dead,
    "manager slow": _manager_slow,
    "offset in kafka set": operator_faults.offset_in_kafka_set,
}
"""All kinds of steps."""

OWN_PROFILE: Final = frozenset({"manager moved", "manager dead", "manager slow", "offset in kafka set", "broker"})
"""Kinds that happen only to groups with offsets in Kafka (the profile `stores`), or to those of Kafka 0.7."""
