"""Archives of loaded classes (Java's class data sharing), with which a JVM starts in much less CPU time.

Rules, and which failure each prevents:

- An archive belongs to one Java and one list of jars, with their sizes and times. Java itself checks that again, and
  starts without an archive that does not fit.
- The first JVM has Java write the archive when it ends, into its own folder. It is copied into the cache and gets its
  name there only if Java ended in order: a JVM that is killed while it writes leaves nothing that another would load.
- JVMs that start meanwhile do without one. A lock says that somebody is at it; it ends with the process that holds it.
- If nothing can be written, all start without an archive, as the first one did.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from zkconsumer.testing.java.maven import cache_folder
from zkconsumer.testing.java.runtime import Java

ENDED_BY_SIGTERM = (0, 143, -15)
"""What Java ends with after SIGTERM, when its shutdown hooks are done and the archive is written."""
log = logging.getLogger(__name__)


class ClassArchive:
    """The archive for one start of a program: the one in the cache, or one that this JVM is to write.

    Args:
        java: The Java runtime that will load it.
        jars: The class path.
        folder: The folder of the program, for an archive that is not in the cache yet.
    """

    def __init__(self, java: Java, jars: Sequence[Path], folder: Path) -> None:
        self._path = cache_folder() / "classes" / f"{_name(java, jars)}.jsa"
        self._written = folder / "classes.jsa"
        self._lock: IO[str] | None = None
        self._exists = os.path.isfile(self._path)  # False also if the folder may not be read
        if not self._exists:
            self._claim()

    def _claim(self) -> None:
        """Be the one that has the archive written, unless another start is at it, or nothing can be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = self._path.with_suffix(".lock").open("a")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            log.info("no archive of classes in %s: %s", self._path.parent, error)
        else:
            self._lock = lock

    @property
    def is_to_be_written(self) -> bool:
        """Whether this JVM is to write it, for which it has to end in order."""
        return self._lock is not None

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the JVM; what Java reports of archives stays out of the program's log."""
        quiet = "-Xlog:cds*=off"
        if self._exists:
            return (quiet, f"-XX:SharedArchiveFile={self._path}")
        return (quiet, f"-XX:ArchiveClassesAtExit={self._written}") if self.is_to_be_written else (quiet,)

    def keep(self, exit_code: int | None) -> None:
        """Put the archive that Java has written into the cache; without one, or after a kill, nothing happens."""
        if self._lock is None:
            return
        if exit_code in ENDED_BY_SIGTERM and self._written.is_file():
            self._move()
        self._lock.close()
        self._lock = None

    def _move(self) -> None:
        own = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            shutil.copyfile(self._written, own)
            own.replace(self._path)
            self._exists = True
        except OSError as error:
            log.info("no archive of classes in %s: %s", self._path.parent, error)
            with suppress(OSError):
                own.unlink(missing_ok=True)


def _name(java: Java, jars: Sequence[Path]) -> str:
    """A name that another Java, and other jars, do not get."""
    parts = [str(java.version)]
    for file in (java.program.resolve(), *jars):
        found = file.stat()
        parts.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
