"""A broker's data folder: its logs, the lock, the mark of a clean stop, and the thread that flushes and expires.

Files as in the Java broker: `.lock`, `.kafka_cleanshutdown`, `recovery-point-offset-checkpoint` (text: version 0,
number of lines, then `topic partition offset`), and a folder `<topic>-<partition>` for each partition.

Source: kafka.log.LogManager, kafka.server.OffsetCheckpoint (0.8.2.2).
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Generic, TypeVar

from zkconsumer.testing.embedded.disk.log import LogSettings, PartitionLog
from zkconsumer.testing.errors import KitError

CLEAN_MARK: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
CHECKPOINT: Final = "recovery-point-offset-checkpoint"
STOP_TIMEOUT_S: Final = 10.0
Log = TypeVar("Log", bound=PartitionLog)
_log = logging.getLogger(__name__)


def hold(folder: Path) -> IO[str]:
    """The lock file of a data folder, which is made if need be; closing it gives the folder up.

    Raises:
        KitError: the folder cannot be written, or another cluster, in this process or another one, uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = (folder / LOCK).open("w")
    except OSError as error:
        raise KitError(f"the data folder {folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise KitError(f"the data folder {folder} belongs to another running broker") from None
    return held


class LogStorage(Generic[Log]):
    """The open logs of one broker.

    Threads: every method from any thread.
    """

    def __init__(self, folder: Path, make: Callable[..., Log], *, check_interval_s: float = 1.0) -> None:
        """Take a data folder.

        Args:
            folder: made if need be.
            make: opens a log, given the arguments of `PartitionLog`.
            check_interval_s: how often flushing by time and retention are looked at.

        Raises:
            KitError: the folder cannot be written, or another broker, in this process or another one, holds it.
        """
        self.folder = folder
        self._held = hold(folder)
        mark = folder / CLEAN_MARK
        self.was_clean = mark.exists()
        mark.unlink(missing_ok=True)
        self._make = make
        self._logs: dict[tuple[str, int], Log] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._check_interval_s = check_interval_s
        self._keeper = threading.Thread(target=self._keep, name=f"log keeper of {folder.name}", daemon=True)
        self._keeper.start()

    def open(self, topic: str, partition: int, settings: LogSettings, *, clean: bool | None = None) -> Log:
        """Return the log of a partition, opened or made if need be.

        Args:
            clean: whether its files were closed in order; None: as the whole folder was.
        """
        with self._lock:
            log = self._logs.get((topic, partition))
            if log is None:
                was_clean = self.was_clean if clean is None else clean
                log = self._make(self.folder, topic, partition, settings, clean=was_clean)
                self._logs[topic, partition] = log
            return log

    def release(self, topic: str, partition: int, *, delete: bool = False) -> None:
        """Close a log if it is open; with `delete` remove its files."""
        with self._lock:
            log = self._logs.pop((topic, partition), None)
        if log is not None:
            log.close(flush=not delete)
        if delete:
            shutil.rmtree(self.folder / f"{topic}-{partition}", ignore_errors=True)

    def _keep(self) -> None:
        while not self._stopped.wait(self._check_interval_s):
            with self._lock:
                logs = list(self._logs.values())
            for log in logs:
                try:
                    log.flush_if_due()
                    log.apply_retention()
                except OSError as error:
                    _log.warning("%r could not be flushed or shortened: %s", log, error)

    def close(self, *, clean: bool = True) -> None:
        """Close all logs and give the folder up; `clean` flushes them and leaves the mark, else all stays as it is."""
        self._stopped.set()
        self._keeper.join(STOP_TIMEOUT_S)
        with self._lock:
            logs, self._logs = dict(self._logs), {}
        for log in logs.values():
            log.close(flush=clean)
        if clean:
            self._write_checkpoint({key: log.end_offset for key, log in logs.items()})
            (self.folder / CLEAN_MARK).touch()
        self._held.close()

    def _write_checkpoint(self, offsets: dict[tuple[str, int], int]) -> None:
        lines = ["0", str(len(offsets)), *(f"{topic} {p} {offset}" for (topic, p), offset in sorted(offsets.items()))]
        fresh = self.folder / f"{CHECKPOINT}.tmp"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.folder / CHECKPOINT)
