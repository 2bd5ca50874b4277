"""How a simulated port behaves. Pure values."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulator.pipe import Latency

__all__ = ["PortSettings"]


class PortSettings(NamedTuple):
    """How a simulated port behaves.

    Attributes:
        session_timeout_s: asked for; servers may grant another.
        overtaking: how likely a change of the session overtakes the answers and events that came before it. The port
            on kazoo keeps them in order but for a late "connected" (below), so 0 is what it does, and more is what
            the contract of the port lets other clients do.
        behind: how far the callbacks are behind in that case.
        extra_turn: how much later than others the reply to a create or a sync is passed on.
        version_answer: how late "connected" is reported for the first connection to a server, whose version is asked.
    """

    session_timeout_s: float = 6.0
    overtaking: float = 0.2
    behind: Latency = Latency(0.0005, 0.05)
    extra_turn: Latency = Latency(0.0, 0.001)
    version_answer: Latency = Latency(0.0005, 0.02)
