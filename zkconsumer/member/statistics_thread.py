"""Reports the statistics to the application periodically, on a thread of its own.

Rule: nothing that the application does there can harm the consumer. A call that fails is logged, once; one that takes
long delays the next one; one that never returns is abandoned at the end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["StatisticsThread"]

log = logging.getLogger(__name__)


class StatisticsThread:
    """Calls `report` every `interval_s` seconds, from `start` to `stop`.

    Args:
        report: makes the statistics, and passes them to the application's callback; it keeps neither alive.
        failed: called for each call that failed.
    """

    def __init__(
        self,
        report: Callable[[], object],
        interval_s: float,
        failed: Callable[[], None],
    ) -> None:
        self._report = report
        self._interval_s = interval_s
        self._failed = failed
        self._over = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="zkconsumer-statistics", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Make no further call."""
        self._over.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the present call returns, for `timeout_s` at most."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            try:
                self._report()
            except BaseException:  # sys.exit() too ends the call and nothing more
                self._failed()
                if not self._has_failed:
                    log.exception("on_statistics failed; continuing, and logging no further failure of it")
                self._has_failed = True
