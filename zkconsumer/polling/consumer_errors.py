"""The errors of calls of KafkaConsumer: used by two threads, woken up, closed, or asked for what it cannot do. Pure."""

# The names say what happened, as those of `zkconsumer.errors` do.
# ruff: noqa: N818
from __future__ import annotations

from zkconsumer.polling.errors import PollingError

__all__ = ["ConcurrentConsumerUse", "ConsumerClosed", "ConsumerWokenUp", "PollTimeout"]


class ConcurrentConsumerUse(PollingError):
    """Another thread is inside a call of this consumer, which is for one thread at a time."""

    def __init__(self, thread: str) -> None:
        super().__init__(f"thread {thread!r} is inside a call of this consumer, which is for one thread at a time",
                         "give each thread a consumer of its own; only wakeup() may be called from others")  # fmt: skip


class ConsumerWokenUp(PollingError):
    """`wakeup` was called; the consumer may be used on."""

    def __init__(self) -> None:
        super().__init__("wakeup() was called", "poll again, or close the consumer")


class ConsumerClosed(PollingError):
    """The consumer is closed."""

    def __init__(self) -> None:
        super().__init__("this consumer is closed", "make another one")


class PollTimeout(PollingError):
    """What was asked for is not known in time."""

    def __init__(self, what: str, timeout_s: float, reason: str = "") -> None:
        because = f": {reason}" if reason else ""
        super().__init__(f"{what} is not known within {timeout_s:g} s{because}",
                         "try again, or give it more time (default.api.timeout.ms)")  # fmt: skip
        self.args = (what, timeout_s, reason)
