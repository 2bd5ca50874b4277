"""Archives of loaded classes (Java's class data sharing), with which a server starts in a third less CPU time.

Rules, and which failure each prevents:

- An archive belongs to one Java and one list of jars, with their sizes and times. Java itself checks that again, and
  starts without an archive that does not fit.
- The first server has Java write the archive when it ends, into its own folder. It is copied into the cache and gets
  its name there only if Java ended in order: a JVM that is killed while it writes leaves nothing that another one would
  load.
- If nothing can be written, servers start without an archive, as the first one did.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zkconsumer.testing.java.maven import cache_folder
from zkconsumer.testing.java.runtime import Java

ENDED_BY_SIGTERM = (0, 143, -15)
"""What Java ends with after SIGTERM, when its shutdown hooks are done and the archive is written."""
log = logging.getLogger(__name__)


class ClassArchive:
    """The archive for one start of a server: the one in the cache, or one that this server is to write.

    Args:
        java: The Java runtime that will load it.
        jars: The class path.
        folder: The folder of the server, for an archive that is not in the cache yet.
    """

    def __init__(self, java: Java, jars: Sequence[Path], folder: Path) -> None:
        self._path = cache_folder() / "classes" / f"{_name(java, jars)}.jsa"
        self._written = folder / "classes.jsa"
        self.is_missing = not os.path.isfile(self._path)  # also if the folder may not be read
        """Whether this server is to write it, for which it has to end in order."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the JVM; what Java reports of archives stays out of the server's log."""
        quiet = "-Xlog:cds*=off"
        if self.is_missing:
            return (quiet, f"-XX:ArchiveClassesAtExit={self._written}")
        return (quiet, f"-XX:SharedArchiveFile={self._path}")

    def keep(self, exit_code: int | None) -> None:
        """Put the archive that Java has written into the cache; without one, or after a kill, nothing happens."""
        if not self.is_missing or exit_code not in ENDED_BY_SIGTERM or not self._written.is_file():
            return
        own = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._written, own)
            own.replace(self._path)
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
