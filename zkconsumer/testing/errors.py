"""Errors of the test kit.

KitError
├── JavaMissing      no usable Java runtime on this machine
├── MavenMissing     the jars are not cached and nothing can fetch them
├── DockerMissing    no Docker engine answers, or testcontainers is not installed
├── JarMismatch      a jar differs from its lock file
├── StartFailed      a server ended or stayed silent while it was started
├── NoSession        ZooKeeper opened no session for the kit, or refused its login
├── NotSupported     this version of Kafka cannot do what was asked
└── WaitTimeout      a condition did not come true within its deadline
"""
# The names say what happened; the suffix "Error" would only repeat the name of their base class.
# ruff: noqa: N818

from __future__ import annotations

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
