"""Fetches jars of pinned versions: from the cache, else by Maven or by Python, always checked against a lock file.

Package data `poms/<version>.xml` names the artifacts, `poms/<version>.txt` locks every jar. The cache is
`~/.cache/zkconsumer/jars/<version>/`; a folder there is complete or absent, because it is filled elsewhere and renamed,
under a file lock. A complete cache needs no network.

Environment:
    ZKCONSUMER_CACHE: another folder instead of `~/.cache/zkconsumer`.
    ZKCONSUMER_MAVEN_REPOSITORY: base address of a repository in Maven layout; the jars are then fetched by Python
    alone, also where Maven is installed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from zkconsumer.testing.errors import KitError, MavenMissing
from zkconsumer.testing.java.download import REPOSITORY_VARIABLE, download, download_by_jgo, known_repository
from zkconsumer.testing.java.locks import LockedJar, check, parse_lock
from zkconsumer.testing.waiting import Deadline

POMS = Path(__file__).parents[1] / "poms"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
CACHE_VARIABLE = "ZKCONSUMER_CACHE"
FETCH_TIMEOUT_S = 600.0


def known_versions() -> list[str]:
    """Names of all pinned sets of jars: Kafka versions (`0.8.2.2`), `zk-3.9` and other ZooKeepers."""
    return sorted(path.stem for path in POMS.glob("*.xml") if path.with_suffix(".txt").exists())


def needs_of(version: str) -> str:
    """What programs of a pinned version need on this machine; jars that are cached already need nothing."""
    if (cache_folder() / "jars" / version).is_dir():
        return "Java"
    by_python = bool(os.environ.get(REPOSITORY_VARIABLE)) or find_spec("jgo") is not None
    return "Java and, the first time, " + ("the network" if by_python else "Maven or jgo")


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
        _fetch(version, locked, work)
        check(work, locked)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _fetch(version: str, locked: list[LockedJar], folder: Path) -> None:
    """Fetch from the repository that the environment names, else by Maven, else by Python alone."""
    maven = None if os.environ.get(REPOSITORY_VARIABLE) else shutil.which("mvn")
    if maven is not None:
        _run_maven(maven, version, folder)
        return
    repository = known_repository()
    if repository is not None:
        download(repository, locked, folder, FETCH_TIMEOUT_S)
    elif find_spec("jgo") is not None:
        download_by_jgo(locked, folder, FETCH_TIMEOUT_S)
    else:
        raise MavenMissing(
            f"the jars of {version} are not in {cache_folder() / 'jars'}, there is no mvn on PATH, and the package jgo "
            f"is not installed; pip install jgo, or install Maven 3, or set {REPOSITORY_VARIABLE} to the base address "
            "of a Maven repository"
        )


def _run_maven(maven: str, version: str, folder: Path) -> None:
    command = [maven, "-q", "-B", "-f", str(POMS / f"{version}.xml"), COPY_DEPENDENCIES, f"-DoutputDirectory={folder}"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False, cwd=folder)
    except subprocess.TimeoutExpired as error:
        raise MavenMissing(f"Maven did not fetch the jars of {version} within {FETCH_TIMEOUT_S:g} s") from error
    if ran.returncode != 0:
        last = "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])
        raise MavenMissing(f"Maven could not fetch the jars of {version} (exit code {ran.returncode}):\n{last}")
