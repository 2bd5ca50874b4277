"""How many requests of this process are under way at each broker, over whatever connections.

Look-ups go to the broker that has the fewest of them. A process that was forked starts from zero.

Source: org.apache.kafka.clients.NetworkClient.leastLoadedNode (2.8).
"""

from __future__ import annotations

import os
import threading
from typing import Final

__all__ = ["UNDER_WAY", "Address", "RequestsUnderWay"]

Address = tuple[str, int]
"""Host and port."""


class RequestsUnderWay:
    """Counts requests by the address of their broker.

    Threads: any.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start from zero."""
        self._lock = threading.Lock()  # another thread may have held that of the parent process
        self._counts: dict[Address, int] = {}

    def begin(self, address: Address) -> None:
        """Count a request."""
        with self._lock:
            self._counts[address] = self._counts.get(address, 0) + 1

    def end(self, address: Address) -> None:
        """Take a request back that was counted; nothing happens in a process that was forked in between."""
        with self._lock:
            left = self._counts.get(address, 0) - 1
            if left > 0:
                self._counts[address] = left
            else:
                self._counts.pop(address, None)

    def at(self, address: Address) -> int:
        """Return how many are under way at a broker."""
        return self._counts.get(address, 0)


UNDER_WAY: Final = RequestsUnderWay()
"""Those of this process."""
os.register_at_fork(after_in_child=UNDER_WAY.forget)
