"""A 0.7 broker's data folder: its logs, the mark of a clean stop, and the threads that flush and expire.

Files as in the Java broker: `.kafka_cleanshutdown`, and a folder `<topic>-<partition>` for each log; `.lock` besides.

Source: kafka.log.LogManager, kafka.server.KafkaServer (0.7.2).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from zkconsumer.testing.embedded.disk.storage import CLEAN_MARK, hold
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.errors import KitError

STOP_TIMEOUT_S: Final = 10.0
_log = logging.getLogger(__name__)


class Storage07:
    """The logs of one broker of Kafka 0.7.

    Threads: every method from any thread.

    Attributes:
        folder: the data folder.
    """

    def __init__(self, folder: Path, settings: BrokerSettings07) -> None:
        """Take a data folder and open the logs in it; without the mark of a clean stop they are recovered.

        Raises:
            KitError: the folder cannot be written, another broker, in this process or another one, holds it, it has
                logs of Kafka 0.8, or files of a log are missing.
        """
        self.folder = folder
        self._settings = settings
        self._held = hold(folder)
        mark = folder / CLEAN_MARK
        recover = not mark.exists()
        self._logs: dict[tuple[str, int], ByteLog] = {}
        self._lock = threading.Lock()
        self._closed = False
        try:
            for topic, partition in _stored(folder):
                log = ByteLog(folder, topic, partition, settings.log_of(topic), recover=recover)
                self._logs[topic, partition] = log
        except BaseException:
            self._close_logs(flush=False)
            self._held.close()
            raise
        mark.unlink(missing_ok=True)
        self._stopped = threading.Event()
        self._keepers = [
            self._keeper("flusher", settings.flush_check_ms, ByteLog.flush_if_due),
            self._keeper("cleaner", settings.cleanup_ms, ByteLog.apply_retention),
        ]

    def _keeper(self, name: str, interval_ms: int, task: Callable[[ByteLog], object]) -> threading.Thread:
        def run() -> None:
            while not self._stopped.wait(interval_ms / 1000):
                for log in self.logs.values():
                    try:
                        task(log)
                    except OSError as error:
                        _log.warning("the %s of %r failed: %s", name, log, error)

        thread = threading.Thread(target=run, name=f"log {name} of {self.folder.name}", daemon=True)
        thread.start()
        return thread

    @property
    def logs(self) -> dict[tuple[str, int], ByteLog]:
        """All logs, by topic and partition."""
        with self._lock:
            return dict(self._logs)

    @property
    def topics(self) -> list[str]:
        """The topics with a log."""
        return sorted({topic for topic, _ in self.logs})

    def find(self, topic: str, partition: int) -> ByteLog | None:
        """Return a log; None where there is none."""
        with self._lock:
            return self._logs.get((topic, partition))

    def find_or_make(self, topic: str, partition: int) -> tuple[ByteLog, bool]:
        """Return a log, which is made if need be, and whether it is the first of its topic.

        Raises:
            OSError: its folder cannot be made, or the broker ends.
        """
        with self._lock:
            if self._closed:
                raise OSError(f"{self.folder} is closed: its broker has ended")
            log = self._logs.get((topic, partition))
            if log is not None:
                return log, False
            is_first = all(known != topic for known, _ in self._logs)
            log = ByteLog(self.folder, topic, partition, self._settings.log_of(topic))
            self._logs[topic, partition] = log
            return log, is_first

    def abandon(self) -> None:
        """Have nothing more written, as the death of the process does."""
        self._close_logs(flush=False)

    def close(self, *, clean: bool) -> None:
        """Close all logs and give the folder up; `clean` flushes them and leaves the mark."""
        self._stopped.set()
        for keeper in self._keepers:
            keeper.join(STOP_TIMEOUT_S)
        self._close_logs(flush=clean)
        if clean:
            (self.folder / CLEAN_MARK).touch()
        self._held.close()

    def _close_logs(self, *, flush: bool) -> None:
        with self._lock:
            self._closed = True
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close(flush=flush)


def _stored(folder: Path) -> list[tuple[str, int]]:
    """Topic and partition of each log in a data folder."""
    found = []
    for path in folder.iterdir():
        topic, dash, number = path.name.rpartition("-")
        if path.is_dir() and topic and dash and number.isdigit():
            if any(path.glob("*.log")):
                raise KitError(f"{path} is a log of Kafka 0.8: start the cluster with that generation, or elsewhere")
            found.append((topic, int(number)))
    return sorted(found)
