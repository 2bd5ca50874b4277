"""A commit that the application has asked for, from the call to the answer.

It is posted to the coordinator's thread when it is asked for, and stored after all earlier commits:
who waits for one of them waits for those, too.

Finds out whether a call comes from a Python signal handler.

Python runs a handler between two steps of the main thread, whatever that is doing. A `shutdown` in a handler cannot
know from the thread alone whether the application is done with its message, or was interrupted in its work on it.
"""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Protocol

from rebalance.loop import Loop
from rebalance.subscription import Partition
from simpleconsumer.types import TopicPartition
from zkconsumer.errors import CommitFailed
from zkconsumer.member.connector_checks import checked_offsets
from zkconsumer.member.coordination import GroupCoordinator
from zkconsumer.member.delivery import Delivery
from zkconsumer.offsets.commits import CommitNotes, Commits, GivenNotes
from zkconsumer.offsets.member_offsets import MemberOffsets
from zkconsumer.wakeup import Latch


class CommittingMember(Protocol):
    """The parts of a member that its commits need."""

    loop: Loop
    offsets: MemberOffsets
    delivery: Delivery
    coordinator: GroupCoordinator
    commits: Commits

    @property
    def notes(self) -> CommitNotes:
        """The metadata that is stored with offsets."""

    @property
    def is_coordinated(self) -> bool:
        """Whether the coordinator's thread is alive."""

    def await_coordinator(self, done: Latch, timeout_s: float) -> bool:
        """Return whether `done` is set in time; waits only while the coordinator's thread is alive."""

    def why_no_answer(self, where: str) -> str:
        """Return why the coordinator does not answer, a clause."""


class AskedCommit:
    """One commit.

    Args:
        member: Whose.
        offsets: The offsets to store; None for all that counts for `reader`.
        reader: A thread by `threading.get_ident`, or an asyncio task.
        given: The metadata to store with these offsets.
        answered: Called on the coordinator's thread when the result is known, in the order of the calls.

    Raises:
        ValueError: An offset that is no integer from 0 to 2^63-1.

    Threads: Made by the one that decides on it; any may wait.
    """

    def __init__(
        self,
        member: CommittingMember,
        offsets: Mapping[TopicPartition, int] | None,
        reader: object,
        given: GivenNotes,
        answered: Callable[[], None],
    ) -> None:
        self._member = member
        # A decision made here, on the application's thread, must not be written under a later session.
        self._fence = member.coordinator.fence
        self._explicit = None if offsets is None else checked_offsets(offsets)
        self._in_hand = {} if self._explicit is not None else member.delivery.explicit_positions(reader)
        self._given = given
        self._answered = answered
        self._positions: dict[Partition, int] = {}
        self._failed: dict[Partition, str] = {}
        self._done = Latch()
        member.loop.post(self._run)

    def wait(self, wait_s: float | None = None) -> None:
        """Wait until it is stored.

        Args:
            wait_s: Longest wait; None for as long as the requests may take.

        Raises:
            CommitFailed: Names each partition that was not stored, and why.
        """
        error = self.failure(wait_s)
        if error is not None:
            raise error

    def failure(self, wait_s: float | None = None) -> Exception | None:
        """Wait for the result; return why it is not known to be stored, None if it is. See `wait`."""
        member = self._member
        if wait_s is None:
            wait_s = max(member.coordinator.session_timeout_s, member.offsets.commit_wait_s, 1.0)
        if member.await_coordinator(self._done, wait_s):
            return CommitFailed(self._failed) if self._failed else None
        missing = self._positions or self._explicit or self._in_hand
        if not missing and member.coordinator.error is not None:
            return member.coordinator.error
        why = member.why_no_answer(f"from {member.offsets.answering} within {wait_s:g} s")
        return CommitFailed(dict.fromkeys(missing, why))

    @property
    def is_abandoned(self) -> bool:
        """Whether no result will come any more: the coordinator's thread has ended before."""
        return not self._member.is_coordinated and not self._done.is_set()

    # -- the coordinator's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        member = self._member
        chosen, refused = member.commits.choose(self._explicit, self._in_hand)
        self._failed.update(refused)
        for partition, at in chosen.items():
            reason = None if self._explicit is None else member.delivery.why_no_start(partition, at)
            if reason is None:
                self._positions[partition] = at
            else:
                self._failed[partition] = reason
        with member.notes.given(self._given):
            member.commits.commit(self._fence, self._positions, self._committed, explicit=self._explicit is not None)

    def _committed(self, failed: Mapping[Partition, str]) -> None:
        self._failed.update(failed)
        self._member.delivery.mark_committed({
            TopicPartition(*partition): at for partition, at in self._positions.items() if partition not in self._failed
        })  # fmt: skip
        self._answered()
        self._done.set()


def called_by_signal_handler() -> bool:
    """Whether a function that is installed as a signal handler is on the stack of the calling thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in codes:
            return True
        frame = frame.f_back
    return False


def _code_of(handler: object) -> CodeType | None:
    """The code that runs when a handler is called; None for what is not written in Python, and for no handler."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(inspect.getattr_static(type(handler), "__call__", None), "__code__", None)
    return code if isinstance(code, CodeType) else None
