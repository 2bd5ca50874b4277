"""Tells a refusal from a broker that died, where both are a connection that is lost during the authentication.

Brokers before Kafka 1.0 close the connection without a word if they refuse a user. A connection that is lost there is
made again, a few times: who refuses does so each time, and who has died takes no connection. More tries than these
could have a user locked out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from simpleconsumer.security.sasl import SaslLost, SaslRefused

__all__ = ["in_tries"]

T = TypeVar("T")

PAUSES_S: Final = (0.1, 0.5)
"""Waits before the second try, and before the third and last one."""


def in_tries(attempt: Callable[[], T], deadline: float, pause: Callable[[float], bool]) -> T:
    """Return what an attempt to make an authenticated connection returns.

    Args:
        attempt: Raises SaslLost for a connection that was lost upon a token.
        deadline: In seconds of the monotonic clock; no try starts behind it.
        pause: Waits for so many seconds; returns whether nothing is wanted any more.

    Raises:
        SaslRefused: The connection was lost in every try.
        Errors of `attempt`.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return attempt()
        except SaslLost as error:
            is_last = tries > len(PAUSES_S) or time.monotonic() + PAUSES_S[tries - 1] >= deadline
            if is_last or pause(PAUSES_S[tries - 1]):
                counted = f" {tries} times in a row" if tries > 1 else ""
                reason = f"the broker closed the connection during the authentication{counted}"
                raise SaslRefused(f"{reason}, which brokers before Kafka 1.0 do if user or password is "
                                  "wrong") from error
