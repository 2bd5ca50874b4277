"""Checks a group repeatedly until it is settled: a rebalance under way is no fault, one that does not end is."""

from __future__ import annotations

import time
from collections.abc import Callable

from zkconsumer.admin.verify.findings import Verification
from zkconsumer_error import ZkConsumerError

__all__ = ["check_until_settled"]

_PAUSE_S = 0.5


def check_until_settled(
    check: Callable[[bool], Verification],
    patience_s: float,
    wait_s: float = 0.0,
    trigger: Callable[[Verification], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Verification:
    """Return the last result: that of the first check without faults, or the one when the time is over.

    Args:
        check: Checks the group; called with True when this is the last check.
        patience_s: How long a fault may last that a rebalance explains.
        wait_s: How long any fault may last, also a group that does not exist and a ZooKeeper that does not answer.
        trigger: Triggers a rebalance; called once, when `patience_s` is over and a rebalance would give a member what
            it lacks. Then `patience_s` starts again.

    Raises:
        ZkConsumerError: The group could not be read, at the end.
    """
    patience_ends = clock() + patience_s
    deadline = max(patience_ends, clock() + wait_s)
    while True:
        started_at = clock()
        is_last = started_at >= deadline
        found, failure = _try(check, is_last)
        if found is not None and not found.faults:
            return found
        now = clock()
        if trigger is not None and found is not None and found.wakeable and now >= patience_ends:
            trigger(found)
            trigger, deadline = None, max(deadline, now + patience_s)
        elif is_last or not (wait_s > 0 or (found is not None and found.is_passing)):
            if found is None:
                assert failure is not None
                raise failure
            return found
        # Checks take half of the time at most, however large the group is; the last one is when the time is over.
        sleep(max(0.05, min(max(_PAUSE_S, now - started_at), deadline - now)))


def _try(check: Callable[[bool], Verification], is_last: bool) -> tuple[Verification | None, Exception | None]:
    try:
        return check(is_last), None
    except ZkConsumerError as error:
        return None, error
