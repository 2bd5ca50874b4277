"""Fetches jars of pinned versions, with Maven or without, and checks them against lock files.

Fetches jars of pinned versions: from the cache, else by Maven or by Python, always checked against a lock file.

Package data `poms/<version>.xml` names the artifacts, `poms/<version>.txt` locks every jar. The cache is
`~/.cache/zkconsumer/jars/<version>/`; a folder there is complete or absent, because it is filled elsewhere and renamed,
under a file lock. A complete cache needs no network.

Environment:
    ZKCONSUMER_CACHE: another folder instead of `~/.cache/zkconsumer`.
    ZKCONSUMER_MAVEN_REPOSITORY: base address of a repository in Maven layout; the jars are then fetched by Python
    alone, also where Maven is installed.

Downloads locked jars without Maven: from a given repository, a mirror of Maven's settings, or Maven Central by jgo.

The address of a repository comes from the environment variable ZKCONSUMER_MAVEN_REPOSITORY, else from the mirror of
`central` in `~/.m2/settings.xml` (with the user name and password of the server of the same id). Without both, the
Python package jgo, a Maven client, fetches from Maven Central. All of them use the proxies of the environment
(`https_proxy`, `no_proxy`). The proxies of `settings.xml` are used by Maven alone.

Lock files of pinned jars: which file of which repository path, with its SHA-256 and size.

One line `group:artifact:version[:classifier] sha256 size` for each jar.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from zkconsumer.testing.errors import JarMismatch, KitError, MavenMissing
from zkconsumer.testing.waiting import Deadline


@dataclass(frozen=True)
class LockedJar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size_bytes: int

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}{':' + self.classifier if self.classifier else ''}"

    @property
    def file_name(self) -> str:
        """Name Maven gives the file: `artifact-version[-classifier].jar`."""
        return f"{self.artifact}-{self.version}{'-' + self.classifier if self.classifier else ''}.jar"

    @property
    def repository_path(self) -> str:
        """Its path below the base address of a repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


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


def check(folder: Path, locked: Sequence[LockedJar]) -> None:
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


REPOSITORY_VARIABLE = "ZKCONSUMER_MAVEN_REPOSITORY"
SETTINGS = Path(".m2", "settings.xml")
ANSWER_S = 60.0
TRIES = 3
RETRY_S = 0.5
REMEDY = f"look at the proxy (https_proxy), or set {REPOSITORY_VARIABLE} to a repository that this machine reaches"
UNKNOWN_AUTHORITY = (
    "this machine does not know the authority of that certificate, as behind a proxy that inspects TLS: set "
    "SSL_CERT_FILE and REQUESTS_CA_BUNDLE to a PEM file that has it"
)
_MIRRORS_OF_CENTRAL = ("central", "*", "external:*")
_ENVIRONMENT = re.compile(r"\$\{env\.(\w+)\}")


@dataclass(frozen=True)
class Repository:
    """A repository in Maven layout.

    Attributes:
        address: base address.
        credentials: `user:password` for HTTP basic authentication; None without.
    """

    address: str
    credentials: str | None = None

    def fetch(self, jar: LockedJar, folder: Path) -> None:
        """Write one jar into a folder; OSError or ValueError when it cannot be fetched."""
        address = f"{self.address.rstrip('/')}/{jar.repository_path}"
        request = urllib.request.Request(address)
        if self.credentials is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.credentials.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            # One byte more than expected suffices: the size is wrong.
            (folder / jar.file_name).write_bytes(response.read(jar.size_bytes + 1))


def known_repository() -> Repository | None:
    """The repository of the environment, else the mirror of `central` in Maven's settings; None without both.

    Raises:
        MavenMissing: the settings cannot be read, or their password is encrypted.
    """
    address = os.environ.get(REPOSITORY_VARIABLE)
    if address:
        return Repository(address)
    path = Path.home() / SETTINGS
    return mirror_of_central(path) if path.is_file() else None


def mirror_of_central(settings: Path) -> Repository | None:
    """The mirror that a file of Maven settings has for Maven Central; None if it has none.

    Raises:
        MavenMissing: the file cannot be read, or the mirror's password is encrypted.
    """
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise MavenMissing(f"{settings} cannot be read: {error}; fix it, or set {REPOSITORY_VARIABLE}") from error
    mirrors = [(_text(each, "mirrorOf"), each) for each in root.iterfind("{*}mirrors/{*}mirror")]
    # Maven prefers a mirror of exactly this repository to one with a pattern.
    mirrors.sort(key=lambda pair: pair[0] != "central")
    chosen = next((each for pattern, each in mirrors if mirrors_central(pattern)), None)
    if chosen is None:
        return None
    servers = root.iterfind("{*}servers/{*}server")
    server = next((each for each in servers if _text(each, "id") == _text(chosen, "id")), None)
    return Repository(_text(chosen, "url"), None if server is None else _credentials(server, settings))


def mirrors_central(pattern: str) -> bool:
    """Whether a `mirrorOf` of Maven's settings covers Maven Central: `central`, `*`, `external:*`, not `*,!central`."""
    parts = [part.strip() for part in pattern.split(",")]
    return "!central" not in parts and any(part in _MIRRORS_OF_CENTRAL for part in parts)


def _credentials(server: ElementTree.Element, settings: Path) -> str | None:
    user, password = _text(server, "username"), _text(server, "password")
    if re.fullmatch(r".*\{.*\}.*", password):
        raise MavenMissing(
            f"{settings}: the password of server {_text(server, 'id')} is encrypted, which only Maven can read; "
            f"install Maven 3, or set {REPOSITORY_VARIABLE} to an address with user and password"
        )
    return f"{user}:{password}" if user else None


def _text(element: ElementTree.Element, name: str) -> str:
    """The text of a child, with `${env.NAME}` replaced as Maven does."""
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return _ENVIRONMENT.sub(lambda match: os.environ.get(match[1], match[0]), text)


def download(repository: Repository, locked: Sequence[LockedJar], folder: Path, timeout_s: float) -> None:
    """Fetch the jars from a repository into a folder; their sizes and hashes are not checked here.

    Args:
        timeout_s: no try starts later.

    Raises:
        MavenMissing: one of them could not be fetched; names its address.
    """
    deadline = Deadline(timeout_s)
    for jar in locked:
        what = f"{repository.address.rstrip('/')}/{jar.repository_path}"
        _try_often(partial(repository.fetch, jar, folder), what, deadline)


def download_by_jgo(locked: Sequence[LockedJar], folder: Path, timeout_s: float) -> None:
    """Fetch the jars from Maven Central by the package jgo into a folder; sizes and hashes are not checked here.

    Args:
        timeout_s: no try starts later.

    Raises:
        MavenMissing: one of them could not be fetched.
    """
    deadline = Deadline(timeout_s)
    for jar in locked:
        _try_often(partial(_fetch_by_jgo, jar, folder), f"{jar} of Maven Central", deadline)


def _fetch_by_jgo(jar: LockedJar, folder: Path) -> None:
    from jgo.maven import MavenContext

    # Each try has its own local repository: jgo takes what is in one for whole, also the part of a broken download.
    with tempfile.TemporaryDirectory(prefix="zkconsumer-jgo-") as repository:
        context = MavenContext(repo_cache=Path(repository), timeout=int(ANSWER_S))
        artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact(jar.classifier)
        shutil.copyfile(artifact.resolve(), folder / jar.file_name)


def _try_often(fetch: Callable[[], None], what: str, deadline: Deadline) -> None:
    """Fetch a file; try again after a failure that may pass."""
    for left in reversed(range(TRIES)):
        try:
            fetch()
        except (OSError, HTTPException, ValueError, RuntimeError) as error:  # RuntimeError is jgo's for any refusal
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            untrusted = "CERTIFICATE_VERIFY_FAILED" in str(error)
            if refused or untrusted or isinstance(error, ValueError) or not left or deadline.expired:
                remedy = UNKNOWN_AUTHORITY if untrusted else REMEDY
                raise MavenMissing(f"{what} could not be fetched: {error}; {remedy}") from error
            time.sleep(RETRY_S)
        else:
            return


POMS = Path(__file__).parents[1] / "poms"
COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
CACHE_VARIABLE = "ZKCONSUMER_CACHE"
FETCH_TIMEOUT_S = 600.0


def known_versions() -> list[str]:
    """Names of all pinned sets of jars: Kafka versions (`0.8.2.2`), `zk-3.9` and other ZooKeepers."""
    return sorted(path.stem for path in POMS.glob("*.xml") if path.with_suffix(".txt").exists())


def needs_of(version: str) -> str:
    """The needs of programs of a pinned version on this machine; jars that are cached already need nothing."""
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
    """Fetch into a temporary folder next to the final one, check, rename."""
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
