"""The errors of calls of KafkaConsumer: used by two threads, woken up, closed, forked, or not answered.

Pure.
"""

# The names say what happened, as those of `zkconsumer.errors` do.
# ruff: noqa: N818
from __future__ import annotations

from zkconsumer.polling.errors import PollingError

__all__ = ["ConcurrentConsumerUse", "ConsumerClosed", "ConsumerWokenUp", "ForkedConsumer", "PollTimeout"]


class ConcurrentConsumerUse(PollingError):
    """Another thread, or asyncio task, is inside a call of this consumer, which is for one at a time."""

    def __init__(self, user: str, kind: str = "thread") -> None:
        which = "wakeup() may" if kind == "thread" else "calls that do not poll may"
        super().__init__(f"{kind} {user!r} is inside a call of this consumer; only one {kind} at a time may call it",
                         f"create a consumer for each {kind}; only {which} be called from others")  # fmt: skip


class ConsumerWokenUp(PollingError):
    """`wakeup` was called; the consumer may be used on."""

    def __init__(self) -> None:
        super().__init__("wakeup() was called", "poll again, or close the consumer")


class ConsumerClosed(PollingError):
    """The consumer is closed."""

    def __init__(self) -> None:
        super().__init__("this consumer is closed", "create another one")


class ForkedConsumer(PollingError):
    """A consumer was used in a process that was forked after it had been made.

    Attributes:
        owner_pid: The process that made it.
        pid: The process that used it.
    """

    def __init__(self, owner_pid: int, pid: int) -> None:
        super().__init__(f"this consumer belongs to process {owner_pid}, and process {pid} was forked from it",
                         "create a consumer in the process that uses it")  # fmt: skip
        self.args = (owner_pid, pid)
        self.owner_pid = owner_pid
        self.pid = pid


class PollTimeout(PollingError):
    """What was asked for is not known in time."""

    def __init__(self, what: str, timeout_s: float, reason: str = "") -> None:
        because = f": {reason}" if reason else ""
        super().__init__(f"{what} was not found within {timeout_s:g} s{because}",
                         "try again, or set a longer time-out (default.api.timeout.ms)")  # fmt: skip
        self.args = (what, timeout_s, reason)
