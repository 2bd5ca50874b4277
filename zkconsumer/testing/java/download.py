"""Downloads locked jars without Maven: from a given repository, a mirror of Maven's settings, or Maven Central by jgo.

The address of a repository comes from the environment variable ZKCONSUMER_MAVEN_REPOSITORY, else from the mirror of
`central` in `~/.m2/settings.xml` (with the user name and password of the server of the same id). Without both, the
Python package jgo, a Maven client, fetches from Maven Central. All of them use the proxies of the environment
(`https_proxy`, `no_proxy`). The proxies of `settings.xml` are used by Maven alone.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from xml.etree import ElementTree

from zkconsumer.testing.errors import MavenMissing
from zkconsumer.testing.java.locks import LockedJar
from zkconsumer.testing.waiting import Deadline

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
        raise MavenMissing(f"{settings} cannot be read: {error}; mend it, or set {REPOSITORY_VARIABLE}") from error
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
