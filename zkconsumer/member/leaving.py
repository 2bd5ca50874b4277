"""Leaves the group in order and in time: finish, notify the listener, commit, release, end the session.

A leave is started once, by `shutdown` or because a thread of the member has died, and runs on a thread of its own:
neither an exception that a signal handler raises in the caller nor an application that hangs in a callback can stop it
half-way. Rules, and which failure each prevents:
- Each step has a moment until which it may wait, and the next one starts whatever became of it: nothing hangs.
- A caller waits until a moment of its own. A thread that the leave waits for never waits for the leave: no deadlock.
- Positions that were not stored are reported, and nothing is raised: the caller may be a signal handler.

Source: docs/SEMANTICS.md, "The end".

Computes until when each step of a leave may wait, so that it is over half a second after its time-out.

Messages in hand may take all of the time-out. The half second after it is divided among the later steps; a step that
needs less leaves more to the next one.

Source: docs/SEMANTICS.md, "The end".

Ends a member whose coordinator has failed: nothing is left that could renew the lease, commit or release.

Rule: the lease ends first and the membership right after it, so that others take over at once and nothing is
delivered here that they own by then. Each step is done whatever happened in the previous one.

Source: docs/SEMANTICS.md, "A member that fails".
"""

from __future__ import annotations

import _thread
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from rebalance.lease import Lease, lease_clock
from rebalance.loop import Loop
from rebalance.ports import Fence
from rebalance.subscription import Partition
from simpleconsumer.errors import AuthenticationFailed
from simpleconsumer.types import TopicPartition
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import StreamFailed
from zkconsumer.member.coordination import ClosingPort, GroupCoordinator
from zkconsumer.member.delivery import Delivery
from zkconsumer.member.listening import ListenerThread
from zkconsumer.offsets.commits import Commits
from zkconsumer.offsets.member_offsets import MemberOffsets
from zkconsumer.wakeup import Latch
from zkconsumer_error import first_few, shown

SPARE_S: Final = 0.5
"""The seconds that a shutdown may take beyond its time-out."""
_LISTENER_S: Final = 0.15
_COMMIT_S: Final = 0.3
_CLOSE_S: Final = 0.35
_OVER_S: Final = 0.4
_RETURN_S: Final = 0.47
_LONGEST_S: Final = 1e7
"""Longer than any program runs, and shorter than what a lock can be waited for."""


@dataclass(frozen=True, slots=True)
class LeaveTimes:
    """The moments of one leave.

    Attributes:
        in_hand_until: for the messages in hand of other threads.
        listener_until: for `on_partitions_revoked`.
        commit_until: for the answer to the last commit.
        close_until: for the coordinator to take no further part.
        over_at: for the end of the session, and for threads to end.
    """

    in_hand_until: float
    listener_until: float
    commit_until: float
    close_until: float
    over_at: float

    @staticmethod
    def of(now: float, wait_s: float) -> LeaveTimes:
        """A leave that starts now and has `wait_s` seconds."""
        end = now + min(wait_s, _LONGEST_S)
        return LeaveTimes(end, end + _LISTENER_S, end + _COMMIT_S, end + _CLOSE_S, end + _OVER_S)


def longest_wait_s(wait_s: float) -> float:
    """How long a caller with so much time waits for a leave, whatever becomes of it."""
    return min(wait_s, _LONGEST_S) + _RETURN_S


log = logging.getLogger(__name__)


def end_dropped(what: str, group: str | None, how: str, end: Callable[[], object]) -> None:
    """Warn of a consumer that was dropped without its end, and end it on a thread of its own.

    It is called by a finalizer, on any thread in the midst of anything: it waits for nothing, and starts the thread
    without those locks of `threading` that the interrupted code may hold.

    Args:
        what: The consumer, for the warning.
        group: Its group.
        how: The call that should have ended it.
        end: Ends it, in time.
    """
    if sys.is_finalizing():
        return  # its threads are daemons, and none can be started any more
    text = f"{what} of group {group} was dropped without {how}, and leaves now; messages in hand are delivered again"
    warnings.warn(text, ResourceWarning, stacklevel=3)
    try:
        _thread.start_new_thread(end, ())
    except RuntimeError:  # no thread can be started any more: the session ends after its time-out
        log.warning("%s of group %s was dropped, and no thread can be started to end it", what, group)


class LeavingMember(Protocol):
    """The parts of a member that its leave needs."""

    config: ConsumerConfig
    consumer_id: str
    lease: Lease
    loop: Loop
    port: ClosingPort
    offsets: MemberOffsets
    delivery: Delivery
    listening: ListenerThread
    coordinator: GroupCoordinator
    commits: Commits

    @property
    def is_coordinated(self) -> bool:
        """Whether the coordinator's thread is alive."""

    def give_up_start(self) -> None:
        """Wake up a thread that waits for the start of the member."""

    def is_own_thread(self, thread: threading.Thread, but: threading.Thread | None) -> bool:
        """Whether the leave waits for what this thread does, unless the thread has started it."""

    def join_threads(self, until: float, but: threading.Thread | None) -> None:
        """Wait for the coordinator and the listener to end."""

    def await_coordinator(self, done: Latch, timeout_s: float) -> bool:
        """Return whether `done` is set in time; waits only while the coordinator's thread is alive."""


class Leave:
    """The leave of one member.

    Args:
        member: whose.
        clock: seconds.

    Threads: `start`, `wait` and `unstored` from any, signal handlers too.
    """

    def __init__(self, member: LeavingMember, clock: Callable[[], float] = lease_clock) -> None:
        self._member = member
        self._clock = clock
        self._lock = threading.RLock()
        self._runs: dict[str, int] = {}
        self._has_started = False
        self._over = Latch()
        self._reader: object = None
        self._is_hand_done = False
        self._caller: threading.Thread | None = None
        self._times = LeaveTimes.of(0.0, 0.0)
        self._positions: Mapping[TopicPartition, int] | None = None
        self._fence: Fence | None = None
        self._unstored: dict[TopicPartition, str] | None = None

    @property
    def has_started(self) -> bool:
        """Whether it was started."""
        return self._has_started

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done."""
        return self._over.is_set()

    def start(self, wait_s: float, reader: object, in_hand_is_done: bool, caller: threading.Thread | None) -> bool:
        """Leave, on another thread; False if that was started before.

        Args:
            wait_s: for messages in hand, the listener and the commit together.
            reader: who calls, a thread or an asyncio task; nobody waits for its messages in hand.
            in_hand_is_done: whether its messages in hand count as done.
            caller: a thread that may wait for the leave, and so is not waited for.
        """
        with self._lock:
            if self._has_started:
                return False
            self._has_started = True
            self._reader, self._is_hand_done, self._caller = reader, in_hand_is_done, caller
            self._times = LeaveTimes.of(self._clock(), wait_s)
        # No daemon: a handler may end the program, which must not end before the member has left in order.
        thread = threading.Thread(target=self._run, name=f"zkconsumer-{self._member.consumer_id}-leave", daemon=False)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started any more: the caller has to do it
            self._run()
        return True

    def wait(self, wait_s: float) -> bool:
        """Return whether it is over in `wait_s` and half a second; at once on a thread that the leave waits for."""
        if self._member.is_own_thread(threading.current_thread(), but=self._caller):
            return self.is_over
        return self._over.wait(longest_wait_s(wait_s))

    def unstored(self) -> dict[TopicPartition, str]:
        """Partition -> why its position is not stored, as far as is known by now."""
        found = self._unstored
        if found is None:
            found = self._not_stored("the shutdown is not over yet")
        return dict(found)

    def _not_stored(self, reason: str) -> dict[TopicPartition, str]:
        """Return the offsets that are not known to be stored while the last commit is not answered."""
        member, positions = self._member, self._positions
        if positions is None:
            positions = member.delivery.positions()
        if member.coordinator.error is not None and not member.is_coordinated:
            reason = str(member.coordinator.error)
        return _named(member.commits.not_stored(positions, reason))

    def _lost(self) -> dict[TopicPartition, str]:
        """Return the done offsets that a member had no time to store before a fault ended it."""
        error = self._member.coordinator.error
        if error is None or not self._member.config.auto_commit_enable:
            return {}
        return _named(dict.fromkeys(self._member.offsets.behind(), str(error)))

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._runs.setdefault("thread", threading.get_ident()) != threading.get_ident():
            return
        for step in (
            self._stop_delivery,
            self._notify_listener,
            self._commit,
            self._close_coordinator,
            self._end_session,
            self._end_threads,
            self._log_threads,
            self._log_unstored,
        ):
            try:
                step()
            except Exception:
                log.exception("a step of the leave of %s failed; continuing", self._member.consumer_id)
        self._over.set()

    def _wait(self, done: Latch, until: float) -> bool:
        return self._member.await_coordinator(done, until - self._clock())

    def _post(self, call: Callable[..., None], *arguments: object) -> bool:
        """Return whether there is a coordinator to do it."""
        self._member.loop.post(call, *arguments)
        return self._member.is_coordinated

    def _stop_delivery(self) -> None:
        member = self._member
        member.give_up_start()  # the listener may leave while another thread still waits for the start
        if member.config.auto_commit_enable and (member.listening.has_listener or member.delivery.is_in_hand()):
            # The done messages are then safe, even if a message in hand or the listener uses up all the time.
            self._post(member.commits.commit_done)
        self._fence = member.coordinator.fence
        self._positions = member.delivery.stop(self._reader, self._times.in_hand_until, self._is_hand_done)

    def _notify_listener(self) -> None:
        """Notify the listener of what is about to be released; it may commit, which counts when auto-commit is off."""
        member, returned = self._member, Latch()
        if not self._post(member.commits.release, self._positions or {}, lambda: member.listening.leave(returned.set)):
            return
        # A callback that shuts down would wait for itself.
        if self._caller is None or not member.listening.is_on(self._caller):
            self._wait(returned, self._times.listener_until)

    def _commit(self) -> None:
        member, done = self._member, Latch()
        outcome: dict[Partition, str] = {}

        def committed(failed: Mapping[Partition, str]) -> None:
            outcome.update(failed)
            done.set()

        is_automatic = member.config.auto_commit_enable
        if is_automatic:
            is_posted = self._post(member.commits.commit_last, self._fence, self._positions or {}, committed)
        else:  # nothing, after all commits of the application
            is_posted = self._post(member.offsets.commit, self._fence, {}, committed)
        if is_posted:
            self._wait(done, self._times.commit_until)
        found = (
            _named(outcome)
            if is_automatic and done.is_set()
            else self._not_stored(f"no answer from {member.offsets.answering} within the time-out")
        )
        self._unstored = {**self._lost(), **found}

    def _close_coordinator(self) -> None:
        closed = Latch()

        def close() -> None:
            try:
                self._member.coordinator.close()
            finally:
                closed.set()

        if self._post(close):
            self._wait(closed, self._times.close_until)

    def _end_session(self) -> None:
        member = self._member
        member.lease.end()
        member.port.close(0.0)
        member.loop.post(member.loop.stop)

    def _end_threads(self) -> None:
        member, over_at = self._member, self._times.over_at
        member.delivery.close(over_at)
        member.offsets.close(over_at - self._clock())
        member.join_threads(over_at, but=self._caller)
        left_s = over_at - self._clock()
        member.port.close(max(left_s, 0.001))

    def _log_threads(self) -> None:
        """Name the threads that stay: each waits for something outside of this process, and ends after that."""
        mine, name = threading.get_ident(), self._member.consumer_id
        left = [each.name for each in threading.enumerate() if name in each.name and each.ident != mine
                and each is not self._caller and not each.name.endswith("-start")]  # fmt: skip
        if left:
            log.warning("%s has left, and some of its threads still wait for an answer or a callback, and end with "
                        "it: %s",
                        name, ", ".join(sorted(left)))  # fmt: skip

    def _log_unstored(self) -> None:
        unstored = self._unstored
        if unstored:
            rows = [f"{topic}-{number}: {why}" for (topic, number), why in unstored.items()]
            log.warning(
                "%s has left, and the positions of %d partitions are not committed: %s; their last messages "
                "may be delivered again",
                self._member.consumer_id,
                len(rows),
                first_few(*rows, between="; ", rest="; and {} more"),
            )


def _named(reasons: Mapping[Partition, str]) -> dict[TopicPartition, str]:
    return {TopicPartition(*partition): reason for partition, reason in reasons.items()}


def stream_failure(what: str, error: BaseException) -> StreamFailed:
    """The error that the streams raise after a fault."""
    failure = StreamFailed(f"{what}: {error if isinstance(error, AuthenticationFailed) else shown(error)}")
    failure.__cause__ = error
    return failure


def end_by_fault(
    error: BaseException,
    coordinator: GroupCoordinator,
    delivery: Delivery,
    listening: ListenerThread,
    port: ClosingPort,
) -> StreamFailed:
    """End a member whose coordinator has ended by `error`; the error that its streams raise from now on.

    Threads: the coordinator's, after its last step.
    """
    coordinator.lease.end()
    failure = stream_failure("the coordinator has failed", error)
    coordinator.error = failure
    # The session ends before anything that calls code of the application, or writes a log.
    steps: tuple[Callable[[], None], ...] = (
        lambda: port.close(0.0), lambda: delivery.fail(failure), listening.all_lost,
        lambda: log.error("the coordinator of %s has failed; its membership ends",
                          coordinator.member.consumer_id, exc_info=error),
    )  # fmt: skip
    for step in steps:
        try:
            step()
        except Exception:
            log.exception("after the coordinator of %s had failed", coordinator.member.consumer_id)
    return failure
