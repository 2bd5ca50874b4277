"""Fetches jars of pinned versions: from the cache, else by Maven, always checked against a lock file.

Package data `poms/<version>.xml` names the artifacts, `poms/<version>.txt` locks every jar: one line
`group:artifact:version[:classifier] sha256 size` each. The cache is `~/.cache/zkconsumer/jars/<version>/`; a folder
there is complete or absent, because it is filled elsewhere and renamed, under a file lock. A complete cache needs no
network.

Environment:
    ZKCONSUMER_CACHE: another folder instead of `~/.cache/zkconsumer`.
    ZKCONSUMER_MAVEN_REPOSITORY: base address of a repository in Maven layout; the jars are then fetched by Python
    alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.testing.errors import JarMismatch, KitError, MavenMissing
from zkconsumer.testing.waiting import Deadline

POMS = Path(__file__).parents[1] / "poms"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
CACHE_VARIABLE = "ZKCONSUMER_CACHE"
REPOSITORY_VARIABLE = "ZKCONSUMER_MAVEN_REPOSITORY"
FETCH_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class LockedJar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """Name Maven gives the file: `artifact-version[-classifier].jar`."""
        return f"{self.artifact}-{self.version}{'-' + self.classifier if self.classifier else ''}.jar"

    @property
    def repository_path(self) -> str:
        """Its path below the base address of a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def known_versions() -> list[str]:
    """Names of all pinned sets of jars: Kafka versions (`0.8.2.2`), `zk-3.9` and other ZooKeepers."""
    return sorted(path.stem for path in POMS.glob("*.xml") if path.with_suffix(".txt").exists())


def parse_lock(text: str) -> list[LockedJar]:
    """The jars a lock file names.

    Raises:
        ValueError: a line is not `group:artifact:version[:classifier] sha256 size`.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            coordinates, sha256, size = line.split()
            group, artifact, version, *classifier = coordinates.split(":")
            jars.append(LockedJar(group, artifact, version, "".join(classifier), sha256, int(size)))
        except ValueError as error:
            raise ValueError(f"line {number} of the lock file: {line!r}: {error}") from error
    return jars


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for everything the kit keeps between runs."""
    chosen = (os.environ if environment is None else environment).get(CACHE_VARIABLE)
    return Path(chosen) if chosen else Path.home() / ".cache" / "zkconsumer"


def jars(version: str) -> list[Path]:
    """Paths of all jars of a pinned version, fetched if need be.

    Raises:
        KitError: the version is not pinned.
        MavenMissing: the jars are not cached and nothing is there to fetch them with, or the fetch failed.
        JarMismatch: a jar differs from the lock file.
    """
    return list(_jars(version, cache_folder()))


@functools.cache  # the hashes are checked once per process
def _jars(version: str, cache: Path) -> tuple[Path, ...]:
    if version not in known_versions():
        raise KitError(f"no jars are pinned for {version}; known: {', '.join(known_versions())}")
    locked = parse_lock((POMS / f"{version}.txt").read_text())
    folder = cache / "jars" / version
    with file_lock(cache / "jars" / f"{version}.lock"):
        if not folder.is_dir():
            _fill(version, locked, folder)
    check(folder, locked)
    return tuple(folder / jar.file_name for jar in locked)


def check(folder: Path, locked: list[LockedJar]) -> None:
    """Return if `folder` holds exactly the locked jars.

    Raises:
        JarMismatch: one is missing, too many, or differs in size or SHA-256.
    """
    extra = {path.name for path in folder.glob("*.jar")} - {jar.file_name for jar in locked}
    if extra:
        raise JarMismatch(f"{folder} holds jars that the lock file does not name: {', '.join(sorted(extra))}")
    for jar in locked:
        path = folder / jar.file_name
        if not path.is_file():
            raise JarMismatch(f"{path} is missing")
        size = path.stat().st_size
        if size != jar.size_bytes:
            raise JarMismatch(f"{path} has {size} bytes, its lock file says {jar.size_bytes}")
        with path.open("rb") as file:  # in pieces: one of them has 650 MB
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != jar.sha256:
            raise JarMismatch(f"{path} has SHA-256 {digest}, its lock file says {jar.sha256}")


@contextlib.contextmanager
def file_lock(path: Path, timeout_s: float = FETCH_TIMEOUT_S) -> Iterator[None]:
    """Holds an exclusive lock on `path` between processes.

    Raises:
        KitError: another process held it all the time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = Deadline(timeout_s)
    with path.open("a") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if deadline.expired:
                    raise KitError(f"{path} was locked by another process for {timeout_s:g} s") from None
                time.sleep(0.1)
        yield


def _fill(version: str, locked: list[LockedJar], folder: Path) -> None:
    """Fetch into a temporary folder beside the final one, check, rename."""
    work = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=folder.parent))
    try:
        repository = os.environ.get(REPOSITORY_VARIABLE)
        if repository:
            _download(repository, locked, work)
        else:
            _run_maven(version, work)
        check(work, locked)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_maven(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenMissing(
            f"the jars of {version} are not in {cache_folder() / 'jars'} and there is no mvn on PATH; install Maven 3, "
            f"or set {REPOSITORY_VARIABLE} to the base address of a Maven repository"
        )
    command = [maven, "-q", "-B", "-f", str(POMS / f"{version}.xml"), COPY_DEPENDENCIES, f"-DoutputDirectory={folder}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise MavenMissing(f"Maven did not fetch the jars of {version} within {FETCH_TIMEOUT_S:g} s") from error
    if ran.returncode != 0:
        last = "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])
        raise MavenMissing(f"Maven could not fetch the jars of {version} (exit code {ran.returncode}):\n{last}")


def _download(repository: str, locked: list[LockedJar], folder: Path) -> None:
    """Fetch the locked jars from a repository in Maven layout."""
    for jar in locked:
        address = f"{repository.rstrip('/')}/{jar.repository_path}"
        try:
            with urllib.request.urlopen(address, timeout=60) as response:
                # One byte more than expected suffices: the size is wrong.
                (folder / jar.file_name).write_bytes(response.read(jar.size_bytes + 1))
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise MavenMissing(f"{address} could not be fetched: {error}") from error
