"""Ends a member whose coordinator has failed: nothing is left that could renew the lease, commit or release.

Rule: the lease ends first and the membership right after it, so that others take over at once and nothing is
delivered here that they own by then. Each step is done whatever happened in the previous one.

Source: docs/SEMANTICS.md, "A member that fails".
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from simpleconsumer.errors import AuthenticationFailed
from zkconsumer.errors import StreamFailed
from zkconsumer.member.coordination import ClosingPort, GroupCoordinator
from zkconsumer.member.delivery import Delivery
from zkconsumer.member.listening import ListenerThread
from zkconsumer_error import shown

__all__ = ["end_by_fault", "stream_failure"]

log = logging.getLogger(__name__)


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
