"""The SASL session of a connection: begun when it is opened, and renewed before the broker ends it."""

from __future__ import annotations

import random
import time
from typing import Final

from simpleconsumer.security.authentication import Authentication, Exchange
from simpleconsumer.security.sasl import Sasl

__all__ = ["Session"]

_EARLIEST_SHARE: Final = 0.85
_LATEST_SHARE: Final = 0.95
"""Shares of its lifetime between which a session is renewed, as in Java's client; chance spreads the connections."""


class Session:
    """The session of one connection.

    Args:
        sasl: Who the client is.
        client_id: Name of the client in the broker's logs.
    """

    def __init__(self, sasl: Sasl, client_id: str) -> None:
        self._authentication = Authentication(sasl, client_id)
        self._renew_at: float | None = None

    def start(self, exchange: Exchange) -> None:
        """Authenticate a new connection; errors are those of `Authentication.authenticate`."""
        self._begin(self._authentication.authenticate(exchange))

    def renew(self, exchange: Exchange) -> None:
        """Authenticate it again; no request may be under way."""
        self._begin(self._authentication.again(exchange))

    def is_due(self) -> bool:
        """Return whether it is time to renew it."""
        return self._renew_at is not None and time.monotonic() >= self._renew_at

    def _begin(self, lifetime_ms: int) -> None:
        share = random.uniform(_EARLIEST_SHARE, _LATEST_SHARE)
        self._renew_at = time.monotonic() + lifetime_ms / 1000 * share if lifetime_ms > 0 else None
