"""Ends what a producer opened: in `close()`, when nobody refers to the producer any more, or when the program ends."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from zkconsumer.producer.sending.opening import Sending

__all__ = ["Lifetime"]

log = logging.getLogger(__name__)

_AT_EXIT_S: Final = 10.0


class Lifetime:
    """What `sending` holds lives until the first of these ends it; a forked process ends nothing.

    Args:
        producer: Who is referred to.
        sending: What takes its messages; it must not refer to the producer.
        close_cluster: Ends the connection to ZooKeeper, if there is one.
    """

    def __init__(self, producer: object, sending: Sending, close_cluster: Callable[[], None]) -> None:
        self._sending = sending
        self._close_cluster = close_cluster
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(producer, self._dropped)
        self._finalizer.atexit = False
        atexit.register(self._at_exit)

    def close(self, timeout_s: float | None) -> int:
        """Send what waits, for so long; fail the rest, end everything, and return how many messages have failed."""
        self._finalizer.detach()
        try:
            return self._sending.close(timeout_s)
        finally:
            self._close_cluster()
            atexit.unregister(self._at_exit)

    def _dropped(self) -> None:
        """Close in a thread: a finalizer runs in any thread, whatever locks it holds, and must not wait."""
        if self._pid != os.getpid():
            return
        try:
            threading.Thread(target=self.close, args=(None,), name="zkconsumer-producer-dropped", daemon=True).start()
        except RuntimeError:
            log.warning("a producer without references was not closed, because no thread could be "
                        "started", exc_info=True)

    def _at_exit(self) -> None:
        """Send what waits when the program ends; what is left is logged."""
        if self._pid == os.getpid() and (count := self.close(_AT_EXIT_S)):
            log.error("the program ends without close() of a producer: %s messages were not sent", count)
