"""Looks at a group again and again: a rebalance under way is no fault, one that does not end is."""

from __future__ import annotations

import time
from collections.abc import Callable

from rebalance.errors import RebalanceError
from zkconsumer.admin.findings import Verdict
from zkconsumer.cli.failures import CliError

__all__ = ["look_until_settled"]

_PAUSE_S = 0.5


def look_until_settled(
    look: Callable[[bool], Verdict],
    patience_s: float,
    wait_s: float = 0.0,
    nudge: Callable[[Verdict], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Verdict:
    """The last verdict: at the first look without faults, or when they have lasted too long.

    Args:
        look: judges the group; called with whether this is the last time.
        patience_s: how long a fault that a rebalance explains is given.
        wait_s: how long any fault is given, also that the group is not there or ZooKeeper does not answer.
        nudge: called once, when `patience_s` is over and a member could be woken; then it begins again.

    Raises:
        CliError, RebalanceError: the group could not be read, at the end.
    """
    patience_ends = clock() + patience_s
    deadline = max(patience_ends, clock() + wait_s)
    while True:
        began = clock()
        is_last = began >= deadline
        verdict, failure = _look(look, is_last)
        if verdict is not None and not verdict.faults:
            return verdict
        now = clock()
        if nudge is not None and verdict is not None and verdict.wakeable and now >= patience_ends:
            nudge(verdict)
            nudge, deadline = None, max(deadline, now + patience_s)
        elif is_last or not (wait_s > 0 or (verdict is not None and verdict.is_passing)):
            if verdict is None:
                assert failure is not None
                raise failure
            return verdict
        # Half of the time at most, however large the group is; and a last look when the time is over.
        sleep(max(0.05, min(max(_PAUSE_S, now - began), deadline - now)))


def _look(look: Callable[[bool], Verdict], is_last: bool) -> tuple[Verdict | None, Exception | None]:
    try:
        return look(is_last), None
    except (CliError, RebalanceError) as error:
        return None, error
