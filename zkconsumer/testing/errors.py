"""Errors of the test kit, and what each version of Kafka can do.

Errors of the test kit.

KitError
├── JavaMissing      no usable Java runtime on this machine
├── MavenMissing     the jars are not cached and nothing can fetch them
├── DockerMissing    no Docker engine answers, or testcontainers is not installed
├── JarMismatch      a jar differs from its lock file
├── StartFailed      a server ended or stayed silent while it was started
├── NoSession        ZooKeeper opened no session for the kit, or refused its login
├── NotSupported     this version of Kafka cannot do what was asked
└── WaitTimeout      a condition did not come true within its deadline

Also the abilities of the versions of Kafka, and the error for a request that a version cannot serve.
"""

# The names say what happened; the suffix "Error" would only repeat the name of their base class.
# ruff: noqa: N818

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer_error import ZkConsumerError


class KitError(ZkConsumerError):
    """Anything the test kit itself has to complain about."""

    _kept_characters = "\n\t"  # ends of logs


class JavaMissing(KitError):
    """No Java runtime of the needed version was found; the sentence says what to install."""


class MavenMissing(KitError):
    """Jars are needed that are not cached, and nothing on this machine can fetch them, or the fetch failed."""


class DockerMissing(KitError):
    """Containers are wanted, and there is no Docker engine on this machine, or no testcontainers to talk to it."""


class JarMismatch(KitError):
    """A jar's size or SHA-256 differs from the lock file."""


class StartFailed(KitError):
    """A child process ended, or never answered, while it was being started; carries the end of its log."""


class NoSession(KitError):
    """ZooKeeper opened no session for the kit, or refused its login; the sentence names the cause and the remedy."""


class NotSupported(KitError):
    """The chosen version of a server has no means for this operation."""


class WaitTimeout(KitError, TimeoutError):
    """A condition did not come true in time; the sentence names the condition, the limit and the last state."""


CODECS: Mapping[str, tuple[int, ...]] = {"none": (0, 7), "gzip": (0, 7), "snappy": (0, 7), "lz4": (0, 8, 2)}
"""Codec -> the first version of Kafka that knows it, of those whose brokers the kit writes to."""
FIRST_WITHOUT_OLD_REQUESTS = (4, 0)
"""The first version of Kafka whose brokers take no messages in the formats before record batches (KIP-896)."""
FIRST_WITH_KEYS = (0, 8)
FIRST_WITH_TOMBSTONES = (0, 8, 1)


def version_tuple(version: str) -> tuple[int, ...]:
    """`"0.8.2.2"` -> `(0, 8, 2, 2)`."""
    return tuple(int(part) for part in version.split("."))


def require(version: str, minimum: tuple[int, ...], what: str) -> None:
    """Return if this version is not older than `minimum`.

    Args:
        what: what needs that version; starts the sentence of the error.

    Raises:
        NotSupported: it is older.
    """
    if version_tuple(version) < minimum:
        raise refused(version, minimum, what)


def refused(version: str, minimum: tuple[int, ...], what: str) -> NotSupported:
    """Return the error of `require`."""
    return NotSupported(f"{what} needs Kafka {'.'.join(map(str, minimum))} or newer, this is {version}")


def check_codec(version: str, codec: str) -> None:
    """Return if brokers of this version know the codec.

    Raises:
        NotSupported: they do not.
        ValueError: there is no such codec.
    """
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r}: known are {', '.join(CODECS)}")
    require(version, CODECS[codec], f"codec {codec}")
