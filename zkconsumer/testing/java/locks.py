"""Lock files of pinned jars: which file of which repository path, with its SHA-256 and size.

One line `group:artifact:version[:classifier] sha256 size` for each jar.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zkconsumer.testing.errors import JarMismatch


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
