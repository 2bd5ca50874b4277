"""Faults of members: kills, pauses, sessions that end at chosen moments, links that stall."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from fault_players import SESSION_S
from fault_scenario import SESSION_ENDED, Scenario
from fault_stage import RATE_PER_S, UNGRACEFUL, Stage

from zkconsumer.testing.history.limits import Trouble
from zkconsumer.testing.proxy.zookeeper_trace import Hold
from zkconsumer.testing.waiting import wait_until


def killed(stage: Stage) -> None:
    """SIGKILL: the others take over when its session is over."""
    stage.mark()
    stage.hit.kill()
    stage.wait_full()
    stage.aim(SESSION_S + TICK_S + 1.0)


def leaves(stage: Stage) -> None:
    """SIGTERM: it leaves in order."""
    stage.mark()
    stage.hit.begin_to_leave()
    stage.wait_full()
    stage.aim(1.0)
    stage.hit.process.wait(30.0)
    stage.most_repeats = 0


def stopped(stage: Stage) -> None:
    """SIGSTOP beyond its session, then SIGCONT."""
    stage.in_hand = 1
    stage.mark()
    stage.hit.pause()
    stage.hit.expected = False
    stage.wait_full()
    stage.wait_committed()  # the others have stored offsets that a stale commit would lower
    _come_back(stage, stage.hit.resume, "SIGCONT")


def _come_back(stage: Stage, act: Callable[[], object], word: str) -> None:
    stage.hit.expected = True
    at_s = stage.since_s()
    act()
    full_s = stage.wait_full()
    stage.notes.append(f"shared again {full_s - at_s:.2f} s after {word}" if full_s else f"never shared after {word}")


# ---- sessions


def ended_when_idle(stage: Stage) -> None:
    """Its session is ended while nothing else happens."""
    stage.limits = SESSION_ENDED
    stage.mark()
    stage.hit.end_session()
    stage.wait_full()


def ended_while_joining(ours: tuple[str, str], java: tuple[str, str]) -> Callable[[Stage], None]:
    """The session of a member that joins is ended when it asks ZooKeeper for a certain thing."""

    def act(stage: Stage) -> None:
        stage.limits = SESSION_ENDED
        late = stage.prepare("late")
        with Hold(late.link, *(java if late.kind == "java" else ours)) as hold:
            stage.mark()
            stage.launch(late)
            hold.wait()
            late.end_session()
        stage.wait_full()
        late.wait_ready()

    return act


def ended_between_claims(stage: Stage) -> None:
    """The session of a member that joins is ended when it owns something and is about to claim the rest.

    Ours claim all that is free in one transaction; so the other member is kept from letting go in time.
    """
    stage.limits = SESSION_ENDED
    late = stage.prepare("late")
    if late.kind == "java":
        hold = Hold(late.link, *CLAIM, number=2)
        stage.launch(late)
    else:
        with Hold(stage.other.link, "delete", "/owners/") as kept:
            stage.launch(late)
            kept.wait()
            wait_until(lambda: stage.owned_by(late), SESSION_S / 2, "its first claim", state=stage.owner_names)
            hold = Hold(late.link, *CLAIM)
    with hold:
        hold.wait()
        stage.mark()
        late.end_session()
    stage.wait_full()
    late.wait_ready()


def ended_during_commit(stage: Stage) -> None:
    """Its session is ended when a commit is on its way."""
    stage.limits = SESSION_ENDED
    with Hold(stage.hit.link, "set_data", "/offsets/") as hold:
        hold.wait()
        stage.mark()
        stage.hit.end_session()
    stage.wait_full()


def ended_during_release(stage: Stage) -> None:
    """Its session is ended when it has committed and is about to let go of partitions for one that joins."""
    stage.limits = SESSION_ENDED
    late = stage.prepare("late")
    with Hold(stage.hit.link, "delete", "/owners/") as hold:
        stage.mark()
        stage.launch(late)
        hold.wait()
        stage.hit.end_session()
    stage.wait_full()
    late.wait_ready()


def ended_during_close(stage: Stage) -> None:
    """Its session is ended from outside when it is about to end it itself, on leaving."""
    stage.limits = SESSION_ENDED
    with Hold(stage.hit.link, "close") as hold:
        stage.mark()
        stage.hit.begin_to_leave()
        hold.wait()
        stage.hit.end_session()
    stage.wait_full()
    stage.hit.process.wait(30.0)


# ---- links


def link_stalled(stage: Stage) -> None:
    """No byte passes between it and ZooKeeper for two and a half sessions; brokers answer all the while."""
    _cut_off(stage, stage.hit.link.stall)


def answers_lost(stage: Stage) -> None:
    """What it asks arrives, but no answer comes back."""
    _cut_off(stage, lambda: stage.hit.link.half("up"))


def _cut_off(stage: Stage, act: Callable[[], object]) -> None:
    stage.mark()
    began_ns = stage.marked_ns
    act()
    stage.hit.expected = False
    stage.wait_full()
    wait_until(lambda: stage.since_s() > 2.5 * SESSION_S, 30.0, "the fault to outlast the session")
    _come_back(stage, stage.hit.link.clear, "the link")
    trouble = Trouble(began_ns, time.monotonic_ns(), stage.hit.name)  # nothing can be committed meanwhile
    stage.limits = replace(UNGRACEFUL, troubles=(trouble,))


def link_broken_often(stage: Stage) -> None:
    """Its connection to ZooKeeper breaks again and again, shorter than its session."""
    stage.mark()
    for _ in range(6):
        stage.hit.link.drop()
        stage.load.grow(int(RATE_PER_S / 2))
    stage.assert_kept()
    stage.most_repeats = 0


TICK_S = 0.1  # of the kit's ZooKeeper
AFTER_REGISTERING = ("get_children", "/ids")
CLAIM = ("create", "/owners/")
OFFSET_READ = ("get_data", "/offsets/")

MEMBER_FAULTS = (
    Scenario("kill -9", killed),
    Scenario("SIGTERM", leaves),
    Scenario("SIGSTOP beyond the session, SIGCONT", stopped),
    Scenario("session ended: idle", ended_when_idle),
    Scenario("session ended: after registering", ended_while_joining(AFTER_REGISTERING, AFTER_REGISTERING)),
    Scenario("session ended: between two claims", ended_between_claims),
    # Java members read first and claim then: the second of the two is held, either way.
    Scenario("session ended: between claim and offset read", ended_while_joining(OFFSET_READ, CLAIM)),
    Scenario("session ended: during commit", ended_during_commit),
    Scenario("session ended: between commit and release", ended_during_release),
    Scenario("session ended: during close", ended_during_close),
    Scenario("link to ZooKeeper stalled", link_stalled),
    Scenario("link to ZooKeeper: answers lost", answers_lost),
    Scenario("link to ZooKeeper broken six times", link_broken_often),
)
